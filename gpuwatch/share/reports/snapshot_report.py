"""The content of a snapshot: GPUs, processes, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from gpuwatch.core.formatting.command_lines import without_launcher
from gpuwatch.core.formatting.durations import clock_duration
from gpuwatch.core.formatting.grouped_findings import grouped_findings
from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.sentences import count_text, gpu_list_text
from gpuwatch.core.formatting.units import UNKNOWN, energy, memory, percent, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import FAILED_ITSELF, Device, Problem, Process, Snapshot
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.process_labels import short_framework
from gpuwatch.share.reports.report_elements import Content, Table, heads_and_rows
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean, clean_finding, clean_or_empty

_MAX_COMMAND_CHARS = 120
_SILENCE_REASONS = {
    "driver.missing": "no NVIDIA driver",
    "driver.mismatch": "the driver's library and kernel module differ",
}
_MAX_CPU_PROCESSES = 10
_MAX_FRAMEWORK_CHARS = 9
"""Characters of a framework's short name, ``tf 2.21``."""


def snapshot_content(snapshot: Snapshot) -> Content:
    """Everything that was read."""
    host, driver = snapshot.host, snapshot.driver
    tables: tuple[Table, ...] = (_problem_table(snapshot), _busiest_table(snapshot))
    facts = [("driver", f"{clean(driver.version)}, CUDA {clean(driver.cuda_version)}" if driver else "unknown")]
    if snapshot.devices:
        tables = (*device_tables(snapshot), _reservation_table(snapshot), _problem_table(snapshot))
        facts.append(("power", _power_text(snapshot.devices)))
    host_text = (
        f"{clean(host.hostname)}: CPU {percent(host.cpu_percent)} of {clean(host.cpu_count)} cores, "
        f"memory {size(host.memory_used_bytes)} of {size(host.memory_total_bytes)}, "
        f"load {' '.join(f'{average:.2f}' for average in host.load) if host.load else UNKNOWN}"
    )
    facts.append(("host", host_text))
    if unified_gpus := [f"GPU {device.index}" for device in snapshot.devices if device.unified_memory]:
        facts.append(("memory", f"of {', '.join(unified_gpus)}: host memory, which other programs also use"))
    advised = [_with_advice(finding, snapshot) for finding in snapshot.findings]
    severities = {finding.severity for finding in snapshot.findings}
    has_error = "error" in severities or any(device.state not in ("ok", "asleep") for device in snapshot.devices)
    # Of a recording, what cannot be read may not be a finding yet.
    has_warning = snapshot.problems or "warning" in severities or any(map(unreadable_metrics, snapshot.devices))
    return Content(
        title=clean(host.hostname) if host.hostname else "snapshot",
        subtitle=snapshot.taken_at.strftime("%Y-%m-%d %H:%M:%S %Z").strip(),
        state="error" if has_error else "warning" if has_warning else "ok",
        verdict=count_text(len(snapshot.devices), "GPU") if snapshot.driver else "GPUs unknown",
        reason=_silence_text(snapshot),
        simulated=SIMULATED_MACHINE if snapshot.simulated else "",
        facts=tuple(facts),
        tables=tuple(table for table in tables if table.rows),
        findings=tuple(map(clean_finding, grouped_findings(advised, snapshot.devices))),
        footer="gpuwatch",
    )


def device_tables(snapshot: Snapshot) -> tuple[Table, ...]:
    """GPUs, MIG instances and processes."""
    return (_gpu_table(snapshot), _mig_instances(snapshot), _gpu_processes_table(snapshot))


def _gpu_table(snapshot: Snapshot) -> Table:
    cells = [
        _device_row(device, mark_simulated=device.simulated and not snapshot.simulated) for device in snapshot.devices
    ]
    table = Table(
        "GPUs",
        *heads_and_rows(cells),
        right=("GPU", "Util", "Memory", "Power", "Temp", "SM clock"),
        keep=("Name",),
        optional=("SM clock", "Power"),
        below="Why",
    )
    return table if any(device.state_detail for device in snapshot.devices) else table.without("Why")


def _reservation_table(snapshot: Snapshot) -> Table:
    """Who reserved which GPU, with ``gpuwatch pick --reserve``."""
    names = {device.uuid: str(device.index) for device in snapshot.devices}
    for device in snapshot.devices:
        names |= {
            instance.uuid: f"{device.index} MIG {instance.id}" for instance in device.mig_instances if instance.uuid
        }
    rows = []
    for reservation in sorted(snapshot.reservations, key=lambda reservation: names.get(reservation.uuid, "")):
        gpu_user_pid = map(clean, (names.get(reservation.uuid, reservation.uuid), reservation.user, reservation.pid))
        rows.append((*gpu_user_pid, shorten(clean(reservation.command), _MAX_COMMAND_CHARS)))
    return Table("Reserved", ("GPU", "User", "PID", "Command"), tuple(rows), ("GPU", "PID"))


