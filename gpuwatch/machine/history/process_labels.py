"""How processes and their frameworks are named in events, findings, tables and reports."""

from __future__ import annotations

from gpuwatch.core.formatting.command_lines import program_in_command, without_folder
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.snapshot import Process
from gpuwatch.core.safe_text import printable, shorten

_MAX_NAME_CHARS = 24
"""Characters of a program: what happened stands after it, and must be seen at 80 columns."""
_MAX_COMMAND_CHARS, _MAX_LINE_CHARS = 60, 120


def process_label(row: Process) -> str:
    """``alice's train.py (48121)``, printable and with secrets masked; ``process 48121`` without a name."""
    program = program_name(row)
    user = f"{printable(row.user)}'s " if row.user else ""
    return f"{user}{program} ({row.pid})" if program else f"{user}process {row.pid}"


def label_in_sentence(row: Process) -> str:
    """The same, or ``process 48121, which is not visible here,``."""
    if row.create_time is None and not row.user and not row.name and not row.command:
        return f"process {row.pid}, which is not visible here,"
    return process_label(row)


def program_name(row: Process) -> str:
    """``train.py``: the one name of a process wherever it is named, with secrets masked; empty if it is unknown."""
    return shorten(program_in_command(_masked(row.command or row.name or "")), _MAX_NAME_CHARS)


def command_suffix(row: Process) -> str:
    """``: python train.py --bs 64``; empty if it says no more than the program's name."""
    command = without_folder(_masked(row.command or row.name or ""))
    return f": {shorten(command, _MAX_COMMAND_CHARS)}" if " " in command else ""


def command_line(row: Process) -> str:
    """The whole command line for a finding, with secrets masked; empty if it cannot be read."""
    return shorten(_masked(row.command or ""), _MAX_LINE_CHARS)


def _masked(text: str) -> str:
    from gpuwatch.core.masking.mask_secrets import mask_text  # slow to import, and not needed for the first frame

    return mask_text(printable(text))


def short_framework(framework: str | None, width: int) -> str:
    """``tensorflow 2.21.0`` to fit ``width``: without the patch level, or ``tf 2.21``; whole if neither fits."""
    if not framework:
        return UNKNOWN
    framework = printable(framework)
    name, _, version = framework.partition(" ")
    brief = ".".join(version.split("+")[0].split(".")[:2])
    for text in (f"{name} {brief}".strip(), f"{'tf' if name == 'tensorflow' else name[:6]} {brief}".strip()):
        if len(text) <= width:
            return text
    return framework
