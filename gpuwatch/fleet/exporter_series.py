"""The series of GPU exporters (gpuwatch, dcgm-exporter, nvidia_gpu_exporter): their metrics and labels in our terms.

Sources: :mod:`gpuwatch.share.metric_families`; ``etc/default-counters.csv`` of NVIDIA/dcgm-exporter;
``docs/METRICS.md`` of utkuozdemir/nvidia_gpu_exporter; for ``exported_``, ``honor_labels`` in the manual of
Prometheus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpuwatch.core.model.metrics import BY_ID, METRICS, Unit
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import MIG_READINGS
from gpuwatch.share.dcgm_metrics import DCGM_METRICS
from gpuwatch.share.metric_families import family_of, has_family


class ExporterMetric(NamedTuple):
    """What a metric of an exporter is in our terms."""

    metric_id: str
    """Our id."""
    scale: float
    """Factor from its unit to ours."""
    rank: int
    """Which exporter: the lowest wins where several report the same GPU."""


GPUWATCH, DCGM, NVIDIA_SMI = range(3)

_DCGM = {
    **{metric.family.name: (metric.metric_id, 1 / metric.factor) for metric in DCGM_METRICS},
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": ("power.limit_watts", 1.0),
    "DCGM_FI_DEV_FAN_SPEED": ("fan.speed_percent", 1.0),
}
_NVIDIA_SMI = {
    "utilization_gpu_ratio": ("utilization.gpu_percent", 100.0),
    "utilization_memory_ratio": ("utilization.memory_percent", 100.0),
    "utilization_encoder_ratio": ("utilization.encoder_percent", 100.0),
    "utilization_decoder_ratio": ("utilization.decoder_percent", 100.0),
    "memory_total_bytes": ("memory.total_bytes", 1.0),
    "memory_used_bytes": ("memory.used_bytes", 1.0),
    "memory_free_bytes": ("memory.free_bytes", 1.0),
    "memory_reserved_bytes": ("memory.reserved_bytes", 1.0),
    "temperature_gpu": ("temperature.gpu_celsius", 1.0),
    "temperature_memory": ("temperature.memory_celsius", 1.0),
    "power_draw_watts": ("power.draw_watts", 1.0),
    "enforced_power_limit_watts": ("power.limit_watts", 1.0),
    "clocks_current_sm_clock_hz": ("clocks.sm_mhz", 1e-6),
    "clocks_current_memory_clock_hz": ("clocks.memory_mhz", 1e-6),
    "clocks_max_sm_clock_hz": ("clocks.sm_max_mhz", 1e-6),
    "clocks_max_memory_clock_hz": ("clocks.memory_max_mhz", 1e-6),
    "fan_speed_ratio": ("fan.speed_percent", 100.0),
    "pstate": ("performance.state", 1.0),
    "pcie_link_gen_current": ("pcie.generation", 1.0),
    "pcie_link_gen_max": ("pcie.max_generation", 1.0),
    "pcie_link_width_current": ("pcie.width", 1.0),
    "pcie_link_width_max": ("pcie.max_width", 1.0),
    "energy_joules_total": ("energy_joules", 1.0),
}

EXPORTER_METRICS: dict[str, ExporterMetric] = {
    **{
        family.sample_name: ExporterMetric(spec.id, 1 / family.scale, GPUWATCH)
        for spec in METRICS
        if has_family(spec)
        for family in (family_of(spec), *([family_of(spec, "mig")] if spec.id in MIG_READINGS else []))
    },
    **{f"nvidia_smi_mig_{name.replace('.', '_')}": ExporterMetric(name, 1.0, NVIDIA_SMI) for name in MIG_READINGS},
    **{name: ExporterMetric(*reading, DCGM) for name, reading in _DCGM.items()},
    **{f"nvidia_smi_{name}": ExporterMetric(*reading, NVIDIA_SMI) for name, reading in _NVIDIA_SMI.items()},
}
"""Readings by the names of the metrics that exporters report them as."""

HOST_LIST_READINGS = (
    "utilization.gpu_percent",
    "memory.total_bytes",
    "memory.used_bytes",
    "memory.free_bytes",
    "memory.reserved_bytes",
    "temperature.gpu_celsius",
    "power.draw_watts",
)
"""Readings that the list of hosts needs."""

_INTEGER_UNITS = (Unit.BYTES, Unit.COUNT, Unit.MEGAHERTZ, Unit.CELSIUS)
# DCGM's blank values (dcgm_structs.h): 32-bit and 64-bit integers, and floating point.
_BLANK_32 = (0x7FFFFFF0, 0x7FFFFFFF)
_BLANK_64 = float(0x7FFFFFFFFFFFFFF0)
_BLANK_FLOAT = (140737488355328.0, 140737488355343.0)


def exporter_metric_names(*metrics: str) -> tuple[str, ...]:
    """What exporters call these readings; all of them without any."""
    return tuple(name for name, reported in EXPORTER_METRICS.items() if not metrics or reported.metric_id in metrics)


def parse_reading(reported: ExporterMetric, text: str) -> Value | None:
    """The reading in our unit; None for what stands for no value: NaN, and DCGM's blank values."""
    try:
        number = float(text)
    except ValueError:
        return None
    if not math.isfinite(number) or number >= _BLANK_64 or _BLANK_FLOAT[0] <= number <= _BLANK_FLOAT[1]:
        return None
    spec = BY_ID[reported.metric_id]
    if _BLANK_32[0] <= number <= _BLANK_32[1] and reported.rank == DCGM and not spec.counter:
        return None
    if number < 0 and not reported.metric_id.startswith("temperature."):
        return None
    if reported.metric_id == "performance.state":
        return f"P{number:.0f}" if number < 16 else None
    if spec.unit is Unit.NAME:
        return {0.0: "no", 1.0: "yes"}.get(number)
    scaled = round(number * reported.scale, 6)
    return round(scaled) if spec.unit in _INTEGER_UNITS else scaled


HOST_LABELS = ("host", "hostname", "Hostname")
"""Names of the host, by exporter."""
TARGET_LABELS = ("instance", "job")


def with_exported_prefix(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels, also as Prometheus calls them where the target has a label of the same name."""
    return tuple(part for label in labels for part in (label, f"exported_{label}"))


def exporter_label(labels: Mapping[str, str], name: str) -> str:
    """A label that the exporter set: Prometheus renames it where the target has one of this name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def gpu_uuid(labels: Mapping[str, str]) -> str:
    """The UUID of a GPU as NVML writes it; empty without one."""
    uuid = labels.get("uuid") or labels.get("UUID") or ""
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def ranked_host_name(labels: Mapping[str, str]) -> tuple[int, str]:
    """The name of the host that a series is of, and how good it is: 0 is best."""
    for name in HOST_LABELS:
        if host := exporter_label(labels, name):
            return 0, host
    return 1, target_host(labels)


def target_host(labels: Mapping[str, str]) -> str:
    """The target's address without its port."""
    instance = labels.get("instance", "")
    host, colon, port = instance.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else instance


def mig_instance_id(labels: Mapping[str, str]) -> str:
    """The MIG instance that a series is of, ``1/0``, or ``1`` if only its GPU instance is known; empty without one."""
    return labels.get("mig_instance") or labels.get("gpu_instance_id") or labels.get("GPU_I_ID") or ""


def scrape_target(labels: Mapping[str, str]) -> str:
    """What Prometheus scraped a series from."""
    return f"{labels.get('job', '')} {labels.get('instance', '')}"