def _power_text(devices: Sequence[Device]) -> str:
    """Power draw and energy of all GPUs together, and the energy of each; says which ones are unknown."""
    power_draws = {device.index: device.number("power.draw_watts") for device in devices}
    energies = {device.index: device.number("energy_joules") for device in devices}
    watts, joules = ([value for value in values.values() if value is not None] for values in (power_draws, energies))
    now = f"{sum(watts):.0f} W now{_without_text(power_draws)}" if watts else f"{UNKNOWN} now"
    if not joules:
        return f"{now}; energy counter {UNKNOWN}"
    known = ((index, value) for index, value in energies.items() if value is not None)
    energy_by_gpu = ", ".join(f"GPU {index} {energy(value, max(joules))}" for index, value in known)
    by_gpu = f" ({energy_by_gpu})" if len(devices) > 1 else ""
    return f"{now}; {energy(sum(joules))} since the driver was loaded{_without_text(energies)}{by_gpu}"


def _without_text(values: Mapping[int, float | None]) -> str:
    """``, without GPUs 2-3``: those of which the number is unknown."""
    unknown = [index for index, value in values.items() if value is None]
    return f", without {gpu_list_text(unknown)}" if unknown else ""


def _silence_text(snapshot: Snapshot) -> str:
    """Why the GPUs are unknown; empty if the driver listed them, or that there are none."""
    if snapshot.driver is not None:
        return ""
    if any(problem.reason == FAILED_ITSELF for problem in snapshot.problems):
        return "gpuwatch could not query the driver"
    refuses = any(problem.source == "nvml" and problem.reason not in _SILENCE_REASONS for problem in snapshot.problems)
    silent = "the driver reports an error" if refuses else "the driver does not answer"
    reasons = (problem.reason for problem in snapshot.problems if problem.reason in _SILENCE_REASONS)
    return _SILENCE_REASONS.get(next(reasons, ""), silent)


def _device_row(device: Device, *, mark_simulated: bool) -> dict[str, str]:
    def show(metric_id: str) -> str:
        return metric_value_text(BY_ID[metric_id], device.get(metric_id))

    return {
        "GPU": str(device.index),
        "Name": clean(device.name) + (" (simulated)" if mark_simulated else ""),
        "Util": show("utilization.gpu_percent"),
        "Memory": _part_of_whole(show("memory.used_bytes"), show("memory.total_bytes")),
        "Power": _part_of_whole(show("power.draw_watts"), show("power.limit_watts")),
        "Temp": show("temperature.gpu_celsius"),
        "SM clock": show("clocks.sm_mhz"),
        "State": device.state,
        "Why": clean_or_empty(device.state_detail),
    }


def _mig_instances(snapshot: Snapshot) -> Table:
    """The MIG instances of GPUs; each is a CUDA device."""
    rows: list[dict[str, str]] = []
    parts = ("used", "total")
    heads = ("GPU", "GI/CI", "Profile", "Memory", "SMs", "SM activity", "Processes", "UUID")
    instances = [instance for device in snapshot.devices for instance in device.mig_instances]
    has_activity = any("activity.sm_percent" in instance.readings for instance in instances)
    for device in snapshot.devices:
        count = device.get("mig.instances")
        if device.readings.get("mig.mode") == "enabled" and isinstance(count, Missing):
            unknown = dict.fromkeys(heads, UNKNOWN)
            rows.append(unknown | {"GPU": str(device.index), "UUID": clean(count.detail or count.reason)})
        for instance in device.mig_instances:
            users = [
                process
                for process in snapshot.processes
                if (process.device_uuid, process.mig_instance) == (device.uuid, instance.id)
            ]
            rows.append(
                {
                    "GPU": str(device.index),
                    "GI/CI": instance.id,
                    "Profile": clean(instance.profile),
                    "Memory": _part_of_whole(*(size(instance.number(f"memory.{part}_bytes")) for part in parts)),
                    "SMs": clean(instance.multiprocessors),
                    "SM activity": percent(instance.number("activity.sm_percent")),
                    "Processes": clean(len({process.pid for process in users})),
                    "UUID": clean(instance.uuid),
                }
            )
    table = Table("MIG instances", *heads_and_rows(rows), right=("GPU", *heads[3:-1]), keep=("UUID",))
    return table if has_activity else table.without("SM activity")


