"""What the error that ended a program means: by the table of messages, by the line that raised it, by its type."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import PurePath

from gpuwatch.core.model.run import RunError
from gpuwatch.core.safe_text import shorten
from gpuwatch.explain.diagnosis.rules.error_evidence import error_line, frame_of, names_cause, quoted
from gpuwatch.explain.diagnosis.rules.program_error_messages import Meaning, first_match, row_named, section_rows
from gpuwatch.explain.logs.log_facts import Frame, LogFacts
from gpuwatch.explain.logs.log_frameworks import FRAMEWORK_OF_PACKAGE
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.python_exceptions import essential_line, is_heading
from gpuwatch.explain.logs.tracebacks import file_name

MAX_TITLE_CHARS = 120
"""Characters of an error in a title."""
_PACKAGE_PATH_PARTS = 3
"""Last parts of a path that name a package's file."""
_GENERAL_EXCEPTION = re.compile(
    r"(?:Runtime|System|Internal|Unknown|Aborted|Unavailable|Cancelled|Connection\w*|BrokenPipe|Timeout|Import|Status)?"
    r"(?:Error|Exception)$|(?:NoSuchFile|Fail)$"
)
"""Exceptions that native code or another process may be the reason of: whose error it is, is not claimed."""
PROGRAM_ERROR = "program.error"
_SPOOLED_SCRIPT = re.compile(r"/slurm_script$|/spool/(?:slurm|pbs|lsf)")
_ADVICE = re.compile(
    r"(?:^|[.!?;:,(] ?)(?P<advice>(?:[Pp]lease(?= [a-z])|[Tt]ry|[Cc]onsider|[Yy]ou (?:should|must|need to)|[Mm]ake sure"
    r"|[Ee]nsure|[Uu]se|[Ss]et|[Ii]nstall|[Rr]un|[Pp]ass|[Aa]dd|[Ii]ncrease|[Rr]educe|[Dd]ecrease|[Uu]pgrade|[Uu]pdate"
    r"|[Cc]heck|[Ss]pecify|[Dd]ownload|[Rr]emove|[Rr]ename|[Rr]e-?run) (?:\([^()\n]*\)|[^()\n]|\n(?=[a-z])){6,300}?)"
    r"(?=[.!?]+(?:\s|$)|\)|\s*$)",
    re.MULTILINE,
)
"""What to do, in the imperative."""
_ADVICE_ON_OTHER_MATTERS = re.compile(
    r"(?i)\b(?:open|file|submit|report|raise|create) (?:\w+ ){0,3}(?:issue|bug|report)|website|documentation|manual"
    r"|to (?:disable|silence|suppress|hide|turn off|see (?:more|all))\b|dedup|for (?:more )?(?:tips|information)"
)
_MAX_QUOTED_CHARS = 240
SYSTEM, PROGRAM, MACHINE, _GENERAL, _ERROR_KINDS, _BY_EXCEPTION_TYPE = map(
    section_rows, ("system", "program", "machine", "general", "kinds", "type")
)

_PYTHON_EXCEPTIONS = frozenset(
    (
        "AssertionError", "AttributeError", "BadZipFile", "EOFError", "FileExistsError", "FileNotFoundError",
        "FloatingPointError", "IndexError", "IsADirectoryError", "KeyError", "LinAlgError", "LookupError",
        "NotADirectoryError", "NotImplementedError", "OverflowError", "PermissionError", "PicklingError",
        "StopIteration", "UnicodeDecodeError", "UnicodeEncodeError", "UnpicklingError", "ValueError",
    )
)  # fmt: skip
"""Exceptions that Python code raises: of the program, unless their text is about a GPU."""
_NEVER_GPU_EXCEPTIONS = frozenset(
    (
        "IndentationError", "ModuleNotFoundError", "NameError", "RecursionError", "SyntaxError", "TabError",
        "TypeError", "UnboundLocalError", "ZeroDivisionError",
    )
)  # fmt: skip
_GPU_PACKAGES = frozenset(
    (
        *FRAMEWORK_OF_PACKAGE, "accelerate", "apex", "concurrent", "cuda", "deepspeed", "docker", "flash_attn", "grpc",
        "keras", "lightning", "multiprocessing", "nvidia", "pycuda", "pynvml", "pytorch_lightning", "ray", "subprocess",
        "tensorflow", "tensorrt", "torchaudio", "torchvision", "transformers", "triton", "xformers",
    )
)  # fmt: skip
"""Packages whose exceptions may be about a GPU, or another process; those of others are the program's own."""
_SETTINGS_EXCEPTION = re.compile(
    r"(?:Tracer\w*|Type|Value|Key|Config\w*|Misconfiguration|Validation|Pars(?:e|er|ing)|Scanner|Decode|Argument)"
    r"(?:Error|Exception)$"
)
_POSSIBLE_GPU_WORDS = re.compile(
    r"gpu|cuda|cudnn|nvidia|nvcc|ptxas|nvml|driver|device|rank|worker|/dev/|\.so\b|\.dll\b|nccl|cublas|memory|oom\b"
    r"|engine|xla",
    re.IGNORECASE,
)
_DRIVER_OR_CUDA_FILE = re.compile(r"nvidia-smi|nvcc|ptxas|'_cuda|/dev/(?:nvidia|kfd|dri)|lib(?:cu|nv)\w*\.so")
"""A name or file of the driver or of CUDA, which should be there."""


