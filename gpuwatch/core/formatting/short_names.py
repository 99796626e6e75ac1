"""Short forms of commands and frameworks, for narrow columns."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import UNKNOWN


@lru_cache(maxsize=4096)
def without_folder(command: str) -> str:
    """The command line with the program's name instead of its path: ``python train.py``."""
    program, space, rest = command.partition(" ")
    name = program.rpartition("/")[2]
    # The name of a kernel's thread may have a slash too: [kworker/0:1].
    return f"{name}{space}{rest}" if name and not program.startswith("[") else command


_INTERPRETERS = ("python", "pypy", "bash", "sh")
_PROBES = "_gpuwatch_fork_server.py"
"""The file whose processes run probes."""


def program_of(command: str) -> str:
    """What a command line runs: ``train.py`` of ``/usr/bin/python3 -u train.py --bs 64``, a module after ``-m``."""
    words = command.split()
    if not words:
        return ""
    name = words[0].rpartition("/")[2] or words[0]
    if name.rstrip("0123456789.") not in _INTERPRETERS:
        return name
    for before, word in pairwise(words):
        if before == "-m":
            return word
        if word == "-c":
            return name
        if not word.startswith("-") and before not in ("-W", "-X"):
            name = word.rpartition("/")[2] or word
            return "gpuwatch probe" if name == _PROBES else name
    return name


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
