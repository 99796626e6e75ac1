"""What the error that ended a program means: by the table of messages, by the line that raised it, by its type."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import PurePath

from gpuwatch.core.model.run import RunError
from gpuwatch.core.safe_text import shorten
from gpuwatch.explain.diagnosis.rules.error_evidence import line_of, names_cause
from gpuwatch.explain.diagnosis.rules.finding_texts import quoted
from gpuwatch.explain.diagnosis.rules.program_error_messages import Meaning, first_match, row_named, section_rows
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.message_topics import topics_of
from gpuwatch.explain.logs.python_exceptions import essential_line, is_heading
from gpuwatch.explain.logs.tracebacks import FRAMEWORK_OF_PACKAGE, Frame, file_name

_MAX_TITLE_CHARS = 120
_PACKAGE_PATH_PARTS = 3
"""Last parts of a path that name a package's file."""
_ANY = re.compile(
    r"(?:Runtime|System|Internal|Unknown|Aborted|Unavailable|Cancelled|Connection\w*|BrokenPipe|Timeout|Import|Status)?"
    r"(?:Error|Exception)$|(?:NoSuchFile|Fail)$"
)
"""Exceptions that native code or another process may be the reason of: whose error it is, is not claimed."""
CAUSE = "program.error"
_SPOOLED = re.compile(r"/slurm_script$|/spool/(?:slurm|pbs|lsf)")
_WAY_OUT = re.compile(
    r"(?:^|[.!?;:,(] ?)(?P<told>(?:[Pp]lease(?= [a-z])|[Tt]ry|[Cc]onsider|[Yy]ou (?:should|must|need to)|[Mm]ake sure"
    r"|[Ee]nsure|[Uu]se|[Ss]et|[Ii]nstall|[Rr]un|[Pp]ass|[Aa]dd|[Ii]ncrease|[Rr]educe|[Dd]ecrease|[Uu]pgrade|[Uu]pdate"
    r"|[Cc]heck|[Ss]pecify|[Dd]ownload|[Rr]emove|[Rr]ename|[Rr]e-?run) (?:\([^()\n]*\)|[^()\n]|\n(?=[a-z])){6,300}?)"
    r"(?=[.!?]+(?:\s|$)|\)|\s*$)",
    re.MULTILINE,
)
"""What to do, in the imperative."""
_TO_OTHERS = re.compile(
    r"(?i)\b(?:open|file|submit|report|raise|create) (?:\w+ ){0,3}(?:issue|bug|report)|website|documentation|manual"
    r"|to (?:disable|silence|suppress|hide|turn off|see (?:more|all))\b|dedup|for (?:more )?(?:tips|information)"
)
_MAX_QUOTED_CHARS = 240
SYSTEM, PROGRAM, MACHINE, _GENERAL, _KINDS, _BY_TYPE = map(
    section_rows, ("system", "program", "machine", "general", "kinds", "type")
)

_PLAIN = frozenset(
    (
        "AssertionError", "AttributeError", "BadZipFile", "EOFError", "FileExistsError", "FileNotFoundError",
        "FloatingPointError", "IndexError", "IsADirectoryError", "KeyError", "LinAlgError", "LookupError",
        "NotADirectoryError", "NotImplementedError", "OverflowError", "PermissionError", "PicklingError",
        "StopIteration", "UnicodeDecodeError", "UnicodeEncodeError", "UnpicklingError", "ValueError",
    )
)  # fmt: skip
"""Exceptions that Python code raises: of the program, unless their text is about a GPU."""
_NEVER_OF_A_GPU = frozenset(
    (
        "IndentationError", "ModuleNotFoundError", "NameError", "RecursionError", "SyntaxError", "TabError",
        "TypeError", "UnboundLocalError", "ZeroDivisionError",
    )
)  # fmt: skip
_MAY_CONCERN_GPUS = frozenset(
    (
        *FRAMEWORK_OF_PACKAGE, "accelerate", "apex", "concurrent", "cuda", "deepspeed", "docker", "flash_attn", "grpc",
        "keras", "lightning", "multiprocessing", "nvidia", "pycuda", "pynvml", "pytorch_lightning", "ray", "subprocess",
        "tensorflow", "tensorrt", "torchaudio", "torchvision", "transformers", "triton", "xformers",
    )
)  # fmt: skip
"""Packages whose exceptions may be about a GPU, or another process; those of others are the program's own."""
_OF_SETTINGS = re.compile(
    r"(?:Tracer\w*|Type|Value|Key|Config\w*|Misconfiguration|Validation|Pars(?:e|er|ing)|Scanner|Decode|Argument)"
    r"(?:Error|Exception)$"
)
OF_A_GPU = re.compile(
    r"gpu|cuda|cudnn|nvidia|nvcc|ptxas|nvml|driver|device|rank|worker|/dev/|\.so\b|\.dll\b", re.IGNORECASE
)
_MAY_BE_OF_A_GPU = re.compile(rf"{OF_A_GPU.pattern}|nccl|cublas|memory|oom\b|engine|xla", re.IGNORECASE)
_OF_THE_MACHINE = re.compile(r"nvidia-smi|nvcc|ptxas|'_cuda|/dev/(?:nvidia|kfd|dri)|lib(?:cu|nv)\w*\.so")
"""A name or file of the driver or of CUDA, which should be there."""


