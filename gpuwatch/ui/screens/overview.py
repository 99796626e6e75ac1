"""The first screen: host, GPUs, what is wrong, processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType

from gpuwatch.ui.actions import ACTIONS, bindings
from gpuwatch.ui.filtering import Filter, FilterError, field, parse
from gpuwatch.ui.layout import Plan, plan, rounded
from gpuwatch.ui.screens.process_rows import ProcessRowsScreen
from gpuwatch.ui.view import View
from gpuwatch.ui.widgets.gpu_card import others
from gpuwatch.ui.widgets.gpus import GpuPane
from gpuwatch.ui.widgets.listed import Listed
from gpuwatch.ui.widgets.no_gpu import no_gpu_height
from gpuwatch.ui.widgets.process_table import ProcessTable
from gpuwatch.ui.widgets.strips import FindingStrip, HostStrip
from gpuwatch.ui.widgets.too_small import TooSmall

if TYPE_CHECKING:
    from gpuwatch.ui.widgets.filter_bar import FilterBar
    from gpuwatch.ui.widgets.user_table import UserTable

_PREPARE_AFTER, _PREPARE_EVERY = 0.7, 0.3
"""Seconds until the other tabs are imported, one after the other, while there is nothing else to do."""
_FILTER_KEYS = frozenset(next(action.keys for action in ACTIONS if action.id == "filter").split(","))


def _unexplained(view: View) -> list[float | None]:
    """What makes rows of the table that are no processes."""
    return [device.number("memory.unexplained_bytes") for device in view.devices]


class OverviewScreen(ProcessRowsScreen):
    """Everything at a glance."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("overview")
    AUTO_FOCUS = "#processes"
    TAB = "overview"
    PANES: ClassVar[dict[str, str]] = {
        "gpus": "gpus",
        "finding": "finding",
        "processes": "processes",
        "users": "users",
    }

    def __init__(self) -> None:
        super().__init__()
        self._plan: Plan | None = None
        self._most = 0
        """The most processes that there were: the layout does not follow each that goes."""
        self._readings = 0
        self.host = HostStrip(id="host")
        self.gpus = GpuPane(id="gpus")
        self.finding = FindingStrip(id="finding")
        self.processes = ProcessTable(id="processes")
        self.filter_bar: FilterBar | None = None
        self.users: UserTable | None = None
        """Totals by user, while they stand in the place of the processes; made when first asked for."""

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self.top_line
        yield self.host
        yield self.gpus
        yield self.finding
        yield self.processes
        yield self.keys
        yield TooSmall(id="too-small")

    def on_mount(self) -> None:
        """What other tabs are made of is imported when the first frame is long there."""
        self.set_timer(_PREPARE_AFTER, self._prepare)

    def _prepare(self, first: int = 0) -> None:
        from gpuwatch.ui.tabs import PREPARED, prepare

        prepare(PREPARED[first])
        if first + 1 < len(PREPARED):
            self.set_timer(_PREPARE_EVERY, partial(self._prepare, first + 1))

    # Showing

    def show(self, view: View) -> None:
        """Draws all panes from ``view``."""
        self._view = view = view.whole()
        self._arrange()
        super().show(view)

    def draw(self, view: View) -> None:
        """GPUs, what is wrong, processes."""
        self.host.show(view)
        assert self._plan is not None
        self.gpus.show(view, self._plan)
        self.finding.show(view)
        self.processes.show(view, framed=self._plan.framed)
        self._show_users()
        if self.filter_bar is not None:
            self.filter_bar.recount(self.processes.counts)

    def age(self, view: View) -> None:
        """The clock, the host, run times and, now and then, the graphs."""
        before = self._view
        if before is None or self._plan is None or (before.stale, before.wrong) != (view.stale, view.wrong):
            self.show(view)
            return
        self._view = view
        self.top_line.show(view)
        self.host.show(view)
        if view.devices is before.devices:
            self.gpus.age(view)
        else:
            self.gpus.show(view, self._plan)
        if _unexplained(view) == _unexplained(before):
            self.processes.age(view)
        else:
            self.processes.show(view.whole(), framed=self._plan.framed)

    def show_status(self, view: View) -> None:
        """Draws only what follows the clock."""
        super().show_status(view)
        if view.waiting:
            self._arrange()
            assert self._plan is not None
            self.gpus.show(view, self._plan)

    def _arrange(self) -> None:
        view = self._view
        if view is None:
            return
        size = self.app.size
        said = 0 if view.devices else no_gpu_height(view, size.width)
        if view.snapshot is not None and not view.waiting:
            self._most = max(self._most, len(view.snapshot.processes))
            self._readings = max(self._readings, *(len(others(device)) for device in view.devices[:1]), 0)
        wanted = plan(
            size.width,
            size.height,
            len(view.devices),
            findings=view.told,
            said=said,
            processes=rounded(self._most),
            readings=self._readings,
            instances=[len(device.mig_instances) for device in view.devices],
        )
        self.finding.display = view.told and not wanted.too_small
        if wanted == self._plan:
            return
        self._plan = wanted
        self.host.display = wanted.host and not wanted.too_small
        self.gpus.styles.height = max(wanted.gpu_height, 1)

    async def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The footer shows the keys of the focused pane; leaving the filter's line closes it."""
        bar = self.filter_bar
        if bar is not None and bar.was_entered and event.widget.id in self.PANES:
            await self.filter_done(keep=True, focus=False)
        self.show_keys()

    def show_keys(self, note: tuple[str, bool] = ("", False)) -> None:
        """A table without a frame says in the footer how much of it is shown."""
        framed = self._plan is not None and self._plan.framed
        super().show_keys(note if framed or self.said[0] else self.processes.note)

    @property
    def focused_pane(self) -> str:
        """The processes, where nothing else has the focus."""
        return super().focused_pane or "processes"

    # Actions: one for each entry of the table

    def action_move(self, where: str) -> None:
        """Arrows, pages, ends: in the focused pane."""
        if self.focused_pane == "gpus":
            steps = {
                "up": (0, -1),
                "down": (0, 1),
                "left": (-1, 0),
                "right": (1, 0),
                "page_up": (0, -1000),
                "home": (0, -1000),
                "page_down": (0, 1000),
                "end": (0, 1000),
            }
            self.gpus.move(*steps[where])
        elif self.by_user and self.users is not None:
            self.users.move(where)
        else:
            self.processes.move(where)

    async def on_key(self, event: events.Key) -> None:
        """Keys of the filter, in the order in which they were typed.

        Textual sends a key to what is focused when it arrives, so the first letters of a filter that
        is typed fast still come to the table. They pass here, after the key that opened the filter.
        """
        bar = self.filter_bar
        if bar is None:
            if event.key in _FILTER_KEYS:
                event.stop()
                await self.action_filter()
        elif await bar.take(event):
            event.stop()

    async def action_filter(self) -> None:
        """Opens the line to type a filter into."""
        from gpuwatch.ui.widgets.filter_bar import FilterBar

        if self.filter_bar is not None:
            self.filter_bar.focus_input()
            return
        current = self.processes.filter
        self.filter_bar = FilterBar(current.text if current is not None else "")
        self.keys.display = False
        await self.mount(self.filter_bar, after=self.keys)
        self.filter_bar.say(self.processes.counts)

    def filter_typed(self, text: str) -> None:
        """Live, with every key; a word that means nothing is said, and the others are used."""
        wrong = ""
        try:
            self._set_filter(parse(text))
        except FilterError as error:
            wrong = str(error)
            self._set_filter(error.rest)
        if self.filter_bar is not None:
            self.filter_bar.say(self.processes.counts, wrong)

    async def filter_done(self, *, keep: bool, focus: bool = True) -> None:
        """Enter keeps the filter, Esc clears it."""
        if not keep:
            self._set_filter(None)
        if self.filter_bar is not None:
            bar, self.filter_bar = self.filter_bar, None
            await bar.remove()
        self.keys.display = True
        if focus:
            (self.users if self.users is not None and self.by_user else self.processes).focus()

    def _set_filter(self, wanted: Filter | None) -> None:
        self.processes.set_filter(wanted)
        self._show_users()
        self.show_keys()

    def action_clear(self) -> None:
        """Filter first, then the tags, then the chosen row."""
        if self.processes.filter is not None:
            self._set_filter(None)
        elif not self.processes.untag():
            self.processes.unpin()
        self.show_keys()

    def action_sort(self) -> None:
        """A menu of columns."""
        from gpuwatch.ui.screens.sort_menu import SortMenu

        self.app.push_screen(SortMenu(self.processes.sort_column), self._sort_chosen)

    def _sort_chosen(self, column: str | None) -> None:
        if column is not None:
            self.processes.sort_by(column)

    def action_reverse(self) -> None:
        """The same column, the other way."""
        self.processes.sort_by(self.processes.sort_column)

    def action_choose_fields(self) -> None:
        """What is told of each GPU; seen at once."""
        from gpuwatch.ui.gpu_fields import DEFAULT_FIELDS
        from gpuwatch.ui.screens.chooser import Chooser, fields_of

        app = self.gpuwatch
        self.app.push_screen(
            Chooser(
                "Facts of the GPUs",
                app.preferences.gpu_fields,
                DEFAULT_FIELDS,
                lambda chosen: fields_of(self._snapshot, self.gpus.fields_on_screen, chosen),
                lambda chosen: app.prefer(gpu_fields=chosen),
            )
        )

    @property
    def by_user(self) -> bool:
        """Whether totals stand in the place of the processes."""
        return self.users is not None and not self.users.has_class("-away")

    def _show_users(self) -> None:
        if self.users is not None and self.by_user and self._view is not None and self._plan is not None:
            self.users.show(self._view.whole(), self.processes.filter, framed=self._plan.framed)

    async def action_users(self) -> None:
        """Totals by user, or the processes again."""
        if self.users is None:
            from gpuwatch.ui.widgets.user_table import UserTable

            self.users = UserTable(id="users")
            self.users.add_class("-away")
            await self.mount(self.users, after=self.processes)
        self.users.toggle_class("-away")
        self.processes.toggle_class("-away")
        self._show_users()
        (self.users if self.by_user else self.processes).focus()
        self.show_keys()

    async def action_open_user(self) -> None:
        """The processes of the user under the cursor."""
        one = self.users.chosen if self.users is not None else None
        if one is None or one.user is None:
            self.say("whose these are cannot be read, so they cannot be picked out", "warning")
            return
        name = one.user
        self._set_filter(Filter(field("user", name), (lambda process: process.user == name,)))
        await self.action_users()

    @on(Listed.Chosen)
    async def _user_chosen(self) -> None:
        await self.action_open_user()

    def action_choose_gpu(self) -> None:
        """Enter in the pane of GPUs."""
        self.gpus.choose()

    @on(GpuPane.Chosen)
    async def _gpu_chosen(self, event: GpuPane.Chosen) -> None:
        self.gpuwatch.chosen_gpu = event.uuid
        await self.gpuwatch.show_tab("gpu")

    async def action_probe_gpu(self) -> None:
        """The probes, on the chosen GPU."""
        view = self._view
        if view is not None and view.devices:
            device = next((d for d in view.devices if d.uuid == self.gpus.cursor_uuid), view.devices[0])
            self.gpuwatch.lab.choose_gpu(device.uuid)
            await self.gpuwatch.show_tab("probes")

    def action_missing_device(self) -> None:
        """Why readings of the chosen GPU are missing."""
        from gpuwatch.ui.screens.missing import missing_of_device

        view = self._view
        if view is not None and view.devices:
            device = next((d for d in view.devices if d.uuid == self.gpus.cursor_uuid), view.devices[0])
            self.open_sheet(*missing_of_device(device, view))

    def action_findings(self) -> None:
        """All findings with their evidence."""
        from gpuwatch.ui.screens.evidence import evidence, first_action, first_cause

        if self._view is not None:
            from gpuwatch.ui.screens.evidence import EvidenceModal

            title, lines = evidence(self._view)
            action, cause = first_action(self._view), first_cause(self._view)
            self.app.push_screen(EvidenceModal(title, lines, action=action, cause=cause))

    def action_open_findings(self) -> None:
        """Enter on the finding's line."""
        self.action_findings()

    @on(FindingStrip.Opened)
    def _finding_clicked(self) -> None:
        self.action_findings()
