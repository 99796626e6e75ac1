"""Python tracebacks: finds the last frame in the user's own code, below which all frames are a library's."""

from __future__ import annotations

import re

import msgspec

from gpuwatch.explain.logs.log_facts import Frame
from gpuwatch.explain.logs.log_frameworks import frameworks_in, packages_in

_FRAME = re.compile(r"File \"([^\"]{1,1000})\", line (\d{1,9})(?:, in (\S{1,200}))?")
_IPYTHON = re.compile(r"(?:File )?(<ipython-input-[^>]{1,80}>|(?:Cell|Input) In ?\[\d{1,6}\]), line (\d{1,9})")
_LIBRARY_FILE = re.compile(
    r"/(?:site|dist)-packages/|/tensorflow/python/|/(?:tf_)?keras/src/|/jax/_src/|/torch/(?:_|nn/|optim/|autograd/|utils/)"
    r"|/lib(?:64)?/python\d[\d.]*/|/lib-dynload/|^<frozen |^<string>$|^<__array_function__"
    r"|/_gpuwatch_watch/|/__autograph_generated_file|^/tmp/__autograph|\bbazel-out\b|[\\/]Lib[\\/]|[\\/]bin[\\/][\w-]+$|\.exe$|\.pyx$",
)
_RICH_FRAME = re.compile(
    r"^\s*[\u2502|]\s+(?:(?P<file>(?:/|[A-Za-z]:\\)[^:]{1,400}):(?P<line>\d{1,9})(?: in (?P<function>\S{1,200}))?"
    r"|\u2771 +\d+ (?P<code>.*?))[\s\u2502|]*$"
)
"""Rich's frames, within a box: a place, and the source with a mark at the line."""
_MAX_CODE_CHARS = 200
_MAY_BE_OUT_OF_MEMORY = re.compile(
    r"^\w*(?:ResourceExhausted|Memory|Internal|Unknown|Xla|Jax|Status)|emory|OOM |EXHAUSTED|Dst tensor|ALLOC"
)
"""An exception that may say that memory ran out; TensorFlow's and XLA's general ones say so in later lines."""
_CARETS = frozenset("^~ ")
_MAX_RANKS = 256
_AWAITS_PROCESS = re.compile(
    r"^raise |\b(?:spawn|start_processes|notebook_launcher|elastic_launch|launch_agent)\("
    r"|\.(?:result|join)\(|\bray\.get\("
)
"""Source text of a line that starts or awaits the process in which memory was requested, or that reports an earlier
failure."""


TRACEBACK = "Traceback (most recent call last)"
"""The head of a traceback, also within Rich's box; TensorFlow's "defined at (most recent call last)" is none."""
_BEFORE_A_FRAME = re.compile(r" +(?=File \")")
_BEFORE_AN_ERROR = re.compile(r" +(?=(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:: |$))")


def lines_of_joined_traceback(line: str) -> list[str]:
    """The lines of a traceback that a logger wrote as one, with their ends escaped or left out; empty for others."""
    start = line.find(TRACEBACK)
    text, quote = line[start:].rstrip(), line[start - 1 : start]
    if "\\n" in text:
        if quote in ("'", '"') and (end := re.search(rf"(?<!\\){quote}", text)) is not None:
            text = text[: end.start()]
        return [piece.replace("\\'", "'").replace('\\"', '"') for piece in text.split("\\n") if piece]
    *before, last = _BEFORE_A_FRAME.split(text)
    if not before or (error := _BEFORE_AN_ERROR.search(last)) is None:
        return []
    return [*before, last[: error.start()], last[error.end() :]]


def file_name(path: str) -> str:
    """The last part of a path of any system."""
    return path.replace("\\", "/").rpartition("/")[2]


