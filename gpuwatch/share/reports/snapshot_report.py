"""The content of a snapshot: GPUs, processes, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from gpuwatch.core.formatting.command_lines import without_launcher
from gpuwatch.core.formatting.durations import clock_duration
from gpuwatch.core.formatting.reading_text import reading_text
from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.formatting.units import UNKNOWN, count_text, energy, memory, percent, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import metric
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import FAILED_ITSELF, Device, Problem, Process, Snapshot
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.process_labels import short_framework
from gpuwatch.share.reports.report_elements import (
    SIMULATED_MACHINE,
    Content,
    Table,
    clean,
    clean_finding,
    clean_or_empty,
    columns,
)

_MAX_COMMAND_CHARS = 120
_SILENT = {"driver.missing": "no NVIDIA driver", "driver.mismatch": "the driver's library and kernel module differ"}
_MAX_CPU_PROCESSES = 10
_MAX_FRAMEWORK_CHARS = 9
"""Characters of a framework's short name, ``tf 2.21``."""


def snapshot_content(snapshot: Snapshot) -> Content:
    """Everything that was read."""
    host, driver = snapshot.host, snapshot.driver
    tables: tuple[Table, ...] = (_problems(snapshot), _busiest(snapshot))
    facts = [("driver", f"{clean(driver.version)}, CUDA {clean(driver.cuda_version)}" if driver else "unknown")]
    if snapshot.devices:
        tables = (*device_tables(snapshot), _reservations(snapshot), _problems(snapshot))
        facts.append(("power", _power(snapshot.devices)))
    about_host = (
        f"{clean(host.hostname)}: CPU {percent(host.cpu_percent)} of {clean(host.cpu_count)} cores, "
        f"memory {size(host.memory_used_bytes)} of {size(host.memory_total_bytes)}, "
        f"load {' '.join(f'{part:.2f}' for part in host.load) if host.load else UNKNOWN}"
    )
    facts.append(("host", about_host))
    if unified := [f"GPU {device.index}" for device in snapshot.devices if device.unified_memory]:
        facts.append(("memory", f"of {', '.join(unified)}: host memory, which other programs also use"))
    severities = {found.severity for found in snapshot.findings}
    worst = "error" in severities or any(device.state not in ("ok", "asleep") for device in snapshot.devices)
    # Of a recording, what cannot be read may not be a finding yet.
    doubtful = snapshot.problems or "warning" in severities or any(map(unreadable_metrics, snapshot.devices))
    return Content(
        title=clean(host.hostname) if host.hostname else "snapshot",
        subtitle=snapshot.taken_at.strftime("%Y-%m-%d %H:%M:%S %Z").strip(),
        state="error" if worst else "warning" if doubtful else "ok",
        verdict=count_text(len(snapshot.devices), "GPU") if snapshot.driver else "GPUs unknown",
        reason=_silence(snapshot),
        simulated=SIMULATED_MACHINE if snapshot.simulated else "",
        facts=tuple(facts),
        tables=tuple(table for table in tables if table.rows),
        findings=tuple(clean_finding(_advised(found, snapshot)) for found in snapshot.findings),
        footer="gpuwatch",
    )


def device_tables(snapshot: Snapshot) -> tuple[Table, ...]:
    """GPUs, MIG instances and processes."""
    return (_gpus(snapshot), _mig_instances(snapshot), _processes(snapshot))


def _gpus(snapshot: Snapshot) -> Table:
    cells = [_device_row(device, marked=device.simulated and not snapshot.simulated) for device in snapshot.devices]
    table = Table(
        "GPUs",
        *columns(cells),
        right=("GPU", "Util", "Memory", "Power", "Temp", "SM clock"),
        keep=("Name",),
        optional=("SM clock", "Power"),
        below="Why",
    )
    return table if any(device.state_detail for device in snapshot.devices) else table.without("Why")


