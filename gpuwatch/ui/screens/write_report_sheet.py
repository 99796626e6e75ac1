"""Asks whether a report is to have names, and writes it."""

from __future__ import annotations

import asyncio
import datetime
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.formatting.path_text import file_url, path_with_tilde
from gpuwatch.core.safe_text import printable
from gpuwatch.ui.drawing.styled_lines import SpanLines
from gpuwatch.ui.drawing.text_styles import link_style
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.panes.key_line import HELP_AND_QUIT_CELLS
from gpuwatch.ui.screens.sheet_bases import ActionSheet, SheetAction

if TYPE_CHECKING:
    from gpuwatch.ui.app import GpuwatchApp
    from gpuwatch.ui.screens.base_tab import TabScreen


_START_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gpuwatch.cli.entry_point import main; main()"
"""Runs this gpuwatch, whatever the current folder holds."""
_WRITE, _WITHOUT_NAMES = 1, 2
_WRITTEN_SECONDS = 15.0
"""Seconds that the path stays in the footer: long enough to copy it by hand."""


class ReportSheet(ActionSheet[bool]):
    """Result: whether names are left out; None writes nothing. Enter or ``y`` writes it, ``w`` without names."""

    def __init__(self, what: str, without: str) -> None:
        folder = path_with_tilde(Path.cwd())
        lines: SpanLines = [
            [(" on       ", "dim"), (what, "text")],
            [(" into     ", "dim"), (f"gpuwatch-report-….html, in {folder}", "text")],
            *([[(" without  ", "dim"), (f"{without}: gpuwatch report has them", "text")]] if without else []),
            [(" secrets  ", "dim"), ("are always masked: passwords, tokens and keys", "text")],
            [],
        ]
        without = "users, hosts, paths, addresses and ids replaced"
        choices = (
            SheetAction("Cancel", "write nothing", "writes nothing"),
            SheetAction("Write", "with the names of users, hosts and files", "writes it", "y"),
            SheetAction("Without names", without, "writes it without names", "w"),
        )
        super().__init__("Write a report", lines, choices, chosen=_WRITE)  # a file here harms nobody

    def take(self, number: int) -> None:
        self.dismiss(None if number < _WRITE else number == _WITHOUT_NAMES)


def ask_report(screen: TabScreen, what: str, arguments: Sequence[str], without: str = "") -> None:
    """Asks, then runs ``gpuwatch report`` with these arguments; ``without``: what such a report lacks."""

    def answered(without_names: bool | None) -> None:
        if without_names is not None:
            screen.say(f"◌ writing a report about {what}", "accent")
            job = _write_report(screen.gpuwatch, arguments, redact=without_names)
            screen.gpuwatch.run_worker(job, group="diagnostic", exclusive=True)

    screen.app.push_screen(ReportSheet(what, without), answered)


async def _write_report(app: GpuwatchApp, arguments: Sequence[str], *, redact: bool) -> None:
    """Runs ``gpuwatch report`` in a process of its own; the footer of whatever tab is open then says the result."""
    path = Path(f"gpuwatch-report-{datetime.datetime.now():%Y%m%d-%H%M%S}.html")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _START_CODE, str(Path(__file__).resolve().parents[3])),
        *("report", *arguments, *(["--redact"] if redact else []), "-o", str(path)),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        _, errors = await process.communicate()
    finally:
        if process.returncode is None:  # the dashboard ends
            process.kill()
    if process.returncode == 0:
        text, style = (
            f"● report: {path.name}, {'without' if redact else 'with'} names",
            link_style(file_url(path), "ok"),
        )
        folder = f", in {path_with_tilde(path.parent)}"
        if width_of(text + folder) <= app.size.width - HELP_AND_QUIT_CELLS:  # cut, it could not be copied
            text += folder
    else:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        why = lines[-1].removeprefix("gpuwatch: ") if lines else f"exit code {process.returncode}"
        text, style = f"✖ no report: {printable(why)}", "error"
    app.tab.show_message(text, style, _WRITTEN_SECONDS)
