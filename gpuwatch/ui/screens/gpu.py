"""The GPU tab: everything about one device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from textwrap import wrap
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.containers import Horizontal

from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.session.view import View
from gpuwatch.ui.details import gpu_sections
from gpuwatch.ui.drawing.clock_text import clock_text
from gpuwatch.ui.drawing.line_builder import LineBuilder
from gpuwatch.ui.drawing.styled_lines import Line, Span, SpanLines
from gpuwatch.ui.drawing.text_width import cut_to_width, width_of
from gpuwatch.ui.panes.no_gpu_panel import no_gpu_lines
from gpuwatch.ui.screens.filterable_tab import FilterableScreen
from gpuwatch.ui.screens.process_actions import ProcessRowsScreen
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.settings.tabs import number_of
from gpuwatch.ui.tables.device_notes import clock_note, device_finding_mark, holder_note, state_note
from gpuwatch.ui.tables.filter_language import WordFilter
from gpuwatch.ui.tables.reading_groups import STARTED, ReadingRow, ReadingTable, energy_rows, reading_table, row_lines
from gpuwatch.ui.widgets.graphs import Graphs, device_graphs
from gpuwatch.ui.widgets.painted_pane import PaintedPane
from gpuwatch.ui.widgets.preferences_app import key_name
from gpuwatch.ui.widgets.process_table import ProcessTable
from gpuwatch.ui.widgets.scroll_list import ScrollList, SectionsPane

if TYPE_CHECKING:
    from gpuwatch.session.background_probes import ProbeRuns

_TWO_PANES_COLUMNS = 120
"""A screen at least this wide has two panes side by side at the bottom."""
_SHORT_LINES = 20
"""Below this height the readings get what lines there are."""
_READ_RUNS_SECONDS = 0.5
"""Seconds after the tab is first opened until probe runs are read."""
_MAX_RUNS = 4
_MAX_EVENTS = 5
"""Events shown if the device has probe runs; the Events tab has all."""
_MIN_NAME_CELLS = 6
"""Cells for the name of a GPU; with fewer, behind the numbers of many, it is left out."""


def _since_text(at: float | None, now: float) -> str:
    return clock_text(at, now) if at is not None else STARTED


class Readings(ScrollList):
    """The readings of one device, in groups."""

    BINDINGS = bindings("readings")

    unfolded = False
    """Whether readings that the device does not have are shown."""
    _table: ReadingTable | None = None

    @property
    def counts(self) -> tuple[int, int]:
        return (self._table.shown, self._table.total) if self._table is not None else (0, 0)

    def show(self, device: Device, wanted: WordFilter | None, energy: tuple[ReadingRow, ...], *, stale: bool) -> None:
        self._table = reading_table(device, wanted, unfolded=self.unfolded, energy=energy)
        self.stale = stale
        self.rebuild()

    def rebuild(self) -> None:
        table = self._table
        if table is None:
            return
        self.note = f" {table.shown} of {table.total} " if table.shown < table.total else f" {table.total} "
        # Several columns if there is room and it saves scrolling.
        needed = sum(len(rows) + 2 for _, rows in table.groups)
        columns = max(1, min(self.inner_width // 62, -(-needed // self.room)))
        width = self.inner_width // columns
        lines = self._column(table, width - 2)
        rows = -(-len(lines) // columns)
        merged: list[Line] = []
        for number in range(rows):
            builder = LineBuilder(self.inner_width)
            for column in range(columns):
                place = column * rows + number
                if place < len(lines):
                    builder.fill_to(column * width + 1).add_spans(list(lines[place]))
            merged.append(builder.line())
        self.set_lines(merged, stale=self.stale)

    def _column(self, table: ReadingTable, width: int) -> list[tuple[Span, ...]]:
        lines: list[tuple[Span, ...]] = []
        enter = key_name(self, "↵")
        for group, rows in table.groups:
            if lines:
                lines.append(())
            lines.append(((group, "title"),))
            for row in rows:
                lines += row_lines(row, width)
        if not table.groups:
            lines.append((("no match; Esc clears it", "dim"),))
        if table.folded:
            text = "▸ " + ", ".join(f"{count} {why}" for why, count in table.folded)
            lines.append(())
            lines += [((part, "dim"),) for part in wrap(text, max(width, 8))]
            lines.append(((f"  {enter}", "key"), (" shows them", "dim")))
        elif self.unfolded:
            lines += [(), ((f"▾ {enter}", "key"), (" hides what is not supported", "dim"))]
        return lines


class DeviceIdentity(PaintedPane):
    """The device's identity, and the other devices."""

    _shown: tuple[Device, View] | None = None
    _places: Sequence[tuple[int, int, str]] = ()

    def show(self, device: Device, view: View) -> None:
        """Two lines: the list of devices, then UUID and PCI address."""
        self._shown = (device, view)
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        screen = self.screen
        if event.y == 0 and isinstance(screen, GpuScreen):
            for start, end, uuid in self._places:
                if start <= event.x < end:
                    screen.choose(uuid)

    def _draw(self, width: int, height: int) -> None:
        if self._shown is None:
            return
        device, view = self._shown
        builder = LineBuilder(width)
        builder.add(" ◂ ", "key" if len(view.devices) > 1 else "faint")
        places = []
        for other in view.devices:
            here = other.uuid == device.uuid
            text = f"[{other.index}]" if here else f" {other.index} "
            places.append((builder.x, builder.x + width_of(text), other.uuid))
            builder.add(text, "title" if here else "dim")
        self._places = places
        builder.add(" ▸", "key" if len(view.devices) > 1 else "faint")
        if builder.cells_left > _MIN_NAME_CELLS:
            builder.add("  ").add(printable(device.name), "strong")
        if device.simulated and "simulated" not in device.name.lower():
            builder.add(" simulated", "warning")
        words, style = state_note(device)
        worst = next((found for found in view.errors_and_warnings if found.device_uuid == device.uuid), None)
        wrong, wrong_style = device_finding_mark(device, worst, view.findings)
        clocks = clock_note(device, worst, view.findings)
        holder = holder_note(device, view)
        if words:
            builder.add("  ").add(cut_to_width(words, max(builder.cells_left - 2, 0)), style)
        elif clocks:
            builder.add(f"  clocks: {clocks}", "dim")
        where = f", see {number_of('findings')} " if worst is not None else " "
        mark = f"{cut_to_width(wrong, max(builder.cells_left - 3 - len(where), 0))}{where}" if wrong else ""
        if mark and builder.cells_left > width_of(mark) + 1:
            builder.fill_to(width - width_of(mark)).add(mark, wrong_style)
        who = LineBuilder(width)
        who.add("    ").add(device.uuid, "dim").add("  PCI ", "faint").add(device.pci_bus_id, "dim")
        if device.compute_capability:
            who.add("  compute ", "faint").add(device.compute_capability, "dim")
        if device.unified_memory:
            who.add("  shares the host's memory", "text")
        if holder:
            who.add("  ").add(cut_to_width(holder, max(who.cells_left - 2, 0)), "text")
        self.paint((builder.fill_to(width).line(), who.fill_to(width).line()), stale=view.stale)


