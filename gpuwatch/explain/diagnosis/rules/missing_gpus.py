"""GPUs that a program does not get or use: hidden by its environment or by itself, or for no stated reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.run import INHERITED, Run
from gpuwatch.core.model.visible_devices import MIG_PREFIX, read_visible
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import framework_of, gpu_build_advice
from gpuwatch.explain.diagnosis.rule_registry import (
    error_finding,
    finding,
    healthy_finding,
    info_finding,
    likely_error,
    likely_warning,
    rule,
    warning_finding,
)
from gpuwatch.explain.diagnosis.rules.driver_failures import (
    assignment_may_explain_no_device,
    complains_about_driver,
    visibility_may_explain_no_device,
)
from gpuwatch.explain.diagnosis.rules.error_evidence import error_line, names_cause, stated_error
from gpuwatch.explain.logs.log_ending import reports_completion
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.message_topics import topics_of

_DEVICE_NAME = re.compile(r"/?(?:cuda|gpu|device:gpu|device)[:\s]?([0-9]{1,3})", re.IGNORECASE)
_VISIBLE_DEVICES = "visible devices"
"""The watcher's name of what set_visible_devices was called with (_gpuwatch_tensorflow_settings.py)."""
_JAX_NO_GPU_MESSAGES = ("No visible GPU devices", "no supported devices found for platform CUDA")
"""Printed whether or not the driver answers."""
_NO_GPU_TOPIC = "gpu.none"
_XLA_WITHOUT_CUDA = "xla.interpreter"
"""XLA's log of the platforms that it started, without CUDA, not even as a failure."""


@rule("visibility.hidden", "visibility.bad-ordinal")
def environment_hides(evidence: Evidence) -> Iterator[Finding]:
    """CUDA_VISIBLE_DEVICES hides every GPU, or is cut short by an invalid entry."""
    log, devices, logged = evidence.log, evidence.known_gpus, evidence.log.hiding_visible_devices
    value = evidence.visible_devices if evidence.visible_devices is not None else logged
    if value is None:
        return
    seen = read_visible(value, devices)
    if (seen.invalid_entry or "").startswith(MIG_PREFIX):
        return  # reported as mig.misuse
    if not seen.hides_all and seen.invalid_entry is None:
        if seen.misread:
            hint = ": separate with commas" if any(entry.split()[1:] for entry, _ in seen.misread) else ""
            yield likely_warning(
                "visibility.bad-ordinal",
                title=f"In CUDA_VISIBLE_DEVICES {seen.misread_text}{hint}",
                evidence=[f"CUDA_VISIBLE_DEVICES={value}", f"CUDA sees {', '.join(seen.entries)}"],
                action=f"List plain numbers separated by commas: {seen.probable_value}, if that is what you meant.",
            )
        if visibility_may_explain_no_device(evidence) and MIG_PREFIX not in value:
            yield likely_error(
                "visibility.bad-ordinal",
                title=f"CUDA_VISIBLE_DEVICES={value} names no GPU in this machine",
                evidence=log.lines_of("environment.visible-devices", "driver.cuinit", "driver.loaded"),
                action="List existing GPUs (nvidia-smi -L shows them), or unset the variable.",
            )
        return
    if seen.hides_all and evidence.gpu_usable:
        return  # it was set too late to have an effect: the GPUs are there
    # An empty value looks like one that was cut off.
    lines = ["CUDA_VISIBLE_DEVICES=" + (value if value.strip() else '""')]
    lines += log.lines_of("visibility.hidden", "environment.visible-devices")
    lines += log.lines_of("driver.cuinit") if not evidence.gpu_usable else ()
    severity: Severity = "error"
    if evidence.visibility_set_by_probe:
        severity = "info"
    elif evidence.gpu_usable:
        severity = "warning"
    elif evidence.driver_answers is False:
        severity = "info"  # nothing is there to be hidden: the missing driver is the cause
    elif log.cuinit_error is not None and log.cuinit_error.code == 303:
        severity = "warning"  # libcuda.so.1 cannot be loaded: no value of the variable helps before that
    elif seen.on_purpose and _place_of_setting(evidence):
        yield _own_choice_finding(evidence, f"{_place_of_setting(evidence)} sets {lines[0]}", lines)
        return
    if seen.on_purpose or (logged is not None and seen.hides_all and not seen.unread_entries):
        place_text = f" at {_place_of_setting(evidence)}" if _place_of_setting(evidence) else ""
        if evidence.program is not None:
            place_text = place_text or " where it was set (the shell, a job script, or the program itself)"
        yield finding(
            "visibility.hidden",
            severity,
            evidence=lines,
            action=f"Unset CUDA_VISIBLE_DEVICES{place_text}, or set it to the GPUs that it should use (0, or a UUID).",
        )
        return
    if devices is not None:
        lines.append(f"the machine has {len(devices)} GPU{'' if len(devices) == 1 else 's'}")
    visible = ", ".join(seen.entries) or "no GPU"
    title = "" if seen.entries else "The first entry of CUDA_VISIBLE_DEVICES is not valid, which hides every GPU"
    if seen.repeated:
        title = "CUDA_VISIBLE_DEVICES names a GPU twice, which hides every GPU"
        lines.append(f"{seen.invalid_entry!r} is listed twice: CUDA then shows no GPU at all")
    else:
        lines.append(f"CUDA stops reading at {seen.invalid_entry!r}: visible: {visible}")
        if seen.unread_entries:
            lines.append(f"ignored: {', '.join(seen.unread_entries)}")
    lines.append(seen.misread_text)
    advice = valid_visible_devices_advice(value)
    yield finding(
        "visibility.bad-ordinal",
        severity,
        "fact"
        if devices is not None or seen.repeated or advice or (seen.invalid_entry or "").startswith("-")
        else "likely",
        title=title,
        evidence=lines,
        action=advice or "List only existing GPUs, without -1 and without duplicates; UUIDs are safest.",
    )


