"""The Process tab: one process, its devices and settings, graphs, findings, relatives, environment."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message

from gpuwatch.model.snapshot import Process
from gpuwatch.sources.host import Details
from gpuwatch.ui import process_facts as facts
from gpuwatch.ui.actions import bindings
from gpuwatch.ui.exact import Told, told_by_driver
from gpuwatch.ui.rows import BY_ID, in_order
from gpuwatch.ui.screens.process_rows import ask_signal, say_paused
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.tabs import number_of
from gpuwatch.ui.trail import Identity, entries, identity
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.paint import Line, Painted, Span
from gpuwatch.ui.widgets.pen import Pen
from gpuwatch.ui.widgets.process_graphs import ProcessGraphs
from gpuwatch.ui.widgets.sections import Sections
from gpuwatch.ui.widgets.too_small import TooSmall

_AGAIN = 10.0
"""Seconds after which relatives are looked at again."""


class ProcessRead(Message, bubble=False):
    """From the thread that read the details of a process."""

    def __init__(self, who: Identity, details: Details, told: Told) -> None:
        super().__init__()
        self.who = who
        self.details = details
        self.told = told


class Part(Sections):
    """A part of the tab, with its keys."""

    BINDINGS = bindings("process")


class ProcessScreen(TabScreen):
    """The process that was chosen in a table; left and right go on to others."""

    AUTO_FOCUS = "#about"
    TAB = "process"
    PANES: ClassVar[dict[str, str]] = {"facts": "process", "about": "process"}

    def __init__(self) -> None:
        super().__init__()
        self.who = Painted(id="who")
        self.facts = Part("Devices and settings", id="facts")
        self.graphs = ProcessGraphs(id="history")
        self.about = Part("Findings, relatives, environment", id="about")
        self.details: Details | None = None
        self.told: Told = ()
        """Its own device numbers, where a driver told them."""
        self._details_of: Identity | None = None
        self._ended: Identity | None = None
        """The process of which reading said that it is there no more."""
        self._asked: float | None = None
        """When a thread was sent to read; None when none is on its way."""
        self._read_at = 0.0
        self._read_clock = 0.0
        """When :attr:`details` were read: monotonic, to ask again; as the clock has it, to be told."""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.top_line
        yield self.who
        with Horizontal(id="middle"):
            yield self.facts
            yield self.graphs
        yield self.about
        yield self.keys
        yield TooSmall(id="too-small")

    # Which process

    def people(self) -> list[Identity]:
        """All that use a GPU, those with most memory first."""
        snapshot = self._view.snapshot if self._view is not None else None
        if snapshot is None:
            return []
        by = "memory" if snapshot.devices else "cpu"
        rows = in_order(snapshot.processes, BY_ID[by], reverse=True)
        return list(dict.fromkeys(identity(row) for row in rows if isinstance(row, Process)))

    @property
    def chosen(self) -> Identity | None:
        """The process that is shown: as it was chosen, or the first."""
        if self.gpuwatch.chosen_process is None:
            people = self.people()
            self.gpuwatch.chosen_process = people[0] if people else None
        return self.gpuwatch.chosen_process

    @property
    def rows(self) -> tuple[Process, ...]:
        """Its rows now, or as it was seen last."""
        who = self.chosen
        if who is None or self._view is None:
            return ()
        now = entries(self._view.snapshot, who)
        return now or self.gpuwatch.trail(who).rows

    # Drawing

    def draw(self, view: View) -> None:
        """Everything of the chosen process."""
        who = self.chosen
        width, height = self.app.size
        framed = width >= 100 and height >= 30
        for pane in (self.facts, self.graphs, self.about):
            pane.framed = framed
        self.about.headed = self.facts.headed = not framed
        self.about.styles.height = max(height * 2 // 5 - 1, 6)
        self.facts.styles.width = max(width // 2, 44)
        middle = self.query_one("#middle")
        middle.display = self.about.display = who is not None
        if who is None:
            self.who.paint(_nobody(view))
            return
        trail = self.gpuwatch.trail(who)
        self._ask(who)
        details = self.details if self._details_of == who else None
        rows = self.rows
        self._draw_who(who, rows, details, view)
        sections = [("Its devices", facts.map_lines(rows, view, self.told if self._details_of == who else ()))]
        sections.append(("Settings at its start", facts.setting_lines(rows, details, view)))
        self.facts.tell(sections, stale=view.stale)
        self.graphs.show(trail, rows, view)
        self._draw_about(who, rows, details, view)

    def _draw_about(self, who: Identity, rows: tuple[Process, ...], details: Details | None, view: View) -> None:
        sections = [("Findings", facts.finding_lines(rows, view.findings, view))]
        # What is looked back at has neither: what is read is of now, or of when the process was last there.
        back = view.paused_since is not None
        relatives = facts.tree_lines(who, rows, details)
        if back and details is not None and not details.problem:
            relatives = [facts.of_when(self._read_clock), *relatives]
        sections.append(("Relatives", relatives))
        count = len(details.environment or ()) if details is not None else 0
        self.about.note = f" {count} variables, secrets masked " if count else ""
        environment = facts.environment_lines(details)
        if back and details is not None and details.environment:
            start = _later_start(who, view)
            of = [("as it was given at the start of the process, so also of this moment", "dim")]
            if start:
                of = [(f"as it was given when the process was started, at {start}: later than this moment", "warning")]
            environment = [of, *environment]
        sections.append(("Environment", environment))
        self.about.tell(sections, stale=view.stale)

    def _draw_who(self, who: Identity, rows: tuple[Process, ...], details: Details | None, view: View) -> None:
        note: Span = ("", "text")
        if not entries(view.snapshot, who):
            note = ("✖ does not use a GPU any more", "error")
            if view.past is not None:
                start = _later_start(who, view)
                note = (f"was started later, at {start}" if start else "did not use a GPU then", "warning")
            elif self._ended == who:
                note = ("✖ has ended; this is what was last seen", "error")
        elif self._asked is not None and time.monotonic() - self._asked > 2:
            note = (f"reading it takes {time.monotonic() - self._asked:.0f} s already", "warning")
        width = self.who.size.width or self.app.size.width
        lines = []
        for spans in facts.who_lines(who, rows, details, note):
            pen = Pen(width)
            for text, ink in spans:
                pen.add(text, ink)
            lines.append(pen.line())
        people = self.people()
        if who in people and len(people) > 1:
            place = f" ◂ {people.index(who) + 1} of {len(people)} ▸ "
            pen = Pen(width)
            for text, ink in lines[0].spans:
                if pen.left > len(place) + 1:
                    room = Pen(pen.left - len(place) - 1).add(text, ink)
                    pen.spans += room.spans
                    pen.x += room.x
            lines[0] = pen.to(width - len(place)).add(place, "dim").line()
        self.who.paint(lines, stale=view.stale)

    # Reading

    @property
    def reading(self) -> bool:
        """Whether a thread is on its way."""
        return self._asked is not None

    def _ask(self, who: Identity) -> None:
        """Sends a thread for the details: what a process has open in the driver may make reading wait."""
        fresh = self._details_of == who and time.monotonic() - self._read_at < _AGAIN
        if fresh or self._asked is not None:
            return
        self._asked = time.monotonic()
        read: Callable[[Identity], Details] = self.gpuwatch.read_process

        def work() -> None:
            told: Told = ()
            try:
                found = facts.without_secrets(read(who))
                told = told_by_driver(who[0]) if not found.problem else ()
            except Exception as error:  # noqa: BLE001  (a thread that dies silently would look like a hang)
                found = Details(problem=f"reading broke off: {type(error).__name__}: {error}")
            self.post_message(ProcessRead(who, found, told))

        threading.Thread(target=work, name="gpuwatch-process", daemon=True).start()

    def on_process_read(self, message: ProcessRead) -> None:
        """It has come; perhaps another process is shown by now."""
        self._asked, self._read_at, read_clock = None, time.monotonic(), self.gpuwatch.clock()
        self._ended = message.who if message.details.problem and message.who[1] is not None else None
        if self._ended is None or self._details_of != message.who:
            # What was read while it lived stays on screen with it.
            self._details_of, self.details, self.told = message.who, message.details, message.told
            self._read_clock = read_clock
        if self._view is not None and self.gpuwatch.tab is self:
            self.show(self._view)

    # Actions

    def on_resize(self, event: events.Resize) -> None:
        """Lines are folded to the new width, once the panes have theirs."""
        super().on_resize(event)
        if self._view is not None:
            self.call_after_refresh(self.show, self._view)

    def action_move(self, where: str) -> None:
        """Left and right choose the process, the rest scrolls."""
        people = self.people()
        if where not in ("left", "right"):
            (self.facts if self.facts.has_focus else self.about).move(where)
        elif people:
            who = self.chosen
            step = 1 if where == "right" else -1
            number = people.index(who) + step if who in people else 0
            self.gpuwatch.chosen_process = people[number % len(people)]
            self.about.top = self.facts.top = 0
            if self._view is not None:
                self.show(self._view)

    def action_environment(self) -> None:
        """Its environment."""
        self.about.focus()
        self.about.go("Environment")

    def action_tree(self) -> None:
        """Its parents and children."""
        self.about.focus()
        self.about.go("Relatives")

    def action_missing(self) -> None:
        """Why readings are missing."""
        from gpuwatch.ui.screens.missing import missing_of_row

        if self.rows and self._view is not None and self._view.snapshot is not None:
            self.open_sheet(*missing_of_row(self.rows[0], self._view))

    def action_no_signal(self) -> None:
        """The key of signals, while the line of a pause has the focus."""
        say_paused(self)

    def action_signal(self) -> None:
        """To this process."""
        ask_signal(self, list(self.rows[:1]), lambda delivered: None)


def _later_start(who: Identity, view: View) -> str:
    """When the process was started, where that is after the moment that is looked back at; else empty."""
    started = who[1]
    if view.past is None or started is None or started <= view.past.moment:
        return ""
    return f"{datetime.datetime.fromtimestamp(started):%H:%M:%S}"


def _nobody(view: View) -> tuple[Line, ...]:
    if view.waiting:
        return (Line((("  ◌ ", "dim"), ("waiting for the driver's first answer", "dim"))),)
    probes = f"{number_of('probes')} Probes"
    return (
        Line((("  ", "text"), ("no process uses a GPU; the first one that does is shown here by itself", "text"))),
        Line((("  ", "text"), ("small programs that do, and tell what they were given: ", "dim"), (probes, "key"))),
    )
