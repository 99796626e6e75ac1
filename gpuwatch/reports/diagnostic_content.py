"""The diagnostic report in the order in which a helper asks.

Verdict and action; then which device is which GPU, whether driver, build and cards fit, which variables have
an effect, which libraries are loaded from where, who is on the GPUs, what ran out of memory or fell back, how
fast it was, and the raw lines.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN, duration, percent, size
from gpuwatch.model.diagnostic import Diagnostic, Told
from gpuwatch.model.doctor import STATE_ORDER, Check, Doctor
from gpuwatch.model.findings import CAUSES
from gpuwatch.model.run import Comparison, DeviceMapping, Run
from gpuwatch.model.snapshot import Process, Snapshot
from gpuwatch.reports import charts, run_content
from gpuwatch.reports.comparison_content import comparison_table
from gpuwatch.reports.content import SIMULATED_MACHINE, Content, Table, clean, clean_finding
from gpuwatch.reports.diagnostic_story import age, ended, name_of, story
from gpuwatch.reports.doctor_content import GROUPS, MARKS, libraries_table
from gpuwatch.reports.tables import cut, short_device

_STATES = {"error": "error", "warning": "warning", "info": "ok"}
_EFFECTS = {
    "effect": "● has effect",
    "warning": "▲ has effect",
    "misspelt": "✖ misspelt",
    "too-late": "✖ set too late",
    "unknown": "○ not known",
}
_ALWAYS = frozenset(
    {
        "driver.versions",
        "driver.cuda-version",
        "framework.build",
        "framework.cuda-version",
        "framework.capability",
        "framework.libraries",
        "framework.devices",
        "framework.op",
    }
)
"""Checks that a helper reads even when they pass."""
_WATCH = "If a program of yours fails or is slow all the same: gpuwatch run -- python train.py, then this report again."
_NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}
_EVIDENCE = 6
_RAW = 60
_LOGS = 8


def diagnostic_content(document: Diagnostic) -> Content:
    """Everything that the report shows."""
    main = document.findings[0] if document.findings and document.findings[0].id == document.primary else None
    doctor, snapshot, probes = document.doctor, document.snapshot, document.probes
    tables = (
        _map(document),
        _compatibility(doctor) if doctor is not None else None,
        _passed(doctor) if doctor is not None else None,
        _variables(document),
        libraries_table(doctor) if doctor is not None and doctor.libraries else None,
        _distributions(doctor) if doctor is not None else None,
        _people(snapshot) if snapshot is not None else None,
        _programs(document.programs, document.taken_at),
        _ooms(document),
        _fallbacks(document),
        _comparison(probes, timeline=not document.programs) if probes is not None else None,
        Table("Not gathered", ("Part", "Why"), tuple((clean(g.part), clean(g.why)) for g in document.missing)),
    )
    return Content(
        title="GPU diagnostic report",
        subtitle=" · ".join(_subtitle(document)),
        state="unknown" if document.primary is None else _STATES[main.severity] if main is not None else "ok",
        verdict=document.primary or "unknown",
        reason=_reason(document, main),
        simulated=SIMULATED_MACHINE if document.simulated else "",
        facts=tuple(story(document, main)),
        tables=tuple(table for table in tables if table is not None and _shown(table)),
        action=_action(document, main),
        evidence=tuple(clean(line) for line in main.evidence[:_EVIDENCE]) if main is not None else (),
        findings=tuple(clean_finding(found) for found in document.findings if found is not main),
        raw=tuple(_raw(document)),
        footer=_footer(document),
        parts=tuple(
            dataclasses.replace(run_content.run_content(run), title=name_of(run), subtitle=clean(run.title))
            for run in document.programs
        ),
    )


def _shown(table: Table) -> bool:
    return bool(table.rows or table.charts or table.note)


def _subtitle(document: Diagnostic) -> Iterator[str]:
    if document.host:
        yield clean(document.host)
    yield document.taken_at.strftime("%Y-%m-%d %H:%M:%S %Z").strip()
    yield f"gpuwatch {clean(document.gpuwatch_version)}"
    if document.redacted:
        yield "users, hosts and paths replaced"


def _reason(document: Diagnostic, main: Told | None) -> str:
    if document.primary is None:
        return "Neither the machine nor the doctor could be asked."
    if main is None or main.id == "healthy":
        usable = _usable(document.doctor)
        return f"{CAUSES['healthy']}.{f' {usable}.' if usable else ''}"
    certain = "" if main.certainty == "fact" else " (likely)"
    return f"{clean(main.title).rstrip('.')}{certain}."


def _action(document: Diagnostic, main: Told | None) -> str:
    if main is not None and main.action:
        return printable(main.action)
    return _WATCH if document.primary == "healthy" and not document.programs else ""


def _usable(doctor: Doctor | None) -> str:
    if doctor is None or doctor.framework is None:
        return ""
    count = sum("GPU" in entry.framework_device for entry in doctor.device_map)
    name = _NAMES.get(doctor.framework.name, clean(doctor.framework.name))
    return f"{name} can use {count} GPU{'' if count == 1 else 's'}" if count else ""


def _map(document: Diagnostic) -> Table:
    """Framework device, CUDA ordinal, NVML index, address, UUID, limit, and how full it is."""
    snapshot = document.snapshot
    entries: list[DeviceMapping] = list(document.doctor.device_map) if document.doctor is not None else []
    if document.doctor is None and snapshot is not None:
        entries = [
            DeviceMapping(
                framework_device="",
                physical_index=device.index,
                uuid=device.uuid,
                pci_bus_id=device.pci_bus_id,
                name=device.name,
                compute_capability=device.compute_capability,
            )
            for device in snapshot.devices
        ]
    rows = tuple(
        (
            short_device(entry.framework_device) if entry.framework_device else "no device",
            clean(entry.cuda_ordinal),
            clean(entry.physical_index),
            clean(entry.name),
            clean(entry.compute_capability),
            clean(entry.pci_bus_id),
            size(entry.granted_bytes),
            _now(entry, snapshot),
            clean(entry.uuid),
        )
        for entry in entries
    )
    if document.doctor is None or document.doctor.framework is None:
        rows = tuple((UNKNOWN, *row[1:]) for row in rows)  # nobody asked a framework
    return Table(
        "Which device is which GPU",
        ("Framework", "CUDA", "NVML", "Name", "Cap.", "PCI bus id", "Granted", "In use now", "UUID"),
        rows,
        frozenset({1, 2, 6}),
        keep=frozenset({0, 5}),
    )


def _now(entry: DeviceMapping, snapshot: Snapshot | None) -> str:
    device = snapshot.device(entry.uuid) if snapshot is not None else None
    if device is None:
        return UNKNOWN
    if device.state != "ok":
        return clean(device.state) + (f": {clean(device.state_detail)}" if device.state_detail else "")
    return f"{size(device.number('memory.used_bytes'))} of {size(device.number('memory.total_bytes'))}"


def _compatibility(doctor: Doctor) -> Table:
    """Driver, cards and build against each other: what is wrong first."""
    groups = list(dict.fromkeys(check.group for check in doctor.checks))
    marks = charts.checks((GROUPS.get(name, name), [c for c in doctor.checks if c.group == name]) for name in groups)
    bad = sorted((c for c in doctor.checks if _bad(c)), key=lambda check: STATE_ORDER[check.state])
    rest = [check for check in doctor.checks if not _bad(check) and check.id in _ALWAYS]
    return Table(
        "Driver, build and cards against each other",
        ("State", "Check", "Found → what to do"),
        tuple(_check(check) for check in (*bad, *rest)),
        keep=frozenset({0, 1}),
        charts=(marks,),
    )


def _passed(doctor: Doctor) -> Table:
    """The rest of the checks: nobody needs them at once, and somebody will ask for one."""
    rows = tuple(_check(check) for check in doctor.checks if not _bad(check) and check.id not in _ALWAYS)
    return Table("Other checks", ("State", "Check", "Found"), rows, keep=frozenset({0, 1}), folded=True)


def _bad(check: Check) -> bool:
    return check.state in ("fail", "warn")


def _check(check: Check) -> tuple[str, ...]:
    what = clean(check.detail) + (f" → {clean(check.action)}" if check.action else "")
    return (MARKS[check.state], clean(check.title or check.id), what)


def _variables(document: Diagnostic) -> Table | None:
    if document.doctor is None:
        return None
    order = list(_EFFECTS)
    shown = sorted(document.variables, key=lambda entry: -order.index(entry.effect) if entry.effect != "unknown" else 1)
    rows = tuple(
        (_EFFECTS[entry.effect], clean(entry.name), clean(entry.value), clean(entry.note) if entry.note else "")
        for entry in shown
    )
    if not rows:
        rows = (("○ none", "", "", "no variable that bears on GPUs is set"),)
    return Table("Environment variables", ("State", "Variable", "Value", "What it does"), rows, keep=frozenset({0}))


def _distributions(doctor: Doctor) -> Table:
    rows = tuple((clean(entry.name), clean(entry.version)) for entry in doctor.distributions)
    return Table("Installed distributions", ("Name", "Version"), rows, folded=True)


def _people(snapshot: Snapshot) -> Table | None:
    """Who is on the GPUs, the largest first."""
    if not snapshot.devices:
        return None
    shown = sorted(
        (p for p in snapshot.processes if p.device_uuid is not None),
        key=lambda p: (p.device_index or 0, -(p.number("gpu_memory_bytes") or 0)),
    )
    rows = [_person(process) for process in shown]
    heads = ("GPU", "PID", "User", "Framework", "GPU mem", "SM", "Time", "Sees", "Command")
    chart = charts.memory_by_owner(snapshot)
    return Table(
        "Who is on the GPUs",
        heads,
        cut(rows, len(heads)),
        frozenset({0, 1, 4, 5, 6}),
        below=8,
        note="" if rows else "No process is on a GPU.",
        charts=(chart,) if chart is not None else (),
    )


def _person(process: Process) -> tuple[str, ...]:
    return (
        clean(process.device_index),
        str(process.pid),
        clean(process.user) + (f" ({clean(process.note)})" if process.note else ""),
        clean(process.framework),
        size(process.number("gpu_memory_bytes")),
        percent(process.number("sm_percent")),
        duration(process.number("run_seconds")),
        _sees(process),
        clean(process.command or process.name)[:160],
    )


def _sees(process: Process) -> str:
    """CUDA_VISIBLE_DEVICES; a process whose environment nobody may read sees who knows what."""
    if process.cuda_visible_devices is not None:
        return clean(process.cuda_visible_devices)
    return UNKNOWN if process.note or process.create_time is None else "all"


def _programs(programs: Sequence[Run], now: datetime.datetime) -> Table:
    rows = tuple(
        (
            age(run, now),
            name_of(run),
            ended(run),
            run_content.device_map(run),
            size(run.memory.nvml_peak_bytes),
            run_content.fell_back(run),
        )
        for run in programs
    )
    timelines = tuple(
        charts.Timeline(f"Memory of {name_of(run)}", run) for run in programs[:2] if len(run.memory.timeline) > 1
    )
    heads = ("When", "Program", "Ended", "Device map", "Seen by NVML", "Fell back")
    return Table("Programs that were watched", heads, rows, frozenset({4}), charts=timelines)


def _ooms(document: Diagnostic) -> Table:
    heads = ("Run", "Device", "Requested", "Limit", "In use", "Largest free", "Cause", "Meant")
    rows = [
        (
            name_of(run),
            clean(oom.device),
            size(oom.requested_bytes),
            size(oom.limit_bytes),
            size(oom.in_use_bytes),
            size(oom.largest_free_bytes),
            clean(oom.verdict),
            "yes" if oom.expected else "no",
        )
        for run in _runs(document)
        for oom in sorted(run.ooms, key=lambda oom: oom.expected)[:3]
    ]
    note = "Meant: the probe is there to run out of memory." if any(row[-1] == "yes" for row in rows) else ""
    return Table("Out of memory", heads, cut(rows, len(heads)), frozenset({2, 3, 4, 5}), note=note)


def _fallbacks(document: Diagnostic) -> Table:
    heads = ("Run", "Op", "Type", "Asked", "Ran on", "Count", "Why")
    rows = [
        (
            name_of(run),
            clean(entry.op),
            clean(entry.dtype),
            clean(entry.requested),
            clean(entry.actual),
            str(entry.count),
            clean(entry.detail or CAUSES.get(entry.reason, entry.reason)) + f" ({clean(entry.reason)})",
        )
        for run in _runs(document)
        for entry in run.fallbacks[:5]
    ]
    return Table("Ops that fell back", heads, cut(rows, len(heads)), frozenset({5}), below=6)


def _runs(document: Diagnostic) -> tuple[Run, ...]:
    return (*document.programs, *(document.probes.runs if document.probes is not None else ()))


def _comparison(probes: Comparison, *, timeline: bool) -> Table | None:
    """The probes side by side; the memory of the latest over its time, where no program shows one."""
    if not probes.runs:
        return None
    table = comparison_table(probes, "Probes compared")
    drawn = [run for run in probes.runs if len(run.memory.timeline) > 1]
    if not timeline or not drawn:
        return table
    latest = max(drawn, key=lambda run: run.started_at)
    chart = charts.Timeline(f"Memory of the latest probe, {clean(latest.config)}", latest)
    return dataclasses.replace(table, charts=(*table.charts, chart))


def _raw(document: Diagnostic) -> Iterator[tuple[str, tuple[str, ...]]]:
    if document.doctor is not None and document.doctor.log_tail:
        yield "Log of the doctor's run", tuple(printable(line) for line in document.doctor.log_tail[-_RAW:])
    count = 0
    for run in _runs(document):
        bad = run.verdict in ("error", "timeout") or (run.verdict == "oom" and not all(o.expected for o in run.ooms))
        if run.log_tail and (run.group == "run" or bad) and count < _LOGS:
            count += 1
            yield f"Log of {name_of(run)}", tuple(printable(line) for line in run.log_tail[-_RAW:])


def _footer(document: Diagnostic) -> str:
    kept = "Secrets are masked" + ("; users, hosts and paths are replaced" if document.redacted else "")
    return f"gpuwatch {clean(document.gpuwatch_version)}, gathered in {document.took_seconds:.1f} s. {kept}."
