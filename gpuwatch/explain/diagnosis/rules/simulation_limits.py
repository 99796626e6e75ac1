"""What simulated GPUs and their driver cannot do: reported as their limit, never as a fault of anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import TORCH, framework_of
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import error_line, error_lines
from gpuwatch.sim.libraries import runtime_obstacle
from gpuwatch.sim.simulation_limit_messages import NO_XLA, SETTINGS_IGNORED, results_are_meaningful

SIMULATION_LIMIT = "simulation.limit"
"""A cause that says nothing about real GPUs; as the reason of a fallback it does not affect the verdict."""
_NO_COMPILER = re.compile(r"No JIT device registered|no compiler registered|(?<!device=')XLA_GPU_JIT")
"""TensorFlow's messages for a GPU without a compiler (``common_runtime`` and ``compiler/jit``).

``device='XLA_GPU_JIT'`` is a row in the list of kernels, which TensorFlow prints for any op without a suitable one."""
_PYTORCH_SETTING = "PyTorch"
"""The setting by which a watched program reports that PyTorch has no simulated GPUs (_gpuwatch_simulated_gpus.py)."""
_PYTORCH_ACTION = (
    "On simulated GPUs, PyTorch has the device map, memory, copies and matrix products without a bias; anything that "
    "needs another kernel runs only on a real GPU or on the CPU."
)
_LIBRARY_STATUS = re.compile(r"\bCU(?:BLAS|DNN|FFT|SOLVER|SPARSE)_STATUS_\w+")
"""What cuBLASLt, cuDNN and their like return on a simulated GPU, on which they cannot start: they are NVIDIA's own."""
_BEFORE_OWN_WORDS = re.compile(r"^.+(?=gpuwatch: the simulated driver lacks)")
"""What the program wrote before them in that line, such as a progress bar."""
_OTHER_ACTION = "--sim-tier plugin computes what these simulated GPUs lack."


def lacks_compiler(message: str) -> bool:
    """Whether a message means that XLA has no compiler for a device."""
    return _NO_COMPILER.search(message) is not None


@rule(SIMULATION_LIMIT, needs="run")
def settings_not_honored(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Settings that the simulated GPUs ignore, and numbers that they do not compute."""
    if not run.simulation_limits:
        return
    if not results_are_meaningful(run.simulation_limits):
        yield warning_finding(
            SIMULATION_LIMIT,
            title="The program's numbers are meaningless: these simulated GPUs compute only matrix products",
            evidence=run.simulation_limits,
            action="Omit --sim-tier, or use plugin, which computes.",
        )
        return
    limits = tuple(limit for limit in run.simulation_limits if not limit.startswith(NO_XLA))
    if not limits:
        return
    title = "One of the program's settings is not honored on simulated GPUs"
    action = "Check its effect on a real GPU; --sim-tier driver has CUDA's own allocators too."
    if any(limit.startswith(SETTINGS_IGNORED.removeprefix("gpuwatch: ")) for limit in limits):
        action = "Start its Python without -I, -E and -S: the simulation needs PYTHONPATH to carry settings over."
    yield warning_finding(SIMULATION_LIMIT, title=title, evidence=limits, action=action)


@rule(SIMULATION_LIMIT, needs="run")
def no_xla_compiler(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """The program requested XLA (``jit_compile=True``), which has no compiler for simulated GPUs that compute."""
    if run.simulation != "plugin":
        return
    messages = [f"{error.type}: {error.message}" for error in run.errors]
    lines = [line.strip() for text in (*messages, *run.log_tail) for line in text.splitlines()]
    ignored = [limit for limit in run.simulation_limits if limit.startswith(NO_XLA)]
    failed = [line[:300] for line in lines if lacks_compiler(line)]
    if ignored or failed:
        yield finding(
            SIMULATION_LIMIT,
            "error" if failed and run.verdict == "error" else "warning",  # Keras runs uncompiled: an error is another's
            title="jit_compile=True was requested, but simulated GPUs have no XLA",
            evidence=[*ignored, *failed][:3],
            action="Omit jit_compile=True on simulated GPUs, or set it to False; a real GPU has XLA.",
        )


def why_pytorch_has_no_gpu(run: Run) -> str | None:
    """Why PyTorch has no GPU on a simulated machine, whatever its message; None if it has one."""
    if run.simulation == "plugin" and _PYTORCH_SETTING in run.settings:
        return run.settings[_PYTORCH_SETTING].note or "the GPUs are devices of TensorFlow only"
    if run.simulation is None or run.framework is None or run.framework.name != "torch":
        return None
    cuda = run.framework.build.get("cuda_version")
    return runtime_obstacle(str(cuda)) if cuda is not None else None


def is_of_simulated_driver(evidence: Evidence) -> bool:
    """Whether messages about a driver are about a simulated one, which reports itself what it lacks."""
    by_run = evidence.run is not None and why_pytorch_has_no_gpu(evidence.run) is not None
    return by_run or SIMULATION_LIMIT in evidence.log.topics


def errors_of_cuda_libraries(run: Run | None) -> list[str]:
    """Errors of NVIDIA's libraries in a PyTorch program on simulated GPUs, whatever they mean on a real one.

    TensorFlow's are simulated, and say so themselves.
    """
    if run is None or run.simulation != "driver" or run.framework is None or run.framework.name != "torch" or run.ooms:
        return []
    errors = (*run.errors, *(error for process in run.processes for error in process.errors))
    failed = (error_line(error)[:300] for error in errors if _LIBRARY_STATUS.search(error.message))
    return list(dict.fromkeys(failed))


@rule(SIMULATION_LIMIT)
def refused_by_simulated_driver(evidence: Evidence) -> Iterator[Finding]:
    """Kernels and functions that the simulated driver rejected, in its own words (gpuwatch/sim/csrc)."""
    lines, expected = error_lines(evidence, SIMULATION_LIMIT)
    lines = [*errors_of_cuda_libraries(evidence.run), *(_BEFORE_OWN_WORDS.sub("", line) for line in lines)]
    reason = why_pytorch_has_no_gpu(evidence.run) if evidence.run is not None else None
    if reason:  # reported separately, below
        lines = [line for line in lines if reason not in line]
    if lines:
        yield finding(
            SIMULATION_LIMIT,
            "info" if expected else "error",
            title="Only on these simulated GPUs: the simulated driver lacks something the program needs",
            evidence=lines,
            action="Nothing to do for a real GPU. "
            + (_PYTORCH_ACTION if framework_of(evidence) == TORCH else _OTHER_ACTION),
        )


@rule(SIMULATION_LIMIT, needs="run")
def pytorch_without_gpus(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """PyTorch on a machine whose simulated GPUs it cannot use."""
    if reason := why_pytorch_has_no_gpu(run):
        yield finding(
            SIMULATION_LIMIT,
            "error" if run.verdict == "error" else "info",
            title="PyTorch has no GPU here, regardless of its message about a driver: these GPUs are simulated",
            evidence=[reason, *(f"{error.type}: {error.message}"[:300] for error in run.errors)],
            action="Use a build for CUDA 12 or 13 with --sim-tier driver: it has the device map, memory, copies and "
            "matrix products without a bias.",
        )
