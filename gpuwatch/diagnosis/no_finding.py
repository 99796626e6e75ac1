"""What is said where no rule found anything: not more than what was looked at allows."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding
from gpuwatch.logs.facts import LogFacts
from gpuwatch.model.findings import Finding

NO_GPU_NAMED = "Nothing that failed was found, but the log names no GPU: TensorFlow may have run on the CPU"
NOTHING_KNOWN = "Nothing that gpuwatch knows was found: is it the log of a TensorFlow or PyTorch program?"
_DEVICE_UNKNOWN = "No problems found; the log does not tell on which device the work ran"
OF_A_PART = frozenset({NO_GPU_NAMED, NOTHING_KNOWN})
"""Titles that the rest of a log may prove wrong."""


def nothing_found(evidence: Evidence, others: Iterable[Finding] = ()) -> Finding:
    """Healthy, in words that claim less where all that there is to judge by is a log that names no GPU; ``unknown``
    where it holds nothing at all that is known.

    TensorFlow names every GPU that it takes after its start. That it names none has many reasons: a CPU build,
    hidden log lines, and (from 2.21 on) NVML that does not work. PyTorch names no GPU in any case, and what was cut
    out of a log need not. ``others``: remarks that rules made.
    """
    log = evidence.log
    if log is None or evidence.run is not None or evidence.snapshot is not None or _names_a_gpu(log):
        return finding("healthy", "info", "likely")
    started = log.lines_of("tensorflow.started")[-1:]
    placed = sum(placement.count for placement in log.placements)
    if not started and not placed:
        if not log.frameworks and not log.errors and not any(others):
            return finding("unknown", "info", "likely", title=NOTHING_KNOWN)
        return finding("healthy", "info", "likely", title=_DEVICE_UNKNOWN)
    return finding(
        "healthy",
        "info",
        "likely",
        title=NO_GPU_NAMED,
        evidence=(
            *started,
            f"none of its {log.lines} line{'s' if log.lines != 1 else ''} tells of a GPU that was found or taken",
            f"{placed} ops were placed, all of them on the CPU" if placed else "",
            "a build without GPU support prints no more, nor does 2.21 or newer where NVML does not work, nor any"
            " version under TF_CPP_MIN_LOG_LEVEL=1",
        ),
        action="Run gpuwatch doctor where this was run: it tells whether TensorFlow gets a GPU, and else why not."
        " gpuwatch run -- python train.py tells it of the program itself.",
    )


def _names_a_gpu(log: LogFacts) -> bool:
    known = log.device_map or log.seen_pci or log.cards or log.ignored_gpus or log.smi_processes or log.ooms
    driver_seen = log.found_device_lines or log.kernel_driver or {"device.used", "driver.answered"} & set(log.topics)
    in_lines = any("GPU" in line for lines in log.evidence.values() for line in lines)
    return bool(known or driver_seen or in_lines) or any("GPU" in placement.actual for placement in log.placements)
