"""Where ``gpuwatch run --memory`` finds what one process allocated: its recordings, and the names of its variables.

A process sends these as events (probes/_gpuwatch_watch/_gpuwatch_memory.py); the recordings are read once it has
ended. Their readers are imported then: most programs are watched without.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.memory_profile import MemoryProfile

_PREFIX = "gpuwatch-memory-"
_MAX_FILES = 64
_MAX_NAMES = 5000
_MAX_NOTES = 20
_NO_END = "the process ended without exit handlers (os._exit, a signal): what was recorded since {} was not written"


_ENTRIES: dict[str, Any] = {
    "variables": list[tuple[str, tuple[int, ...], str, str]],
    "inputs": list[tuple[tuple[int, ...], str]],
    "lines": list[tuple[str, str]],
}


class _File(msgspec.Struct, frozen=True):
    file: str
    tool: str
    number: int
    reason: str = ""
    begin: float = 0.0
    end: float = 0.0
    steps_begin: int = 0
    steps_end: int = 0


def recordings_folder() -> tempfile.TemporaryDirectory[str]:
    """A new private folder for recordings. Those of gpuwatch processes that were killed are removed first."""
    for stale in Path(tempfile.gettempdir()).glob(f"{_PREFIX}[0-9]*-*"):
        pid = stale.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            status = stale.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not Path(f"/proc/{pid}").exists():
                shutil.rmtree(stale, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-")


class MemoryRecords:
    """The recordings of one process; their number is bounded."""

    def __init__(self) -> None:
        self._files: list[_File] = []
        self._notes: list[str] = []
        self.gave_way = False
        """Whether the program began to profile itself."""
        self._unread: list[str] = []
        self._names: dict[str, list[Any]] = {"variables": [], "inputs": [], "lines": []}
        self._ended = False
        self._began = False

    def __bool__(self) -> bool:
        """Whether anything was recorded, or could not be."""
        return self._began or bool(self._files or self._notes)

    def take(self, kind: str, data: dict[str, Any]) -> None:
        match kind:
            case "memory_begin":
                self._began = True
            case "memory_file":
                if len(self._files) < _MAX_FILES:
                    self._files.append(msgspec.convert(data, _File))
            case "memory_note":
                self.gave_way |= bool(data.get("gave_way"))
                text = str(data["text"])
                if len(self._notes) < _MAX_NOTES and text not in self._notes:
                    self._notes.append(text)
            case "memory_names":
                self._take_names(str(data["what"]), data["entries"], first=bool(data["first"]))
            case "memory_end":
                self._ended = True

    def _take_names(self, what: str, entries: list[Any], *, first: bool) -> None:
        checked = msgspec.convert(entries, _ENTRIES[what])
        known = [] if first else self._names[what]
        self._names[what] = [*known, *checked][:_MAX_NAMES]

    def profiles(self, pid: int) -> Iterator[MemoryProfile]:
        from gpuwatch.explain.traces.invalid_trace import InvalidTrace

        notes = list(self._notes)
        files = sorted(self._files, key=lambda file: file.number)
        if not self._ended:
            written = "the last window" if files else "its start"
            notes.append(_NO_END.format(written))
        readers = {"tensorflow": self._of_tensorflow, "torch": self._of_torch}
        for tool, read in readers.items():
            try:
                yield from read([file for file in files if file.tool == tool], pid, notes)
            except InvalidTrace as error:
                self._unread.append(f"a recording cannot be read: {error}")

    def _of_tensorflow(self, files: list[_File], pid: int, notes: list[str]) -> list[MemoryProfile]:
        from gpuwatch.explain.traces.memory_profiles import tensorflow_profiles
        from gpuwatch.explain.traces.tensorflow_op_names import FunctionInput, OpNames, Variable

        windows = []
        for file in files:
            content = self._content(Path(file.file))
            if content is not None:
                windows.append((content, file.begin - files[0].begin, (file.steps_begin, file.steps_end)))
        variables = tuple(Variable(*entry) for entry in self._names["variables"])
        names = OpNames(
            variables, tuple(FunctionInput(*entry) for entry in self._names["inputs"]), dict(self._names["lines"])
        )
        return tensorflow_profiles(windows, names, pid=pid, notes=notes) if windows else []

    def _of_torch(self, files: list[_File], pid: int, notes: list[str]) -> list[MemoryProfile]:
        """For each device, the snapshot with the highest peak: the history of a later one may begin after that peak."""
        from gpuwatch.explain.traces.memory_profiles import torch_profiles

        best: dict[str, MemoryProfile] = {}
        for file in files:
            content = self._content(Path(file.file))
            for found in torch_profiles(content, pid=pid, notes=notes) if content else ():
                known = best.get(found.device)
                if known is None or found.peak_bytes > known.peak_bytes:
                    best[found.device] = found
        return list(best.values())

    def _content(self, path: Path) -> bytes | None:
        try:
            with path.open("rb") as file:
                content = file.read(input_size_limits.RUN_MEMORY.bytes + 1)
        except OSError as error:
            self._unread.append(f"a recording cannot be read: {error.strerror}")
            return None
        if len(content) > input_size_limits.RUN_MEMORY.bytes:
            self._unread.append(f"a recording larger than {input_size_limits.RUN_MEMORY.most} was omitted")
            return None
        return content

    def problems(self) -> Iterator[str]:
        """Why there is no profile, or less than was recorded."""
        yield from self._unread
        if not self._files:
            yield from self._notes
            if self._began and not self._ended:
                yield _NO_END.format("its start")
