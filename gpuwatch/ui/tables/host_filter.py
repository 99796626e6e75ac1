"""The filter of the list of hosts, in the language of :mod:`gpuwatch.ui.tables.filter_language`.

``host~dgx`` · ``free`` · ``mem>20GiB free`` · ``user:alice`` · ``model:h100`` · ``wrong`` · ``-silent``

A host matches if one of its GPUs matches every word: ``mem>20GiB free`` finds a free GPU with more than 20 GiB.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuwatch.fleet.fleet_summary import GpuUse, HostSummary
from gpuwatch.ui.tables import filter_language as language
from gpuwatch.ui.tables.filter_language import FilterFields, Kind, NumberField

HostFilter = language.Filter[[HostSummary, GpuUse | None]]
"""Filter for a host and one of its GPUs; None for a host without known GPUs."""
EXAMPLES = "words  free  mem>20GiB free  user:alice  wrong"


def _reading_field(
    metric: str, kind: Kind, shown: Callable[[float], float] = round
) -> NumberField[[HostSummary, GpuUse | None]]:
    def get(host: HostSummary, gpu: GpuUse | None) -> float | None:
        return gpu.device.number(metric) if gpu is not None else None

    return NumberField(get, kind, shown)


def _findings(host: HostSummary) -> str:
    return "\n".join(f"{finding.id} {finding.title}" for finding in host.errors_and_warnings) + host.view.reason


def _holders(gpu: GpuUse | None) -> str:
    return "\n".join(f"{holder.user or ''} {holder.job or ''}" for holder in gpu.holders) if gpu is not None else ""


_TEXT_FIELDS: dict[str, Callable[[HostSummary, GpuUse | None], str]] = {
    "host": lambda host, gpu: host.name,
    "model": lambda host, gpu: gpu.device.name if gpu is not None else "",
    "user": lambda host, gpu: _holders(gpu),
    "state": lambda host, gpu: _findings(host),
}


def _anywhere(wanted: str) -> Callable[[HostSummary, GpuUse | None], bool]:
    return lambda host, gpu: any(wanted in get(host, gpu).lower() for get in _TEXT_FIELDS.values())


FIELDS: FilterFields[[HostSummary, GpuUse | None]] = FilterFields(
    texts=_TEXT_FIELDS,
    numbers={
        "mem": _reading_field("memory.total_bytes", "size", float),
        "used": _reading_field("memory.used_bytes", "size", float),
        "free": _reading_field("memory.free_bytes", "size", float),
        "util": _reading_field("utilization.gpu_percent", "percent"),
        "temp": _reading_field("temperature.gpu_celsius", "count"),
        "gpus": NumberField(lambda host, gpu: len(host.gpus)),
    },
    anywhere=_anywhere,
    words={
        "free": lambda host, gpu: host.view.answered and gpu is not None and gpu.use == "free",
        "used": lambda host, gpu: gpu is not None and gpu.use == "used",
        "wrong": lambda host, gpu: bool(host.errors_and_warnings) or not host.view.answered,
        "silent": lambda host, gpu: not host.view.answered,
    },
    aliases={"memory": "mem", "gpu": "util", "name": "model", "job": "user", "holder": "user", "finding": "state"},
)


def parse_host_filter(text: str) -> HostFilter | None:
    """The filter for ``text``, None if empty; :class:`FilterError` if a word is invalid."""
    return language.parse(text, FIELDS)


def host_matches(wanted: HostFilter | None, host: HostSummary) -> bool:
    """Whether one of its GPUs matches; of a host without GPUs, whether the host does."""
    if wanted is None:
        return True
    return any(wanted(host, gpu) for gpu in host.gpus) if host.gpus else wanted(host, None)
