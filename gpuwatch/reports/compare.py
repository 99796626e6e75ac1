"""Several runs side by side: the columns, their cells, and which run is best in a column."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.formatting.units import UNKNOWN, percent, size
from gpuwatch.model.run import Comparison, Run
from gpuwatch.reports import run_content
from gpuwatch.reports.content import clean
from gpuwatch.reports.speed import half_spread, speed

COLUMNS: tuple[tuple[str, str], ...] = (
    ("config", "CONFIG"),
    ("asked", "ASKED"),
    ("granted", "GRANTED"),
    ("seen_by_nvml", "SEEN BY NVML"),
    ("device_map", "DEVICE MAP"),
    ("on_gpu_percent", "ON GPU %"),
    ("fell_back", "FELL BACK"),
    ("steps_per_second", "STEPS/S"),
    ("verdict", "VERDICT"),
)
"""Column id and its heading."""

RIGHT = frozenset({"granted", "seen_by_nvml", "on_gpu_percent", "steps_per_second"})


def compare(runs: Sequence[Run]) -> Comparison:
    """The runs as a comparison. Best: the fastest, and of those that used a GPU the one that held least."""
    best: dict[str, str] = {}
    usable = [run for run in runs if run.verdict in ("ok", "fallback")]
    timed = [run for run in usable if run.throughput is not None]
    timed.sort(key=lambda run: -_steps_per_second(run))
    if len(timed) > 1 and _clearly_faster(timed[0], timed[1]):
        best["steps_per_second"] = timed[0].config
    # A run on the CPU holds no GPU memory and would always win.
    held = [run for run in usable if run.memory.nvml_peak_bytes and run.device_map]
    held.sort(key=lambda run: run.memory.nvml_peak_bytes or 0)
    if len(held) > 1 and held[0].memory.nvml_peak_bytes != held[1].memory.nvml_peak_bytes:
        best["seen_by_nvml"] = held[0].config
    return Comparison(runs=tuple(runs), columns=tuple(name for name, _ in COLUMNS), best=best)


def _steps_per_second(run: Run) -> float:
    return run.throughput.steps_per_second if run.throughput is not None else 0.0


def _clearly_faster(first: Run, second: Run) -> bool:
    """Whether the difference is larger than what either run scatters; else neither is best."""
    if first.throughput is None or second.throughput is None:
        return False
    scatter = max(half_spread(run.throughput) or 0.0 for run in (first, second) if run.throughput)
    return _steps_per_second(first) - _steps_per_second(second) > scatter


def cells(run: Run) -> dict[str, str]:
    """What each column shows of this run; unknown is a dash."""
    share = run_content.on_gpu(run)
    verdict = run.verdict
    if run.primary not in (None, "healthy"):
        verdict_cell = f"{verdict} · {clean(run.primary).rpartition('.')[2]}"
    else:
        verdict_cell = verdict
    if any(error.expected for error in run.errors):
        verdict_cell += " (expected error)"
    return {
        "config": clean(run.config),
        "asked": run_content.asked(run),
        "granted": run_content.granted(run),
        "seen_by_nvml": size(run.memory.nvml_peak_bytes),
        "device_map": run_content.device_map(run),
        "on_gpu_percent": UNKNOWN if share is None else percent(share),
        "fell_back": run_content.fell_back(run),
        "steps_per_second": speed(run.throughput),
        "verdict": verdict_cell,
    }
