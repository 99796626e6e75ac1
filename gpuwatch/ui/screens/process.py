"""The Process tab: one process, its devices and settings, graphs, findings, process tree, environment."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.containers import Horizontal

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.masking.mask_secrets import mask_text, mask_value
from gpuwatch.core.model.snapshot import Process
from gpuwatch.machine.collector.host_processes import DeviceNumbers
from gpuwatch.machine.sources.process_details import ProcessDetails, Relative
from gpuwatch.session.process_history import Identity, process_identity, process_rows
from gpuwatch.session.view import View
from gpuwatch.ui.details import process_sections
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, Span
from gpuwatch.ui.screens.filterable_tab import FilterableScreen
from gpuwatch.ui.screens.process_actions import ask_signal
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.settings.tabs import number_of
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, is_on_cpu
from gpuwatch.ui.tables.process_table_rows import sorted_rows
from gpuwatch.ui.widgets.graphs import Graphs, process_graphs
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from gpuwatch.ui.widgets.scroll_list import WAITING, SectionsPane

_REREAD_SECONDS = 10.0
"""Seconds after which details are read again."""


def _without_secrets(details: ProcessDetails) -> ProcessDetails:
    """The details with secrets masked; called before they are stored."""
    environment = details.environment
    if environment is not None:
        environment = {name: mask_value(name, value) for name, value in environment.items()}

    def hidden(relatives: tuple[Relative, ...]) -> tuple[Relative, ...]:
        return tuple(Relative(relative.pid, relative.depth, mask_text(relative.command)) for relative in relatives)

    return replace(details, environment=environment, parents=hidden(details.parents), children=hidden(details.children))


class ProcessSectionsPane(SectionsPane):
    """Text sections of the tab, with its keys."""

    BINDINGS = bindings("process")


class ProcessScreen(FilterableScreen):
    """The process selected in a table; left and right switch to others."""

    AUTO_FOCUS = "#about"
    TAB = "process"
    PANES: ClassVar[dict[str, str]] = {"facts": "process", "about": "process"}

    def __init__(self) -> None:
        super().__init__()
        self.identity = PaintedPane(id="who")
        self.facts = ProcessSectionsPane("Devices and settings", id="facts")
        self.graphs = Graphs(id="history")
        self.middle = Horizontal(self.facts, self.graphs, id="middle")
        """Kept as an attribute: a draw may come before it is mounted or while it is removed."""
        self.about = ProcessSectionsPane("Findings, process tree, environment", id="about")
        self.details: ProcessDetails | None = None
        self.numbers: DeviceNumbers = ()
        """Its own device numbers, if a driver reports them."""
        self._details_identity: Identity | None = None
        self._ended: Identity | None = None
        """The process that had exited when it was read."""
        self._reading_since: float | None = None
        """When the reading thread was started; None if none is running."""
        self._read_at = 0.0
        self._read_clock = 0.0
        """When :attr:`details` were read, by the clock; :attr:`_read_at` is monotonic."""
        self.panes = (self.identity, self.middle, self.about)

    # Which process

    def identities(self) -> list[Identity]:
        """All processes that use a GPU, most memory first, then the framework programs that use none."""
        snapshot = self.view.snapshot
        if snapshot is None:
            return []
        by = "memory" if snapshot.devices else "cpu"
        rows = sorted_rows((*snapshot.processes, *snapshot.bystanders), COLUMN_BY_ID[by], reverse=True)
        return list(dict.fromkeys(process_identity(row) for row in rows if isinstance(row, Process)))

    @property
    def chosen(self) -> Identity | None:
        """The selected process, by default the first."""
        if self.gpuwatch.chosen_process is None:
            identities = self.identities()
            self.gpuwatch.chosen_process = identities[0] if identities else None
        return self.gpuwatch.chosen_process

    @property
    def rows(self) -> tuple[Process, ...]:
        """Its current rows, or the last known ones."""
        identity = self.chosen
        if identity is None:
            return ()
        return process_rows(self.view.snapshot, identity) or self.gpuwatch.session.process_history(identity).rows

    # Drawing

    def draw(self, view: View) -> None:
        identity = self.chosen
        width, height = self.app.size
        framed = self.framed
        for pane in (self.facts, self.graphs, self.about):
            pane.framed = framed
        self.about.headed = self.facts.headed = not framed
        self.about.styles.height = max(height * 2 // 5 - 1, 6)
        self.facts.styles.width = max(width // 2, 44)
        self.middle.display = self.about.display = identity is not None
        self.identity.styles.height = "1fr" if identity is None else 2  # the keys stay at the bottom
        if identity is None:
            self.identity.paint(_nobody(view))
            return
        history = self.gpuwatch.session.process_history(identity)
        self._read_details(identity)
        details = self.details if self._details_identity == identity else None
        rows = self.rows
        self._draw_identity(identity, rows, details, view)
        if rows and is_on_cpu(rows[0]):
            devices = process_sections.cpu_lines(rows[0], view, details)
        else:
            devices = process_sections.map_lines(rows, view, self.numbers if self._details_identity == identity else ())
        sections = [("Devices", devices), ("Settings at start", process_sections.setting_lines(rows, details, view))]
        self.facts.show_sections(sections, stale=view.stale)
        self.graphs.show(partial(process_graphs, history, rows, view), history.times, view)
        self._draw_about(identity, rows, details, view)

    def _draw_about(
        self, identity: Identity, rows: tuple[Process, ...], details: ProcessDetails | None, view: View
    ) -> None:
        sections = [("Findings", process_sections.process_finding_lines(rows, view.findings, view))]
        # Details are not recorded: they are from now, or from when the process was last read.
        back = view.paused_since is not None
        tree = process_sections.tree_lines(identity, rows, details)
        if back and details is not None and not details.problem:
            note = f"as of {clock_text(self._read_clock)}; not recorded for the moment shown"
            tree = [[(note, "warning")], *tree]
        sections.append(("Process tree", tree))
        count = len(details.environment or ()) if details is not None else 0
        self.about.note = f" {count_text(count, 'variable')}, secrets masked " if count else ""
        environment = process_sections.environment_lines(details)
        if back and details is not None and details.environment:
            start = _later_start(identity, view)
            of = [("set when the process started, so it also applies to this moment", "dim")]
            if start:
                of = [(f"set when the process started, at {start}: after this moment", "warning")]
            environment = [of, *environment]
        sections.append(("Environment", environment))
        self.about.title = self.filter_title("Findings, process tree, environment")
        self.about.show_sections(sections, stale=view.stale, wanted=self.filter)

    def _draw_identity(
        self, identity: Identity, rows: tuple[Process, ...], details: ProcessDetails | None, view: View
    ) -> None:
        note: Span = ("", "text")
        seen_at: float | None = view.moment
        if not process_rows(view.snapshot, identity):
            seen_at = self.gpuwatch.session.process_history(identity).last_seen_at
            note = ("✖ no longer uses a GPU", "error")
            if view.paused_since is not None:
                start = _later_start(identity, view)
                note = (f"started later, at {start}" if start else "did not use a GPU then", "warning")
            elif self._ended == identity:
                note = ("✖ exited; these are its last values", "error")
        elif self._reading_since is not None and time.monotonic() - self._reading_since > 2:
            note = (f"still reading after {time.monotonic() - self._reading_since:.0f} s", "warning")
        width = self.identity.size.width or self.app.size.width
        lines = []
        for spans in process_sections.identity_lines(identity, rows, seen_at or view.now, details, note):
            builder = LineBuilder(width)
            builder.add_spans(spans)
            lines.append(builder.line())
        identities = self.identities()
        if identity in identities and len(identities) > 1:
            place = f" ◂ {identities.index(identity) + 1} of {len(identities)} ▸ "
            head = LineBuilder(width - len(place) - 1).add_spans(lines[0].spans)
            lines[0] = LineBuilder(width).add_spans(head.spans).fill_to(width - len(place)).add(place, "dim").line()
        self.identity.paint(lines, stale=view.stale)

    # Reading

    @property
    def reading(self) -> bool:
        return self._reading_since is not None

    def _read_details(self, identity: Identity) -> None:
        """Starts a thread to read the details: a hung driver can block reading of a process."""
        fresh = self._details_identity == identity and time.monotonic() - self._read_at < _REREAD_SECONDS
        if fresh or self._reading_since is not None:
            return
        self._reading_since = time.monotonic()
        host = self.gpuwatch.session.host

        def work() -> None:
            numbers: DeviceNumbers = ()
            try:
                found = _without_secrets(host.details(*identity))
                numbers = host.device_numbers(identity[0]) if not found.problem else ()
            except Exception as error:  # noqa: BLE001  (a thread that dies silently would look like a hang)
                found = ProcessDetails(problem=f"reading broke off: {type(error).__name__}: {error}")
            self.call_later(self._take_details, identity, found, numbers)  # a message, which any thread may send

        threading.Thread(target=work, name="gpuwatch-process", daemon=True).start()

    def _take_details(self, identity: Identity, details: ProcessDetails, numbers: DeviceNumbers) -> None:
        """Takes what was read; another process may be shown by now."""
        self._reading_since, self._read_at, read_clock = None, time.monotonic(), self.gpuwatch.session.clock()
        ended = details.problem and identity[1] is not None and not self.gpuwatch.session.host.unreachable
        self._ended = identity if ended else None
        if self._ended is None or self._details_identity != identity:
            # Details read before its exit stay on screen.
            self._details_identity, self.details, self.numbers = identity, details, numbers
            self._read_clock = read_clock
        if self.gpuwatch.tab is self:
            self.show_again()

    # Actions

    def on_resize(self, event: events.Resize) -> None:
        """Wraps the lines again once the panes have their new width."""
        super().on_resize(event)
        self.call_after_refresh(self.show_again)

    def action_move(self, where: str) -> None:
        identities = self.identities()
        if where not in ("left", "right"):
            (self.facts if self.facts.has_focus else self.about).move(where)
        elif identities:
            identity = self.chosen
            step = 1 if where == "right" else -1
            number = identities.index(identity) + step if identity in identities else 0
            self.gpuwatch.chosen_process = identities[number % len(identities)]
            self.about.top = self.facts.top = 0
            self.show_again()

    def titles(self) -> dict[str, str]:
        nobody = ("move('left')", "environment", "tree", "signal", "missing", "filter") if self.chosen is None else ()
        return super().titles() | dict.fromkeys(nobody, "")

    @property
    def filtered(self) -> ProcessSectionsPane:
        return self.about

    async def go(self, tab_id: str) -> None:
        """The GPU tab opens with a GPU of this process: the one seen last, else its first."""
        uuids = [row.device_uuid for row in self.rows if row.device_uuid]
        if tab_id == "gpu" and uuids and self.gpuwatch.chosen_gpu not in uuids:
            self.gpuwatch.chosen_gpu = uuids[0]
        await super().go(tab_id)

    def action_environment(self) -> None:
        self.about.focus()
        self.about.go("Environment")

    def action_tree(self) -> None:
        self.about.focus()
        self.about.go("Process tree")

    def command(self) -> list[str]:
        """For a framework program on no GPU: the run that says why. Else as in the base."""
        rows = self.rows
        if rows and is_on_cpu(rows[0]):
            return process_sections.placement_command(rows[0])
        return super().command()

    def action_missing(self) -> None:
        from gpuwatch.ui.details.missing_readings import missing_of_row

        if self.rows and self.view.snapshot is not None:
            self.open_sheet(*missing_of_row(self.rows[0], self.view))

    def action_signal(self) -> None:
        ask_signal(self, list(self.rows[:1]), lambda delivered: None)


def _later_start(identity: Identity, view: View) -> str:
    """The start time of a process that started after the moment shown; else empty."""
    started = identity[1]
    if view.position is None or view.paused_since is None or started is None or started <= view.position.moment:
        return ""
    return clock_text(started)


def _nobody(view: View) -> tuple[Line, ...]:
    if view.waiting:
        return (WAITING,)
    probes = f"{number_of('probes')} Probes"
    return (
        Line((("  ", "text"), ("no process uses a GPU; the first one that does appears here", "text"))),
        Line((("  ", "text"), ("small test programs that do: ", "dim"), (probes, "key"))),
    )
