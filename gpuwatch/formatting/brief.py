"""Short forms of commands and frameworks, for narrow columns."""

from __future__ import annotations

from functools import lru_cache

from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import UNKNOWN


@lru_cache(maxsize=4096)
def without_folder(command: str) -> str:
    """The command line with the program's name instead of its path: ``python train.py``."""
    program, space, rest = command.partition(" ")
    name = program.rpartition("/")[2]
    return f"{name}{space}{rest}" if name and program.startswith("/") else command


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
