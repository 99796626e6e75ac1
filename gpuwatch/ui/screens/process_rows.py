"""What can be done with the rows of a process table, on every tab that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on

from gpuwatch.model.snapshot import Process
from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.widgets.process_table import ProcessTable

if TYPE_CHECKING:
    from gpuwatch.sources.signals import Outcome

READ_ONLY = "signals are off: gpuwatch was started with --read-only"


class ProcessRowsScreen(TabScreen):
    """A tab with processes; :attr:`processes` is made by the sub-class."""

    processes: ProcessTable

    def titles(self) -> dict[str, str]:
        """How many a signal would go to."""
        tagged = len(self.processes.tagged)
        return super().titles() | ({"signal": f"signal {tagged}"} if tagged else {})

    def action_missing(self) -> None:
        """Why cells of the selected row are empty."""
        from gpuwatch.ui.screens.missing import missing_of_row

        view, row = self._view, self.processes.selected
        if view is not None and view.snapshot is not None and row is not None:
            self.open_sheet(*missing_of_row(row, view.snapshot))

    @on(ProcessTable.SortAsked)
    def _head_clicked(self, event: ProcessTable.SortAsked) -> None:
        self.processes.sort_by(event.column)

    def action_tag(self) -> None:
        """Marks the row, and goes on to the next."""
        self.processes.tag()
        self.show_keys()

    def action_signal(self) -> None:
        """To the tagged processes, or to the one under the cursor."""
        chosen = self.processes.tagged
        row = self.processes.selected
        if not chosen and isinstance(row, Process):
            chosen = [row]
        self.ask_signal(chosen)

    def ask_signal(self, chosen: list[Process]) -> None:
        """Asks which signal, then sends it and says what became of it."""
        if self.gpuwatch.read_only:
            self.say(READ_ONLY, "warning")
            return
        if not chosen:
            self.say("this memory belongs to no process that can be seen: nothing to signal", "warning")
            return
        from gpuwatch.ui.screens.signal_sheet import SignalSheet, one_each

        people = one_each(chosen)

        def send(number: int | None) -> None:
            if number is not None:
                self._send(people, number)

        self.app.push_screen(SignalSheet(people, self.app.size.width), send)

    def _send(self, people: list[Process], number: int) -> None:
        from gpuwatch.sources.signals import send
        from gpuwatch.ui.screens.signal_sheet import told

        outcomes: list[tuple[Process, Outcome]] = [(p, send(p.pid, p.create_time, number)) for p in people]
        self.processes.untag(one for one, outcome in outcomes if outcome.state == "delivered")
        self.say(*told(outcomes, number))
