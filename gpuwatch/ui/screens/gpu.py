"""The GPU tab: everything of one device."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal

from gpuwatch.formatting.text import printable
from gpuwatch.model.snapshot import Device
from gpuwatch.ui import gpu_facts
from gpuwatch.ui.actions import bindings
from gpuwatch.ui.cells import cut, width_of
from gpuwatch.ui.facts import state_note, throttle
from gpuwatch.ui.messages import LabChanged
from gpuwatch.ui.screens.lines_modal import Lines
from gpuwatch.ui.screens.process_rows import ProcessRowsScreen
from gpuwatch.ui.tabs import number_of
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.graphs import Graphs
from gpuwatch.ui.widgets.no_gpu import no_gpu_lines
from gpuwatch.ui.widgets.paint import Painted
from gpuwatch.ui.widgets.pen import Pen
from gpuwatch.ui.widgets.process_table import ProcessTable
from gpuwatch.ui.widgets.readings import Readings, granted_lines
from gpuwatch.ui.widgets.sections import Sections
from gpuwatch.ui.widgets.too_small import TooSmall

if TYPE_CHECKING:
    from gpuwatch.model.run import Run
    from gpuwatch.ui.lab import Lab


_TWO = 120
"""Cells from which on there are two panes below."""
_RUNS_AFTER = 0.5
"""Seconds after the first look at the tab until runs of probes are looked for."""
_RUNS = 4
_EVENTS = 5
"""Of a device that probes have run on; the Events tab has all of them."""
_PROBES = f"{number_of('probes')} Probes"


class Identity(Painted):
    """Which device this is, and which others there are."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: tuple[Device, View] | None = None
        self._places: list[tuple[int, int, str]] = []

    def show(self, device: Device, view: View) -> None:
        """Two lines: the choice, then who it is."""
        self._shown = (device, view)
        self._redraw()

    def on_resize(self, event: events.Resize) -> None:
        """Folds with the width."""
        self._redraw()

    def on_click(self, event: events.Click) -> None:
        """A click on a number goes to that device."""
        screen = self.screen
        if event.y == 0 and isinstance(screen, GpuScreen):
            for start, end, uuid in self._places:
                if start <= event.x < end:
                    screen.choose(uuid)

    def _redraw(self) -> None:
        width = self.size.width
        if self._shown is None or not width:
            return
        device, view = self._shown
        pen = Pen(width)
        pen.add(" ◂ ", "key" if len(view.devices) > 1 else "faint")
        self._places = []
        for other in view.devices:
            here = other.uuid == device.uuid
            text = f"[{other.index}]" if here else f" {other.index} "
            self._places.append((pen.x, pen.x + width_of(text), other.uuid))
            pen.add(text, "title" if here else "dim")
        pen.add(" ▸  ", "key" if len(view.devices) > 1 else "faint")
        pen.add(printable(device.name), "strong")
        if device.simulated and "simulated" not in device.name.lower():
            pen.add(" simulated", "warning")
        words, ink = state_note(device)
        slowed, warning = throttle(device)
        if words:
            pen.add("  ").add(cut(words, max(pen.left - 2, 0)), ink)
        elif slowed:
            pen.add(f"  {'▲ slowed: ' if warning else 'clocks: '}{slowed}", "warning" if warning else "dim")
        mark = (
            f"▲ finding, see {number_of('findings')} "
            if any(found.device_uuid == device.uuid for found in view.wrong)
            else ""
        )
        if mark and pen.left > width_of(mark) + 1:
            pen.to(width - width_of(mark)).add(mark, "warning")
        who = Pen(width)
        who.add("    ").add(device.uuid, "dim").add("  PCI ", "faint").add(device.pci_bus_id, "dim")
        if device.compute_capability:
            who.add("  compute ", "faint").add(device.compute_capability, "dim")
        self.paint((pen.to(width).line(), who.to(width).line()), stale=view.stale)


class About(Sections):
    """The words of the tab; the keys of the readings work here too."""

    BINDINGS = bindings("readings")