class AboutPane(SectionsPane):
    """Text sections of the tab, with the keys of the readings."""

    BINDINGS = bindings("readings")


class GpuScreen(FilterableScreen, ProcessRowsScreen):
    """One device, selected with the arrow keys."""

    AUTO_FOCUS = "#readings"
    TAB = "gpu"
    PANES: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("readings", "about", "device-events"), "readings"),
        "processes": "processes",
    }

    def __init__(self) -> None:
        super().__init__()
        self.identity = DeviceIdentity(id="identity")
        self.readings = Readings("Readings", id="readings")
        self.graphs = Graphs(id="graphs")
        self.processes = ProcessTable(id="processes")
        self.about = AboutPane("About", id="about")
        self.device_events = AboutPane("Events and probe runs", id="device-events")
        """Beside :attr:`about` if there is room."""
        self.nothing = PaintedPane(id="nothing")
        # Kept as attributes: a draw may come before they are mounted or while they are removed.
        self.middle = Horizontal(self.readings, self.graphs, id="middle")
        self.below = Horizontal(self.about, self.device_events, id="below")
        self._probe_runs: ProbeRuns | None = None
        self.panes = (self.identity, self.nothing, self.middle, self.processes, self.below)

    def on_mount(self) -> None:
        """Reads probe runs after the first draw, because that imports further modules."""
        if self.gpuwatch.has_probe_runs:
            self._look_for_runs()
        else:
            self.set_timer(_READ_RUNS_SECONDS, self._look_for_runs)

    def _look_for_runs(self) -> None:
        self._probe_runs = self.gpuwatch.probe_runs
        self.gpuwatch.watch_probe_runs()
        self.show_again()

    @property
    def device(self) -> Device | None:
        """The selected device, by default the first."""
        devices, wanted = self.view.devices, self.gpuwatch.chosen_gpu
        return next((device for device in devices if device.uuid == wanted), devices[0] if devices else None)

    @property
    def timeline_uuid(self) -> str | None:
        device = self.device
        return device.uuid if device is not None else None

    def draw(self, view: View) -> None:
        device, (width, height) = self.device, self.app.size
        for pane in (self.identity, self.middle, self.processes, self.below):
            pane.display = device is not None
        self.nothing.display = device is None
        if device is None:
            self.nothing.paint(no_gpu_lines(view, width, max(height - 2, 3), keys=False))
            return
        framed = self.framed
        self.readings.framed = self.graphs.framed = self.about.framed = self.device_events.framed = framed
        runs = self._probe_runs.all_runs if self._probe_runs is not None else []
        runs = [run for run in runs if run.started_at.timestamp() <= view.now]
        self.about.headed = not framed and height >= 30  # else its lines are needed
        timeline = self.timeline is not None and self.timeline.display and not framed  # of its line, not the graphs'
        self.below.styles.height = max(height // 4 - timeline, 5 if height >= _SHORT_LINES else 3)
        self.device_events.display = width >= _TWO_PANES_COLUMNS
        self.processes.styles.height = min(max(height // 6, 4 if height >= _SHORT_LINES else 3), 12)
        self.readings.styles.width = max(width * 2 // 5, 38)
        self.identity.show(device, view)
        self.readings.title = self.filter_title("Readings")
        self.readings.show(device, self.filter, self._energy(device, view), stale=view.stale)
        thresholds = self.gpuwatch.preferences.thresholds
        self.graphs.show(partial(device_graphs, device, view, thresholds), view.history.times, view)
        self.processes.only_device = device.uuid
        self.processes.show(view, framed=framed)
        about, happened = self._about_sections(device, view), self._events_and_runs(device, runs, view)
        self.about.show_sections(about if width >= _TWO_PANES_COLUMNS else about + happened, stale=view.stale)
        self.device_events.show_sections(happened, stale=view.stale)

    def _energy(self, device: Device, view: View) -> tuple[ReadingRow, ...]:
        meter, since = self.gpuwatch.session.energy, _since_text(view.since.counted, view.now)
        if meter is None:
            return ()
        return energy_rows(meter.of(device.uuid), meter.machine(), len(view.devices), since)

    @property
    def filtered(self) -> Readings:
        return self.readings

    def titles(self) -> dict[str, str]:
        """The key that folds says what it does; without a GPU, keys about it are hidden."""
        if self.device is None:
            about_gpu = ("unfold", "move('left')", "missing_device", "filter", "signal", "gpu_number", "past(-1)")
            return super().titles() | dict.fromkeys(about_gpu, "")
        return super().titles() | ({"unfold": "fold"} if self.readings.unfolded else {})

    def action_unfold(self) -> None:
        self.readings.unfolded = not self.readings.unfolded
        self.show_again()

    def _about_sections(self, device: Device, view: View) -> list[tuple[str, SpanLines]]:
        snapshot = view.snapshot
        assert snapshot is not None
        at = snapshot.taken_at.timestamp()
        sections: list[tuple[str, SpanLines]] = []
        parts = gpu_sections.mig_lines(device, snapshot.processes, self.about.inner_width)
        if parts:
            sections.append(("MIG instances", parts))
        episodes = self.gpuwatch.session.throttling(device.uuid, at)
        since = _since_text(view.since.throttling, view.now)
        sections.append(("Throttling", gpu_sections.throttling_lines(device, episodes, at, since)))
        sections.append(("Limits", gpu_sections.limit_lines(device)))
        topology = gpu_sections.topology_lines(device, snapshot)
        if topology:
            sections.append(("Topology", topology))
        return sections

    def _events_and_runs(self, device: Device, runs: list[Run], view: View) -> list[tuple[str, SpanLines]]:
        pane = self.device_events if self.app.size.width >= _TWO_PANES_COLUMNS else self.about
        granted = gpu_sections.probe_run_lines(device, runs, view.now, max(pane.inner_width - 2, 40))[:_MAX_RUNS]
        probes = (f"{number_of('probes')} Probes", "key")
        none: SpanLines = [[("no probe runs on this GPU yet: ", "dim"), probes]]
        if self._probe_runs is None:
            none = [[("◌ reading probe runs", "dim")]]
        most, since = _MAX_EVENTS if granted else 40, _since_text(view.since.events, view.now)
        happened = gpu_sections.event_lines(device, view.events, view.now, most, since)
        return [("Events", happened), ("Latest probe runs", granted or none)]

    def choose(self, uuid: str) -> None:
        self.gpuwatch.chosen_gpu = uuid
        self.show_again()

    def probe_runs_changed(self) -> None:
        self.show_again()

    def action_move(self, where: str) -> None:
        """Left and right select the device, other keys move in the focused pane."""
        device = self.device
        if where in ("left", "right") and device is not None:
            uuids = [other.uuid for other in self.view.devices]
            step = 1 if where == "right" else -1
            self.choose(uuids[(uuids.index(device.uuid) + step) % len(uuids)])
        elif self.focused_pane in ("processes", "timeline"):
            self.processes.move(where)
        else:
            next((about for about in (self.about, self.device_events) if about.has_focus), self.readings).move(where)
