"""A compute mode that keeps programs out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, rule


@rule("mode.exclusive")
def closed_mode(evidence: Evidence) -> Iterator[Finding]:
    """A compute mode that turns a second program away."""
    for device in evidence.gpus:
        mode = device.get("mode.compute")
        if isinstance(mode, str) and mode.startswith(("exclusive", "prohibited")):
            yield finding(
                "mode.exclusive",
                "warning" if mode == "prohibited" else "info",
                title=f"GPU {device.index} is in compute mode {mode}",
                evidence=[f"NVML: compute mode {mode} on {device.uuid}"],
                action="nvidia-smi -c 0 sets the default mode, in which several programs may share the GPU.",
                device_uuid=device.uuid,
            )
