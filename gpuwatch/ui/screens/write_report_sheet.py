"""Asks how a report is to be written: with names, or without."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.formatting.hyperlinks import home_short
from gpuwatch.ui.drawing.wrapping import Lines
from gpuwatch.ui.screens.choice_sheet import ChoiceModal

if TYPE_CHECKING:
    from gpuwatch.ui.screens.base_tab import TabScreen

_WRITE, _WITHOUT_NAMES = 1, 2
_WRITTEN_SECONDS = 15.0
"""Seconds that the path stays in the footer: long enough to copy it by hand."""


class ReportSheet(ChoiceModal[bool]):
    """Result: whether names are left out; None writes nothing. Enter or ``y`` writes it, ``w`` without names."""

    def __init__(self, what: str) -> None:
        folder = home_short(Path.cwd())
        lines: Lines = [
            [(" on       ", "dim"), (what, "text")],
            [(" into     ", "dim"), (f"gpuwatch-report-….html, in {folder}", "text")],
            [(" secrets  ", "dim"), ("are always masked: passwords, tokens and keys", "text")],
            [],
        ]
        without = "users, hosts, paths, addresses and ids replaced"
        choices = (
            ("Cancel", "write nothing", "writes nothing"),
            ("Write", "with the names of users, hosts and files", "writes it"),
            ("Without names", without, "writes it without names"),
        )
        super().__init__("Write a report", lines, choices, _WRITE, {_WITHOUT_NAMES: "w"})
        self._choices.choice = _WRITE  # a file here harms nobody

    def take(self, number: int) -> None:
        self.dismiss(None if number < _WRITE else number == _WITHOUT_NAMES)


def ask_report(screen: TabScreen, what: str, arguments: Sequence[str]) -> None:
    """Asks, then runs ``gpuwatch report`` with these arguments; the footer of whatever tab is open says the result."""

    def answered(without_names: bool | None) -> None:
        if without_names is None:
            return
        from gpuwatch.ui.report_subprocess import write_diagnostic

        screen.say(f"◌ writing a report about {what}", "accent")
        app = screen.gpuwatch

        def written(text: str, ink: str) -> None:
            app.tab.show_message(text, ink, _WRITTEN_SECONDS)

        job = partial(write_diagnostic, written, arguments, redact=without_names)
        app.run_worker(job(), group="diagnostic", exclusive=True)

    screen.app.push_screen(ReportSheet(what), answered)
