"""Actions on the rows of a process table, for every tab that has one."""

from __future__ import annotations

from collections.abc import Callable

from textual import on

from gpuwatch.core.model.snapshot import Process
from gpuwatch.session.process_history import process_identity
from gpuwatch.ui.panes.key_line import NO_PROCESS_TITLES
from gpuwatch.ui.screens.base_tab import TabScreen
from gpuwatch.ui.widgets.process_table import ProcessTable

_NO_PROCESS = "no process here: nothing to signal"


def ask_signal(
    screen: TabScreen, chosen: list[Process], delivered: Callable[[list[Process]], object], nothing: str = _NO_PROCESS
) -> None:
    """Asks which signal, sends it, reports the result; ``delivered`` gets the processes that received it.

    ``nothing``: what to say if no process is chosen.
    """
    if screen.gpuwatch.session.read_only and not screen.gpuwatch.session.recorded:
        screen.say("signals are disabled: gpuwatch was started with --read-only", "warning")
        return
    if screen.refuse_while_paused():
        return
    if not chosen:
        screen.say(nothing, "warning")
        return
    host = screen.gpuwatch.session.host
    if host.unreachable:
        screen.say(f"no signals: {host.unreachable}", "warning")
        return
    from gpuwatch.ui.screens.signal_sheet import SignalSheet, one_row_per_process, outcome_message

    processes = one_row_per_process(chosen)

    def answered(number: int | None) -> None:
        if number == 0:
            screen.say("nothing was sent; in that sheet y sends TERM, arrows choose", "text")
        if not number:
            return
        outcomes = [(process, host.signal(process.pid, process.create_time, number)) for process in processes]
        got = {process_identity(process) for process, outcome in outcomes if outcome.state == "delivered"}
        delivered([process for process in chosen if process_identity(process) in got])
        screen.say(*outcome_message(outcomes, number))

    # A pid of the host may by chance be that of an innocent process in here: start times cannot tell.
    findings = screen.gpuwatch.session.findings
    doubt = any(finding.id == "container.pid-namespace" and finding.until is None for finding in findings)
    screen.app.push_screen(SignalSheet(processes, screen.app.size.width, doubt=doubt), answered)


class ProcessRowsScreen(TabScreen):
    """A tab with processes; subclasses create :attr:`processes`."""

    processes: ProcessTable

    def titles(self) -> dict[str, str]:
        tagged = self.processes.tagged_count
        if tagged:
            return super().titles() | {"signal": f"signal {tagged}"}
        return super().titles() | (
            NO_PROCESS_TITLES if not self.view.waiting and self.processes.item_under_cursor is None else {}
        )

    def action_missing(self) -> None:
        from gpuwatch.ui.details.missing_readings import missing_of_row

        row = self.processes.item_under_cursor
        if row is not None:
            self.open_sheet(*missing_of_row(row, self.view))

    def action_choose_columns(self) -> None:
        from gpuwatch.ui.screens.choice_sheets import columns_of, open_choice_sheet

        open_choice_sheet(
            self.gpuwatch,
            "Process columns",
            "columns",
            lambda chosen: columns_of(self.view.snapshot, self.processes.columns_on_screen, chosen),
        )

    @on(ProcessTable.Scrolled)
    def _rows_scrolled(self) -> None:
        self.show_keys()

    async def go(self, tab_id: str) -> None:
        """Opens a tab; the Process tab with the process under the cursor."""
        row = self.processes.item_under_cursor
        if tab_id == "process" and isinstance(row, Process):
            self.gpuwatch.chosen_process = process_identity(row)
        await super().go(tab_id)

    async def action_open_process(self) -> None:
        if isinstance(self.processes.item_under_cursor, Process):
            await self.go("process")
        else:
            self.say(self._empty_text("i shows why"), "warning")

    def _empty_text(self, more: str) -> str:
        """Why there is no process under the cursor; ``more``: what to add where there is memory that none owns."""
        if self.processes.item_under_cursor is not None:
            return f"no visible process owns this memory; {more}"
        return "nothing is selected: ↑ ↓ select a process" if self.processes.items else _NO_PROCESS

    async def action_environment(self) -> None:
        await self.action_open_process()
        tab = self.gpuwatch.tab
        if tab is not self:
            tab.call_after_refresh(tab.run_action, "environment")

    def action_tree(self) -> None:
        self.processes.toggle_tree()
        self.show_keys()

    def action_tag(self) -> None:
        """Toggles the row's tag and moves to the next row."""
        self.processes.tag()
        self.show_keys()

    def action_signal(self) -> None:
        """Asks which signal to send to the tagged processes, or the one under the cursor."""
        chosen = self.processes.tagged
        row = self.processes.item_under_cursor
        if not chosen and isinstance(row, Process):
            chosen = [row]
            self.processes.pin()
        ask_signal(self, chosen, self.processes.untag, self._empty_text("nothing to signal"))