@rule("visibility.bad-ordinal", needs="run")
def hidden_from_child_process(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """The same of the program's other processes, whose variables their parent has set."""
    gpus = evidence.known_gpus
    for process in run.processes if gpus is not None else ():
        value = process.environment.get("CUDA_VISIBLE_DEVICES")
        if value is None or value == evidence.visible_devices or process.device_map:
            continue
        seen = read_visible(value, gpus)
        if seen.hides_all and not seen.on_purpose and not (seen.invalid_entry or "").startswith(MIG_PREFIX):
            yield warning_finding(
                "visibility.bad-ordinal",
                title=f"CUDA_VISIBLE_DEVICES={value} of process {process.pid} names no GPU in this machine",
                evidence=[f"process {process.pid} had no GPU; the machine has {len(gpus or ())}"],
                action=valid_visible_devices_advice(value) or "List only existing GPUs: nvidia-smi -L shows them.",
                pid=process.pid,
            )


def valid_visible_devices_advice(value: str) -> str:
    """What to write instead of a value that is valid for other settings but not for CUDA; empty for all others.

    ``all`` is of NVIDIA_VISIBLE_DEVICES and of docker's --gpus; ``cuda:0`` is PyTorch's name of a device, ``GPU:0``
    TensorFlow's.
    """
    if value.strip().lower() == "all":
        return (
            "Unset CUDA_VISIBLE_DEVICES, which shows every GPU: CUDA does not accept the word all, which belongs to "
            "NVIDIA_VISIBLE_DEVICES and docker's --gpus."
        )
    entries = [entry.strip() for entry in value.split(",")]
    corrected = [match[1] if (match := _DEVICE_NAME.fullmatch(entry)) else entry for entry in entries]
    if corrected == entries:
        return ""
    return f"Set CUDA_VISIBLE_DEVICES={','.join(corrected)}: CUDA accepts numbers and UUIDs, not device names."


def _place_of_setting(evidence: Evidence) -> str:
    """The line of a watched program that set it; empty if its parent did."""
    setting = evidence.program.settings.get("CUDA_VISIBLE_DEVICES") if evidence.program is not None else None
    return setting.source if setting is not None and setting.source != INHERITED else ""


@rule("visibility.bad-ordinal")
def invalid_device_number(evidence: Evidence) -> Iterator[Finding]:
    """The framework reported an invalid device number."""
    return stated_error(
        evidence,
        "visibility.bad-ordinal",
        "Inside a process GPUs are numbered from 0, after CUDA_VISIBLE_DEVICES; use those numbers.",
        title="A GPU number was used that this process does not have",
    )


@rule("visibility.hidden", needs="log")
def no_gpu_visible(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """PyTorch or JAX found the driver but no GPU: hidden, unless the environment is known to hide none."""
    if evidence.gpu_usable or evidence.driver_answers is False or evidence.visible_devices is not None:
        return
    lines = log.lines_of("visibility.none-available")
    if not lines or complains_about_driver(log) or assignment_may_explain_no_device(evidence):
        return
    title = "The driver's library shows no GPU: CUDA_VISIBLE_DEVICES hides them, or this machine has no GPU"
    action = (
        "Check whether nvidia-smi lists a GPU there. If so, unset CUDA_VISIBLE_DEVICES (it may be empty or -1). If not:"
        " in a container, start it with --gpus all; elsewhere the kernel module is not loaded, or there is no NVIDIA"
        " GPU (lspci | grep -i nvidia)."
    )
    if all(any(text in line for text in _JAX_NO_GPU_MESSAGES) for line in lines):
        title = "JAX finds no GPU: CUDA_VISIBLE_DEVICES hides them, or the container has none"
        action = (
            "Check that nvidia-smi lists the GPU there; then unset CUDA_VISIBLE_DEVICES (it may be empty or -1), or"
            " start the container with --gpus all."
        )
    yield error_finding("visibility.hidden", certainty="likely", title=title, evidence=lines, action=action)


@rule("visibility.hidden", "visibility.bad-ordinal", needs="log")
def script_hides(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """The log shows the line that sets CUDA_VISIBLE_DEVICES, and then CUDA found no device."""
    if not assignment_may_explain_no_device(evidence):
        return
    value = log.assigned_devices or ""
    lines = log.lines_of("environment.assigned", "driver.cuinit", "visibility.none-available")
    setting = f"CUDA_VISIBLE_DEVICES={value or chr(34) * 2}"
    if read_visible(value, None).hides_all:
        yield likely_error(
            "visibility.hidden",
            title=f"The program sets {setting} itself, which hides every GPU",
            evidence=lines,
            action=f"Remove {setting} from the program's code or command line, or set it to the GPUs that it should"
            " use.",
        )
        return
    yield likely_error(
        "visibility.bad-ordinal",
        title=f"The program sets {setting} itself, but CUDA finds no GPU with that number",
        evidence=lines,
        action=f"Change {setting} where the program sets it to a GPU that nvidia-smi -L lists (the first one is 0), or"
        " remove that line.",
    )


@rule("visibility.hidden", needs="run")
def program_hides(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """TensorFlow has GPUs, but the program disabled all of them."""
    if _disables_gpus(evidence):
        setting = run.settings.get(_VISIBLE_DEVICES)
        place = setting.source if setting is not None and setting.source else "the program"
        yield _own_choice_finding(
            evidence,
            f"{place} calls set_visible_devices without a GPU",
            (
                f"list_physical_devices: {', '.join(run.devices.physical)}",
                f"get_visible_devices: {', '.join(run.devices.visible)}",
            ),
        )


def hides_its_gpus(evidence: Evidence) -> bool:
    """Whether a watched program itself hides every GPU from itself: it is on the CPU by its own choice."""
    if evidence.program is None or evidence.gpu_usable or evidence.driver_answers is False:
        return False
    value = evidence.visible_devices if _place_of_setting(evidence) else None
    return _disables_gpus(evidence) or (value is not None and read_visible(value, None).on_purpose)


def hidden_on_purpose(evidence: Evidence, findings: tuple[Finding, ...]) -> bool:
    """Whether the probe or program itself requested no GPU, so that its ops belong on the CPU."""
    return hides_its_gpus(evidence) or (
        evidence.visibility_set_by_probe
        and any(found.id == "visibility.hidden" and found.severity == "info" for found in findings)
    )


def _disables_gpus(evidence: Evidence) -> bool:
    """Whether TensorFlow has GPUs, all of them disabled by set_visible_devices."""
    devices = evidence.run.devices if evidence.run is not None else None
    if devices is None or evidence.gpu_usable or not devices.visible:
        return False
    return any(":GPU:" in name for name in devices.physical) and not any(":GPU:" in name for name in devices.visible)


def _own_choice_finding(evidence: Evidence, how: str, lines: Iterable[str]) -> Finding:
    """No alarm, unless the program also requests a GPU by name."""
    fallbacks = evidence.run.fallbacks if evidence.run is not None else ()
    requests_gpu = any(fallback.reason == "visibility.hidden" for fallback in fallbacks)
    return finding(
        "visibility.hidden",
        "warning" if requests_gpu else "info",
        title=f"The program hides every GPU from itself: {how}",
        evidence=lines,
        action="Remove that line, or name the GPUs to use there: the program requests one."
        if requests_gpu
        else "Nothing to do if it should run on the CPU; otherwise remove that line, or name the GPUs to use there.",
    )


@rule("visibility.renumbered")
def renumbered(evidence: Evidence) -> Iterator[Finding]:
    """GPU:0 of the program is not GPU 0 of nvidia-smi: not an error, but a source of many."""
    processes = evidence.run.processes if evidence.run is not None else ()
    maps = [(f" of process {process.pid}", process.device_map) for process in processes if process.device_map]
    moved = [
        f"{mapping.framework_device}{process_text} is physical GPU {mapping.physical_index} ({mapping.uuid})"
        for process_text, device_map in (maps if len(maps) > 1 else [("", evidence.device_map)])
        # Two logical devices on one card shift the numbers by themselves.
        if len({mapping.uuid for mapping in device_map}) == len(device_map)
        for mapping in device_map
        if mapping.physical_index is not None
        and mapping.framework_device.rpartition(":")[2] != str(mapping.physical_index)
    ]
    if moved:
        value = evidence.visible_devices if len(maps) < 2 else None
        yield info_finding(
            "visibility.renumbered",
            evidence=[*moved, *([f"CUDA_VISIBLE_DEVICES={value}"] if value is not None else [])],
            action="Name GPUs by UUID in CUDA_VISIBLE_DEVICES, and count from 0 inside the program.",
        )


NO_REASON_ENDING = ", and the log does not say why"


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
        action = gpu_build_advice(framework_of(evidence, lines))
        yield likely_warning("build.cpu-only", evidence=(*lines, *cpu_build_lines), action=action)
        return
    if reports_completion(log.ending_line):
        evidence_lines = (log.ending_line, *lines)
        yield healthy_finding(title="The program finished without a GPU", evidence=evidence_lines)
        return
    required = requires_a_gpu(log)
    yield finding(
        "unknown",
        "error" if required else "warning",
        title=f"The program {'requires a GPU and finds none' if required else 'has no GPU'}{NO_REASON_ENDING}",
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
