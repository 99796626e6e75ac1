"""What can be done with the rows of a process table, on every tab that has one."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import on

from gpuwatch.model.snapshot import Process, Snapshot
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.trail import identity
from gpuwatch.ui.widgets.process_table import ProcessTable

if TYPE_CHECKING:
    from gpuwatch.sources.signals import Outcome

READ_ONLY = "signals are off: gpuwatch was started with --read-only"
_NOBODY = "this memory belongs to no process that can be seen"


def say_paused(screen: TabScreen) -> bool:
    """Says that nothing is sent to processes of the past; False when this is now."""
    past = screen.gpuwatch.current().past
    if past is None:
        return False
    then = datetime.datetime.fromtimestamp(past.moment).strftime("%H:%M:%S")
    screen.say(f"no signals while paused: this is {then}, not now; P goes back to now", "warning")
    return True


def ask_signal(screen: TabScreen, chosen: list[Process], delivered: Callable[[list[Process]], object]) -> None:
    """Asks which signal, sends it, says what became of it; ``delivered`` is told who got it."""
    if screen.gpuwatch.read_only:
        screen.say(READ_ONLY, "warning")
        return
    if say_paused(screen):
        return
    if not chosen:
        screen.say(f"{_NOBODY}: nothing to signal", "warning")
        return
    from gpuwatch.sources.signals import send
    from gpuwatch.ui.screens.signal_sheet import SignalSheet, one_each, told

    people = one_each(chosen)

    def answered(number: int | None) -> None:
        if number is None:
            return
        outcomes: list[tuple[Process, Outcome]] = [(p, send(p.pid, p.create_time, number)) for p in people]
        got = {identity(one) for one, outcome in outcomes if outcome.state == "delivered"}
        delivered([one for one in chosen if identity(one) in got])
        screen.say(*told(outcomes, number))

    # A pid of the host may by chance be that of an innocent process in here: start times cannot tell.
    doubt = any(one.id == "container.pid-namespace" and one.until is None for one in screen.gpuwatch.findings)
    screen.app.push_screen(SignalSheet(people, screen.app.size.width, doubt=doubt), answered)


class ProcessRowsScreen(TabScreen):
    """A tab with processes; :attr:`processes` is made by the sub-class."""

    processes: ProcessTable

    def titles(self) -> dict[str, str]:
        """How many a signal would go to."""
        tagged = self.processes.tagged_count
        return super().titles() | ({"signal": f"signal {tagged}"} if tagged else {})

    def action_missing(self) -> None:
        """Why cells of the selected row are empty."""
        from gpuwatch.ui.screens.missing import missing_of_row

        view, row = self._view, self.processes.selected
        if view is not None and view.snapshot is not None and row is not None:
            self.open_sheet(*missing_of_row(row, view))

    def action_choose_columns(self) -> None:
        """Which columns, in which order; seen at once."""
        from gpuwatch.ui.rows import DEFAULT_COLUMNS
        from gpuwatch.ui.screens.chooser import Chooser, columns_of

        app, table = self.gpuwatch, self.processes
        self.app.push_screen(
            Chooser(
                "Columns of the processes",
                app.preferences.columns,
                DEFAULT_COLUMNS,
                lambda chosen: columns_of(self._snapshot, table.columns_on_screen, chosen),
                lambda chosen: app.prefer(columns=chosen),
            )
        )

    @property
    def _snapshot(self) -> Snapshot | None:
        return self._view.snapshot if self._view is not None else None

    @on(ProcessTable.SortAsked)
    def _head_clicked(self, event: ProcessTable.SortAsked) -> None:
        self.processes.sort_by(event.column)

    @on(ProcessTable.Scrolled)
    def _other_rows(self) -> None:
        self.show_keys()

    @on(ProcessTable.Opened)
    async def _row_opened(self) -> None:
        await self.action_open_process()

    async def go(self, tab_id: str) -> None:
        """The Process tab shows what is under the cursor here."""
        row = self.processes.selected
        if tab_id == "process" and isinstance(row, Process):
            self.gpuwatch.chosen_process = identity(row)
        await super().go(tab_id)

    async def action_open_process(self) -> None:
        """Everything of the process under the cursor."""
        if isinstance(self.processes.selected, Process):
            await self.go("process")
        elif self.processes.selected is not None:
            self.say(f"{_NOBODY}; i says why", "warning")

    async def action_environment(self) -> None:
        """Its environment, in the Process tab."""
        await self.action_open_process()
        from gpuwatch.ui.screens.process import ProcessScreen

        tab = self.gpuwatch.tab
        if isinstance(tab, ProcessScreen):
            tab.call_after_refresh(tab.action_environment)

    def action_tree(self) -> None:
        """Each process below the one that started it, or not."""
        self.processes.toggle_tree()
        self.show_keys()

    def action_tag(self) -> None:
        """Marks the row, and goes on to the next."""
        self.processes.tag()
        self.show_keys()

    def action_no_signal(self) -> None:
        """The key of signals, while the line of a pause has the focus."""
        say_paused(self)

    def action_signal(self) -> None:
        """To the tagged processes, or to the one under the cursor."""
        chosen = self.processes.tagged
        row = self.processes.selected
        if not chosen and isinstance(row, Process):
            chosen = [row]
        ask_signal(self, chosen, self.processes.untag)