def advice_in_message(said: str) -> str:
    """What a message itself says to do, shortened; empty if it says nothing of the kind."""
    told = next((match["told"] for match in _WAY_OUT.finditer(said) if _TO_OTHERS.search(match["told"]) is None), "")
    return quoted(told.replace("\n", " "), _MAX_QUOTED_CHARS)


def meaning_of_frame(error: RunError, log: LogFacts) -> Meaning | None:
    """What the line that raised an exception says of it, whatever its message; None for most lines."""
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    if frame is None:
        return None
    if _SPOOLED.search(frame.file) is not None:
        return first_match((row_named("spooled-script"),), line_of(error))
    lacks = error.message.partition("No module named ")[2].strip("'\"").partition(".")[0]
    folder = PurePath(frame.file.replace("\\", "/")).parent.name
    if lacks and lacks == folder and lacks not in _MAY_CONCERN_GPUS and f"{lacks}." in frame.code:
        return first_match((row_named("own-folder"),), line_of(error))
    rows = (row for row in section_rows("named") if row.code and re.search(row.code, frame.code) is not None)
    return first_match([*rows][:1], line_of(error))


def message_meaning(error: str) -> Meaning | None:
    """What the error that ended a program means, as ``Type: message``; None if it is not a known one."""
    known = first_match(chain(SYSTEM, PROGRAM, MACHINE, _GENERAL), error)
    return None if known is not None and known.cause == CAUSE and _OF_THE_MACHINE.search(error) else known


def meaning_by_type(error: RunError, log: LogFacts, how: str) -> Meaning | None:
    """What is certain of an exception whose text is not known: it is the program's own, if code raised it, and neither
    its text nor any error of the log is about a GPU. ``how`` begins the title: "It ended in"."""
    if topics_of(error.message) or any(names_cause(topics_of(error.message)) for error in log.errors):
        return None
    if is_heading(essential_line(error.message)):
        return None  # what TensorFlow says after it is cut off
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    code = frame.code if frame is not None and not frame.is_library else ""
    package = frame.error_package if frame is not None else ""
    raised = error.type in _PLAIN or _OF_SETTINGS.search(error.type) is not None or code.startswith("raise ")
    raised = raised or (bool(package) and package not in _MAY_CONCERN_GPUS)
    said = f"{essential_line(error.message)} {code}"
    if error.type in _NEVER_OF_A_GPU or (raised and not _MAY_BE_OF_A_GPU.search(said)):
        title, cause = f"{how} {error.type}: the program's own error, not the GPU's", CAUSE
    elif log.last_error_has_traceback and not _MAY_BE_OF_A_GPU.search(f"{error.type} {essential_line(error.message)}"):
        title = f"{how} {shorten(line_of(error), _MAX_TITLE_CHARS)}"
        cause = "unknown" if _ANY.match(error.type) or package in _MAY_CONCERN_GPUS else CAUSE
    else:
        return None
    return Meaning(title, advice_for_error(error, log), cause=cause)


def advice_for_error(error: RunError, log: LogFacts) -> str:
    """Where to look for what raised an exception without a meaning of its own, and for what, by its type."""
    frame = log.error_frames.get(f"{error.type}: {error.message}")
    hint = first_match(_BY_TYPE, f"{line_of(error)}\n{frame.code if frame is not None else ''}") or advice_by_kind(
        line_of(error)
    )
    place = _place(frame, shown=log.last_error_has_traceback)
    if told := advice_in_message(error.message):
        return f"Do what its message says: {told}. {place} if that is done already"
    own = frame is not None and not frame.is_library
    return f"{place}: {hint.action if hint is not None else 'the error came from that line'}" if hint or own else place


def advice_by_kind(line: str) -> Meaning | None:
    """What to do about an error by the kind of what its text says; None if it says none that is known."""
    return first_match(_KINDS, line)


def _place(frame: Frame | None, *, shown: bool) -> str:
    """Where to look for what raised an exception, whose traceback is ``shown`` or not."""
    if frame is None:
        return "Look at the last frames of its traceback" if shown else "Look at the lines before that one"
    if frame.is_library:
        within = "/".join(frame.file.replace("\\", "/").split("/")[-_PACKAGE_PATH_PARTS:])
        return f"It was raised in a package ({within}, line {frame.line}); check how the program calls it"
    return f"Open {file_name(frame.file)}, line {frame.line}"
