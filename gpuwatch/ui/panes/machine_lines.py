"""The lines about the whole machine: tabs, driver, verdict and clock at the top; the host's CPU, memory and load."""

from __future__ import annotations

import datetime
import itertools

from gpuwatch.core.formatting.durations import ago
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import gib_number, whole_number
from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.session.view import PlayheadPosition, View
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Span, spans_width
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of
from gpuwatch.ui.panes.verdict import verdict
from gpuwatch.ui.settings.tabs import tab_labels

WIDTHS_WITH_VERSIONS = range(110, 152)
"""Widths at which the line of the host has the number of GPUs and the versions of the driver: the line above has no
room for them once something is wrong."""


def gpu_count_text(gpus: int) -> str:
    """``2 GPUs``."""
    return count_text(gpus, "GPU")


def _versions(view: View) -> str:
    """``2 GPUs · driver 580.159 · CUDA 13.0``, with a margin; empty if unknown."""
    driver = view.snapshot.driver if view.snapshot is not None else None
    if driver is None or not driver.version:
        return ""
    version = ".".join(printable(driver.version).split(".")[:2])
    cuda = f" · CUDA {printable(driver.cuda_version)}" if driver.cuda_version else ""
    return f"   {gpu_count_text(len(view.devices))} · driver {version}{cuda} "


