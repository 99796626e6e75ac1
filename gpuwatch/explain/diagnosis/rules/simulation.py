"""What simulated GPUs cannot do: reported as their limit, never as a fault of the program or TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_of
from gpuwatch.sim.limits import NO_COMPILER, NOT_CARRIED, computes

CAUSE = "simulation.limit"
_NO_COMPILER = re.compile(r"No JIT device registered|no compiler registered|(?<!device=')XLA_GPU_JIT")
"""TensorFlow's messages for a GPU without a compiler (``common_runtime`` and ``compiler/jit``).

``device='XLA_GPU_JIT'`` is a row in the list of kernels, which TensorFlow prints for any op without a suitable one."""


def lacks_compiler(message: str) -> bool:
    """Whether a message means that XLA has no compiler for a device."""
    return _NO_COMPILER.search(message) is not None


@rule(CAUSE)
def not_honoured(evidence: Evidence) -> Iterator[Finding]:
    """Settings that the simulated GPUs ignore, and numbers that they do not compute."""
    run = evidence.run
    if run is None or not run.simulation_limits:
        return
    if not computes(run.simulation_limits):
        yield warning_of(
            CAUSE,
            title="The program's numbers are meaningless: these simulated GPUs compute only matrix products",
            evidence=run.simulation_limits,
            action="Omit --sim-tier, or use plugin, which computes.",
        )
        return
    limits = tuple(limit for limit in run.simulation_limits if not limit.startswith(NO_COMPILER))
    if not limits:
        return
    title = "A setting of the program is not honoured on simulated GPUs"
    action = "Check its effect on a real GPU; --sim-tier driver has CUDA's own allocators too."
    if any(limit.startswith(NOT_CARRIED.removeprefix("gpuwatch: ")) for limit in limits):
        action = "Start its Python without -I, -E and -S: the simulation needs PYTHONPATH to carry settings over."
    yield warning_of(CAUSE, title=title, evidence=limits, action=action)


@rule(CAUSE)
def no_compiler(evidence: Evidence) -> Iterator[Finding]:
    """The program requested XLA (``jit_compile=True``), which has no compiler for simulated GPUs that compute."""
    run = evidence.run
    if run is None or run.simulation != "plugin":
        return
    messages = [f"{error.type}: {error.message}" for error in run.errors]
    lines = [line.strip() for text in (*messages, *run.log_tail) for line in text.splitlines()]
    found = [limit for limit in run.simulation_limits if limit.startswith(NO_COMPILER)]
    found += [line[:300] for line in lines if lacks_compiler(line)]
    if found:
        yield finding(
            CAUSE,
            "error" if run.verdict == "error" else "warning",
            title="jit_compile=True was requested, but simulated GPUs have no XLA",
            evidence=found[:3],
            action="Omit jit_compile=True on simulated GPUs, or set it to False; a real GPU has XLA.",
        )
