"""String functions for log lines: strips prefixes and quoting, reads sizes, device names and PCI addresses."""

from __future__ import annotations

import html
import re
from functools import lru_cache

import msgspec

_ANSI = re.compile(r"\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
# At a line's start: quote marks, comment signs, notebook indents, list bullets, doctest's and pytest's marks, ranks.
_LEAD = re.compile(
    r"(?:\s+|>+|#+\s|//+\s|;+\s|[-*•] |\$ |\||`+|\*\*|\[?rank:? ?\d+\]?:?|\[default\d+\]:"
    r"|\((?:[\w.:-]+ )?pid=\d+[^)]{0,80}\)|\[\d+\](?:<std\w+>)?:|E {3,})+"
)
_LEVEL = r"(?:DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL|TRACE)"
_RANK = re.compile(
    r"\[?rank:? ?\d+\]?|\[default\d+\]|\((?:[\w.:-]+ )?pid=\d+|\[\d+,\d+\]<std\w+>|\[\d+\](?=:)|\d{1,5}(?=: )"
    r"|[\w.-]{1,60}(?= +\|)"
)
"""The prefix of one of several processes."""
# Prefixes of log collectors and loggers. Each kind is stripped once, in this order.
_ENVELOPES = (
    # 2026-11-20T07:00:01.5Z stderr F …   2026-11-20 07:00:01,500 …   26/11/20 07:00:01 …   (not TensorFlow's "…: I")
    re.compile(
        r"\[?\d{2,4}[-/]\d\d[-/]\d\d,?[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z| UTC| ?[+-]\d\d:?\d\d)?\]?(?=\s|$)"
        r"(?: std(?:out|err) [FP])?"
    ),
    # Nov 20 07:00:01   Fri Nov 20 07:00:01 2026
    re.compile(r"(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?: \d{4})?"),
    # host program[123]:
    re.compile(r"(?:[\w.-]+ )?[\w./-]+\[\d+\]:(?: |$)"),
    # [1,0]<stderr>:   [1,mpirank:0,algo-1]<stdout>:
    re.compile(r"\[\d+,[\w:,. -]*\]<std\w+>:"),
    # ERROR 11-20 07:00:01 [core.py:700]
    # - trainer - ERROR -   | ERROR | module:function:12 -   ERROR:root:   ERROR Executor:   {subprocess.py:93} INFO -
    re.compile(
        rf"(?:{_LEVEL} \d\d-\d\d \d\d:\d\d:\d\d(?= \[)"
        rf"|(?:- )?[\w.]+ - {_LEVEL} -|(?:\| )?{_LEVEL}\s+\| \S+ -|{_LEVEL}:[\w.]+:|{_LEVEL} [\w.]+:(?= |$)"
        rf"|\{{[\w.]+:\d+\}} {_LEVEL} -|{_LEVEL}(?: -|:)?(?= |$))"
    ),
    # trainer-1  | …
    re.compile(r"[\w.-]{1,60}\s+\|(?=\s|$)"),
    # 0: …   17  …   train.log:17:   but no compiler's place
    re.compile(
        r"\d{1,6}(?:: +(?=[A-Za-z])| {2,}(?=\S)|:?$)"
        r"|[\w./-]+\.\w+:\d+:(?! ?(?:\d+: )?(?:fatal )?(?:error|warning|note): )"
    ),
    # [INFO] [launch.py:31] [pod/train-abc/trainer] [stderr]
    re.compile(r"(?:\[(?!WinError |Errno |\d{1,3}\] Call to )[\w ./:,-]{1,80}\] ?)+"),
)
_QUOTED = re.compile(r'^"(.*?)(?:\\r)?(?:\\n)?",?$')
_ENTITY = re.compile(r"&(?:[lg]t|amp|quot|#\d+|#x[0-9a-fA-F]+);")

_SIZE = re.compile(r"^\**([\d.]+)\s*(B|bytes|[KMGTP]i?B?)?\**$", re.IGNORECASE)
_MAX_BYTES = float(1 << 70)
"""Larger numbers are not sizes."""
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}

_DEVICE = re.compile(r"(?:device:)?\b(X?LA_)?(GPU|CPU|TPU|cuda)(?::(\d{1,6}|\*))?", re.IGNORECASE)
_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")

_DTYPE_BYTES = {
    "float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "double": 8, "float64": 8, "int8": 1,
    "uint8": 1, "qint8": 1, "quint8": 1, "bool": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8,
    "uint64": 8, "complex64": 8, "complex128": 16, "resource": 8, "string": 24,
}  # fmt: skip