def host_line(builder: LineBuilder, view: View) -> bool:
    """Draws CPU, memory and load of the host; True if they are stale. Bars share the space left by the numbers."""
    host = view.host
    if host is None:
        builder.add(" CPU ", "dim").bar(None, 10, "gpu").add("   –", "dim")
        return False
    total = host.memory_total_bytes
    total_text = gib_number(total)
    memory = f"{gib_number(host.memory_used_bytes):>{len(total_text)}}"
    loads = [f"{value:6.1f}" for value in host.load] if host.load is not None else []
    versions = _versions(view) if builder.width in WIDTHS_WITH_VERSIONS else ""
    # Cells of the labels, the percentage, the sizes, the load and the versions.
    beside = 31 + 2 * len(total_text) + 7 + 6 * len(loads) + len(versions)
    width = min(max((builder.width - beside) // 2, 5), 30)
    builder.add(" CPU ", "dim").bar(fraction(host.cpu_percent, 100), width, "gpu")
    builder.add(whole_number(host.cpu_percent, 4), "dim" if host.cpu_percent is None else "text").add(" %", "dim")
    builder.add("   MEM ", "dim").bar(fraction(host.memory_used_bytes, total), width, "memory")
    builder.add(f" {memory}", "dim" if host.memory_used_bytes is None else "text").add(f" / {total_text} GiB", "dim")
    if loads and builder.cells_left >= 7 + sum(map(len, loads)):
        builder.add("   load", "dim").add(loads[0], "text").add("".join(loads[1:]), "dim")
    if versions and builder.cells_left > len(versions):
        builder.fill_to(builder.width - len(versions)).add(versions, "dim")
        return view.host_stale
    if host.cpu_count and builder.cells_left >= 16:
        builder.add(f"   {count_text(host.cpu_count, 'core')}", "dim")
    swap = fraction(host.swap_used_bytes, host.swap_total_bytes)
    if swap is not None and swap > 0.01 and builder.cells_left >= 14:
        builder.add(f"   swap {swap * 100:3.0f} %", "dim")
    return view.host_stale


_LAST_EVENT_SECONDS = 300.0
"""Seconds for which the top line shows the last event."""
_MIN_EVENT_CELLS = 24


def feed_state(view: View, *, short: bool = False) -> Span:
    """The state of the data feed; empty while data arrive."""
    status = view.status
    if status.state == "not-answering":
        words = "no answer" if short else "no answer from the driver"
        if status.collector_fault:
            words = f"collector {printable(status.collector_fault).removeprefix('was ')}, no data"
        return f"✖ {words} for {status.waiting_seconds:.0f} s", "error"
    if status.state == "stopped":
        return f"■ stopped{': ' + printable(status.detail) if status.detail else ''}", "error"
    if status.state == "starting" or view.waiting:
        return "◌ starting" if short else "◌ starting: querying the driver…", "accent"
    return "", "text"


def _facts(snapshot: Snapshot, room: int, width: int) -> list[Span]:
    """Host, driver, CUDA and GPU count; the driver is shortened to fit ``room`` cells of ``width``."""
    host, count = snapshot.host.hostname, len(snapshot.devices)
    driver = snapshot.driver if width not in WIDTHS_WITH_VERSIONS else None
    version = printable(driver.version) if driver is not None and driver.version else ""
    facts: list[Span] = []
    for named in (f"driver {version}", version, ".".join(version.split(".")[:2])):
        facts = [(printable(host), "strong")] if host else []
        if count and width not in WIDTHS_WITH_VERSIONS:  # before the versions, which go when something is wrong
            facts.append((gpu_count_text(count), "text"))
        if version:
            facts.append((named, "dim"))
        if driver is not None and driver.cuda_version:
            facts.append((f"CUDA {printable(driver.cuda_version)}", "dim"))
        if sum(width_of(text) + 3 for text, _ in facts) <= room:
            break
    return facts


_Labels = list[tuple[str, str, str]]
_SPEED_TEXTS = {0.25: "1/4x", 0.5: "1/2x"}
_LONGEST_REPLAY = " ▶ REPLAY 1/4x 99 % "
_BADGE_CELLS = 15
"""Cells reserved for the verdict, so that the tab names do not fold when it changes."""
_MIN_NAME_CELLS = 6
"""A name cut to fewer cells is dropped."""
_HOST_CELLS = 8
"""Cells for the host name, possibly cut."""
_MIN_TITLED_WIDTH = 100
"""Width from which the line begins with gpuwatch's name: below, the names of tabs need its cells."""
_WITH_SOURCE = -1
"""The level at which there is room to say that the samples come from a recorder."""
_SHORTENING_LEVELS = range(_WITH_SOURCE, 7)


def _with_gaps(marks: list[Span], level: int) -> list[Span]:
    return [part for mark in marks for part in (mark, (" " if level >= 4 else "  ", "text"))]


def _state_marks(view: View, level: int) -> list[Span]:
    """Marks that must always be visible, shorter at a higher ``level``."""
    marks: list[Span] = []
    if view.position is not None and view.position.played is not None:
        marks.append((f" {_replay_text(view.position, paused=view.paused_since is not None, level=level)} ", "badge"))
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


def _replay_text(past: PlayheadPosition, *, paused: bool, level: int) -> str:
    """``▶ REPLAY 8x 37 %``; shorter at a higher ``level``."""
    played = past.played
    assert played is not None
    words = ["‖" if paused else "■" if played.ended else "▶", "REPLAY"]
    if not paused and (played.following or played.ended):
        return " ".join([*words, "now" if played.following else "end"])
    if played.speed != 1 and level < 5:
        words.append(_SPEED_TEXTS.get(played.speed, f"{played.speed:g}x"))
    if level < 2:
        words.append(f"{int(past.share * 100)} %")
    return " ".join(words)


def _clock_spans(view: View, level: int) -> list[Span]:
    moment = datetime.datetime.fromtimestamp(view.now)
    ends: list[Span] = [(moment.strftime("%H:%M:%S" if level < 4 else "%H:%M"), "text")] if level < 5 else []
    if view.position is not None and view.played is not None:
        other_day = moment.date() != datetime.datetime.fromtimestamp(view.position.viewers_time).date()
        if level < 5 and other_day:
            ends.insert(0, (moment.strftime("%m-%d "), "text"))
    elif level < 2:
        ends.append((f"  {view.position.interval if view.position is not None else view.interval:g}s", "dim"))
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
    titled = width >= _MIN_TITLED_WIDTH
    title: _Labels = [("", " gpuwatch ", "title")] if titled else []
    still = spans_width([*_with_gaps(calm, 0), *in_full[1]]) + len(" gpuwatch ") * titled + _BADGE_CELLS
    usual = tab_labels(tab, width - still - _HOST_CELLS, view.unseen_events)
    active = [label for label in usual if label[0] == tab]
    ways = [usual, active]
    if view.status.state == "stopped":
        # Show the reason in full: nothing will move any more.
        ways.insert(1, tab_labels(tab, 0, view.unseen_events))
    spare = {_WITH_SOURCE: 3 * _HOST_CELLS, 0: _HOST_CELLS, 1: 1}
    for names in ways:
        for level in _SHORTENING_LEVELS:
            left = names if level >= 6 else [*title, *names]
            marks, ends = (_state_marks(view, level), _clock_spans(view, level)) if level > 0 else in_full
            if level == _WITH_SOURCE:
                if not view.status.recording:
                    continue
                marks = [*_with_gaps([("recorded", "dim")], 0), *marks]
            need = sum(width_of(text) for _, text, _ in left) + spans_width([*marks, *ends])
            if need + spare[min(level, 1)] <= width:
                return left, marks, ends
    return left, marks, ends


def _last_event(view: View) -> MachineEvent | None:
    """The last recent event; not those of a condition that is shown as a finding already."""
    shown = {(finding.id, finding.device_uuid) for finding in view.errors_and_warnings}
    recent = itertools.takewhile(lambda event: view.now - event.at < _LAST_EVENT_SECONDS, reversed(view.events))
    return next((event for event in recent if (event.cause, event.device_uuid) not in shown), None)


def top_line(builder: LineBuilder, view: View, tab: str) -> list[tuple[int, int, str]]:
    """Draws tabs, host, driver, verdict and clock; returns the clickable places (start, end, tab id).

    Less important words are dropped from the right as the line gets shorter.
    """
    snapshot = view.snapshot
    names, marks, ends = _fit_parts(builder.width, view, tab)
    reserve = spans_width([*marks, *ends])
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
    last = _last_event(view) if room >= _MIN_EVENT_CELLS else None
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
