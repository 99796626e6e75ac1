"""The list of hosts: one line each, sorted and filtered; Enter opens one."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from gpuwatch.fleet.host_summary import FleetSummary, HostSummary
from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.panes.host_list_lines import header, host_line
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.host_columns import Placed, in_order, place
from gpuwatch.ui.tables.host_filter import FleetFilter, matches
from gpuwatch.ui.widgets.painted_pane import Line
from gpuwatch.ui.widgets.scroll_list import ItemList, LazyLines, filtered_title


class HostTable(ItemList[HostSummary]):
    """One line per host; the cursor stays with its host."""

    BINDINGS = bindings("hosts")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Hosts", id=id)
        self._summary: FleetSummary | None = None
        self._drawn: dict[str, tuple[HostSummary, Line]] = {}
        self._placed: tuple[Placed, ...] = ()
        self._wanted: FleetFilter | None = None
        self.sort, self.reverse = "host", False

    def show(self, summary: FleetSummary | None, wanted: FleetFilter | None) -> None:
        self._summary, self._wanted = summary, wanted
        self._arrange()

    def sort_by(self, column: str) -> None:
        """Sorts by a column; the same column again reverses the order."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort = column
        self._arrange()

    def _arrange(self) -> None:
        summary = self._summary
        every = summary.hosts if summary is not None else ()
        self.total = len(every)
        found = [host for host in every if matches(self._wanted, host)]
        self.fill(in_order(found, self.sort, reverse=self.reverse), lambda host: host.name)

    def refill(self) -> None:
        """Rebuilds the lines for the current width; unchanged hosts keep theirs."""
        summary = self._summary
        placed = place(self.inner, summary.hosts if summary is not None else ())
        if placed != self._placed:
            self._placed, self._drawn = placed, {}
        count = len(self.items)
        self.note = f" {count} of {self.total} " if count != self.total else f" {count} "
        typed = cut_to_width(self._wanted.text, max(self.inner // 2, 1)) if self._wanted is not None else None
        self.title = filtered_title("Hosts", typed)
        self.head = [header(placed, self.inner, self.sort, reverse=self.reverse)]
        lines: Sequence[Line] = LazyLines(count, lambda place: self._line(self.items[place]))
        stale = summary is not None and bool(summary.fleet.problem)
        self._drawn = {host.name: self._drawn[host.name] for host in self.items if host.name in self._drawn}
        self.set_lines(lines or [Line(((self._nothing(), "dim"),))], stale=stale)

    def _line(self, host: HostSummary) -> Line:
        """The line of a host; an unchanged host keeps its own."""
        before = self._drawn.get(host.name)
        if before is not None and before[0] is host:
            return before[1]
        line = host_line(host, self._placed, self.inner)
        self._drawn[host.name] = (host, line)
        return line

    def _nothing(self) -> str:
        if self._summary is None:
            return "  ◌ asking for hosts…"
        if self._wanted is not None and self.total:
            return "  no match; Esc clears the filter"
        return "  no GPUs found: no metrics of gpuwatch exporter, dcgm-exporter or nvidia_gpu_exporter"

    def on_click(self, event: events.Click) -> None:
        """Selects a row; a click on the title of a column sorts by it."""
        if event.y == int(self.framed):
            x = event.x - int(self.framed)
            for placed in self._placed:
                if placed.x <= x < placed.x + placed.width + 1:
                    self.sort_by(placed.column.id)
            return
        super().on_click(event)