def _reservations(snapshot: Snapshot) -> Table:
    """Who reserved which GPU, with ``gpuwatch pick --reserve``."""
    names = {device.uuid: str(device.index) for device in snapshot.devices}
    for device in snapshot.devices:
        names |= {part.uuid: f"{device.index} MIG {part.id}" for part in device.mig_instances if part.uuid}
    rows = []
    for found in sorted(snapshot.reservations, key=lambda reservation: names.get(reservation.uuid, "")):
        who = map(clean, (names.get(found.uuid, found.uuid), found.user, found.pid))
        rows.append((*who, shorten(clean(found.command), _MAX_COMMAND_CHARS)))
    return Table("Reserved", ("GPU", "User", "PID", "Command"), tuple(rows), ("GPU", "PID"))


def _power(devices: Sequence[Device]) -> str:
    """Power draw and energy of all GPUs together, and the energy of each; says which ones are unknown."""
    draws = {device.index: device.number("power.draw_watts") for device in devices}
    used = {device.index: device.number("energy_joules") for device in devices}
    watts, joules = ([value for value in known.values() if value is not None] for known in (draws, used))
    now = f"{sum(watts):.0f} W now{_without(draws)}" if watts else f"{UNKNOWN} now"
    if not joules:
        return f"{now}; energy counter {UNKNOWN}"
    each = ", ".join(f"GPU {index} {energy(value, max(joules))}" for index, value in used.items() if value is not None)
    of = f" ({each})" if len(devices) > 1 else ""
    return f"{now}; {energy(sum(joules))} since the driver was loaded{_without(used)}{of}"


def _without(known: Mapping[int, float | None]) -> str:
    """``, without GPUs 2-3``: those of which the number is unknown."""
    lacking = [index for index, value in known.items() if value is None]
    return f", without {gpu_list_text(lacking)}" if lacking else ""


def _silence(snapshot: Snapshot) -> str:
    """Why the GPUs are unknown; empty if the driver listed them, or that there are none."""
    if snapshot.driver is not None:
        return ""
    if any(problem.reason == FAILED_ITSELF for problem in snapshot.problems):
        return "gpuwatch could not query the driver"
    refuses = any(problem.source == "nvml" and problem.reason not in _SILENT for problem in snapshot.problems)
    silent = "the driver refuses" if refuses else "driver not answering"
    return next((_SILENT[problem.reason] for problem in snapshot.problems if problem.reason in _SILENT), silent)


def _device_row(device: Device, *, marked: bool) -> dict[str, str]:
    def show(metric_id: str) -> str:
        return reading_text(metric(metric_id), device.get(metric_id))

    return {
        "GPU": str(device.index),
        "Name": clean(device.name) + (" (simulated)" if marked else ""),
        "Util": show("utilization.gpu_percent"),
        "Memory": _of(show("memory.used_bytes"), show("memory.total_bytes")),
        "Power": _of(show("power.draw_watts"), show("power.limit_watts")),
        "Temp": show("temperature.gpu_celsius"),
        "SM clock": show("clocks.sm_mhz"),
        "State": device.state,
        "Why": clean_or_empty(device.state_detail),
    }


def _mig_instances(snapshot: Snapshot) -> Table:
    """The MIG instances of GPUs; each is a CUDA device."""
    rows: list[dict[str, str]] = []
    heads = ("GPU", "GI/CI", "Profile", "Memory", "SMs", "active", "Processes", "UUID")
    active = any("activity.sm_percent" in part.readings for d in snapshot.devices for part in d.mig_instances)
    for device in snapshot.devices:
        count = device.get("mig.instances")
        if device.readings.get("mig.mode") == "enabled" and isinstance(count, Missing):
            unknown = dict.fromkeys(heads, UNKNOWN)
            rows.append(unknown | {"GPU": str(device.index), "UUID": clean(count.detail or count.reason)})
        for part in device.mig_instances:
            users = [p for p in snapshot.processes if (p.device_uuid, p.mig_instance) == (device.uuid, part.id)]
            rows.append(
                {
                    "GPU": str(device.index),
                    "GI/CI": part.id,
                    "Profile": clean(part.profile),
                    "Memory": _of(*(size(part.number(f"memory.{name}_bytes")) for name in ("used", "total"))),
                    "SMs": clean(part.multiprocessors),
                    "active": percent(part.number("activity.sm_percent")),
                    "Processes": clean(len({p.pid for p in users})),
                    "UUID": clean(part.uuid),
                }
            )
    table = Table("MIG instances", *columns(rows), right=("GPU", *heads[3:-1]), keep=("UUID",))
    return table if active else table.without("active")


