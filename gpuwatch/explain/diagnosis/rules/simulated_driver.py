"""Features that the simulated driver lacks: limits of the simulation, never faults of driver, library or memory."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice import framework_of
from gpuwatch.explain.diagnosis.reference.advice_table import TORCH
from gpuwatch.explain.diagnosis.rule_registry import finding, rule
from gpuwatch.explain.diagnosis.rules.stated_errors import error_lines
from gpuwatch.sim.libraries import runtime_obstacle

_LIMIT = "simulation.limit"
_PYTORCH = "PyTorch"
"""The setting by which a watched program reports that PyTorch has no simulated GPUs (_gpuwatch_simulated.py)."""


def unreached(run: Run) -> str | None:
    """Why PyTorch has no GPU on a simulated machine, whatever its message; None if it has one."""
    if run.simulation == "plugin" and _PYTORCH in run.settings:
        return run.settings[_PYTORCH].note or "the GPUs are devices of TensorFlow only"
    if run.simulation is None or run.framework is None or run.framework.name != "torch":
        return None
    cuda = run.framework.build.get("cuda_version")
    return runtime_obstacle(str(cuda)) if cuda is not None else None


def says_limit(evidence: Evidence) -> bool:
    """Whether messages about a driver are about a simulated one, which reports itself what it lacks."""
    if evidence.log is not None and _LIMIT in evidence.log.topics:
        return True
    return evidence.run is not None and unreached(evidence.run) is not None


_OF_TORCH = (
    "On simulated ones PyTorch has device map, memory, copies and matrix products; what needs a kernel runs on a real"
    " GPU or on the CPU."
)
_OF_OTHERS = "--sim-tier plugin computes what these simulated ones lack."


@rule(_LIMIT)
def refused(evidence: Evidence) -> Iterator[Finding]:
    """Kernels and functions that the simulated driver rejected, in its own words (gpuwatch/sim/csrc)."""
    lines, expected = error_lines(evidence, _LIMIT)
    reason = unreached(evidence.run) if evidence.run is not None else None
    if reason:  # reported separately, below
        lines = [line for line in lines if reason not in line]
    if lines:
        yield finding(
            _LIMIT,
            "info" if expected else "error",
            title="Only on these simulated GPUs: the simulated driver lacks what the program needs",
            evidence=lines,
            action=f"Nothing to do for a real GPU. {_OF_TORCH if framework_of(evidence) == TORCH else _OF_OTHERS}",
        )


@rule(_LIMIT)
def pytorch_without_a_driver(evidence: Evidence) -> Iterator[Finding]:
    """PyTorch on a machine whose simulated GPUs it cannot use."""
    run = evidence.run
    reason = unreached(run) if run is not None else None
    if run is not None and reason:
        yield finding(
            _LIMIT,
            "error" if run.verdict == "error" else "info",
            title="PyTorch has no GPU here, whatever its message about a driver: these GPUs are simulated",
            evidence=[reason, *(f"{error.type}: {error.message}"[:300] for error in run.errors)],
            action="Use a build for CUDA 12 or 13 with --sim-tier driver: it has its device map, memory, copies and"
            " matrix products.",
        )
