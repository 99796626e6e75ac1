"""The map that was observed against the one that was to be expected."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.formatting.units import size
from gpuwatch.logs.clean import device as device_name
from gpuwatch.model.findings import Finding
from gpuwatch.model.run import DeviceMapping, PredictedMapping, Run

_MIB = 1 << 20


@rule("memory.other-process", "unknown")
def against_prediction(evidence: Evidence) -> Iterator[Finding]:
    """Another GPU than expected, or another amount of memory."""
    run = evidence.run
    if run is None or run.predicted is None or run.workers or run.verdict in ("skipped", "timeout"):
        return
    if not run.device_map:
        if run.predicted and not _explained(evidence, run):
            yield finding(
                "unknown",
                "warning",
                "fact",
                title="TensorFlow mapped no GPU, where one was to be expected",
                evidence=[f"expected {_expected(entry)}" for entry in run.predicted],
                action="Read the log from its first line: it should say why the GPUs were dropped.",
            )
        return
    observed = {device_name(mapping.framework_device): mapping for mapping in run.device_map}
    expected = {device_name(entry.framework_device): entry for entry in run.predicted}
    if evidence.log is not None and (evidence.log.ignored_gpus or "build.gpu-jit" in evidence.log.topics):
        return  # the log says itself which GPUs it takes, and why
    other_map = [_differs(name, expected.get(name), observed.get(name)) for name in sorted({*expected, *observed})]
    if any(other_map):
        yield finding(
            "unknown",
            "warning",
            "fact",
            title="The device map is not the one that was to be expected",
            evidence=[line for line in other_map if line],
            action="Compare the settings and the environment of the run with the map; then trust the map.",
        )
        return
    for name, entry in expected.items():
        yield from _amount(run, entry, observed[name])


def _explained(evidence: Evidence, run: Run) -> bool:
    """Whether something else says why there is no GPU (or whether nobody looked)."""
    log = evidence.log
    said = log is not None and bool(
        log.cuinit_error or log.libraries_skipped or log.cudart_missing or log.ignored_gpus or log.hidden_by_environment
    )
    return said or bool(run.errors or run.ooms) or run.verdict in ("error", "oom") or not run.devices.logical


def _differs(name: str, expected: PredictedMapping | None, observed: DeviceMapping | None) -> str:
    if expected is None and observed is not None:
        return f"{name} is physical GPU {observed.physical_index}, not expected at all"
    if observed is None and expected is not None:
        return f"{name} was expected on physical GPU {expected.physical_index}, and is not there"
    if expected is None or observed is None or observed.uuid is None or observed.uuid == expected.uuid:
        return ""
    return (
        f"{name} is physical GPU {observed.physical_index} ({observed.uuid}),"
        f" expected was {expected.physical_index} ({expected.uuid})"
    )


def _amount(run: Run, expected: PredictedMapping, observed: DeviceMapping) -> Iterator[Finding]:
    if expected.granted_bytes is None or observed.granted_bytes is None:
        return
    missing = expected.granted_bytes - observed.granted_bytes
    if abs(missing) <= expected.tolerance_bytes:
        return
    name = device_name(expected.framework_device)
    lines = [f"expected {_expected(expected)}", f"granted {_mib(observed.granted_bytes)}"]
    taken = _taken_meanwhile(run, expected.uuid)
    if missing > 0 and taken is not None and taken >= missing / 2:
        lines.append(f"NVML: other processes took {size(taken)} between the look and the end of the run")
        yield finding(
            "memory.other-process",
            "warning",
            "likely",
            title=f"{name} was granted {size(missing)} less than was free: another process took memory meanwhile",
            evidence=lines,
            action="Compare runs only while nobody else starts on this GPU; run this one again.",
            device_uuid=expected.uuid,
        )
        return
    more_or_less = "less" if missing > 0 else "more"
    yield finding(
        "unknown",
        "warning",
        "fact",
        title=f"{name} was granted {size(abs(missing))} {more_or_less} than was to be expected",
        evidence=lines,
        action="See whether something else used this GPU at the start, or whether a variable changes the reserve.",
        device_uuid=expected.uuid,
    )


def _taken_meanwhile(run: Run, uuid: str) -> int | None:
    for entry in run.memory.devices:
        if entry.uuid == uuid and entry.others_peak_bytes is not None and entry.others_before_bytes is not None:
            return entry.others_peak_bytes - entry.others_before_bytes
    return None


def _expected(entry: PredictedMapping) -> str:
    within = f" ± {entry.tolerance_bytes // _MIB}" if entry.tolerance_bytes else ""
    amount = f"{_mib(entry.granted_bytes)}{within}" if entry.granted_bytes is not None else "an unknown amount"
    return f"{device_name(entry.framework_device)} on GPU {entry.physical_index}: {amount} ({entry.how})"


def _mib(amount: int) -> str:
    return f"{amount // _MIB} MiB"
