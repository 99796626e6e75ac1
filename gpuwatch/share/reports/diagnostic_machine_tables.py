"""The machine in a diagnostic report: device map, the doctor's checks, variables, and who uses the GPUs."""

from __future__ import annotations

from gpuwatch.core.formatting.durations import clock_duration
from gpuwatch.core.formatting.units import UNKNOWN, memory, percent, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.doctor import STATE_ORDER, Check, Doctor
from gpuwatch.core.model.run import DeviceMapping, Run
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.explain.diagnosis.evidence import mapped_to
from gpuwatch.share.reports import bar_charts
from gpuwatch.share.reports.diagnostic_summary import nvml_silence, run_name, short_command, utc_text
from gpuwatch.share.reports.doctor_report import GROUP_TITLES, check_row
from gpuwatch.share.reports.report_elements import CheckMarks, Table, charts_with_data, heads_and_rows
from gpuwatch.share.reports.report_text import clean, clean_or_empty, variable_value
from gpuwatch.share.reports.run_tables import heads_and_first_rows, short_device

_EFFECTS = {
    "effect": "● has effect",
    "warning": "▲ has effect",
    "misspelt": "✖ misspelled",
    "too-late": "✖ set too late",
    "unknown": "○ unknown",
}
_FIRST_CHECKS = frozenset(
    {"driver.versions", "driver.cuda-version"}
    | {f"framework.{name}" for name in ("build", "cuda-version", "capability", "libraries", "devices", "op")}
)
"""Checks that come first among those that passed."""
_THIS_SHELL = "this shell"
_SHELL_NOTE = "Environment variables are those of the shell that created this report"
_DOCTOR_COLUMNS = ("Framework", "CUDA", "Doctor got")
"""Columns of which nothing is known without the doctor."""


def device_map_table(document: Diagnostic) -> Table:
    """Framework device, CUDA ordinal, NVML index, address, UUID, memory limits and use."""
    snapshot, doctor = document.snapshot, document.doctor
    devices = {device.uuid: device for device in snapshot.devices} if snapshot is not None else {}
    without_framework = DeviceMapping(framework_device="")
    gpus = [mapped_to(without_framework, device) for device in devices.values()]
    entries = gpus if doctor is None else doctor.device_map
    program = _latest_program_with_memory(document)
    program_map = program.device_map if program is not None else ()
    granted = [(entry.uuid, entry.granted_bytes) for entry in program_map if entry.uuid and entry.granted_bytes]
    framework_asked = doctor is not None and doctor.framework is not None
    cells = (
        {
            "Framework": short_device(entry.framework_device or "no device") if framework_asked else UNKNOWN,
            "CUDA": clean(entry.cuda_ordinal),
            "NVML": clean(entry.physical_index),
            # NVML's name: plugins give every device the same.
            "Name": clean((device.name if device is not None else "") or entry.name),
            "Capability": clean(entry.compute_capability),
            "PCI bus id": clean(entry.pci_bus_id),
            "Doctor got": size(entry.granted_bytes),
            "Program got": " + ".join(size(granted_bytes) for uuid, granted_bytes in granted if uuid == entry.uuid)
            or UNKNOWN,
            "In use": _memory_now(device),
            "UUID": clean(entry.uuid),
        }
        for entry, device in ((entry, devices.get(entry.uuid or "")) for entry in entries)
    )
    allocator_owners = ["the doctor's own run"] + ([run_name(program)] if program is not None else [])
    if not entries:
        return Table("Which device is which GPU", (), (), note=_unmapped(document))
    notes = []
    if program is not None or any(entry.granted_bytes for entry in entries):
        notes.append(
            f"Got: the limit of the framework's allocator in {' and '.join(allocator_owners)}: what the program set, or"
            " what was free at its start minus a CUDA context and a reserve."
        )
    if snapshot is not None:
        notes.append(f"In use: at {utc_text(snapshot.taken_at)}{_reserve(snapshot)}.")
    left_out = (*(_DOCTOR_COLUMNS if doctor is None else ()), *(() if program is not None else ("Program got",)))
    return Table(
        "Which device is which GPU",
        *heads_and_rows(cells),
        right=("CUDA", "NVML", "Doctor got", "Program got"),
        note=" ".join(notes),
        keep=("Framework", "PCI bus id", "In use"),
        optional=("Capability",),
        below="UUID",
    ).without(*left_out)


def _unmapped(document: Diagnostic) -> str:
    """Why there is no device map."""
    snapshot = document.snapshot
    if snapshot is not None and snapshot.driver is None:
        return f"Not known: {nvml_silence(snapshot)}, and the framework has no GPU."
    return "The framework has no GPU." if document.doctor is not None and document.doctor.framework else ""


def _reserve(snapshot: Snapshot) -> str:
    """What the driver reserves: the difference between total and used plus free."""
    reserved = [device.number("memory.reserved_bytes") for device in snapshot.devices]
    amounts = dict.fromkeys(size(amount) for amount in reserved if amount)
    return f"; the driver reserves another {' or '.join(amounts)} of each" if amounts else ""


def _latest_program_with_memory(document: Diagnostic) -> Run | None:
    """The latest program, if it was granted GPU memory."""
    run = document.programs[0] if document.programs else None
    return run if run is not None and any(entry.granted_bytes for entry in run.device_map) else None


def _memory_now(device: Device | None) -> str:
    if device is None:
        return UNKNOWN
    if device.state != "ok":
        return clean(device.state) + (f": {clean(device.state_detail)}" if device.state_detail else "")
    return f"{size(device.number('memory.used_bytes'))} of {size(device.number('memory.total_bytes'))}"


