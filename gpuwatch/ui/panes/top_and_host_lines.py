"""The top line and the host line. Pure, no Textual."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Sequence

from gpuwatch.core.formatting.durations import ago, rounded_duration
from gpuwatch.core.formatting.units import gib_text, rounded
from gpuwatch.core.model.clock_event_reasons import BRAKE, THERMAL, clock_reasons
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import BAD_STATES, FAILED_ITSELF, Device, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.gpu_faults import unreadable_metrics
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.session.view import PlayheadPosition, View
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Span
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of
from gpuwatch.ui.settings.tabs import tab_labels
from gpuwatch.ui.tables.device_notes import throttled_text

_VERSIONS_BELOW = range(110, 152)
"""Widths at which the line of the host has the number of GPUs and the versions of the driver: the line above has no
room for them once something is wrong."""
_LAST_SECONDS = 300.0
"""Seconds for which the top line shows the last event."""
_MIN_LAST_CELLS = 24
_UNREMARKABLE = ("healthy", "throttle.power")
"""Causes of notes that nobody needs to know: a busy GPU is at its power limit."""
_NOTABLE_BYTES = 2**30
"""Unexplained bytes that the verdict ignores: contexts and the driver's own use."""


def verdict(view: View) -> Span:
    """Whether anything is wrong, in one or two words with a glyph; while an earlier moment is shown, then and now.

    Never green while anything on screen is not: a machine that is healthy now does not make an earlier moment
    on screen healthy.
    """
    if view.live is None:
        return _verdict(view)
    (then, then_style), (now, now_style) = _verdict(view), _verdict(view.live)
    if then == now or not now:
        return (now, now_style) if now or then_style != "ok" else ("", "dim")
    if now_style == "ok":
        return (f"then {then}", then_style) if then_style != "ok" else (now, now_style)
    return f"now {now}", now_style


def _verdict(view: View) -> Span:
    snapshot = view.snapshot
    if snapshot is None or view.waiting:
        return "◌ starting", "dim"
    silent = view.status.state in ("not-answering", "stopped")
    # feed_state() shows silence.
    wrong = [finding for finding in view.errors_and_warnings if not (silent and finding is view.silence)]
    errors = sum(f.severity == "error" for f in wrong)
    if not errors and not snapshot.devices and snapshot.problems:
        return f"✖ {why_no_gpus(snapshot)[0]}", "badge-error"
    if found := error_count(errors, len(wrong) - errors or len(snapshot.problems)):
        return found[0]
    if not snapshot.devices:
        return "– no GPU", "dim"
    if silent:
        return "", "dim"  # feed_state() shows that the data are old
    well = next((finding.since for finding in view.findings if finding.id == "healthy" and finding.until is None), None)
    if _mostly_unexplained(snapshot.devices):
        return "▲ unexplained", "warning"  # the row below the processes shows how much and where
    if well is not None and any(throttled_text(device, view.findings) for device in snapshot.devices):
        return "▲ throttled", "warning"  # the card says why; a finding follows if it lasts
    if well is None and any(map(_looks_bad, snapshot.devices)):
        return "", "dim"  # a sample that is drawn before it is judged, or of which too little is known yet
    if noted := len(notable_notes(view.findings)):
        return f"● {noted} note{'s' * (noted > 1)}", "text"
    lasted = snapshot.taken_at.timestamp() - max(well.timestamp(), view.troubled) if well is not None else 0.0
    # In minutes: a count of seconds would be the one thing that moves on a calm screen.
    return f"● all well for {rounded_duration(lasted)}" if lasted >= 100 else "● all well", "ok"


def error_count(errors: int, warnings: int) -> list[Span]:
    """``✖ 2 errors``, else ``▲ 1 warning``; empty if there is neither."""
    for count, word, glyph in ((errors, "error", "✖"), (warnings, "warning", "▲")):
        if count:
            return [(f"{glyph} {count} {word}{'s' * (count > 1)}", f"badge-{word}")]
    return []


def notable_notes(findings: Sequence[Finding]) -> list[Finding]:
    """Notes that somebody should know."""
    return [
        finding
        for finding in findings
        if finding.severity == "info" and finding.until is None and finding.id not in _UNREMARKABLE
    ]


