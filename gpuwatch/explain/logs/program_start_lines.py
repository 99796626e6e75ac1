"""Lines that show a new program in a log after an error: said by shells, servers and Python once for each program."""

from __future__ import annotations

import re

from gpuwatch.explain.logs.tracebacks import file_name

_MARKS = re.compile(
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
_COMPILED = re.compile(r"^\s{0,4}File \"(?!<|.*(?:ipykernel|site-packages|dist-packages))[^\"]{1,300}\", line \d+\s*$")
_AT_ONCE = 3
"""An import is of a new program only if at most so many lines are between it and the error: ranks import, too."""


class ProgramStartLines:
    """Takes the lines of one start, of which the log says that they are its first."""

    def __init__(self) -> None:
        self._served = self._ray = False
        self.program = ""
        """The name of the file that the last line which began no other program names."""

    def again(self, line: str, since_error: int | None) -> bool | None:
        """Whether a line, as it is, begins another program; None if it begins none, wherever it stands.

        ``since_error``: lines since the last error."""
        found = _MARKS.search(line)
        if found is None:
            return None
        begins = since_error is not None
        if found["server"] is not None:
            begins, self._served = begins and self._served, True
        elif found["ray"] is not None:
            begins, self._ray = begins and self._ray, True
        elif found["import"] is not None:
            begins = since_error is not None and since_error <= _AT_ONCE
        elif not begins and (file := found["file"] or found["script"]) is not None:
            self.program = file_name(file)
        return begins


def not_compiled(line: str) -> bool:
    """Whether a line outside a traceback is where Python could not compile a program, which so had not begun."""
    return _COMPILED.match(line) is not None