def undecorated(line: str) -> str:
    """The line without colours, leading quote marks, indents and prompts, and without its end of line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    if "&" in line and _ENTITY.search(line):
        line = html.unescape(line)
    lead = _LEAD.match(line)
    line = (line[lead.end() :] if lead else line).rstrip()
    if line.startswith('"') and (quoted := _QUOTED.match(line)):
        # From a notebook's file or a table.
        line = _ANSI.sub("", quoted[1].replace("\\u001b", "\x1b").replace('\\"', '"').replace('""', '"')).strip()
    return line


def unwrapped(line: str) -> str:
    """An undecorated line without the prefixes of log collectors, loggers and launchers."""
    for envelope in _ENVELOPES:
        match = envelope.match(line)
        if match is not None:
            line = line[match.end() :]
            lead = _LEAD.match(line)
            if lead is not None:
                line = line[lead.end() :]
    return line


_UNFINISHED = re.compile(
    r"(?:(?<=[\]\d%)}\u2026])|(?<=\.\.\.)|(?<=[\]%] )|(?<=\.\.\. ))(?="
    r"(?:(?:Killed|Terminated)(?:: \d{1,2})?|Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|KeyboardInterrupt|\u5df2\u6740\u6b7b|\u5df2\u7ec8\u6b62)(?: \(core dumped\))?[\r\n]*$"
    r"|\^C|slurmstepd: error: |srun: |terminate called "
    r"|Fatal Python error: |Connection to \S+ closed|Killed by signal \d|\w{4,14}\(\): invalid |double free "
    r"|(?<!\d)[\w./-]{1,80}: line \d{1,9}: )"
)
"""What a shell, a scheduler or the C library says behind a line that the program had not ended yet."""


def split_foreign_end(line: str) -> tuple[str, str] | None:
    """A line, as it is, in two: what a program left unfinished, such as a progress bar, and who ended it; else None."""
    found = _UNFINISHED.search(line)
    return (line[: found.end()], line[found.end() :]) if found is not None and found.end() else None


def rank_of(line: str) -> str:
    """The prefix of one of several processes, of a line as it is; empty without one."""
    found = _RANK.match(line.lstrip())
    return found[0] if found is not None else ""


_TEXT_KEYS = ("log", "msg", "message", "MESSAGE", "textPayload", "line", "text", "event")
_ERROR_KEYS = ("exception", "exc_info", "exc_text", "stack_trace", "traceback")
"""Where loggers for Python put the traceback of an error, beside its text."""
_NESTING_KEYS = ("jsonPayload", "record", "fields", "data")


def json_text(line: str) -> str | None:
    """The program's text in a JSON line of Docker, Jupyter, journald or a cloud's log; None for other lines."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    for _ in range(2):
        if not isinstance(found, dict):
            return None
        for key in _TEXT_KEYS:
            text = found.get(key)
            if isinstance(text, str):
                if "exc" not in line and "trace" not in line:
                    return text
                inner = found.get("error")
                raised = [found.get(name) for name in _ERROR_KEYS]
                raised += [inner.get(name) for name in _ERROR_KEYS] if isinstance(inner, dict) else []
                return "\n".join((text, *(error for error in raised if isinstance(error, str))))
        found = next((found[key] for key in _NESTING_KEYS if key in found), None)
    return None


def size_bytes(text: str) -> int | None:
    """Bytes of ``2.25GiB``, ``496.00 MiB``, ``7.81G``, ``268435456``, ``0B``; None for anything else."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    try:
        amount = float(match[1]) * _UNITS.get((match[2] or "")[:1].upper(), 1)
    except ValueError:
        return None
    return int(amount) if amount < _MAX_BYTES else None


SIMULATED_RENAME = "GPU_CUDA"
"""Device type of the CUDA kernels in a process whose GPUs are simulated as a plug-in (sim/csrc/plugin_rename.c)."""
NOT_SIMULATED = "CUDA, not simulated"


def in_words(text: str) -> str:
    """A log line or message for display: explains the device type that only gpuwatch's simulation has."""
    return text.replace(SIMULATED_RENAME, NOT_SIMULATED) if SIMULATED_RENAME in text else text


@lru_cache(1024)  # a log names few devices, many times
def device_name(text: str) -> str:
    """``GPU:0`` for any spelling (``/job:…/device:GPU:0``, ``/gpu:0``); text without a device is returned unchanged."""
    *_, found = (None, *_DEVICE.finditer(text))
    if found is None:
        return text
    kind = found[2].upper()
    if kind == "CUDA" and not (found[2] == kind and found[3]):  # PyTorch's cuda:0; TensorFlow knows no such type
        kind = "GPU"
    prefix = "XLA_" if found[1] else ""
    return f"{prefix}{kind}:{found[3] if found[3] == '*' else int(found[3] or 0)}"


def pci_address(text: str | None) -> str | None:
    """``0000:01:00.0``: lower case, four-digit domain, so that NVML's and TensorFlow's addresses compare equal."""
    match = _PCI.search(text or "")
    if match is None:
        return None
    domain = int(match[1], 16) if match[1] else 0
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4].lower()}"


def tensor_bytes(shape: str, dtype: str | None) -> int | None:
    """Bytes of ``shape[16,112,112,147] and type float``; None if a part is unknown."""
    width = _DTYPE_BYTES.get((dtype or "float").removeprefix("DT_").lower())
    if width is None:
        return None
    total = width
    for part in shape.split(","):
        part = part.strip()
        if not part:
            continue
        if not part.isdecimal() or len(part) > 15:
            return None
        total *= int(part)
        if total > _MAX_BYTES:
            return None
    return total


def source_message(line: str) -> tuple[str, str] | None:
    """(``bfc_allocator``, message) of a C++ log line with any kind of prefix; None for other lines."""
    at = line.find(".cc:")
    if at < 1:
        return None
    end = line.find("]", at, at + 12)
    if end < 0:
        return None
    start = max(line.rfind("/", 0, at), line.rfind("\\", 0, at), line.rfind(" ", 0, at)) + 1
    return line[start:at], line[end + 1 :].strip()
