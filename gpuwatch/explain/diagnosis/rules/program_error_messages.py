"""Reads ``program_error_messages.txt``, the table of what errors, ends and signals mean, and what to do about them.

Sources of its texts: PyTorch (``aten/src/ATen/native``, ``torch/autograd``, ``torch/amp``, ``torch/distributed``,
``torch/_inductor``, ``torch/serialization.py``, ``torch/utils/cpp_extension.py``), TensorFlow and Keras, DeepSpeed,
fairseq, Hugging Face's packages, scikit-learn, NumPy, wandb, Python's own exceptions; the operating system's errors
(their number is the same in every language), Slurm, Environment Modules and Lmod, conda, pip, apt, CMake, GNU ld,
Docker, kubelet, NVIDIA's installers of driver and CUDA, NCCL, Xorg, Triton, Ray, the kernel, gdb. What has a cause of
its own is in :mod:`gpuwatch.explain.logs.message_topics`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.model.findings import Certainty
from gpuwatch.explain.logs import reported_ends

_PROGRAM_ERROR = "program.error"
_PROGRAM_SECTIONS = ("program", "general")
"""Sections whose rows have this cause."""
_PROGRAM_ERROR_KEYS = frozenset({"spooled-script", "lost-parent", "no-folder", "unset-variable", "none-read"})
"""Keys of rows in other sections that have it."""
_KEY = re.compile(r"([\w.-]+) = (.*)")


class Meaning(NamedTuple):
    """A row: what an error means, what to do, what it says and its cause."""

    title: str
    """``{0}`` is the first group of the pattern that matched, here and in ``action``."""
    action: str
    says: tuple[str, ...] = ()
    """Patterns of the error as ``Type: message``, or of the line that reports it; none: it is known by its key."""
    cause: str = "unknown"
    key: str = ""
    """By which code names it: a topic, a signal or a word."""
    code: str = ""
    """A pattern of the line that raised the error, which alone tells what it means."""
    certainty: Certainty = "fact"


@cache
def _tables() -> dict[str, tuple[Meaning, ...]]:
    tables: dict[str, list[Meaning]] = {}
    keyed: dict[str, Meaning] = {}
    rows: list[Meaning] = []
    for line in Path(__file__).with_name("program_error_messages.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            rows = tables.setdefault(section := line[1 : line.index("]")], [])
        elif line.startswith("    "):
            kind, _, text = line.strip().partition(" ")
            row = rows[-1]
            if kind == "says":
                row = row._replace(says=(*row.says, text))
            else:
                row = row._replace(action=text) if kind == "do" else row._replace(code=text)
            rows[-1] = keyed[row.key] = row
        elif line and not line.startswith("#"):
            found = _KEY.fullmatch(line)
            key, title = (found[1], found[2]) if found is not None else ("", line.removeprefix("-"))
            cause = _PROGRAM_ERROR if section in _PROGRAM_SECTIONS or key in _PROGRAM_ERROR_KEYS else "unknown"
            row = keyed[title[1:]] if title.startswith("@") else Meaning(title, "")
            rows.append(row._replace(key=key, cause=cause))
            keyed[key] = rows[-1]
    return {name: tuple(found) for name, found in tables.items()}


def section_rows(section: str) -> tuple[Meaning, ...]:
    """The rows of a section, in its order."""
    return _tables()[section]


@cache
def row_named(key: str) -> Meaning:
    """The row with this key, for code that refers to it. KeyError without one."""
    return next(row for rows in _tables().values() for row in rows if row.key == key)


@cache
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(map(re.compile, patterns))


def first_match(rows: Iterable[Meaning], error: str) -> Meaning | None:
    """The first row that an error matches, with what it names in the title."""
    for row in rows:
        for pattern in _compiled(row.says):
            if (match := pattern.search(error)) is not None:
                groups = [group[:120] for group in match.groups() if group]
                return row._replace(title=row.title.format(*groups), action=row.action.format(*groups))
    return None


LOST_PEER = "ended.peer"
NCCL_TIMEOUT = "ended.nccl-timeout"
NCCL_INTERNAL = "ended.nccl-internal"
"""NCCL's "internal error", as it also calls a connection that another rank closed."""
HOST_MEMORY = reported_ends.HOST_MEMORY
DATALOADER_WORKER = "ended.worker"
TENSORRT_FAILED = "ended.tensorrt"
ENDINGS: dict[str, Meaning] = {row.key: row for row in section_rows("ends")}
"""By topic, for failures with a log line of their own: of several in a log the first tells most."""
SIGNALS: dict[signal.Signals, Meaning] = {signal.Signals[row.key]: row for row in section_rows("signals")}
"""Signals that end programs."""
