"""What TensorFlow logs because gpuwatch records a program's memory: not the program's, so it is not passed on."""

from __future__ import annotations

import re

_OWN = re.compile(
    rb"^(?:[IW]\d{4} [\d:.]+ +\d+ |\d{4}-\d\d-\d\d [\d:.]+: [IW] (?:[\w./]*/)?)"
    rb"(?:profiler_session\.cc:\d+\] Profiler session |session_manager\.cc:\d+\] \w+_tracer_level expects an? \w+ value"
    rb"|save_profile\.cc:\d+\] Collecting XSpace to repository: )[^\n]*\n",
    re.MULTILINE,
)
"""TensorFlow's profiler, as it starts, ends and writes (tsl/profiler/lib, profiler/rpc/client), old form of log too."""
_BEGINS = re.compile(rb"(?:[IW]|[IW]\d[^\n]{0,300}|\d{1,4}|\d{4}-[^\n]{0,300})\Z")
"""An open line that may become one of these."""


class ProfilerLogFilter:
    """Keeps output until it is known whose profiler a line is of."""

    def __init__(self) -> None:
        self._kept = b""

    def put(self, chunk: bytes) -> None:
        self._kept += chunk

    @property
    def doubtful(self) -> bool:
        """Whether there is a line of a profiler, the program's own or ours."""
        return _OWN.search(self._kept) is not None

    def rest(self, *, of_program: bool, last: bool = False) -> bytes:
        """The output to pass on. ``of_program``: the program profiles itself; ``last``: includes an unfinished line."""
        text = self._kept if of_program else _OWN.sub(b"", self._kept)
        line = text.rfind(b"\n") + 1
        if last or of_program or not _BEGINS.match(text, line):
            line = len(text)
        self._kept = text[line:]
        return text[:line]
