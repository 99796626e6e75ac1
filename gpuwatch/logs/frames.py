"""Python tracebacks: the line of the user's own code that the failure came from.

A traceback goes from the outside to the inside, and the last frames are those of the framework, or of a
library that calls it. What a user can change is the last frame of none of them.
"""

from __future__ import annotations

import re

import msgspec

_FRAME = re.compile(r"File \"([^\"]{1,1000})\", line (\d{1,9})(?:, in (\S{1,200}))?")
_IPYTHON = re.compile(r"(?:File )?(<ipython-input-[^>]{1,80}>|(?:Cell|Input) In ?\[\d{1,6}\]), line (\d{1,9})")
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/lib(?:64)?/python\d[\d.]*/|/lib-dynload/|^<frozen |^<string>$|^<__array_function__"
    r"|/_gpuwatch_watch/|/__autograph_generated_file|^/tmp/__autograph|\bbazel-out\b|[\\/]Lib[\\/]",
)
_PACKAGE = re.compile(r"[/\\](?:site|dist)-packages[/\\](\w{1,40})")
_CODE = 200
_MARKS = frozenset("^~ ")


PACKAGES = {
    "torch": "pytorch",
    "jax": "jax",
    "jaxlib": "jax",
    "jax_plugins": "jax",
    "onnxruntime": "onnxruntime",
    "cupy": "cupy",
    "cupy_backends": "cupy",
    "numba": "numba",
    "numba_cuda": "numba",
    "bitsandbytes": "bitsandbytes",
    "vllm": "vllm",
    "ctranslate2": "ctranslate2",
    "paddle": "paddlepaddle",
    "mxnet": "mxnet",
}
"""Python packages to the frameworks that findings name."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's own program."""

    file: str
    line: int
    function: str | None = None
    code: str = ""
    """The text of the line, where the traceback has it."""


class FrameFinder:
    """Takes the lines of a log, without what a collector put in front; keeps the latest frame of the user's."""

    def __init__(self) -> None:
        self.frame: Frame | None = None
        self.open = False
        """Whether the next line may be the code of a frame."""
        self.packages: set[str] = set()
        """Of the installed packages that tracebacks passed, those that are frameworks."""

    def line(self, line: str) -> bool:
        """A line that names a source file and a line in it; False where it is no frame."""
        self.open = False
        match = _FRAME.search(line)
        if match is not None:
            file, number, function = match[1], match[2], match[3]
        elif (match := _IPYTHON.search(line)) is not None:
            file, number, function = match[1], match[2], None
        else:
            return False
        if (package := _PACKAGE.search(file)) is not None and package[1] in PACKAGES:
            self.packages.add(PACKAGES[package[1]])
        if not _FOREIGN.search(file):
            self.frame = Frame(file=file, line=int(number), function=function)
            self.open = True
        return True

    def code(self, line: str) -> None:
        """The line after a frame of the user's: the source text, unless the file could not be read."""
        self.open = False
        text = line.strip()
        if self.frame is not None and text and not _MARKS.issuperset(text) and _FRAME.search(line) is None:
            self.frame = msgspec.structs.replace(self.frame, code=text[:_CODE])
