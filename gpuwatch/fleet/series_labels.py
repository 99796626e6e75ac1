"""What the labels of a series say: which GPU, MIG instance, host and target it is of, whichever exporter made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

HOST_LABELS = ("host", "hostname", "Hostname")
"""Names of the host, by exporter."""
TARGET_LABELS = ("instance", "job")


def with_exported(labels: Iterable[str]) -> tuple[str, ...]:
    """Labels, also as Prometheus calls them where the target has a label of the same name."""
    return tuple(part for label in labels for part in (label, f"exported_{label}"))


def own_label(labels: Mapping[str, str], name: str) -> str:
    """A label that the exporter set: Prometheus renames it where the target has one of this name."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def uuid_of(labels: Mapping[str, str]) -> str:
    """The UUID of a GPU as NVML writes it; empty without one."""
    uuid = labels.get("uuid") or labels.get("UUID") or ""
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def host_of(labels: Mapping[str, str]) -> tuple[int, str]:
    """The name of the host that a series is of, and how good it is: 0 is best."""
    for name in HOST_LABELS:
        if found := own_label(labels, name):
            return 0, found
    return 1, place_of(labels)


def place_of(labels: Mapping[str, str]) -> str:
    """The target's address without its port."""
    place = labels.get("instance", "")
    host, colon, port = place.rpartition(":")
    return host.strip("[]") if colon and port.isdecimal() else place


def instance_of(labels: Mapping[str, str]) -> str:
    """The MIG instance that a series is of, ``1/0``, or ``1`` if only its GPU instance is known; empty without one."""
    return labels.get("mig_instance") or labels.get("gpu_instance_id") or labels.get("GPU_I_ID") or ""


def target_of(labels: Mapping[str, str]) -> str:
    """What Prometheus scraped a series from."""
    return f"{labels.get('job', '')} {labels.get('instance', '')}"