def advice_in_message(said: str) -> str:
    """What a message itself says to do, shortened; empty if it says nothing of the kind."""
    advice = (match["advice"] for match in _ADVICE.finditer(said))
    first = next((text for text in advice if _ADVICE_ON_OTHER_MATTERS.search(text) is None), "")
    return quoted(first.replace("\n", " "), _MAX_QUOTED_CHARS)


def meaning_of_frame(error: RunError, log: LogFacts) -> Meaning | None:
    """What the line that raised an exception says of it, whatever its message; None for most lines."""
    frame = frame_of(log, error)
    if frame is None:
        return None
    if _SPOOLED_SCRIPT.search(frame.file) is not None:
        return first_match((row_named("spooled-script"),), error_line(error))
    module = error.message.partition("No module named ")[2].strip("'\"").partition(".")[0]
    folder = PurePath(frame.file.replace("\\", "/")).parent.name
    if module and module == folder and module not in _GPU_PACKAGES and f"{module}." in frame.code:
        return first_match((row_named("own-folder"),), error_line(error))
    rows = (row for row in section_rows("named") if row.code and re.search(row.code, frame.code) is not None)
    return first_match([*rows][:1], error_line(error))


def message_meaning(error: str) -> Meaning | None:
    """What the error that ended a program means, as ``Type: message``; None if it is not a known one."""
    known = first_match(chain(SYSTEM, PROGRAM, MACHINE, _GENERAL), error)
    return None if known is not None and known.cause == PROGRAM_ERROR and _DRIVER_OR_CUDA_FILE.search(error) else known


def meaning_by_type(error: RunError, log: LogFacts, how: str) -> Meaning | None:
    """What is certain of an exception whose text is not known: it is the program's own, if code raised it, and neither
    its text nor any error of the log is about a GPU. ``how`` begins the title: "It ended in"."""
    if topics_of(error.message) or any(names_cause(topics_of(error.message)) for error in log.errors):
        return None
    if is_heading(essential_line(error.message)):
        return None  # what TensorFlow says after it is cut off
    frame = frame_of(log, error)
    code = frame.code if frame is not None and not frame.is_library else ""
    package = frame.error_package if frame is not None else ""
    raised_by_python = (
        error.type in _PYTHON_EXCEPTIONS
        or _SETTINGS_EXCEPTION.search(error.type) is not None
        or code.startswith("raise ")
        or (bool(package) and package not in _GPU_PACKAGES)
    )
    message = essential_line(error.message)
    text = f"{message} {code}"
    if error.type in _NEVER_GPU_EXCEPTIONS or (raised_by_python and not _POSSIBLE_GPU_WORDS.search(text)):
        title, cause = f"{how} {error.type}: the program's own error, not the GPU's", PROGRAM_ERROR
    elif log.last_error_has_traceback and not _POSSIBLE_GPU_WORDS.search(f"{error.type} {message}"):
        title = f"{how} {shorten(error_line(error), MAX_TITLE_CHARS)}"
        cause = "unknown" if _GENERAL_EXCEPTION.match(error.type) or package in _GPU_PACKAGES else PROGRAM_ERROR
    else:
        return None
    return Meaning(title, advice_for_error(error, log), cause=cause)


def advice_for_error(error: RunError, log: LogFacts) -> str:
    """Where to look for what raised an exception without a meaning of its own, and for what, by its type."""
    frame = frame_of(log, error)
    text = f"{error_line(error)}\n{frame.code if frame is not None else ''}"
    known = first_match(_BY_EXCEPTION_TYPE, text) or meaning_by_kind(error_line(error))
    place = _where_to_look(frame, shown=log.last_error_has_traceback)
    if advice := advice_in_message(error.message):
        return f"Do what its message says: {advice}. {place} if that is done already"
    if known is not None:
        return f"{place}: {known.action}"
    return f"{place}: the error came from that line" if frame is not None and not frame.is_library else place


def meaning_by_kind(line: str) -> Meaning | None:
    """The row for the kind of error that a text tells of; None if it tells of no known kind."""
    return first_match(_ERROR_KINDS, line)


def _where_to_look(frame: Frame | None, *, shown: bool) -> str:
    """Where to look for what raised an exception, whose traceback is ``shown`` or not."""
    if frame is None:
        return "Look at the last frames of its traceback" if shown else "Look at the lines before that one"
    if frame.is_library:
        within = "/".join(frame.file.replace("\\", "/").split("/")[-_PACKAGE_PATH_PARTS:])
        return f"It was raised in a package ({within}, line {frame.line}); check how the program calls it"
    return f"Open {file_name(frame.file)}, line {frame.line}"