class GpuScreen(ProcessRowsScreen):
    """One device, chosen with the arrows."""

    AUTO_FOCUS = "#readings"
    TAB = "gpu"
    PANES: ClassVar[dict[str, str]] = {
        "readings": "readings",
        "about": "readings",
        "happened-here": "readings",
        "processes": "processes",
    }

    def __init__(self) -> None:
        super().__init__()
        self.identity = Identity(id="identity")
        self.readings = Readings(id="readings")
        self.graphs = Graphs(id="graphs")
        self.processes = ProcessTable(id="processes")
        self.about = About("About it", id="about")
        self.happened = About("What happened", id="happened-here")
        """Beside the other where there is room for two."""
        self.nothing = Painted(id="nothing")
        self._lab: Lab | None = None

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.top_line
        yield self.identity
        yield self.nothing
        yield Horizontal(self.readings, self.graphs, id="middle")
        yield self.processes
        yield Horizontal(self.about, self.happened, id="below")
        yield self.keys
        yield TooSmall(id="too-small")

    def on_mount(self) -> None:
        """The runs of probes come when they have been read; what reads them is imported after the first look."""
        if self.gpuwatch.has_lab:
            self._look_for_runs()
        else:
            self.set_timer(_RUNS_AFTER, self._look_for_runs)

    def _look_for_runs(self) -> None:
        self._lab = self.gpuwatch.lab
        self.gpuwatch.watch_lab()
        if self._view is not None:
            self.show(self._view)

    @property
    def device(self) -> Device | None:
        """The chosen device, the first one before anybody chose."""
        devices = self._view.devices if self._view is not None else ()
        wanted = self.gpuwatch.chosen_gpu
        return next((device for device in devices if device.uuid == wanted), devices[0] if devices else None)

    def draw(self, view: View) -> None:
        """Everything of the chosen device."""
        device = self.device
        middle, below = self.query_one("#middle"), self.query_one("#below")
        for pane in (self.identity, middle, self.processes, below):
            pane.display = device is not None
        self.nothing.display = device is None
        if device is None:
            width, height = self.app.size
            self.nothing.paint(no_gpu_lines(view, width, max(height - 2, 3)))
            return
        width, height = self.app.size
        framed = width >= 100 and height >= 30
        self.readings.framed = self.graphs.framed = self.about.framed = self.happened.framed = framed
        runs = self._lab.known if self._lab is not None else []
        self.about.headed = not framed
        below.styles.height = max(height // 4, 5)
        self.happened.display = width >= _TWO
        self.processes.styles.height = min(max(height // 6, 4), 12)
        self.readings.styles.width = max(width * 2 // 5, 38)
        self.identity.show(device, view)
        self.readings.show(device, stale=view.stale)
        self.graphs.show(device, view)
        self.processes.only_device = device.uuid
        self.processes.show(view, framed=framed)
        about, happened = self._about(device, view), self._happened(device, runs, view)
        self.about.tell(about if width >= _TWO else about + happened, stale=view.stale)
        self.happened.tell(happened, stale=view.stale)

    def _about(self, device: Device, view: View) -> list[tuple[str, Lines]]:
        snapshot = view.snapshot
        assert snapshot is not None
        at = snapshot.taken_at.timestamp()
        sections: list[tuple[str, Lines]] = []
        parts = gpu_facts.part_lines(device, snapshot.processes, self.about.inner)
        if parts:
            sections.append(("MIG instances", parts))
        episodes = self.gpuwatch.watcher.throttling.of(device.uuid, at)
        sections.append(("What holds its clocks down", gpu_facts.slowed_lines(device, episodes, at)))
        sections.append(("Limits", gpu_facts.limit_lines(device)))
        neighbours = gpu_facts.neighbour_lines(device, snapshot)
        if neighbours:
            sections.append(("Neighbours", neighbours))
        return sections

    def _happened(self, device: Device, runs: list[Run], view: View) -> list[tuple[str, Lines]]:
        pane = self.happened if self.app.size.width >= _TWO else self.about
        granted = granted_lines(device, runs, view.now, max(pane.inner - 2, 40))[:_RUNS]
        maps: Lines = [list(line.spans) for line in granted]
        none: Lines = [[("no probe has run on this GPU yet: ", "dim"), (_PROBES, "key")]]
        if self._lab is None:
            none = [[("◌ looking for the runs of probes", "dim")]]
        happened = gpu_facts.event_lines(device, view.events, view.now, most=_EVENTS if granted else 40)
        return [("Events", happened), ("Device map of the latest probe runs", maps or none)]

    def choose(self, uuid: str) -> None:
        """Another device."""
        self.gpuwatch.chosen_gpu = uuid
        if self._view is not None:
            self.show(self._view)

    def lab_changed(self, message: LabChanged) -> None:
        """A run has finished, or earlier ones were read."""
        if self._view is not None:
            self.show(self._view)

    def action_move(self, where: str) -> None:
        """Left and right choose the device, the rest moves in the focused pane."""
        view, device = self._view, self.device
        if where in ("left", "right") and view is not None and device is not None:
            numbers = [other.uuid for other in view.devices]
            step = 1 if where == "right" else -1
            self.choose(numbers[(numbers.index(device.uuid) + step) % len(numbers)])
        elif self.focused_pane in ("processes", "timeline"):
            self.processes.move(where)
        else:
            next((one for one in (self.about, self.happened) if one.has_focus), self.readings).move(where)

    def action_missing_device(self) -> None:
        """Why readings are missing."""
        from gpuwatch.ui.screens.missing import missing_of_device

        device = self.device
        if device is not None and self._view is not None:
            self.open_sheet(*missing_of_device(device, self._view))
