"""Compares reports: why does it work here and not there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.contrast import Contrast, Row
from gpuwatch.core.model.diagnostic import Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.findings import CAUSES
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.share.reports.content import SIMULATED_MACHINE, Content, Table, clean
from gpuwatch.share.reports.doctor_content import MARKS
from gpuwatch.share.reports.tables import short_device

Fact = tuple[str, str, str, str]
"""Part, name, text, and key: keys are compared, since texts have times and sizes that always differ."""
_ALWAYS = "Verdict"
"""The part that is shown even if all agree."""
_MODES = ("mode.compute", "mode.persistence", "mig.mode")


def contrast(documents: Sequence[Diagnostic | Doctor]) -> Contrast:
    """The facts in which the reports differ, the most telling first."""
    facts_of = [{(part, name): (shown, key) for part, name, shown, key in report_facts(one)} for one in documents]
    names = dict.fromkeys(name for facts in facts_of for name in facts)
    parts = list(dict.fromkeys(part for part, _ in names))
    rows, alike = [], 0
    for part, name in sorted(names, key=lambda entry: parts.index(entry[0])):
        entries = [facts.get((part, name)) for facts in facts_of]
        if part != _ALWAYS and len({entry[1] if entry is not None else None for entry in entries}) == 1:
            alike += 1
            continue
        rows.append(
            Row(part=part, name=name, values=tuple(entry[0] if entry is not None else None for entry in entries))
        )
    return Contrast(
        sources=_sources(documents),
        primaries=tuple(one.primary for one in documents),
        simulated=any(one.simulated for one in documents),
        rows=tuple(rows),
        alike=alike,
    )


def _sources(documents: Sequence[Diagnostic | Doctor]) -> tuple[str, ...]:
    hosts = [clean(one.host) if one.host else "a machine" for one in documents]
    if len(set(hosts)) < len(hosts):
        hosts = [f"{host} {one.taken_at:%Y-%m-%d %H:%M:%S}" for host, one in zip(hosts, documents, strict=True)]
    totals, seen = Counter(hosts), Counter[str]()
    names = []
    for host in hosts:
        seen[host] += 1
        names.append(f"{host} #{seen[host]}" if totals[host] > 1 else host)
    return tuple(names)


def report_facts(document: Diagnostic | Doctor) -> Iterator[Fact]:
    """What is compared of a report."""
    doctor = document if isinstance(document, Doctor) else document.doctor
    snapshot = document.snapshot if isinstance(document, Diagnostic) else None
    yield from _same("Verdict", "primary cause", document.primary or UNKNOWN)
    others = [found.id for found in document.findings if found.id != document.primary and found.severity != "info"]
    if others:
        yield from _same("Verdict", "also", ", ".join(dict.fromkeys(others)))
    if doctor is not None:
        yield from _versions(doctor)
    if snapshot is not None:
        yield from _gpus(snapshot)
    if doctor is None:
        return
    for mapping in doctor.device_map:
        if mapping.framework_device:
            which = f"GPU {clean(mapping.physical_index)} {clean(mapping.name)}, {size(mapping.granted_bytes)}"
            key = f"{mapping.physical_index} {mapping.name}"
            yield "Device map", short_device(mapping.framework_device), which, key
    for name, value in doctor.environment.items():
        yield from _same("Environment variables", clean(name), clean(value))
    for library in doctor.libraries:
        facts = (library.state, library.version, f"from {library.origin}" if library.origin else None)
        yield from _same("Libraries", clean(library.name), " ".join(clean(fact) for fact in facts if fact))
    for entry in doctor.distributions:
        yield from _same("Distributions", clean(entry.name), clean(entry.version))
    for check in doctor.checks:
        # Compared by state: details have times and free memory, which always differ.
        yield "Checks", clean(check.title or check.id), f"{MARKS[check.state]}: {clean(check.detail)}", check.state


def _versions(doctor: Doctor) -> Iterator[Fact]:
    for name, value in doctor.versions.items():
        yield from _same("Versions", name.replace("_", " "), clean(value))
    if doctor.framework is not None:
        yield from _same("Versions", "built with CUDA", clean(doctor.framework.gpu_build))
        yield from _same("Versions", "interpreter", clean(doctor.framework.interpreter))


def _gpus(snapshot: Snapshot) -> Iterator[Fact]:
    yield from _same("GPUs", "count", str(len(snapshot.devices)))
    for device in snapshot.devices:
        total = size(device.number("memory.total_bytes"))
        capability = f", capability {clean(device.compute_capability)}" if device.compute_capability else ""
        yield from _same("GPUs", f"GPU {device.index}", f"{clean(device.name)}, {total}{capability}")
        if device.state != "ok":
            yield from _same("GPUs", f"GPU {device.index}, state", clean(device.state))
        for mode in _MODES:
            if mode in device.readings:
                yield from _same("GPUs", f"GPU {device.index}, {mode}", clean(device.readings[mode]))


def _same(part: str, name: str, shown: str) -> Iterator[Fact]:
    """A fact that is compared by its text."""
    yield part, name, shown, shown


def contrast_content(document: Contrast) -> Content:
    """A table for each part that differs."""
    heads = ("What", *document.sources)
    parts = dict.fromkeys(row.part for row in document.rows)
    tables = tuple(
        Table(
            part,
            heads,
            tuple((row.name, *(value or UNKNOWN for value in row.values)) for row in document.rows if row.part == part),
        )
        for part in parts
    )
    count = sum(row.part != _ALWAYS for row in document.rows)
    sick = [cause for cause in document.primaries if cause not in (None, "healthy")]
    verdicts = (
        f"{source}: {CAUSES.get(cause, cause) if cause else 'not known'}"
        for source, cause in zip(document.sources, document.primaries, strict=True)
    )
    return Content(
        title=f"{len(document.sources)} reports compared",
        subtitle=" · ".join(document.sources),
        state="error" if sick and count else "warning" if sick else "ok",
        verdict=f"{count} fact{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}"
        if count
        else "No fact differs",
        reason=". ".join(verdicts) + ".",
        simulated=SIMULATED_MACHINE if document.simulated else "",
        facts=(("alike", f"{document.alike} facts are the same everywhere"),),
        tables=tables,
        footer="gpuwatch compare",
    )
