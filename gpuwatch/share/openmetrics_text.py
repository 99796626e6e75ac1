"""The text of metrics for Prometheus: families with their headers, labels, values and timestamps.

Two formats: OpenMetrics 1.0, and Prometheus's own (``plain``), which has neither units nor info.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpuwatch.core.safe_text import printable

TextFormat = Literal["plain", "openmetrics"]
_SUFFIXES = {"counter": "_total", "info": "_info"}


class Family(NamedTuple):
    """A metric family: what its header says, and how our values are scaled for it."""

    name: str
    """Without ``_total`` and ``_info``."""
    kind: str
    """``gauge``, ``counter`` or ``info``: always 1, what it tells is in its labels."""
    unit: str
    """The end of its name; empty without one."""
    help: str
    scale: float = 1.0
    """Factor from our values to its."""

    @property
    def sample_name(self) -> str:
        return self.name + _SUFFIXES.get(self.kind, "")

    def header(self, text_format: TextFormat = "openmetrics") -> str:
        """The lines before its samples. Prometheus's text format has neither units nor info."""
        if text_format == "plain":
            kind = "gauge" if self.kind == "info" else self.kind
            return f"# HELP {self.sample_name} {_escaped(self.help)}\n# TYPE {self.sample_name} {kind}\n"
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        return f"# TYPE {self.name} {self.kind}\n{unit}# HELP {self.name} {_escaped(self.help)}\n"


def label_text(values: Mapping[str, object]) -> str:
    """``{gpu="0",host="node7"}``; what is None is left out."""
    known = ((name, printable(str(value))) for name, value in values.items() if value is not None)
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in known) + "}"


def value_text(number: float) -> str:
    """A value; whole ones without a point."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)


def timestamp_text(at: float) -> str:
    """A timestamp, in seconds since the epoch with milliseconds."""
    return f"{at:.3f}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
