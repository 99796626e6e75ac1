"""The Overview tab: what is free, idle and wrong; host, GPUs, processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from textual import events

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.idle_and_unexplained_memory import HELD_SHARE
from gpuwatch.machine.history.process_labels import program_name
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.overview_layout import LAYOUT_CHOICES, OverviewLayout
from gpuwatch.ui.drawing.styled_lines import SpanLines
from gpuwatch.ui.panes.gpu_grid import plan_overview
from gpuwatch.ui.panes.machine_lines import host_line
from gpuwatch.ui.panes.no_gpu_panel import SIMULATED_GPUS, no_gpu_height, offers_simulation
from gpuwatch.ui.panes.overview_summary import idle_holders, idle_text, nobody_idle_text, summary_items
from gpuwatch.ui.screens.filterable_tab import FilterBarScreen
from gpuwatch.ui.screens.process_actions import ProcessRowsScreen
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.tables.gpu_loads import ORDERS
from gpuwatch.ui.tables.owner_totals import NO_JOB, job_of, user_of
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, COLUMNS
from gpuwatch.ui.tables.process_filter import ProcessFilter, filter_word, parse_process_filter
from gpuwatch.ui.widgets.gpu_pane import GpuPane
from gpuwatch.ui.widgets.one_line_panes import OneLinePane, SummaryLine
from gpuwatch.ui.widgets.process_table import ProcessTable

if TYPE_CHECKING:
    from gpuwatch.ui.widgets.owner_table import OwnerTable

_NAMED_PANES = ("users", "processes")
"""Where the focus is while the totals are shown: it reaches them a moment later."""


class OverviewScreen(FilterBarScreen[ProcessFilter], ProcessRowsScreen):
    """Everything at a glance."""

    BINDINGS = bindings("overview")
    AUTO_FOCUS = "#processes"
    TAB = "overview"
    EXAMPLES = "words  user:alice  gpu:1  mem>2GiB  -xorg"
    PANES: ClassVar[dict[str, str]] = {name: name for name in ("gpus", "summary", "processes", "users")}

    def __init__(self) -> None:
        super().__init__()
        self._overview_layout = OverviewLayout()
        self._most_rows = 0
        """Maximum number of processes so far: the layout does not change with every exit."""
        self.host = OneLinePane(host_line, id="host")
        self.gpus = GpuPane(id="gpus")
        self.summary = SummaryLine(id="summary")
        self.processes = ProcessTable(id="processes")
        self.users: OwnerTable | None = None
        """Totals by user, while they are shown instead of the processes."""
        self._owner_table: OwnerTable | None = None
        """The same, once they have been shown."""
        self.panes = (self.summary, self.host, self.gpus, self.processes)

    # Showing

    def show(self, view: View) -> None:
        self._view = view
        self._lay_out()
        super().show(view)

    def draw(self, view: View) -> None:
        self.summary.show(view)
        self.host.show(view)
        self.gpus.show(view, self._overview_layout)
        self.processes.show(view, framed=self._overview_layout.framed)
        self._show_users()

    def show_sample(self, view: View) -> None:
        """Updates the clock, host, GPUs and run times, if nothing else changed since the previous sample."""
        before, now = self._view, view.snapshot
        if (
            before is None
            or now is None
            or not now.unchanged(before.snapshot, devices=False)
            or (before.stale, before.errors_and_warnings) != (view.stale, view.errors_and_warnings)
        ):
            self.show(view)
            return
        self._view, layout = view, self._overview_layout
        if view.devices is not before.devices:
            self._lay_out()
        if self._overview_layout is not layout:  # a new device, or other MIG instances
            self.show(view)
            return
        super().show_status(view)
        self.summary.show(view)
        self.host.show(view)
        self.gpus.show_sample(view)
        self.processes.show(view, framed=layout.framed)
        if view.devices is not before.devices:
            self._show_users()  # they have a line for unexplained memory

    def show_status(self, view: View) -> None:
        super().show_status(view)
        if view.waiting:
            self._lay_out()
            self.gpus.show(view, self._overview_layout)

    def _lay_out(self) -> None:
        view = self.view
        size, chosen = self.app.size, self.gpuwatch.preferences
        notice = 0 if view.devices else no_gpu_height(view, size.width)
        if view.snapshot is not None and not view.waiting:
            self._most_rows = max(self._most_rows, len(view.snapshot.processes) + len(view.snapshot.bystanders))
        fields = self.gpus.fields_of(view.devices)
        wanted = plan_overview(view, chosen, *size, fields, processes=self._most_rows, notice=notice)
        self.summary.display = bool(view.devices or view.has_problem)
        if wanted == self._overview_layout:
            return
        self._overview_layout = wanted
        self.host.display = wanted.host
        self.gpus.styles.height = max(wanted.gpu_height, 1)

    def show_keys(self, note: tuple[str, bool] = ("", False)) -> None:
        """The footer also shows which rows are visible, for a table without a frame."""
        at_users = self.users is not None and self.focused_pane in _NAMED_PANES
        of_table = note if self._overview_layout.framed else self.processes.footer_note
        shown = ("type a name", False) if at_users else of_table
        super().show_keys(note if self.footer_message[0] and not shown[1] else shown)

    @property
    def focused_pane(self) -> str:
        """The focused pane, by default the processes."""
        return super().focused_pane or "processes"

    # Actions, one for each entry of the table of actions

    def action_move(self, where: str) -> None:
        if self.focused_pane == "gpus":
            far = 1000
            steps = {"up": (0, -1), "down": (0, 1), "left": (-1, 0), "right": (1, 0)}
            steps |= {"page_up": (0, -far), "home": (0, -far), "page_down": (0, far), "end": (0, far)}
            self.gpus.move(*steps[where])
        elif self.focused_pane == "summary":
            self.summary.move({"left": -1, "up": -1, "right": 1, "down": 1, "home": -9, "end": 9}.get(where, 0))
        elif self.users is not None:
            self.users.move(where)
        else:
            self.processes.move(where)

    @property
    def moves_left(self) -> bool:
        """Among GPUs and answers; in the processes while commands are scrolled."""
        return self.focused_pane in ("gpus", "summary") or (self.processes.scrolled and self.users is None)

    @property
    def filtered(self) -> OwnerTable | ProcessTable:
        return self.users or self.processes

    @property
    def filter(self) -> ProcessFilter | None:
        return self.processes.filter

    @property
    def matches(self) -> tuple[int, int]:
        return self.processes.counts

    def parse_filter(self, text: str) -> ProcessFilter | None:
        return parse_process_filter(text)

    def set_filter(self, wanted: ProcessFilter | None) -> None:
        self.processes.set_filter(wanted)
        self._show_users()
        self.show_keys()

    async def action_clear(self) -> None:
        """Clears the filter, then the tags, then the selection; then returns to now, then to the list of hosts."""
        session = self.gpuwatch.session
        if self.processes.filter is not None:
            self.set_filter(None)
        elif self.processes.untag() or self.processes.unpin():
            pass
        elif session.paused and not session.recorded:
            self.action_pause()
        elif await self.gpuwatch.leave_host():
            return
        self.show_keys()

    def action_sort(self) -> None:
        """Opens the sort menu; without GPUs, where a panel offers that, starts again on simulated ones."""
        if offers_simulation(self.view):
            does = f"The dashboard starts again on simulated GPUs (gpuwatch --sim {SIMULATED_GPUS}). Leave them with q."
            self._ask_to_leave("Simulated GPUs", does, "--sim", SIMULATED_GPUS)
            return
        from gpuwatch.ui.screens.choice_sheets import SortMenu

        self.app.push_screen(SortMenu(self.processes.sort_column, COLUMNS, self._sort_by))

    def _sort_by(self, column: str) -> None:
        """Sorts by what the menu chose, in the order in which a column is read; ``S`` reverses it."""
        self.processes.sort_by(column, reverse=COLUMN_BY_ID[column].descends)
        hidden = column not in self.processes.columns_on_screen
        self.say(f"sorted by {COLUMN_BY_ID[column].title}, which is not shown; c chooses columns" * hidden, "accent")

    def action_sort_by_memory(self) -> None:
        """As ``M`` in htop."""
        self._sort_by("memory")
        self.say(self.footer_message[0] or "sorted by GPU-MEM", "accent")

    def action_pause(self) -> None:
        """Pauses, or returns to now; the first time, it says what sorts by CPU, as the key does in htop."""
        if not (self.gpuwatch.session.paused or self.gpuwatch.session.recorded):
            self.explain("P", "P pauses; s and then “cpu” sorts by CPU%")
        super().action_pause()

    def action_doctor(self) -> None:
        """Leaves for ``gpuwatch doctor``, where a panel offers that."""
        if offers_simulation(self.view):
            self._ask_to_leave("Doctor", "The dashboard ends, and gpuwatch doctor prints every check.", "doctor")

    def _ask_to_leave(self, title: str, does: str, *arguments: str) -> None:
        """Says what leaves this page and what leads back, before gpuwatch goes on with other arguments."""
        from gpuwatch.ui.screens.sheet_bases import LinesSheet

        def answered(leaves: bool | None) -> None:
            if leaves:
                self.gpuwatch.exit_to_run(*arguments)

        back: SpanLines = [[("Back to this page: ", "dim"), ("gpuwatch", "key")]]
        sheet = LinesSheet[bool](title, [[(does, "text")], *back], keys={"enter": True})
        sheet.pane.ending = f"{self.gpuwatch.key_name('↵')} goes on  Esc stays here"
        self.app.push_screen(sheet, answered)

    def action_reverse(self) -> None:
        self.processes.sort_by(self.processes.sort_column)

    def action_choose_fields(self) -> None:
        from gpuwatch.ui.screens.choice_sheets import fields_of, open_choice_sheet

        open_choice_sheet(
            self.gpuwatch,
            "GPU fields",
            "gpu_fields",
            lambda chosen: fields_of(self.view.devices, self.gpus.fields_on_screen, chosen),
        )

    def action_choose_graphs(self) -> None:
        from gpuwatch.ui.screens.choice_sheets import graphs_of, open_choice_sheet

        open_choice_sheet(
            self.gpuwatch,
            "Graphs of GPUs",
            "graphs",
            lambda chosen: graphs_of(self._overview_layout.graphs, chosen),
        )

    def action_layout(self) -> None:
        app = self.gpuwatch
        wanted = LAYOUT_CHOICES[(LAYOUT_CHOICES.index(app.preferences.layout) + 1) % len(LAYOUT_CHOICES)]
        app.set_preferences(layout=wanted)
        layout = self._overview_layout
        drawn = "" if layout.gpus_as == "none" else "graphs" if layout.extra_graph_lines else f"{layout.gpus_as}s"
        room = wanted != "automatic" and drawn not in (wanted, "")
        self.say(f"layout: {wanted}{f', no room: {drawn}' if room else ''} (w saves it)", "text")

    def action_sort_gpus(self) -> None:
        app = self.gpuwatch
        wanted = ORDERS[(ORDERS.index(app.preferences.gpu_order) + 1) % len(ORDERS)]
        self.gpus.pin()
        app.set_preferences(gpu_order=wanted)
        self.gpus.bring_into_view()
        self.gpus.redraw()
        self.say(f"GPUs by {wanted}{'' if wanted == 'index' else ', highest first'} (w saves it)", "text")

    def _show_users(self) -> None:
        if self.users is not None:
            self.users.show(self.view, self.processes.filter, framed=self._overview_layout.framed)

    async def action_users(self) -> None:
        """From the processes to totals by user, then by job if there are any, then back."""
        if self.users is not None:
            if self._jobs_next:
                self.users.by_job = True
                self._show_users()
                self.show_keys()
            else:
                self.action_leave_users()
            return
        if self._owner_table is None:
            from gpuwatch.ui.widgets.owner_table import OwnerTable

            self._owner_table = OwnerTable("Users", id="users")
            self._owner_table.add_class("-away")
            await self.mount(self._owner_table, after=self.processes)
        self.users = self._owner_table
        self.users.by_job = False
        self.users.remove_class("-away")
        self.processes.add_class("-away")
        self._show_users()
        self.users.focus()
        self.show_keys()

    def action_leave_users(self) -> None:
        if self.users is not None:
            self.users.add_class("-away")
            self.users = None
        self.processes.remove_class("-away")
        self.processes.focus()
        self.show_keys()

    @property
    def _jobs_next(self) -> bool:
        """Whether totals by job follow those by user."""
        by_user = self.users is not None and not self.users.by_job
        return by_user and any(row.container for row in self.view.processes)

    def titles(self) -> dict[str, str]:
        """The key of the totals says what comes next."""
        nothing = {} if self.view.devices else dict.fromkeys(("idle", "probe_gpu", "gpu_number"), "")
        nothing |= {"sort": "simulated GPUs"} if offers_simulation(self.view) else {}
        users = {} if self.users is None else {"users": "by job" if self._jobs_next else ""}
        return super().titles() | nothing | users

    async def action_open_user(self) -> None:
        """Shows the processes of the user or job under the cursor; without totals on screen, shows them first."""
        if self.users is None:
            await self.action_users()
            return
        total, by_job = self.users.item_under_cursor, self.users.by_job
        name = total.name if total is not None else None
        if name is None or (by_job and name == NO_JOB):
            unknown = f"have an unknown {'job' if by_job else 'owner'}"
            why = "belong to no job" if name is not None else unknown
            self.say(f"these processes {why}, so they cannot be filtered", "warning")
            return
        of = job_of if by_job else user_of
        word = filter_word("job" if by_job else "user", name)
        self.set_filter(ProcessFilter(word, (lambda process, at: of(process) == name,)))
        self.action_leave_users()
        self.say(f"only {word}; Esc shows all processes", "accent")

    async def go(self, tab_id: str) -> None:
        """The GPU tab opens with what is selected here; with nothing selected, with the GPU seen last."""
        uuid = self._selected_gpu if tab_id == "gpu" else None
        if uuid:
            self.gpuwatch.chosen_gpu = uuid
        await super().go(tab_id)

    @property
    def _selected_gpu(self) -> str | None:
        """UUID of the GPU of the selected card, answer or process."""
        pane, row, part = self.focused_pane, self.processes.item_under_cursor, self.summary.item_under_cursor
        if pane == "gpus":
            return self.device.uuid if self.device is not None else None
        if pane == "summary":
            return part.target[0] if part is not None and part.target is not None else None
        return row.key[0] if pane == "processes" and row is not None and self.processes.pinned else None

    async def action_choose_gpu(self) -> None:
        if self.device is not None:
            await self.go_to_gpu(self.device.uuid)

    @property
    def openers(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """Also the keys behind which a name is typed: of a probe, on the Probes tab, and of a user."""
        return super().openers | {"p": self.action_probe_gpu, "u": self.action_users}

    async def typed(self, event: events.Key) -> None:
        """In the totals, letters go to the name that they begin, and run no keys."""
        if self.users is not None and self.filter_bar is None and self.focused_pane in _NAMED_PANES:
            text = self.users.find(event.character if event.is_printable else None)
            if text is not None:
                event.stop()
                if text:
                    self.say(text, "warning")
                return
        await super().typed(event)

    async def action_probe_gpu(self) -> None:
        """Asks for a probe to run on the selected GPU; from the processes, on the freest."""
        device = self.gpus.selected
        if device is None:
            return
        freest = next((part.target for part in summary_items(self.view) if part.id == "free"), None)
        uuid = freest[0] if freest is not None and freest[0] and self.focused_pane != "gpus" else device.uuid
        app = self.gpuwatch
        app.probe_runs.choose_gpu(uuid)
        allowed = not app.session.recorded and "probe_gpu" not in app.unavailable_actions
        app.opens_probe_finder = allowed and app.probe_runs.live is None
        await app.show_tab("probes")

    @property
    def device(self) -> Device | None:
        return self.gpus.selected

    def action_findings(self) -> None:
        from gpuwatch.ui.details.finding_lines import Entry, all_finding_lines
        from gpuwatch.ui.screens.findings import EvidenceSheet

        def read() -> tuple[SpanLines, Entry | None]:
            return all_finding_lines(self.view), next(iter(self.view.errors_and_warnings), None)

        self.app.push_screen(EvidenceSheet("Findings", read))

    def action_idle(self) -> None:
        """Goes to the idle process that holds most, then to the next one."""
        holders = idle_holders(self.view)
        if not holders:
            self.say(nobody_idle_text(self.view), "text")
            return
        rows = [row for _, row, _ in holders]
        here = self.processes.item_under_cursor
        place = (rows.index(here) + 1 if here in rows else 0) % len(rows)
        self.action_leave_users()
        self.processes.go_to(rows[place].key)
        held, row, _ = holders[place]
        only = f"the only idle holder of {HELD_SHARE:.0%} or more"
        which = only if len(rows) == 1 else f"idle holder {place + 1} of {len(rows)}"
        who = f"{printable(row.user or program_name(row))} {row.pid}, {size(held)}"
        idle = idle_text(self.view, row)  # before what its row says too, which a narrow terminal cuts
        self.say(f"{which}: {idle}{'; ' * bool(idle)}{who}", "accent")

    def action_open_summary_item(self) -> None:
        """Goes to what the item of the summary under the cursor is about."""
        part = self.summary.item_under_cursor
        if part is None:
            return
        if part.id == "wrong":
            self.action_findings()
        elif part.id == "idle" and part.target is not None:
            self.action_leave_users()
            self.processes.go_to(part.target)
        elif part.target is not None:
            self.gpus.go_to(part.target[0])
