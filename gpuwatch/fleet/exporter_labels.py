"""The labels that exporters (gpuwatch, dcgm-exporter, nvidia_gpu_exporter) and Prometheus give a series.

Sources: those of :mod:`gpuwatch.fleet.exporter_metric_names`; for ``exported_``, ``honor_labels`` in the manual of
Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
