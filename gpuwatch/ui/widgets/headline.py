"""What the top line and the line of the host say. Pure, no Textual."""

from __future__ import annotations

import datetime

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import gib
from gpuwatch.history.happened import ago
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.ui.cells import cut, width_of
from gpuwatch.ui.facts import fraction, whole_number
from gpuwatch.ui.lines import Span
from gpuwatch.ui.tabs import labels
from gpuwatch.ui.view import BAD_STATES, View
from gpuwatch.ui.widgets.pen import Pen

_LAST_SECONDS = 300.0
"""How long the top line tells of the last event."""
_LAST_MIN = 24


def verdict(view: View) -> Span:
    """Whether anything is wrong, in one or two words with a glyph."""
    snapshot = view.snapshot
    if snapshot is None:
        return "◌ starting", "dim"
    told = {finding.device_uuid for finding in view.wrong}
    errors = sum(f.severity == "error" for f in view.wrong)
    errors += sum(d.state in BAD_STATES and d.uuid not in told for d in snapshot.devices)
    warnings = sum(f.severity == "warning" for f in view.wrong)
    if errors:
        return f"✖ {errors} error{'s' * (errors > 1)}", "badge-error"
    if not snapshot.devices and snapshot.problems:
        return f"✖ {no_gpus(snapshot)[0]}", "badge-error"
    warnings += len(snapshot.problems) if not warnings else 0
    if warnings:
        return f"▲ {warnings} warning{'s' * (warnings > 1)}", "badge-warning"
    if not snapshot.devices:
        return "– no GPU", "dim"
    if view.status.state == "not-answering":
        return "", "dim"  # what is known is old, and the line says so
    well = next((one.since for one in view.findings if one.id == "healthy" and one.until is None), None)
    lasted = snapshot.taken_at.timestamp() - well.timestamp() if well is not None else 0.0
    span = ago(lasted).removesuffix(" ago")
    return f"● all well for {span}" if lasted >= 60 else "● all well", "ok"


def no_gpus(snapshot: Snapshot) -> tuple[str, str]:
    """Why none is shown, in two words and in a title: the driver lists none, or nobody knows which there are."""
    if snapshot.driver is not None:
        return "no GPU", "no GPU on this machine"
    if any(problem.reason == "driver.missing" for problem in snapshot.problems):
        return "no driver", "no NVIDIA driver: GPUs unknown"
    return "GPUs unknown", "the driver does not answer: GPUs unknown"


def condition(view: View, *, short: bool = False) -> Span:
    """How the data flow, when that is not simply well."""
    status = view.status
    if status.state == "not-answering":
        words = "no answer for" if short else "driver not answering for"
        return f"✖ {words} {status.waiting_seconds:.0f} s", "error"
    if status.state == "stopped":
        return f"■ stopped{': ' + printable(status.detail) if status.detail else ''}", "error"
    if status.state == "starting" or view.snapshot is None:
        return "◌ starting: asking the driver…", "accent"
    return "", "text"


def _facts(snapshot: Snapshot, room: int) -> list[Span]:
    """What the machine is; the driver is named as briefly as it takes to fit the rest into ``room`` cells."""
    host, driver, count = snapshot.host.hostname, snapshot.driver, len(snapshot.devices)
    version = printable(driver.version) if driver is not None and driver.version else ""
    facts: list[Span] = []
    for named in (f"driver {version}", version, ".".join(version.split(".")[:2])):
        facts = [(printable(host), "strong")] if host else []
        if version:
            facts.append((named, "dim"))
        if driver is not None and driver.cuda_version:
            facts.append((f"CUDA {printable(driver.cuda_version)}", "dim"))
        if sum(width_of(text) + 3 for text, _ in facts) <= room:
            break
    if count:
        facts.append((f"{count} GPU{'s' * (count != 1)}", "text"))
    return facts


