"""The list of hosts: the first screen of ``gpuwatch --prometheus`` and ``--hosts``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events
from textual.app import ComposeResult

from gpuwatch.fleet.fleet_summary import FleetSummary, HostSummary
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.line_builder import LineBuilder, filtered_title
from gpuwatch.ui.drawing.styled_lines import Line
from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.panes.host_list_lines import fleet_top_line, free_line, header_line, host_row, problem_line, used_line
from gpuwatch.ui.screens.filterable_tab import FilterBarScreen
from gpuwatch.ui.settings.actions import NOT_IN_FLEET, bindings
from gpuwatch.ui.tables.host_columns import COLUMN_BY_ID, COLUMNS, PlacedColumn, place_columns, sorted_hosts
from gpuwatch.ui.tables.host_filter import EXAMPLES, HostFilter, host_matches, parse_host_filter
from gpuwatch.ui.widgets.one_line_panes import OneLinePane
from gpuwatch.ui.widgets.scroll_list import ItemList, LazyLines

if TYPE_CHECKING:
    from gpuwatch.ui.fleet_app import FleetApp


class HostTable(ItemList[HostSummary]):
    """One line per host; the cursor stays with its host."""

    BINDINGS = bindings("hosts")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("Hosts", id=id)
        self._summary: FleetSummary | None = None
        self._placed: tuple[PlacedColumn, ...] = ()
        self._wanted: HostFilter | None = None
        self.sort, self.reverse = "host", False

    def show(self, summary: FleetSummary | None, wanted: HostFilter | None) -> None:
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
        found = [host for host in every if host_matches(self._wanted, host)]
        self.set_items(sorted_hosts(found, self.sort, reverse=self.reverse), lambda host: host.name)

    def rebuild(self) -> None:
        """Rebuilds the lines for the current width."""
        summary, width = self._summary, self.inner_width
        placed = self._placed = place_columns(width, summary.hosts if summary is not None else ())
        count = len(self.items)
        self.note = f" {count} of {self.total} " if count != self.total else f" {count} "
        typed = cut_to_width(self._wanted.text, max(width // 2, 1)) if self._wanted is not None else None
        self.title = filtered_title("Hosts", typed)
        self.head = [header_line(placed, width, self.sort, reverse=self.reverse)]
        lines: Sequence[Line] = LazyLines(count, lambda place: host_row(self.items[place], placed, width))
        stale = summary is not None and bool(summary.fleet.problem)
        self.set_lines(lines or [Line(((self._empty_text(), "dim"),))], stale=stale)

    def _empty_text(self) -> str:
        if self._summary is None:
            return "  ◌ asking for hosts…"
        if self._wanted is not None and self.total:
            return "  no match; Esc clears the filter"
        return "  no GPUs found: Prometheus has no metrics of gpuwatch exporter, dcgm-exporter or nvidia_gpu_exporter"

    def on_click(self, event: events.Click) -> None:
        """Selects a row; a click on the title of a column sorts by it."""
        if event.y == int(self.framed):
            x = event.x - int(self.framed)
            for placed in self._placed:
                if placed.x <= x < placed.x + placed.width + 1:
                    self.sort_by(placed.column.id)
            return
        super().on_click(event)


_ABSENT = frozenset(name.partition("(")[0] for name in NOT_IN_FLEET)


class FleetScreen(FilterBarScreen[HostFilter]):
    """Which GPUs are free, who has the others, what is wrong; below, one line a host."""

    BINDINGS = bindings("fleet")
    AUTO_FOCUS = "#hosts"
    TAB = "fleet"
    EXAMPLES = EXAMPLES
    PANES: ClassVar[dict[str, str]] = {"hosts": "hosts"}

    def __init__(self) -> None:
        super().__init__()
        self.head = OneLinePane(self._top, id="top")
        self.free = OneLinePane(lambda builder, view: free_line(builder, self.fleet.summary), id="free")
        self.used = OneLinePane(lambda builder, view: used_line(builder, self.fleet.summary), id="used")
        self.wrong = OneLinePane(lambda builder, view: problem_line(builder, self.fleet.summary), id="wrong")
        self.hosts = HostTable(id="hosts")
        self.hosts.framed = False
        self.panes = (self.free, self.used, self.wrong, self.hosts)

    def begin_with(self, wanted: HostFilter | None, sort: str, *, reverse: bool) -> None:
        """Filters and sorts before the list is first shown."""
        self._filter = wanted
        self.hosts.sort, self.hosts.reverse = sort, reverse

    def compose(self) -> ComposeResult:
        yield self.head
        yield from self.panes
        yield self.keys

    @property
    def fleet(self) -> FleetApp:
        return cast("FleetApp", self.app)

    # Showing

    def draw(self, view: View) -> None:
        """Draws the newest data of all hosts; ``view`` is of none of them."""
        self.hosts.framed = self.framed
        self.hosts.show(self.fleet.summary, self.filter)
        for line in (self.head, self.free, self.used, self.wrong):
            line.show(view)

    def show(self, view: View) -> None:
        self.draw(view)
        if self.filter_bar is not None:
            self.filter_bar.recount(self.matches)
        self.show_keys()

    def show_again(self) -> None:
        self.show(self.gpuwatch.session.view())

    def show_status(self, view: View) -> None:
        self.head.show(view)

    def _top(self, builder: LineBuilder, view: View) -> None:
        fleet = self.fleet
        fleet_top_line(builder, fleet.summary, fleet.fleet_poller.source.name, fleet.now(), fleet.fleet_poller.interval)

    # Filter

    @property
    def filtered(self) -> HostTable:
        return self.hosts

    def parse_filter(self, text: str) -> HostFilter | None:
        return parse_host_filter(text)

    def set_filter(self, wanted: HostFilter | None) -> None:
        self._filter = wanted
        self.hosts.show(self.fleet.summary, wanted)
        self.show_keys()

    # Actions

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of a machine's tabs do nothing here."""
        return False if action in _ABSENT else super().check_action(action, parameters)

    def titles(self) -> dict[str, str]:
        return super().titles() | ({} if self.hosts.item_under_cursor is not None else {"open_host": ""})

    def action_move(self, where: str) -> None:
        self.hosts.move(where)

    async def action_open_host(self) -> None:
        chosen = self.hosts.item_under_cursor
        if chosen is None:
            return
        if chosen.view.snapshot is None:
            self.say(f"no data from {chosen.name}: {chosen.view.reason}", "warning")
            return
        await self.fleet.open_host(chosen.name)

    def action_only_wrong(self) -> None:
        """Shows only hosts with errors or warnings and silent ones, or all again."""
        self.set_filter(None if self.filter_text == "wrong" else parse_host_filter("wrong"))

    def action_only_free(self) -> None:
        self.set_filter(None if self.filter_text == "free" else parse_host_filter("free"))

    def action_sort(self) -> None:
        from gpuwatch.ui.screens.choice_sheets import SortMenu

        self.app.push_screen(SortMenu(self.hosts.sort, COLUMNS, self.hosts.sort_by))

    def action_reverse(self) -> None:
        self.hosts.sort_by(self.hosts.sort)

    async def action_back(self) -> None:
        if self.filter is not None:
            self.set_filter(None)

    def command(self) -> list[str]:
        hosts = self.hosts
        shown = ["--filter", self.filter_text] if self.filter_text else []
        if hosts.sort != "host" or hosts.reverse:
            down = COLUMN_BY_ID[hosts.sort].descending != hosts.reverse
            shown += ["--sort", hosts.sort, *(["--descending" if down else "--no-descending"] if hosts.reverse else [])]
        return [*self.gpuwatch.host_arguments, "--interval", f"{self.fleet.fleet_poller.interval:g}", *shown]
