"""Lines that show a new program in a log after an error: said by shells, servers and Python once for each program."""

from __future__ import annotations

import re

_MARKS = re.compile(
    r"^(?:\S{1,80}: )?(?P<shell>nohup: ignoring input)"
    r"|^(?P<prompt>(?:\([^()]{1,40}\) ?)?(?:\[?[\w.-]{1,40}@[^$#]{1,100})?[$#] (?:\w{1,40}=\S{0,100} )*"
    r"(?:python[\d.]*|torchrun|accelerate|deepspeed|vllm)\b(?! -[cm]\b).*(?:\.py\b|\bserve\b))"
    r"|(?P<server>\bUvicorn running on )"
    r"|^(?P<import>Using (?:TensorFlow|Theano|CNTK) backend\.?$)"
)
_COMPILED = re.compile(r"^\s{0,4}File \"(?!<|.*(?:ipykernel|site-packages|dist-packages))[^\"]{1,300}\", line \d+\s*$")
_AT_ONCE = 3
"""An import is of a new program only if at most so many lines are between it and the error: ranks import, too."""


class ProgramStartLines:
    """Takes the lines of one start, of which the log says that they are its first."""

    def __init__(self) -> None:
        self._served = False

    def again(self, line: str, since_error: int | None) -> bool:
        """Whether a line, as it is, begins another program. ``since_error``: lines since the last error."""
        found = _MARKS.search(line)
        if found is None:
            return False
        if found.lastgroup == "server":
            again, self._served = self._served, True
            return again and since_error is not None
        return since_error is not None and (found.lastgroup != "import" or since_error <= _AT_ONCE)


def not_compiled(line: str) -> bool:
    """Whether a line outside a traceback is where Python could not compile a program, which so had not begun."""
    return _COMPILED.match(line) is not None
