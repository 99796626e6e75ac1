"""Writes the diagnostic report or one of a recording, in a process of its own: it reads everything anew."""

from __future__ import annotations

import asyncio
import datetime
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuwatch.core.formatting.hyperlinks import file_url, home_short
from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.ui.drawing.ink_colors import link_ink

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from gpuwatch.cli.entry_point import main; main()"
"""Runs this gpuwatch, whatever the current folder holds."""


async def write_diagnostic(
    say: Callable[[str, str], object], arguments: Sequence[str], *, redact: bool = False
) -> None:
    """Runs ``gpuwatch report`` with these arguments.

    Of this machine with ``--no-doctor``: the doctor would use GPUs, which only the Probes tab does, and asks first.
    ``say``: shows the result, as text and ink. ``redact``: without names.
    """
    moment = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    path = Path(f"gpuwatch-report-{moment}.html")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-c", _START, str(Path(__file__).resolve().parents[3])),
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
        holds = "without names" if redact else "holds names"
        text = f"● report: {path.name} {holds}, in {home_short(path.parent)}"
        say(text, link_ink(file_url(path), "ok"))
        return
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    why = lines[-1].removeprefix("gpuwatch: ") if lines else f"exit code {process.returncode}"
    say(f"✖ no report: {printable(why)}", "error")