def _looks_bad(device: Device) -> bool:
    """Whether its card shows something that is not well."""
    throttled = (clock_reasons(device) or frozenset()) & (THERMAL | BRAKE)
    unwell = device.number("ecc.uncorrected") or unreadable_metrics(device)
    return device.state in BAD_STATES or bool(throttled) or bool(unwell)


def _mostly_unexplained(devices: Sequence[Device]) -> bool:
    """Whether most of the used GPU memory, and a notable amount, is owned by no listed process."""
    used = sum(device.number("memory.used_bytes") or 0.0 for device in devices)
    unexplained = sum(device.number("memory.unexplained_bytes") or 0.0 for device in devices)
    return unexplained >= _NOTABLE_BYTES and unexplained > used / 2


_WHY_UNKNOWN = {
    "driver.missing": "no NVIDIA driver",
    "driver.mismatch": "the driver cannot be queried",
    "driver.bad-state": "the driver refuses",
    "container.lost-devices": "the driver refuses",
    FAILED_ITSELF: "gpuwatch could not query the driver",
}
"""By the reason of a problem, the most important first."""


def why_no_gpus(snapshot: Snapshot) -> tuple[str, str]:
    """Why no GPU is shown, in two words and as a title: the driver lists none, or GPUs are unknown."""
    if snapshot.driver is not None:
        return "no GPU", "no GPU on this machine"
    reasons = {problem.reason for problem in snapshot.problems}
    why = next((text for reason, text in _WHY_UNKNOWN.items() if reason in reasons), "the driver does not answer")
    return "no driver" if "driver.missing" in reasons else "GPUs unknown", f"{why}: GPUs unknown"


def feed_state(view: View, *, short: bool = False) -> Span:
    """The state of the data feed; empty while data arrive."""
    status = view.status
    if status.state == "not-answering":
        words = "no answer" if short else "no answer from the driver"
        if status.blame:
            words = f"collector {printable(status.blame).removeprefix('was ')}, no data"
        return f"✖ {words} for {status.waiting_seconds:.0f} s", "error"
    if status.state == "stopped":
        return f"■ stopped{': ' + printable(status.detail) if status.detail else ''}", "error"
    if status.state == "starting" or view.waiting:
        return "◌ starting" if short else "◌ starting: querying the driver…", "accent"
    return "", "text"


def _facts(snapshot: Snapshot, room: int, width: int) -> list[Span]:
    """Host, driver, CUDA and GPU count; the driver is shortened to fit ``room`` cells of ``width``."""
    host, count = snapshot.host.hostname, len(snapshot.devices)
    driver = snapshot.driver if width not in _VERSIONS_BELOW else None
    version = printable(driver.version) if driver is not None and driver.version else ""
    facts: list[Span] = []
    for named in (f"driver {version}", version, ".".join(version.split(".")[:2])):
        facts = [(printable(host), "strong")] if host else []
        if count and width not in _VERSIONS_BELOW:  # before the versions, which go when something is wrong
            facts.append((_gpu_count(count), "text"))
        if version:
            facts.append((named, "dim"))
        if driver is not None and driver.cuda_version:
            facts.append((f"CUDA {printable(driver.cuda_version)}", "dim"))
        if sum(width_of(text) + 3 for text, _ in facts) <= room:
            break
    return facts


def _gpu_count(gpus: int) -> str:
    return f"{gpus} GPU{'s' * (gpus != 1)}"


_Labels = list[tuple[str, str, str]]
_SPEED = {0.25: "1/4x", 0.5: "1/2x"}
_LONGEST_REPLAY = " ▶ REPLAY 1/4x 99 % "
_BADGE_CELLS = 15
"""Cells reserved for the verdict, so that the tab names do not fold when it changes."""
_MIN_NAME_CELLS = 6
"""A name cut to fewer cells is dropped."""
_HOST_CELLS = 8
"""Cells for the host name, possibly cut."""
_WITH_SOURCE = -1
"""The level at which there is room to say that the samples come from a recorder."""
_LEVELS = range(_WITH_SOURCE, 7)


def _length(marks: list[Span]) -> int:
    return sum(width_of(text) for text, _ in marks)


def _with_gaps(marks: list[Span], level: int) -> list[Span]:
    return [part for mark in marks for part in (mark, (" " if level >= 4 else "  ", "text"))]


