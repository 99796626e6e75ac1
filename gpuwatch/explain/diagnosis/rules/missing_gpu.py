"""Logs of programs that had no GPU, or did not use it, and do not say why."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import framework_of, gpu_build_advice
from gpuwatch.explain.diagnosis.rule_registry import finding, healthy_finding, likely_warning, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import error_line, names_cause
from gpuwatch.explain.logs.log_ending import reports_completion
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.message_topics import topics_of

_NO_GPU_TOPIC = "gpu.none"
WITHOUT_REASON = ", and the log does not say why"
_XLA_WITHOUT_CUDA = "xla.interpreter"
"""XLA's log of the platforms that it started, without CUDA, not even as a failure."""


def requires_a_gpu(log: LogFacts) -> bool:
    """Whether the last exception says that there is no GPU."""
    return bool(log.errors) and _NO_GPU_TOPIC in topics_of(error_line(log.errors[-1]))


@rule("unknown", "build.cpu-only", needs="log")
def no_gpu_without_why(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """The framework reports no GPU, and nothing in the log says why."""
    if evidence.gpu_usable or evidence.run is not None:
        return
    lines = log.lines_of(_NO_GPU_TOPIC)
    if "device.used" not in log.topics and "devices.xla-gpu" not in log.topics:
        lines += tuple(line for line in log.lines_of("devices.cpu") if "gpu" not in line.lower())
    if not lines or log.ooms or names_cause(log.topics):
        return
    if cpu_build_lines := log.lines_of("build.cpu-wheel", _XLA_WITHOUT_CUDA):
        yield likely_warning(
            "build.cpu-only",
            evidence=(*lines, *cpu_build_lines),
            action=gpu_build_advice(framework_of(evidence, lines)),
        )
        return
    if reports_completion(log.ending_line):
        evidence_lines = (log.ending_line, *lines)
        yield healthy_finding(title="The program finished without a GPU", evidence=evidence_lines)
        return
    required = requires_a_gpu(log)
    yield finding(
        "unknown",
        "error" if required else "warning",
        title=f"The program {'requires a GPU and finds none' if required else 'has no GPU'}{WITHOUT_REASON}",
        evidence=lines,
        action="Run gpuwatch doctor on that machine, or nvidia-smi and the framework's own build information: they"
        " distinguish a missing driver, a hidden GPU and a build without CUDA.",
    )


@rule("unknown", needs="log")
def gpu_not_used(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """The framework says itself that it found a GPU and leaves it."""
    if evidence.run is None and (lines := log.lines_of("gpu.unused")):
        yield warning_finding(
            "unknown",
            title="The program found a GPU and does not use it",
            evidence=lines,
            action="Request it (Lightning: Trainer(accelerator='gpu')), or look for device='cpu', use_cpu=True or"
            " no_cuda=True in its arguments.",
        )