def check_table(document: Diagnostic, doctor: Doctor) -> Table:
    """Checks of driver, cards and build, failures first."""
    groups = group_by(doctor.checks, lambda check: GROUP_TITLES.get(check.group, check.group))
    marks = (
        (name, tuple((check.state, clean(check.title or check.id)) for check in checks))
        for name, checks in groups.items()
    )
    bad = sorted((check for check in doctor.checks if _is_bad(check)), key=lambda check: STATE_ORDER[check.state])
    no_failures = "" if bad else "No check failed or warned. "
    return Table(
        "Checks: driver, build and cards",
        ("State", "Check", "Found → what to do"),
        tuple(_check(document, check) for check in bad),
        note=f"{no_failures}{_SHELL_NOTE}, with its Python.",
        keep=("State", "Check"),
        charts=(CheckMarks("Checks", tuple(marks)),),
    )


def passed_check_table(document: Diagnostic, doctor: Doctor) -> Table:
    """The checks without a finding, those of driver and build first."""
    other_checks = [check for check in doctor.checks if not _is_bad(check)]
    other_checks.sort(key=lambda check: (check.state == "skip", check.id not in _FIRST_CHECKS))
    rows = tuple(_check(document, check) for check in other_checks)
    title = "Passed and skipped checks" if any(check.state == "skip" for check in other_checks) else "Passed checks"
    return Table(title, ("State", "Check", "Found"), rows, keep=("State", "Check"), folded=True)


def _is_bad(check: Check) -> bool:
    return check.state in ("fail", "warn")


def _check(document: Diagnostic, check: Check) -> tuple[str, ...]:
    state, name, what = check_row(check)
    if check.group == "environment":
        what = f"in {_THIS_SHELL}: {what}{_latest_environment_note(document, check)}"
    return state, name, what


def _latest_environment_note(document: Diagnostic, check: Check) -> str:
    """What the latest program had in its environment, which this check does not see."""
    notes = [
        f"{clean(short_command(entry.program))} had {clean(entry.name)}={variable_value(entry.value)}"
        for entry in document.variables
        if entry.program is not None
        and (entry.name == check.title or (check.id == "environment.misspelt" and entry.effect == "misspelt"))
    ]
    return f"; {'; '.join(notes)}" if notes else ""


def variable_table(document: Diagnostic) -> Table | None:
    """Which variables are set, where, and what they do; problems first."""
    if document.doctor is None and not document.variables:
        return None
    order = list(_EFFECTS)
    in_order = sorted(
        document.variables, key=lambda entry: -order.index(entry.effect) if entry.effect != "unknown" else 1
    )
    rows = []
    for entry in in_order:
        set_in = clean(short_command(entry.program)) if entry.program is not None else _THIS_SHELL
        value = variable_value(entry.value)
        rows.append((_EFFECTS[entry.effect], clean(entry.name), value, set_in, clean_or_empty(entry.note)))
    return Table(
        "Environment variables",
        ("State", "Variable", "Value", "Set in", "What it does"),
        tuple(rows) or (("○ none", "", "", _THIS_SHELL, "no variable that affects GPUs is set"),),
        note=f"This shell: the one that created this report. {_programs_note(document)}".strip(),
        keep=("State", "Variable", "Set in"),
        below="What it does",
    )


def _programs_note(document: Diagnostic) -> str:
    if not document.programs:
        return ""
    run = document.programs[0]
    simulated_note = ", without what gpuwatch sets for simulated GPUs" if run.simulated else ""
    return f"For {run_name(run)}, only differences from this shell are listed{simulated_note}."


def user_table(snapshot: Snapshot) -> Table | None:
    """Who uses the GPUs, largest first."""
    if not snapshot.devices:
        silent = f"Not known: {nvml_silence(snapshot)}." if snapshot.driver is None else ""
        return Table("Who uses the GPUs", (), (), note=silent)
    in_order = sorted(
        (process for process in snapshot.processes if process.device_uuid is not None),
        key=lambda process: (process.device_index or 0, -(process.number("gpu_memory_bytes") or 0)),
    )
    return Table(
        "Who uses the GPUs",
        *heads_and_first_rows(_user_row(process, snapshot.taken_at.timestamp()) for process in in_order),
        right=("GPU", "PID", "GPU mem", "SM", "Time"),
        below="Command",
        note="" if in_order else "No process uses a GPU.",
        charts=charts_with_data(bar_charts.memory_by_owner_chart(snapshot)),
    )


def _user_row(process: Process, at: float) -> dict[str, str]:
    user = clean(process.user) if process.user else "not known"
    return {
        "GPU": clean(process.device_index),
        "PID": str(process.pid),
        "User": user + (f" ({clean(process.note)})" if process.note else ""),
        "Framework": clean(process.framework),
        "GPU mem": memory(process.number("gpu_memory_bytes")),
        "SM": percent(process.number("sm_percent")),
        "Time": clock_duration(process.run_seconds(at)),
        "Sees": _visible_devices_cell(process),
        "Command": clean(process.command or process.name)[:160],
    }


def _visible_devices_cell(process: Process) -> str:
    """CUDA_VISIBLE_DEVICES; a dash if the environment is not readable."""
    if process.cuda_visible_devices is not None:
        return variable_value(process.cuda_visible_devices)
    return UNKNOWN if process.note or process.create_time is None else "all"