def _state_marks(view: View, level: int) -> list[Span]:
    """Marks that must always be visible, shorter at a higher ``level``."""
    marks: list[Span] = []
    if view.past is not None and view.past.played is not None:
        marks.append((f" {_replayed(view.past, paused=view.paused_since is not None, level=level)} ", "badge"))
    if view.simulated:
        marks.append((" SIMULATED " if level < 3 else " SIM ", "badge-neutral"))
    if view.read_only:
        marks.append((" read-only " if level < 3 else "r/o", "dim"))
    state, style = feed_state(view, short=level > 0)
    if state:
        marks.append((state, style))
    if view.stale and view.status.state != "not-answering":  # that state shows its own duration
        marks.append((f"data {view.age:.0f} s old", "warning"))
    words, style = verdict(view)
    if words and not view.waiting:
        short = words.partition(" for ")[0] if style == "ok" and level else words
        marks.append((f" {words} " if style.startswith("badge") else short, style))
    return _with_gaps(marks, level)


def _replayed(past: PlayheadPosition, *, paused: bool, level: int) -> str:
    """``▶ REPLAY 8x 37 %``; shorter at a higher ``level``."""
    played = past.played
    assert played is not None
    words = ["‖" if paused else "■" if played.ended else "▶", "REPLAY"]
    if not paused and (played.following or played.ended):
        return " ".join([*words, "now" if played.following else "end"])
    if played.speed != 1 and level < 5:
        words.append(_SPEED.get(played.speed, f"{played.speed:g}x"))
    if level < 2:
        words.append(f"{int(past.share * 100)} %")
    return " ".join(words)


def _clock_spans(view: View, level: int) -> list[Span]:
    moment = datetime.datetime.fromtimestamp(view.now)
    ends: list[Span] = [(moment.strftime("%H:%M:%S" if level < 4 else "%H:%M"), "text")] if level < 5 else []
    if view.past is not None and view.played is not None:
        other_day = moment.date() != datetime.datetime.fromtimestamp(view.past.viewers_time).date()
        if level < 5 and other_day:
            ends.insert(0, (moment.strftime("%m-%d "), "text"))
    elif level < 2:
        ends.append((f"  {view.past.interval if view.past is not None else view.interval:g}s", "dim"))
    return [*ends, (" ", "text")]


def _fit_parts(width: int, view: View, tab: str) -> tuple[_Labels, list[Span], list[Span]]:
    """The tab names, the marks and the clock, as they fit.

    The form of the tab names follows from the width alone, so that nothing moves when something goes wrong:
    the marks get shorter first, then the clock, and the names last.
    """
    in_full = _state_marks(view, 0), _clock_spans(view, 0)
    calm = [mark for mark in in_full[0] if mark[0].strip() in ("SIMULATED", "read-only")]
    if view.played is not None:
        calm.append((_LONGEST_REPLAY, "text"))
    titled = width >= (80 if view.played is None else 100)
    title: _Labels = [("", " gpuwatch ", "title" if width >= 100 else "dim")] if titled else []
    still = sum(width_of(text) for _, text, _ in title) + _length([*_with_gaps(calm, 0), *in_full[1]]) + _BADGE_CELLS
    usual = tab_labels(tab, width - still - _HOST_CELLS, view.unseen)
    active = [label for label in usual if label[0] == tab]
    ways = [usual, active]
    if view.status.state == "stopped":
        # Show the reason in full: nothing will move any more.
        ways.insert(1, tab_labels(tab, 0, view.unseen))
    spare = {_WITH_SOURCE: 3 * _HOST_CELLS, 0: _HOST_CELLS, 1: 1}
    for names in ways:
        for level in _LEVELS:
            left = names if level >= 6 else [*title, *names]
            marks, ends = (_state_marks(view, level), _clock_spans(view, level)) if level > 0 else in_full
            if level == _WITH_SOURCE:
                if not view.status.recording:
                    continue
                marks = [*_with_gaps([("recorded", "dim")], 0), *marks]
            need = sum(width_of(text) for _, text, _ in left) + _length([*marks, *ends])
            if need + spare[min(level, 1)] <= width:
                return left, marks, ends
    return left, marks, ends


def _last_event(view: View) -> MachineEvent | None:
    """The last recent event; not those of a condition that is shown as a finding already."""
    shown = {(finding.id, finding.device_uuid) for finding in view.errors_and_warnings}
    recent = itertools.takewhile(lambda event: view.now - event.at < _LAST_SECONDS, reversed(view.events))
    return next((event for event in recent if (event.cause, event.device_uuid) not in shown), None)