class FrameFinder:
    """Takes log lines without prefixes; keeps the latest frame in the user's code."""

    def __init__(self) -> None:
        self.frame: Frame | None = None
        """The latest frame in the user's own code."""
        self.memory_request_frame: Frame | None = None
        """The latest frame, unless its traceback ended in an exception that has nothing to do with memory."""
        self._memory_error: tuple[str, Frame | None] = ("", None)
        """The last exception about memory, and where the memory was requested."""
        self.rank = ""
        """The prefix of the process that printed the line, if there are several: their tracebacks mix."""
        self._rank_of_frame = ""
        """That of the latest frame."""
        self._frame_by_rank: dict[str, Frame] = {}
        """The latest frame since the last exception, by prefix."""
        self._library_frame: Frame | None = None
        """The latest frame, if it is a package's."""
        self.open = False
        """Whether the next line may be a frame's source text."""
        self.program = ""
        """The file of the current traceback's main module, through which it passed; empty if it did not."""
        self.ended_program = ""
        """That of the last exception, which so ended its program."""
        self.is_new_program = self.has_new_name = False
        """Whether the last frame is of a program that began after an exception had ended one; of one with another name.
        """
        self._outermost = self._in_box = False
        self.last_package = ""
        """As :attr:`Frame.last_package`, of the current traceback."""
        self.frameworks: set[str] = set()
        """Frameworks whose packages the frames are of."""

    def begin_traceback(self) -> None:
        """A traceback begins with the next frame."""
        self.program, self._outermost, self.last_package = "", True, ""
        self._library_frame = None

    def take_frame(self, line: str) -> bool:
        """Takes a line; False if it is not a frame."""
        self.open = self.is_new_program = self.has_new_name = False
        match = _FRAME.search(line) or _IPYTHON.search(line)
        if match is None:
            return False
        file, number, function = match[1], match[2], match[3] if match.re is _FRAME else None
        if self._outermost:
            # python -m begins in runpy.
            self._outermost = function == "_run_module_as_main" or file.endswith("runpy.py")
            if function == "<module>" and not _LIBRARY_FILE.search(file):
                self.program = file_name(file)
                self.has_new_name = self.ended_program not in ("", self.program)
                self.is_new_program = bool(self.ended_program) and not file.startswith("<")
                if self.has_new_name:
                    return True
        self.frameworks |= frameworks_in(file)
        packages = packages_in(file)
        self.last_package = next((name for name in reversed(packages) if name != "torch"), self.last_package)
        if not _LIBRARY_FILE.search(file):
            self._keep(Frame(file=file, line=int(number), function=function))
            self._library_frame, self.open = None, True
        elif packages and self.rank not in self._frame_by_rank:
            self._library_frame = Frame(file=file, line=int(number), function=function, is_library=True)
            self.open = True
        return True

    def take_boxed_line(self, line: str) -> None:
        """Takes a line, as it is, of a traceback in Rich's box."""
        if (found := _RICH_FRAME.match(line)) is None:
            return
        if found["file"]:
            self.take_frame(f'File "{found["file"]}", line {found["line"]}, in {found["function"] or "?"}')
            self.open, self._in_box = False, self.open
        elif self._in_box:
            self._in_box = False
            self.take_code(found["code"].strip("\u2502 "))

    def _keep(self, frame: Frame) -> None:
        if len(self._frame_by_rank) >= _MAX_RANKS:
            self._frame_by_rank.clear()
        self.frame = self.memory_request_frame = self._frame_by_rank[self.rank] = frame
        self._rank_of_frame = self.rank

    def take_code(self, line: str) -> None:
        """Takes the line after a frame in the user's code: its source text, if the file could be read."""
        self.open = False
        text = line.strip()
        if not text or _CARETS.issuperset(text) or _FRAME.search(line) is not None:
            return
        if self._library_frame is not None:
            self._library_frame = msgspec.structs.replace(self._library_frame, code=text[:_MAX_CODE_CHARS])
        elif self.rank == self._rank_of_frame and self.frame is not None:
            self._keep(msgspec.structs.replace(self.frame, code=text[:_MAX_CODE_CHARS]))

    def end_traceback(self, error: str) -> Frame | None:
        """Takes the exception at the end of a traceback, as ``Type: message``; the user's frame that led to it.

        A process pool raises the exception of its worker again in the parent: the first traceback has the place.
        """
        frame = self._frame_by_rank.pop(self.rank, None)
        library_frame, self._library_frame = self._library_frame, None
        if frame is None:
            return library_frame
        if _MAY_BE_OUT_OF_MEMORY.search(error) is not None and error != self._memory_error[0]:
            self._memory_error = (error, None if _AWAITS_PROCESS.search(frame.code) else frame)
        self.memory_request_frame = self._memory_error[1]
        return frame
