"""Python tracebacks: finds the last frame in the user's own code, below which all frames are a library's."""

from __future__ import annotations

import re

import msgspec

_FRAME = re.compile(r"File \"([^\"]{1,1000})\", line (\d{1,9})(?:, in (\S{1,200}))?")
_IPYTHON = re.compile(r"(?:File )?(<ipython-input-[^>]{1,80}>|(?:Cell|Input) In ?\[\d{1,6}\]), line (\d{1,9})")
_FOREIGN = re.compile(
    r"/(?:site|dist)-packages/|/tensorflow/python/|/(?:tf_)?keras/src/|/jax/_src/|/torch/(?:_|nn/|optim/|autograd/|utils/)"
    r"|/lib(?:64)?/python\d[\d.]*/|/lib-dynload/|^<frozen |^<string>$|^<__array_function__"
    r"|/_gpuwatch_watch/|/__autograph_generated_file|^/tmp/__autograph|\bbazel-out\b|[\\/]Lib[\\/]|[\\/]bin[\\/][\w-]+$|\.exe$|\.pyx$",
)
_BOXED = re.compile(
    r"^\s*[\u2502|]\s+(?:(?P<file>(?:/|[A-Za-z]:\\)[^:]{1,400}):(?P<line>\d{1,9})(?: in (?P<function>\S{1,200}))?"
    r"|\u2771 +\d+ (?P<code>.*?))[\s\u2502|]*$"
)
"""Rich's frames, within a box: a place, and the source with a mark at the line."""
_PACKAGE = re.compile(
    r"[/\\](?:(?:site|dist)-packages[/\\](?P<package>\w{1,40})"
    r"|(?P<program>sglang|(?i:comfyui)|text_generation_server)(?:\.git)?[/\\])"
)
_OF_TORCH = re.compile(
    r"Loading checkpoint shards: |A decoder-only architecture is being used"
    r"|transformers[/\\]generation[/\\](?!tf_|flax_)"
    r"|Some weights of (?!TF|Flax)\w+ were not|transformers[/\\](?:optimization|train\w+)\.py"
)
"""Said by transformers of its models and modules for PyTorch only."""
_MAX_CODE_CHARS = 200
_OF_MEMORY = re.compile(
    r"^\w*(?:ResourceExhausted|Memory|Internal|Unknown|Xla|Jax|Status)|emory|OOM |EXHAUSTED|Dst tensor|ALLOC"
)
"""An exception that may say that memory ran out; TensorFlow's and XLA's general ones say so in later lines."""
_MARKS = frozenset("^~ ")
_MAX_RANKS = 256
_ELSEWHERE = re.compile(
    r"^raise |\b(?:spawn|start_processes|notebook_launcher|elastic_launch|launch_agent)\("
    r"|\.(?:result|join)\(|\bray\.get\("
)
"""Source text of a line that starts or awaits the process in which memory was requested, or that reports an earlier
failure."""


FRAMEWORK_OF_PACKAGE = {
    **{name: name for name in ("bitsandbytes", "comfyui", "ctranslate2", "mxnet", "onnxruntime", "sglang", "vllm")},
    **dict.fromkeys(("jax", "jaxlib", "jax_plugins"), "jax"),
    **dict.fromkeys(("cupy", "cupy_backends"), "cupy"),
    **dict.fromkeys(("numba", "numba_cuda"), "numba"),
    **dict.fromkeys(("torch", "accelerate", "lightning", "peft", "pytorch_lightning", "torchvision", "trl"), "pytorch"),
    "paddle": "paddlepaddle",
    "text_generation_server": "text-generation-inference",
}
"""Framework names, as findings use them, by Python package."""


