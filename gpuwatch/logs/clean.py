"""What people and terminals put around a log line, and the small grammars inside one.

Pure string functions: sizes, device names, PCI addresses, prefixes. Nothing here keeps state.
"""

from __future__ import annotations

import re

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
# Quote marks, comment signs, notebook indents, list bullets, doctest prompts and rank tags in front.
_LEAD = re.compile(r"^(?:\s+|>+|#+\s|\$ |\||`+|\*\*|\[?rank\d+\]?:|\(\w+ pid=\d+[^)]*\)|\[\d+\](?:<std\w+>)?:)+")

_SIZE = re.compile(r"^\**([\d.]+)\s*(B|bytes|[KMGTP]i?B?)?\**$", re.IGNORECASE)
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}

_DEVICE = re.compile(r"(?:device:)?\b(X?LA_)?(GPU|CPU|TPU|cuda)(?::(\d+))?", re.IGNORECASE)
_PCI = re.compile(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])")

_DTYPE_BYTES = {
    "float": 4,
    "float32": 4,
    "half": 2,
    "float16": 2,
    "bfloat16": 2,
    "double": 8,
    "float64": 8,
    "int8": 1,
    "uint8": 1,
    "qint8": 1,
    "quint8": 1,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
    "complex64": 8,
    "complex128": 16,
    "resource": 8,
    "string": 24,
}


def undecorated(line: str) -> str:
    """The line without colours, quote marks, indents and prompts in front, and without its end of line."""
    if "\x1b" in line:
        line = _ANSI.sub("", line)
    return _LEAD.sub("", line).rstrip()


def size_bytes(text: str) -> int | None:
    """Bytes of ``2.25GiB``, ``496.00 MiB``, ``7.81G``, ``268435456``, ``0B``; None for anything else."""
    match = _SIZE.match(text.strip())
    if match is None:
        return None
    try:
        amount = float(match[1])
    except ValueError:
        return None
    unit = (match[2] or "")[:1].upper()
    return int(amount * _UNITS.get(unit, 1))


def device(text: str) -> str:
    """``GPU:0`` or ``CPU:0`` of any spelling (``/job:…/device:GPU:0``, ``/gpu:0``, ``/GPU:7``).

    A text in which no device is named comes back as it is.
    """
    found = None
    for match in _DEVICE.finditer(text):
        found = match
    if found is None:
        return text
    kind = found[2].upper()
    if kind == "CUDA":
        kind = "GPU"
    prefix = "XLA_" if found[1] else ""
    return f"{prefix}{kind}:{int(found[3] or 0)}"


def pci_address(text: str | None) -> str | None:
    """``0000:01:00.0``: four-digit domain, lower case, as NVML's ``00000000:01:00.0`` and TensorFlow's meet."""
    if not text:
        return None
    match = _PCI.search(text)
    if match is None:
        return None
    domain = int(match[1], 16) if match[1] else 0
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4].lower()}"


def tensor_bytes(shape: str, dtype: str | None) -> int | None:
    """Bytes of ``shape[16,112,112,147] and type float``; None where a part is unknown."""
    width = _DTYPE_BYTES.get((dtype or "float").removeprefix("DT_").lower())
    if width is None:
        return None
    total = width
    for part in shape.split(","):
        part = part.strip()
        if not part:
            continue
        if not part.isdigit() or len(part) > 15:
            return None
        total *= int(part)
    return total


def source_message(line: str) -> tuple[str, str] | None:
    """(``bfc_allocator``, message) of a C++ log line of any of its prefix grammars, else None."""
    at = line.find(".cc:")
    if at < 1:
        return None
    end = line.find("]", at, at + 12)
    if end < 0:
        return None
    start = max(line.rfind("/", 0, at), line.rfind("\\", 0, at), line.rfind(" ", 0, at)) + 1
    return line[start:at], line[end + 1 :].strip()
