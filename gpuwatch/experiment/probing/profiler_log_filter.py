"""A filter for what TensorFlow's profiler logs while gpuwatch records a program's memory with it."""

from __future__ import annotations

import re

_PROFILER_LINE = re.compile(
    rb"^(?:[IW]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [IW] (?:[\w./]*/)?)"
    rb"(?:profiler_session\.cc:\d+\] Profiler session |session_manager\.cc:\d+\] \w+_tracer_level expects an? \w+ value"
    rb"|save_profile\.cc:\d+\] Collecting XSpace to repository: )[^\n]*\n",
    re.MULTILINE,
)
"""TensorFlow's profiler, as it starts, ends and writes (tsl/profiler/lib, profiler/rpc/client), old form of log too."""
_MAYBE_PROFILER_LINE = re.compile(rb"(?:[IW]|[IW]\d[^\n]{0,300}|\d{1,4}|\d{4}-[^\n]{0,300})\Z")
"""An open line that may become one of these."""


class ProfilerLogFilter:
    """Leaves out what TensorFlow logs because gpuwatch records a program's memory; a profile of its own it may log.

    Keeps output until it is known whose profiler a line is of.
    """

    def __init__(self) -> None:
        self._pending = b""

    def add(self, chunk: bytes) -> None:
        self._pending += chunk

    @property
    def has_profiler_line(self) -> bool:
        """Whether there is a line of a profiler, the program's own or ours."""
        return _PROFILER_LINE.search(self._pending) is not None

    def take_output(self, *, program_profiles_itself: bool, is_last: bool = False) -> bytes:
        """The output to pass on. ``program_profiles_itself``: the program profiles itself; ``is_last``: includes an
        unfinished line."""
        output = self._pending if program_profiles_itself else _PROFILER_LINE.sub(b"", self._pending)
        last_line_start = output.rfind(b"\n") + 1
        if is_last or program_profiles_itself or not _MAYBE_PROFILER_LINE.match(output, last_line_start):
            last_line_start = len(output)
        self._pending = output[last_line_start:]
        return output[:last_line_start]
