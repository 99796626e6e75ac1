"""The observed device map compared with the expected one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, PredictedMapping, Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.evidence import Evidence, device_behind
from gpuwatch.explain.diagnosis.memory.memory_holders import others_memory
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_finding
from gpuwatch.explain.logs.sizes_and_device_names import device_name

_MIB = 1 << 20


@rule("memory.other-process", "unknown", needs="run")
def differs_from_prediction(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Another GPU than expected, or another amount of memory."""
    if run.predicted is None or run.workers or run.verdict in ("skipped", "timeout"):
        return
    if not run.device_map:
        log = evidence.log
        of_driver = log.cuinit_error or log.libraries_skipped or log.cudart_missing or log.ignored_gpus
        complained = of_driver or log.hidden_by_environment or run.errors or run.ooms or run.verdict in ("error", "oom")
        if run.predicted and run.devices.logical and not complained:  # nothing explains it, and somebody looked
            yield warning_finding(
                "unknown",
                title="TensorFlow mapped no GPU, although one was expected",
                evidence=[f"expected {_expected_text(entry)}" for entry in run.predicted],
                action="Read the log from its first line: it should say why the GPUs were ignored.",
            )
        return
    observed = {device_name(mapping.framework_device): mapping for mapping in run.device_map}
    expected = {device_name(entry.framework_device): entry for entry in run.predicted}
    if evidence.log.ignored_gpus or "build.gpu-jit" in evidence.log.topics:
        return  # the log says itself which GPUs it takes, and why
    names = sorted({*expected, *observed})
    differences = [_mapping_difference(name, expected.get(name), observed.get(name)) for name in names]
    if any(differences):
        yield warning_finding(
            "unknown",
            title="The device map differs from the expected one",
            evidence=differences,
            action="Compare the run's settings and environment with the map; the map shows what really happened.",
        )
        return
    for name, entry in expected.items():
        yield from _amount_findings(run, evidence.gpus, entry, observed[name])


def _mapping_difference(name: str, expected: PredictedMapping | None, observed: DeviceMapping | None) -> str:
    if observed is None:
        return f"{name} was expected on physical GPU {expected.physical_index}, but does not exist" if expected else ""
    if expected is None:
        return f"{name} is physical GPU {observed.physical_index}, which was not expected"
    if observed.uuid in (None, expected.uuid):
        return ""
    return (
        f"{name} is physical GPU {observed.physical_index} ({observed.uuid}),"
        f" expected {expected.physical_index} ({expected.uuid})"
    )


def _amount_findings(
    run: Run, gpus: Iterable[Device], expected: PredictedMapping, observed: DeviceMapping
) -> Iterator[Finding]:
    if expected.granted_bytes is None or observed.granted_bytes is None:
        return
    difference = expected.granted_bytes - observed.granted_bytes
    if abs(difference) <= expected.tolerance_bytes:
        return
    name = device_name(expected.framework_device)
    lines = [f"expected {_expected_text(expected)}", f"granted {_mib_text(observed.granted_bytes)}"]
    entry = next((entry for entry in run.memory.devices if entry.uuid == expected.uuid), None)
    peak, before = (entry.others_peak_bytes, entry.others_before_bytes) if entry is not None else (None, None)
    allocated_meanwhile = peak - before if peak is not None and before is not None else None
    held = others_memory(device_behind(observed, gpus), entry, run)
    freed_meanwhile = held.before - held.start if held.before is not None and held.start is not None else 0
    cause = "memory.other-process"
    if difference > 0 and allocated_meanwhile is not None and allocated_meanwhile >= difference / 2:
        period = "between the prediction and the end of the run"
        lines.append(f"NVML: other processes allocated {size(allocated_meanwhile)} {period}")
        title = f"{name} was granted {size(difference)} less than was free: another process allocated memory meanwhile"
        action = "Compare runs only while no other program starts on this GPU; run this one again."
    elif difference < 0 and freed_meanwhile >= -difference / 2:
        lines.append(f"NVML: others held {size(held.before)} at the prediction, {size(held.start)} at the start")
        lines += (
            f"process {holding.pid} held {memory(holding.before_bytes)} and exited"
            for holding in (entry.holders if entry is not None else ())
            if not holding.own and holding.last_seconds is None and holding.before_bytes
        )
        title = f"{name} was granted {size(-difference)} more than was free at first: another process exited meanwhile"
        action = "Nothing to do: the measurement was made without that process."
    else:
        cause = "unknown"
        title = f"{name} was granted {size(abs(difference))} {'less' if difference > 0 else 'more'} than expected"
        action = "Check whether another program used this GPU at the start, or a variable changes the reserve."
    yield finding(
        cause,
        "info" if cause != "unknown" and difference < 0 else "warning",
        "fact" if cause == "unknown" else "likely",
        title=title,
        evidence=lines,
        action=action,
        device_uuid=expected.uuid,
    )


def _expected_text(entry: PredictedMapping) -> str:
    within = f" ± {entry.tolerance_bytes // _MIB}" if entry.tolerance_bytes else ""
    amount = f"{_mib_text(entry.granted_bytes)}{within}" if entry.granted_bytes is not None else "an unknown amount"
    return f"{device_name(entry.framework_device)} on GPU {entry.physical_index}: {amount} ({entry.how})"


def _mib_text(amount: int) -> str:
    return f"{amount // _MIB} MiB"