class Frame(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's program."""

    file: str
    line: int
    function: str | None = None
    code: str = ""
    """The source text, if the traceback has it."""
    error_package: str = ""
    """The package of the exception that it led to, if its name has one: ``sqlite3``."""
    of_a_package: bool = False
    """Whether it is the last line of a traceback that has none of the user's."""
    through: str = ""
    """The last package other than PyTorch itself through which the traceback went."""


TRACEBACK = "Traceback (most recent call last)"
"""The head of a traceback, also within Rich's box; TensorFlow's "defined at (most recent call last)" is none."""
_BEFORE_A_FRAME = re.compile(r" +(?=File \")")
_BEFORE_AN_ERROR = re.compile(r" +(?=(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)(?:: |$))")


def lines_of_joined_traceback(line: str) -> list[str]:
    """The lines of a traceback that a logger wrote as one, with their ends escaped or left out; empty for others."""
    begin = line.find(TRACEBACK)
    text, quote = line[begin:].rstrip(), line[begin - 1 : begin]
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
        self._memory: tuple[str, Frame | None] = ("", None)
        """The last exception about memory, and where the memory was requested."""
        self.rank = ""
        """The prefix of the process that printed the line, if there are several: their tracebacks mix."""
        self._of = ""
        """That of the latest frame."""
        self._current: dict[str, Frame] = {}
        """The latest frame since the last exception, by prefix."""
        self._below: Frame | None = None
        """The latest frame, if it is a package's."""
        self.open = False
        """Whether the next line may be a frame's source text."""
        self.program = ""
        """The file of the current traceback's main module, through which it passed; empty if it did not."""
        self.ended_program = ""
        """That of the last exception, which so ended its program."""
        self.another = self.renamed = False
        """Whether the last frame is of a program that began after an exception had ended one; of one with another name.
        """
        self._outermost = self._boxed = False
        self.through = ""
        """As :attr:`Frame.through`, of the current traceback."""
        self.packages: set[str] = set()
        """Frameworks whose packages occurred in tracebacks, and in warnings of the last lines."""

    def begin(self) -> None:
        """A traceback begins with the next frame."""
        self.program, self._outermost, self.through = "", True, ""
        self._below = None

    def line(self, line: str) -> bool:
        """Takes a line; False if it is not a frame."""
        self.open = self.another = self.renamed = False
        match = _FRAME.search(line) or _IPYTHON.search(line)
        if match is None:
            return False
        file, number, function = match[1], match[2], match[3] if match.re is _FRAME else None
        if self._outermost:
            # python -m begins in runpy.
            self._outermost = function == "_run_module_as_main" or file.endswith("runpy.py")
            if function == "<module>" and not _FOREIGN.search(file):
                self.program = file_name(file)
                self.renamed = self.ended_program not in ("", self.program)
                self.another = bool(self.ended_program) and not file.startswith("<")
                if self.renamed:
                    return True
        self.named(file)
        if not _FOREIGN.search(file):
            self._keep(Frame(file=file, line=int(number), function=function))
            self._below, self.open = None, True
        elif _PACKAGE.search(file) is not None and self.rank not in self._current:
            self._below = Frame(file=file, line=int(number), function=function, of_a_package=True)
            self.open = True
        return True

    def boxed(self, line: str) -> None:
        """Takes a line, as it is, of a traceback in Rich's box."""
        if (found := _BOXED.match(line)) is None:
            return
        if found["file"]:
            self.line(f'File "{found["file"]}", line {found["line"]}, in {found["function"] or "?"}')
            self.open, self._boxed = False, self.open
        elif self._boxed:
            self._boxed = False
            self.code(found["code"].strip("\u2502 "))

    def named(self, text: str) -> None:
        """Takes a path or line, which may name a framework's package."""
        if _OF_TORCH.search(text) is not None:
            self.packages.add("pytorch")
        for found in _PACKAGE.finditer(text):
            name = found["package"] or found["program"]
            self.through = self.through if name == "torch" else name
            if (framework := FRAMEWORK_OF_PACKAGE.get(name, FRAMEWORK_OF_PACKAGE.get(name.lower()))) is not None:
                self.packages.add(framework)

    def _keep(self, frame: Frame) -> None:
        if len(self._current) >= _MAX_RANKS:
            self._current.clear()
        self.frame = self.memory_request_frame = self._current[self.rank] = frame
        self._of = self.rank

    def code(self, line: str) -> None:
        """Takes the line after a frame in the user's code: its source text, if the file could be read."""
        self.open = False
        text = line.strip()
        if not text or _MARKS.issuperset(text) or _FRAME.search(line) is not None:
            return
        if self._below is not None:
            self._below = msgspec.structs.replace(self._below, code=text[:_MAX_CODE_CHARS])
        elif self.rank == self._of and self.frame is not None:
            self._keep(msgspec.structs.replace(self.frame, code=text[:_MAX_CODE_CHARS]))

    def ended(self, error: str) -> Frame | None:
        """Takes the exception at the end of a traceback, as ``Type: message``; the user's frame that led to it.

        A process pool raises the exception of its worker again in the parent: the first traceback has the place.
        """
        frame = self._current.pop(self.rank, None)
        below, self._below = self._below, None
        if frame is None:
            return below
        if _OF_MEMORY.search(error) is not None and error != self._memory[0]:
            self._memory = (error, None if _ELSEWHERE.search(frame.code) else frame)
        self.memory_request_frame = self._memory[1]
        return frame
