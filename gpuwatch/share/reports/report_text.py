"""Texts of reports: values as one harmless line, and sentences that several reports have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Framework
from gpuwatch.core.safe_text import printable, shorten

SIMULATED = "SIMULATED"
VALUES_NOTE = (
    "The simulated driver computes only matrix products and copies, no other kernels: values such as a loss mean"
    " nothing."
)
SIMULATED_MACHINE = "These GPUs are simulated: nothing here is real hardware."
_MAX_VALUE_CHARS = 300
"""Characters of a variable: NVIDIA_REQUIRE_CUDA of the CUDA images has two thousand. JSON has them all."""
_NAMES = frozenset({"NVML", "GPU", "GPUs", "PID", "UUID", "SM", "CUDA"})


def sentence_case(head: str) -> str:
    """``Seen by NVML`` for the terminal's ``SEEN BY NVML``."""
    if not head.isupper() or len(head) < 4:
        return head
    words = [word if word in _NAMES else word.lower() for word in head.replace("GPUS", "GPUs").split(" ")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def clean(value: object) -> str:
    """Any value as one harmless line; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{clean(key)} {clean(item)}" for key, item in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(clean(item) for item in value) or "–"
    text = printable(str(value)).strip()
    return text or "–"


def clean_or_empty(text: str | None) -> str:
    """A text as one harmless line; nothing for None and the empty text."""
    return clean(text) if text else ""


def names_with_counts(names: Iterable[str], separator: str = ", ") -> str:
    """``2 × NVIDIA H200, NVIDIA A100``; empty without names."""
    return separator.join(name if count == 1 else f"{count} × {name}" for name, count in Counter(names).items())


def framework_text(framework: Framework | None) -> str:
    """``tensorflow 2.21.0``; a dash if it is unknown."""
    return "–" if framework is None else f"{clean(framework.name)} {clean(framework.version)}"


def variable_value(value: str | None) -> str:
    """The value of an environment variable: ``""`` if it is empty, a dash if it is unknown, its start if it is long."""
    return '""' if value is not None and not value.strip() else shorten(clean(value), _MAX_VALUE_CHARS)


def redaction_text(redacted: bool) -> str:
    """Whether users, hosts and paths are replaced, for the last line of a report."""
    if redacted:
        return "users, hosts and paths are replaced"
    return "users, hosts and paths are not replaced (gpuwatch report --redact does that)"


def clean_finding(finding: Finding) -> Finding:
    """The finding with every text as one harmless line."""
    return msgspec.structs.replace(
        finding,
        title=clean(finding.title),
        evidence=tuple(map(clean, finding.evidence)),
        action=printable(finding.action),
    )
