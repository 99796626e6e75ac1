"""Several runs side by side: the columns, their cells, and which run is best in a column."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.formatting.units import UNKNOWN, percent, size
from gpuwatch.model.run import Comparison, Run
from gpuwatch.reports import run_content
from gpuwatch.reports.content import clean

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
    if len(timed) > 1:
        fastest = max(timed, key=lambda run: run.throughput.steps_per_second if run.throughput else 0.0)
        best["steps_per_second"] = fastest.config
    # A run on the CPU holds no GPU memory and would always win.
    held = [run for run in usable if run.memory.nvml_peak_bytes and run.device_map]
    if len(held) > 1:
        best["seen_by_nvml"] = min(held, key=lambda run: run.memory.nvml_peak_bytes or 0).config
    return Comparison(runs=tuple(runs), columns=tuple(name for name, _ in COLUMNS), best=best)


def cells(run: Run) -> dict[str, str]:
    """What each column shows of this run; unknown is a dash."""
    share = run_content.on_gpu(run)
    verdict = run.verdict
    if run.primary not in (None, "healthy"):
        verdict_cell = f"{verdict}  {clean(run.primary)}"
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
        "steps_per_second": run_content.speed(run.throughput),
        "verdict": verdict_cell,
    }
