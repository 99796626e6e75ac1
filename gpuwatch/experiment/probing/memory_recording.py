"""``gpuwatch run --memory``: the recordings of what a process allocated.

A process sends its recordings and the names of its variables as events (probes/_gpuwatch_watch/: _gpuwatch_memory.py,
_gpuwatch_torch_memory.py); they are read once it has ended. Their readers are imported then: most programs are watched
without.
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
_NO_END_TEXT = (
    "the process ended without exit handlers (os._exit, a signal): what was recorded since {} was not written"
)
_NAME_TYPES: dict[str, Any] = {
    "variables": list[tuple[str, tuple[int, ...], str, str]],
    "inputs": list[tuple[tuple[int, ...], str]],
    "lines": list[tuple[str, str]],
}


class _RecordingFile(msgspec.Struct, frozen=True):
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


class MemoryRecordings:
    """The recordings of one process; their number is bounded."""

    def __init__(self) -> None:
        self._files: list[_RecordingFile] = []
        self._notes: list[str] = []
        self.program_profiles_itself = False
        """Whether the program began to profile itself."""
        self._read_errors: list[str] = []
        self._names: dict[str, list[Any]] = {"variables": [], "inputs": [], "lines": []}
        self._has_ended = False
        self._has_begun = False
        self._has_profiles = False

    def __bool__(self) -> bool:
        """Whether anything was recorded, or could not be."""
        return self._has_begun or bool(self._files or self._notes)

    def take_event(self, kind: str, data: dict[str, Any]) -> None:
        match kind:
            case "memory_begin":
                self._has_begun = True
            case "memory_file":
                if len(self._files) < _MAX_FILES:
                    self._files.append(msgspec.convert(data, _RecordingFile))
            case "memory_note":
                self.program_profiles_itself |= bool(data.get("gave_way"))
                text = str(data["text"])
                if len(self._notes) < _MAX_NOTES and text not in self._notes:
                    self._notes.append(text)
            case "memory_names":
                self._take_names(str(data["what"]), data["entries"], first=bool(data["first"]))
            case "memory_end":
                self._has_ended = True

    def _take_names(self, kind: str, entries: list[Any], *, first: bool) -> None:
        new_entries = msgspec.convert(entries, _NAME_TYPES[kind])
        earlier = [] if first else self._names[kind]
        self._names[kind] = [*earlier, *new_entries][:_MAX_NAMES]

    def profiles(self, pid: int) -> Iterator[MemoryProfile]:
        from gpuwatch.explain.traces import InvalidTrace

        notes = list(self._notes)
        files = sorted(self._files, key=lambda file: file.number)
        if not self._has_ended:
            unwritten_since = "the last window" if files else "its start"
            notes.append(_NO_END_TEXT.format(unwritten_since))
        profiles_by_tool = {"tensorflow": self._tensorflow_profiles, "torch": self._torch_profiles}
        for tool, profiles_of in profiles_by_tool.items():
            try:
                profiles = profiles_of([file for file in files if file.tool == tool], pid, notes)
            except InvalidTrace as error:
                self._read_errors.append(f"a recording cannot be read: {error}")
                continue
            self._has_profiles |= bool(profiles)
            yield from profiles

    def _tensorflow_profiles(self, files: list[_RecordingFile], pid: int, notes: list[str]) -> list[MemoryProfile]:
        from gpuwatch.explain.traces.memory_profiles import tensorflow_profiles
        from gpuwatch.explain.traces.tensorflow_allocation_purposes import AllocationPurposes, FunctionInput, Variable

        windows = []
        for file in files:
            content = self._content(Path(file.file))
            if content is not None:
                windows.append((content, file.begin - files[0].begin, (file.steps_begin, file.steps_end)))
        variables = tuple(Variable(*entry) for entry in self._names["variables"])
        inputs = tuple(FunctionInput(*entry) for entry in self._names["inputs"])
        purposes = AllocationPurposes(variables, inputs, dict(self._names["lines"]))
        return tensorflow_profiles(windows, purposes, pid=pid, notes=notes) if windows else []

    def _torch_profiles(self, files: list[_RecordingFile], pid: int, notes: list[str]) -> list[MemoryProfile]:
        """For each device, the snapshot with the highest peak: the history of a later one may begin after that peak."""
        from gpuwatch.explain.traces.memory_profiles import torch_profiles

        fullest: dict[str, MemoryProfile] = {}
        for file in files:
            content = self._content(Path(file.file))
            for profile in torch_profiles(content, pid=pid, notes=notes) if content else ():
                fullest_so_far = fullest.get(profile.device)
                if fullest_so_far is None or profile.peak_bytes > fullest_so_far.peak_bytes:
                    fullest[profile.device] = profile
        return list(fullest.values())

    def _content(self, path: Path) -> bytes | None:
        try:
            with path.open("rb") as file:
                content = file.read(input_size_limits.RUN_MEMORY.bytes + 1)
        except OSError as error:
            self._read_errors.append(f"a recording cannot be read: {error.strerror}")
            return None
        if len(content) > input_size_limits.RUN_MEMORY.bytes:
            self._read_errors.append(f"a recording larger than {input_size_limits.RUN_MEMORY.size_text} was omitted")
            return None
        return content

    def problems(self) -> Iterator[str]:
        """Why there is no profile, or less than was recorded; what a profile notes is not repeated. After profiles."""
        yield from self._read_errors
        if self._has_profiles:
            return
        yield from self._notes
        if self._has_begun and not self._has_ended:
            yield _NO_END_TEXT.format("the last window" if self._files else "its start")
