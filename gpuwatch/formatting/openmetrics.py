"""Names and lines of OpenMetrics and Prometheus: what an export writes and what an exporter serves are called the same.

Names follow from the ids of metrics (:data:`gpuwatch.model.metrics.METRICS`): ``memory.used_bytes`` is
``gpuwatch_gpu_memory_used_bytes``. Prometheus wants base units and shares from 0 to 1: ``utilization.gpu_percent``
becomes ``gpuwatch_gpu_utilization_ratio``, ``clocks.sm_mhz`` ``gpuwatch_gpu_clocks_sm_hertz``. Counters add ``_total``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.formatting.text import printable
from gpuwatch.model.metrics import MetricSpec, Unit

_RENAMED = {"_percent": ("_ratio", 0.01), "_mhz": ("_hertz", 1e6)}
_UNITS = {
    Unit.PERCENT: "ratio",
    Unit.BYTES: "bytes",
    Unit.BYTES_PER_SECOND: "bytes_per_second",
    Unit.CELSIUS: "celsius",
    Unit.WATT: "watts",
    Unit.MEGAHERTZ: "hertz",
    Unit.JOULE: "joules",
    Unit.SECOND: "seconds",
}


class Family(NamedTuple):
    """A metric family."""

    name: str
    """Without ``_total``."""
    kind: str
    """``gauge`` or ``counter``."""
    unit: str
    """The end of its name; empty without one."""
    help: str
    scale: float = 1.0
    """Factor from our values to its."""

    @property
    def sample(self) -> str:
        """Name of its samples."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def header(self) -> str:
        """The lines before its samples."""
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        return f"# TYPE {self.name} {self.kind}\n{unit}# HELP {self.name} {_help(self.help)}\n"


def device_family(spec: MetricSpec) -> Family:
    """The family of a metric that is a number."""
    name, scale = spec.id, 1.0
    for ours, (theirs, factor) in _RENAMED.items():
        if name.endswith(ours):
            name, scale = name.removesuffix(ours) + theirs, factor
    # utilization.gpu_percent: that it is of the GPU is said already.
    name = "gpuwatch_gpu_" + name.replace(".gpu_", "_").replace(".", "_")
    unit = _UNITS.get(spec.unit, "")
    if not name.endswith(f"_{unit}"):
        unit = ""
    return Family(name, "counter" if spec.counter else "gauge", unit, spec.title, scale)


INFO = Family("gpuwatch_gpu", "info", "", "A GPU and its identity")
"""Its samples end in ``_info``."""
FINDING = Family("gpuwatch_finding", "gauge", "", "1 while a finding holds, by its cause")


def labels(values: Mapping[str, object]) -> str:
    """``{gpu="0",host="node7"}``; what is None is left out."""
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items() if value is not None)
    return f"{{{pairs}}}"


def value(number: float) -> str:
    """A value; whole ones without a point."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)


def moment(at: float) -> str:
    """A timestamp, in seconds since the epoch with milliseconds."""
    return f"{at:.3f}"


def _escaped(what: object) -> str:
    return printable(str(what)).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