def _part_of_whole(part: str, whole: str) -> str:
    """``12.0 / 24.0 GiB``: the unit once if both have the same."""
    if part == whole == UNKNOWN:
        return UNKNOWN
    amount, _, unit = part.rpartition(" ")
    return f"{amount} / {whole}" if amount and whole.endswith(f" {unit}") else f"{part} / {whole}"


def _gpu_processes_table(snapshot: Snapshot) -> Table:
    """The processes on the GPUs; largest first on each."""
    processes = sorted(
        snapshot.processes,
        key=lambda process: (
            process.device_index if process.device_index is not None else 1 << 30,
            -(process.number("gpu_memory_bytes") or 0),
        ),
    )
    return _table_of_processes(
        "Processes",
        [_process_cells(process, snapshot) for process in processes],
        optional=("Type", "Time", "Host mem", "CPU", "SM", "User", "Framework"),
    )


def _table_of_processes(
    title: str, cells: Sequence[dict[str, str]], optional: tuple[str, ...], note: str = ""
) -> Table:
    return Table(
        title,
        *heads_and_rows(cells),
        right=("GPU", "PID", "GPU mem", "SM", "CPU", "Host mem", "Time"),
        note=note,
        one_line=True,
        optional=optional,
        shorter={"Framework": partial(short_framework, width=_MAX_FRAMEWORK_CHARS), "Command": without_launcher},
    )


def _busiest_table(snapshot: Snapshot) -> Table:
    """The busiest processes of a host without a GPU."""
    heads = ("PID", "User", "CPU", "Host mem", "Time", "Framework", "Command")
    rows = []
    for process in snapshot.processes[:_MAX_CPU_PROCESSES]:
        cells = _process_cells(process, snapshot) | {"User": clean(process.user)}
        rows.append({head: cells[head] for head in heads})
    process_count, listed_count = snapshot.host_processes, len(snapshot.processes)
    note = "None of them uses a GPU." if snapshot.driver else "It is not known which of them use a GPU."
    if process_count is not None and process_count > len(rows):
        in_json = min(listed_count, process_count)
        note = f"The {len(rows)} busiest of {process_count} processes; --json has {in_json}. {note}"
    return _table_of_processes("Processes of the host", rows, ("Time", "Framework", "Host mem"), note)


def _process_cells(process: Process, snapshot: Snapshot) -> dict[str, str]:
    gpu = clean(process.device_index)
    command = process.command or process.name
    return {
        "GPU": f"{gpu}:{clean(process.mig_instance)}" if process.mig_instance else gpu,
        "PID": str(process.pid),
        "User": clean(process.user) + (f" ({clean(process.note)})" if process.note else ""),
        "Type": clean(process.type),
        "Framework": clean(process.framework),
        "GPU mem": memory(process.number("gpu_memory_bytes")),
        "SM": percent(process.number("sm_percent")),
        "CPU": percent(process.number("cpu_percent")),
        "Host mem": size(process.number("host_memory_bytes")),
        "Time": clock_duration(process.run_seconds(snapshot.taken_at.timestamp())),
        "Command": shorten(printable(command), _MAX_COMMAND_CHARS) if command else UNKNOWN,
    }


def _with_advice(finding: Finding, snapshot: Snapshot) -> Finding:
    """With the advice of a source that reports the same problem: it knows about simulated GPUs too."""
    for problem in snapshot.problems:
        if problem.hint and finding.id == problem.reason and _is_explained(problem, snapshot):
            return msgspec.structs.replace(finding, action=problem.hint)
    return finding


def _is_explained(problem: Problem, snapshot: Snapshot) -> bool:
    """Whether a finding covers this problem, with its own advice."""
    return bool(problem.detail) and any(
        finding.id == problem.reason and problem.detail in f"{finding.title} {' '.join(finding.evidence)}"
        for finding in snapshot.findings
    )


def _problem_table(snapshot: Snapshot) -> Table:
    """What could not be read and is not among the findings."""
    rows = (
        (*map(clean, (problem.source, problem.reason, problem.detail)), clean_or_empty(problem.hint))
        for problem in snapshot.problems
        if not _is_explained(problem, snapshot)
    )
    return Table("Problems", ("Source", "Reason", "What", "What to do"), tuple(rows))