def top_line(builder: LineBuilder, view: View, tab: str) -> list[tuple[int, int, str]]:
    """Draws tabs, host, driver, verdict and clock; returns the clickable places (start, end, tab id).

    Less important words are dropped from the right as the line gets shorter.
    """
    snapshot = view.snapshot
    names, marks, ends = _fit_parts(builder.width, view, tab)
    reserve = _length([*marks, *ends])
    places = []
    for tab_id, text, tab_style in names:
        if tab_id:
            places.append((builder.x, builder.x + width_of(text), tab_id))
        builder.add(text, tab_style)
    builder.add(" ")
    facts = _facts(snapshot, builder.cells_left - reserve, builder.width) if snapshot is not None else []
    for place, (text, fact_style) in enumerate(facts):
        gap = " · " if place else " "
        room = builder.cells_left - reserve - len(gap) - 1
        if room < width_of(text):
            if place or room < _MIN_NAME_CELLS:
                break
            text = cut_to_width(text, room)
        builder.add(gap, "faint").add(text, fact_style)
    room = builder.cells_left - reserve - 4
    last = _last_event(view) if room >= _MIN_LAST_CELLS else None
    if last is not None:
        builder.add(" · ", "faint").add(cut_to_width(f"{ago(view.now - last.at)}: {last.text}", room), "text")
    builder.fill_to(builder.width - reserve)
    found = verdict(view)[0]
    for text, mark_style in marks:
        if text.strip() and found.startswith(text.strip()):
            places.append((builder.x, builder.x + width_of(text), "findings"))
        builder.add(text, mark_style)
    builder.add_spans(ends)
    return places


def _versions(view: View) -> str:
    """``2 GPUs · driver 580.159 · CUDA 13.0``, with a margin; empty if unknown."""
    driver = view.snapshot.driver if view.snapshot is not None else None
    if driver is None or not driver.version:
        return ""
    version = ".".join(printable(driver.version).split(".")[:2])
    cuda = f" · CUDA {printable(driver.cuda_version)}" if driver.cuda_version else ""
    return f"   {_gpu_count(len(view.devices))} · driver {version}{cuda} "


def host_line(builder: LineBuilder, view: View) -> bool:
    """Draws CPU, memory and load of the host; True if they are stale. Bars share the space left by the numbers."""
    host = view.host
    if host is None:
        builder.add(" CPU ", "dim").bar(None, 10, "gpu").add("   –", "dim")
        return False
    total = host.memory_total_bytes
    total_text = gib_text(total)
    memory = f"{gib_text(host.memory_used_bytes):>{len(total_text)}}"
    loads = [f"{value:6.1f}" for value in host.load] if host.load is not None else []
    versions = _versions(view) if builder.width in _VERSIONS_BELOW else ""
    # Cells of the labels, the percentage, the sizes, the load and the versions.
    beside = 31 + 2 * len(total_text) + 7 + 6 * len(loads) + len(versions)
    width = min(max((builder.width - beside) // 2, 5), 30)
    builder.add(" CPU ", "dim").bar(fraction(host.cpu_percent, 100), width, "gpu")
    builder.add(rounded(host.cpu_percent, 4), "dim" if host.cpu_percent is None else "text").add(" %", "dim")
    builder.add("   MEM ", "dim").bar(fraction(host.memory_used_bytes, total), width, "memory")
    builder.add(f" {memory}", "dim" if host.memory_used_bytes is None else "text").add(f" / {total_text} GiB", "dim")
    if loads and builder.cells_left >= 7 + sum(map(len, loads)):
        builder.add("   load", "dim").add(loads[0], "text").add("".join(loads[1:]), "dim")
    if versions and builder.cells_left > len(versions):
        builder.fill_to(builder.width - len(versions)).add(versions, "dim")
        return view.host_stale
    if host.cpu_count and builder.cells_left >= 16:
        builder.add(f"   {host.cpu_count} cores", "dim")
    swap = fraction(host.swap_used_bytes, host.swap_total_bytes)
    if swap is not None and swap > 0.01 and builder.cells_left >= 14:
        builder.add(f"   swap {swap * 100:3.0f} %", "dim")
    return view.host_stale