def _of(part: str, whole: str) -> str:
    """``12.0 / 24.0 GiB``: the unit once if both have the same."""
    if part == whole == UNKNOWN:
        return UNKNOWN
    amount, _, unit = part.rpartition(" ")
    return f"{amount} / {whole}" if amount and whole.endswith(f" {unit}") else f"{part} / {whole}"


def _processes(snapshot: Snapshot) -> Table:
    """The processes on the GPUs; largest first on each."""
    processes = sorted(
        snapshot.processes,
        key=lambda p: (p.device_index if p.device_index is not None else 1 << 30, -(p.number("gpu_memory_bytes") or 0)),
    )
    return _process_table(
        "Processes",
        [_process_cells(process, snapshot) for process in processes],
        optional=("Type", "Time", "Host mem", "CPU", "SM", "User", "Framework"),
    )


def _process_table(title: str, cells: Sequence[dict[str, str]], optional: tuple[str, ...], note: str = "") -> Table:
    return Table(
        title,
        *columns(cells),
        right=("GPU", "PID", "GPU mem", "SM", "CPU", "Host mem", "Time"),
        note=note,
        one_line=True,
        optional=optional,
        shorter={"Framework": partial(short_framework, width=_MAX_FRAMEWORK_CHARS), "Command": without_launcher},
    )


def _busiest(snapshot: Snapshot) -> Table:
    """The busiest processes of a host without a GPU."""
    heads = ("PID", "User", "CPU", "Host mem", "Time", "Framework", "Command")
    rows = []
    for process in snapshot.processes[:_MAX_CPU_PROCESSES]:
        cells = _process_cells(process, snapshot) | {"User": clean(process.user)}
        rows.append({head: cells[head] for head in heads})
    there, listed = snapshot.host_processes, len(snapshot.processes)
    note = "None of them uses a GPU." if snapshot.driver else "It is not known which of them use a GPU."
    if there is not None and there > len(rows):
        note = f"The {len(rows)} busiest of {there} processes; --json has {min(listed, there)}. {note}"
    return _process_table("Processes of the host", rows, ("Time", "Framework", "Host mem"), note)


def _process_cells(process: Process, snapshot: Snapshot) -> dict[str, str]:
    where = clean(process.device_index)
    command = process.command or process.name
    return {
        "GPU": f"{where}:{clean(process.mig_instance)}" if process.mig_instance else where,
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


def _advised(found: Finding, snapshot: Snapshot) -> Finding:
    """With the advice of a source that reports the same problem: it knows about simulated GPUs too."""
    for problem in snapshot.problems:
        if problem.hint and found.id == problem.reason and _explains(problem, snapshot):
            return msgspec.structs.replace(found, action=problem.hint)
    return found


def _explains(problem: Problem, snapshot: Snapshot) -> bool:
    """Whether a finding covers this problem, with its own advice."""
    return bool(problem.detail) and any(
        found.id == problem.reason and problem.detail in f"{found.title} {' '.join(found.evidence)}"
        for found in snapshot.findings
    )


def _problems(snapshot: Snapshot) -> Table:
    """What could not be read and is not among the findings."""
    rows = (
        (*map(clean, (problem.source, problem.reason, problem.detail)), clean_or_empty(problem.hint))
        for problem in snapshot.problems
        if not _explains(problem, snapshot)
    )
    return Table("Problems", ("Source", "Reason", "What", "What helps"), tuple(rows))
