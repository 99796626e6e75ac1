"""What shows in a log that a new program, or another start of one, began after an error.

Shells, servers and Python say some lines once for each program; and what came since an exception ended a program is of
another start of it, if the program raises again.
"""

from __future__ import annotations

import re
from collections import deque

from gpuwatch.explain.logs.log_line_text import rank_prefix
from gpuwatch.explain.logs.tracebacks import file_name

_PROGRAM_START = re.compile(
    r"^(?:\S{1,80}: )?(?P<shell>nohup: ignoring input)"
    r"|^(?P<prompt>(?:(?:\([^()]{1,40}\) ?)?(?:\[?[\w.-]{1,40}@[^$#]{1,100})?[$#]|\+{1,3}) (?:\w{1,40}=\S{0,100} )*"
    r"(?:srun (?:.{1,100}? )?)?(?:python[\d.]*|torchrun|accelerate|deepspeed|vllm)\b(?! -[cm]\b)"
    r".{0,300}?(?P<file>[\w./-]{1,200}\.py\b|\bserve\b))"
    r"|^(?P<banner>\W{0,20}(?:now )?(?:running|executing|launching|starting)(?: script)?:? [`'\"]?(?:python[\d.]* )?"
    r"(?P<script>[\w./-]{1,200}(?<!setup)\.(?:py|sh))\b)"
    r"|(?P<server>\bUvicorn running on )"
    r"|(?P<ray>\bStarting Ray with \d)"
    r"|(?P<banner_of_server>\b(?:vLLM API server version |server_args=ServerArgs\())"
    r"|^(?P<import>Using (?:TensorFlow|Theano|CNTK) backend\.?$)",
    re.IGNORECASE,
)
_MAX_LINE_CHARS = 1000
"""Only the first characters of a line are examined."""
_LAUNCHER_STARTS = (
    "torch/distributed/run.py:", "torch.distributed.run: ", "Setting OMP_NUM_THREADS environment variable for each",
    "Starting elastic_operator with launch configs", "will restart worker group", "[runner.py:",
    "values were not passed to `accelerate launch`",
)  # fmt: skip
"""What torchrun, DeepSpeed and Accelerate log once, before they start their processes, or start them again."""
_SYNTAX_ERROR_LOCATION = re.compile(
    r"^\s{0,4}File \"(?!<|.*(?:ipykernel|site-packages|dist-packages))[^\"]{1,300}\", line \d+\s*$"
)
_MAX_LINES_TO_ERROR = 3
"""An import is of a new program only if at most so many lines are between it and the error: ranks import, too."""


class ProgramStartLines:
    """Recognizes lines that a program prints once, as it starts: after an error they show that another one began."""

    def __init__(self) -> None:
        self._served = self._ray = False
        self.program = ""
        """The name of the file that the last line which began no other program names."""

    def begins_program(self, line: str, lines_since_error: int | None, *, job_failed: bool) -> bool | None:
        """Whether a line, as it is, begins another program; None if it begins none, wherever it stands.

        ``lines_since_error``: None if there was no error. ``job_failed``: a launcher reported that its job failed.
        Before that another node's launcher may still start, which belongs to the same job.
        """
        if any(text in line for text in _LAUNCHER_STARTS):
            return job_failed
        found = _PROGRAM_START.search(line, 0, _MAX_LINE_CHARS)
        if found is None:
            return None
        begins = lines_since_error is not None
        if found["server"] is not None:
            begins, self._served = begins and self._served, True
        elif found["ray"] is not None:
            begins, self._ray = begins and self._ray, True
        elif found["import"] is not None:
            begins = lines_since_error is not None and lines_since_error <= _MAX_LINES_TO_ERROR
        elif not begins and (file := found["file"] or found["script"]) is not None:
            self.program = file_name(file)
        return begins


def is_syntax_error_location(line: str) -> bool:
    """Whether a line outside a traceback is where Python found a syntax error in a program, which had not begun."""
    return _SYNTAX_ERROR_LOCATION.match(line) is not None


_MAX_KEPT_LINES = 2000
"""Lines before a traceback that are read again, as those of another start."""
_MIN_LINES_BETWEEN_ENDS, _MAX_END_LINES = 20, 8
"""Lines that are between the ends of two starts, at least, and of them those that may belong to the first end."""
_RANK_WORDS = re.compile(
    r"torchrun|torch[./]distributed|\b(?:local_)?rank\b|world_size|nccl|gloo|deepspeed|\baccelerate\b|mpirun|horovod",
    re.IGNORECASE,
)
"""Words of jobs whose processes fail together."""


class EndedProgram:
    """Keeps lines if an exception ended the program, with a traceback that passed through its main module."""

    def __init__(self, last_lines: deque[str]) -> None:
        """``last_lines``: the last lines of the log."""
        self._last_lines = last_lines
        self.lines_since: deque[str] | None = None
        """The lines since then; None if none did."""
        self.end_line = 0
        """The number of the line at which it ended, if another start of it follows."""
        self._lines_until_end: list[str] = []

    def set_end(self, end_line: int) -> None:
        """``end_line``: number of the line with an exception that ended the program; 0: it did not end it."""
        self.end_line, self.lines_since = end_line, deque(maxlen=_MAX_KEPT_LINES) if end_line else None
        self._lines_until_end = [*self._last_lines] if end_line else []

    def lines_of_next_start(self, traceback: str, line: str, *, renamed: bool) -> list[str]:
        """Given the first two lines of a traceback: the lines that belong to the next start of the program.

        Empty if the traceback may be another rank's. ``renamed``: it is a traceback of a program of another name.
        """
        lines_since = self.lines_since or ()
        if renamed:
            self.end_line = 0  # nothing is known about what came between
            return [traceback, line]
        if (
            len(lines_since) <= _MIN_LINES_BETWEEN_ENDS
            or rank_prefix(traceback)
            or any(map(_RANK_WORDS.search, lines_since))
        ):
            return []
        return [*lines_since][_MAX_END_LINES:]

    def restore_last_lines(self) -> None:
        """Makes the last lines those until the end."""
        self._last_lines.clear()
        self._last_lines.extend(self._lines_until_end)