def top_line(pen: Pen, view: View, tab: str) -> list[tuple[int, int, str]]:
    """The tabs, who, what, whether anything is wrong, and when; where the names of the tabs stand.

    Secondary words are dropped from the right as the line gets shorter.
    """
    snapshot = view.snapshot
    moment = datetime.datetime.fromtimestamp(view.now)
    ends: list[Span] = [
        (moment.strftime("%H:%M:%S"), "text"),
        (f"  {view.past.asked if view.past is not None else view.interval:g}s", "dim"),
        (" ", "text"),
    ]
    words, ink = verdict(view)
    state, state_ink = condition(view, short=pen.limit < 100)
    marks: list[Span] = []
    if view.simulated:
        marks.append((" SIMULATED ", "badge-warning"))
    if view.read_only:
        marks.append((" read-only ", "dim"))
    if state:
        marks.append((state, state_ink))
    if view.stale:
        marks.append((f"data {view.age:.0f} s old", "warning"))
    if snapshot is not None:
        marks.append((f" {words} " if ink.startswith("badge") else words, ink))
    reserve = sum(width_of(text) for text, _ in ends) + sum(width_of(text) + 2 for text, _ in marks)
    pen.add(" gpuwatch ", "title" if pen.limit >= 100 else "dim")
    # The name of the machine comes before the names of the tabs: they fold first.
    places = []
    for tab_id, text, tab_ink in labels(tab, pen.left - reserve - 8, {"events": view.unseen}):
        places.append((pen.x, pen.x + width_of(text), tab_id))
        pen.add(text, tab_ink)
    pen.add(" ")
    facts = _facts(snapshot, pen.left - reserve) if snapshot is not None else []
    first = True
    for text, fact_ink in facts:
        gap = " " if first else " · "
        if pen.left - reserve < width_of(text) + len(gap) + 1:
            if not first:
                break
            text = cut(text, max(pen.left - reserve - 2, 0))
        pen.add(gap, "faint").add(text, fact_ink)
        first = False
    room = pen.left - reserve - 4
    if room >= _LAST_MIN and view.events and view.now - view.events[-1].at < _LAST_SECONDS:
        last = view.events[-1]
        pen.add(" · ", "faint").add(cut(f"{ago(view.now - last.at)}: {last.text}", room), "text")
    pen.to(pen.limit - reserve)
    for text, mark_ink in marks:
        pen.add(text, mark_ink).add("  ")
    for text, end_ink in ends:
        pen.add(text, end_ink)
    return places


def host_line(pen: Pen, view: View) -> bool:
    """CPU, memory and load of the host; True when they are stale. Bars share what is left after the numbers."""
    if view.snapshot is None:
        pen.add(" CPU ", "dim").bar(None, 10, "gpu").add("   –", "dim")
        return False
    host = view.snapshot.host
    total = host.memory_total_bytes
    total_text = gib(total)
    memory = f"{gib(host.memory_used_bytes):>{len(total_text)}}"
    loads = [f"{value:6.1f}" for value in host.load] if host.load is not None else []
    # What stands beside the bars: labels, the percentage, the sizes, the load.
    beside = 31 + 2 * len(total_text) + 7 + 6 * len(loads)
    width = min(max((pen.limit - beside) // 2, 5), 30)
    pen.add(" CPU ", "dim").bar(fraction(host.cpu_percent, 100), width, "accent")
    pen.add(whole_number(host.cpu_percent, 4), "dim" if host.cpu_percent is None else "text").add(" %", "dim")
    pen.add("   MEM ", "dim").bar(fraction(host.memory_used_bytes, total), width, "memory")
    pen.add(f" {memory}", "dim" if host.memory_used_bytes is None else "text").add(f" / {total_text} GiB", "dim")
    if loads and pen.left >= 7 + sum(map(len, loads)):
        pen.add("   load", "dim").add(loads[0], "text").add("".join(loads[1:]), "dim")
    if host.cpu_count and pen.left >= 16:
        pen.add(f"   {host.cpu_count} cores", "dim")
    swap = fraction(host.swap_used_bytes, host.swap_total_bytes)
    if swap is not None and swap > 0.01 and pen.left >= 14:
        pen.add(f"   swap {swap * 100:3.0f} %", "dim")
    return view.stale
