"""Explains files that are no logs: memory of TensorFlow, PyTorch and JAX, results of ``dcgmi diag -j``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from gpuwatch.core import input_size_limits
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.explanation import Explanation, FileKind, GpuTest
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run import Oom
from gpuwatch.explain.diagnosis.explain_log import explain_facts
from gpuwatch.explain.diagnosis.rule_registry import error_finding, info_finding, warning_finding
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.traces import (
    InvalidTrace,
    dcgm_diagnostic,
    jax_pprof,
    safe_pickle,
    tensorflow_xplane,
    torch_memory_timeline,
)
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from gpuwatch.explain.traces.memory_profiles import tensorflow_profiles, torch_profiles

START_BYTES = 1 << 16
"""Bytes from the start of a file that are enough to recognize its kind."""
LIMITS: dict[FileKind, input_size_limits.Limit] = {
    "TensorFlow profile": input_size_limits.TENSORFLOW_PROFILE,
    "PyTorch snapshot": input_size_limits.ALLOCATOR_SNAPSHOT,
    "PyTorch memory timeline": input_size_limits.MEMORY_TIMELINE,
    "JAX memory profile": input_size_limits.JAX_PROFILE,
    "DCGM diagnostic": input_size_limits.DCGM,
}
_SOFTWARE_CATEGORIES = frozenset({"deployment", "software"})
"""DCGM's categories of tests that say nothing of the hardware."""
_KINDS: dict[FileKind, tuple[Callable[[bytes], bool], Callable[[bytes], Iterable[MemoryProfile]] | None]] = {
    "TensorFlow profile": (tensorflow_xplane.is_xplane, lambda content: tensorflow_profiles([(content, 0.0, None)])),
    "PyTorch snapshot": (safe_pickle.is_pickle, torch_profiles),
    "PyTorch memory timeline": (
        torch_memory_timeline.is_timeline,
        lambda content: [torch_memory_timeline.profile(content)],
    ),
    "JAX memory profile": (jax_pprof.is_pprof, jax_pprof.profiles),
    "DCGM diagnostic": (dcgm_diagnostic.is_diagnostic, None),
}
"""How each kind is recognized, and read if it is of memory."""


def file_kind(start: bytes) -> FileKind | None:
    """What a file is by its first :data:`START_BYTES`; None for a log."""
    return next((kind for kind, (recognizes, _) in _KINDS.items() if recognizes(start)), None)


def explain_trace_file(kind: FileKind, content: bytes, source: str) -> Explanation:
    """The explanation of a whole file; :class:`InvalidTrace` if it cannot be read."""
    _, read = _KINDS[kind]
    if read is None:
        return _explanation_of_tests(dcgm_diagnostic.read(content), source)
    profiles = tuple(read(content))
    if not profiles:
        raise InvalidTrace("it contains no allocations: nothing used memory during the recording")
    found = _explanation_of_failures(profiles, source)
    return replace(found, kind=kind, memory_profiles=profiles)


def _explanation_of_failures(profiles: tuple[MemoryProfile, ...], source: str) -> Explanation:
    """The explanation of the refused requests, if there were any."""
    failed = [profile for profile in profiles if profile.failed_bytes is not None]
    framework = {"torch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}[(failed or profiles)[0].tool]
    if not failed:
        return Explanation(source=source, lines=0, frameworks=(framework,))
    ooms = [
        Oom(
            device=profile.device,
            allocator="pytorch",
            requested_bytes=profile.failed_bytes,
            in_use_bytes=profile.moments[-1].in_use_bytes if profile.moments else None,
            device_free_bytes=profile.device_free_bytes,
        )
        for profile in failed
    ]
    facts = LogFacts(frameworks=[framework], ooms=ooms)
    found = explain_facts(facts, {}, source=source)
    return replace(found, findings=tuple(_with_largest_holder(found.findings, failed[0])))


def _with_largest_holder(findings: Iterable[Finding], profile: MemoryProfile) -> Iterator[Finding]:
    for found in findings:
        request = (f"the refused request was made by {profile.failed_source}",) if profile.failed_source else ()
        evidence = (*found.evidence, *request, describe_largest_holder(profile))
        yield replace(found, evidence=evidence) if found.id.startswith("memory.") else found


def _explanation_of_tests(result: dcgm_diagnostic.Diagnostic, source: str) -> Explanation:
    findings = tuple(_test_findings(result))
    versions = (f"DCGM {result.version}".removesuffix(" "), f"driver {result.driver}" if result.driver else "")
    return Explanation(
        source=source,
        kind="DCGM diagnostic",
        lines=0,
        frameworks=tuple(filter(None, versions)),
        gpu_tests=result.tests,
        findings=findings,
        primary=findings[0].id if findings else None,
    )


def _test_findings(result: dcgm_diagnostic.Diagnostic) -> Iterator[Finding]:
    failed = [test for test in result.tests if test.status == "fail"]
    hardware = [test for test in failed if test.category.lower() not in _SOFTWARE_CATEGORIES]
    software = [test for test in failed if test not in hardware]
    warned = [test for test in result.tests if test.status == "warn"]
    passed = sum(test.status == "pass" for test in result.tests)
    skipped = sum(test.status == "skip" for test in result.tests)
    if hardware:
        yield error_finding(
            "hardware.fault",
            title=f"dcgmi diag: {_listed_tests(hardware)} failed",
            evidence=_evidence(hardware),
            action="Take the GPU out of service and repeat the test only on it (dcgmi diag -r 3); if it fails again, "
            "have it replaced.",
        )
    if software or result.error:
        failed_tests = f"{_listed_tests(software)} failed, which tests the software" if software else ""
        yield error_finding(
            "unknown",
            title=f"dcgmi diag: {failed_tests or 'the tests could not be run'}",
            evidence=(result.error, *_evidence(software)),
            action="Correct what the test names, and run dcgmi diag again.",
        )
    if warned:
        yield warning_finding(
            "hardware.fault"
            if any(test.category.lower() not in _SOFTWARE_CATEGORIES for test in warned)
            else "unknown",
            title=f"dcgmi diag: {_listed_tests(warned)} ended with a warning",
            evidence=_evidence(warned),
            action="Read the warnings; run dcgmi diag -r 3 for longer tests.",
        )
    if not failed and not warned and not result.error:
        left_out = f", {skipped} skipped" if skipped else ""
        if passed:
            yield info_finding("healthy", title=f"dcgmi diag: {count_text(passed, 'result')} passed{left_out}")
        else:
            yield warning_finding("unknown", title=f"dcgmi diag: nothing was tested{left_out}")


def _listed_tests(tests: list[GpuTest]) -> str:
    """``memory and pcie on GPU 1``."""
    names = list(dict.fromkeys(test.name for test in tests))
    where = list(dict.fromkeys(test.gpus for test in tests if test.gpus))
    shown = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return shown + (f" on {', '.join(where)}" if where else "")


def _evidence(tests: list[GpuTest]) -> tuple[str, ...]:
    listed = ((test, f" on {test.gpus}" if test.gpus else "") for test in tests[:10])
    return tuple(f"{test.name}{gpus}: {'; '.join(test.messages) or f'status {test.status}'}" for test, gpus in listed)
