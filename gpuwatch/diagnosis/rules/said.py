"""Causes that a line of the log states by itself: the topic is the cause.

To add one: its text in :mod:`gpuwatch.logs.topics`, and a row here.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.diagnosis.rules.placement import error_lines
from gpuwatch.model.findings import Certainty, Finding, Severity

SAID: tuple[tuple[str, Certainty, str], ...] = (
    ("driver.bad-state", "likely", "Reload nvidia_uvm (modprobe -r nvidia_uvm && modprobe nvidia_uvm), or reboot."),
    ("container.lost-devices", "likely", "Recreate the container; a daemon-reload on the host took its GPUs away."),
    (
        "cuda.libraries-missing",
        "likely",
        "Install the CUDA and cuDNN that this version of the framework wants; on Windows Microsoft's Visual C++ runtime"
        " too.",
    ),
    ("cuda.version-mismatch", "fact", "Install the version of the library that the framework was compiled with."),
    ("mode.exclusive", "likely", "Set the compute mode to default (nvidia-smi -c 0), use MPS, or take another GPU."),
    (
        "memory.limit-too-small",
        "likely",
        "Raise gpu_memory_utilization or lower max_model_len; where it is at 0.9 already, the model is too large.",
    ),
    (
        "memory.other-process",
        "likely",
        "Stop the other programs on this GPU, or lower gpu_memory_utilization to what they leave.",
    ),
    ("api.removed", "fact", "Use today's spelling (tf.compat.v1.Session, tf.config, tf.distribute.MirroredStrategy)."),
)
_WARNING_WHEN_MAPPED = frozenset({"cuda.version-mismatch", "cuda.libraries-missing"})


@rule(*(cause for cause, _, _ in SAID))
def said_by_the_log(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each cause that was said in so many words."""
    for cause, certainty, action in SAID:
        lines, expected = error_lines(evidence, cause)
        if not lines:
            continue
        severity: Severity = "error"
        if expected:
            severity = "info"
        elif cause in _WARNING_WHEN_MAPPED and evidence.gpu_usable:
            severity = "warning"
        yield finding(cause, severity, certainty, evidence=lines, action=action)
