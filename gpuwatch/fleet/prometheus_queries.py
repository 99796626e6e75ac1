"""The queries to Prometheus for all hosts, and for one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpuwatch.fleet.exporter_metric_names import HOST_LABELS, LISTED, TARGET_LABELS, exporter_names_of, with_exported
from gpuwatch.fleet.hosts_from_prometheus_series import OF_HOST, OF_OWNERS, PROCESS_READINGS, PROGRAM
from gpuwatch.share import openmetrics as series

_KNOWN_FOR = "1h"
"""A host without data for so long is no longer listed."""

_ONE_OF_EACH = ("gpuwatch_gpu_memory_used_bytes", "DCGM_FI_DEV_FB_USED", "nvidia_smi_memory_used_bytes")
"""A metric that every GPU has, by exporter."""
_OWNERS = ("hpc_job", "namespace", "pod")
_INFO = (series.INFO.sample, series.MIG_INFO.sample, "nvidia_smi_mig_info", series.DRIVER.sample, "nvidia_smi_gpu_info")
_BESIDE = (
    *(family.sample for family in (series.FINDING, series.SNAPSHOT_AGE, series.ANSWERING, series.STATE)),
    *(family.sample for family in (series.FREE, series.MIG_FREE)),
    *OF_HOST,
    *OF_OWNERS,
    *PROGRAM,
    *PROCESS_READINGS,
)
_INSTANCE = ("GPU_I_ID", "GPU_I_PROFILE", "mig_instance", "gpu_instance_id")
_KEYS = ("__name__", "uuid", "UUID", "gpu", *_INSTANCE, *with_exported(HOST_LABELS), *TARGET_LABELS)
_SEEN = (*with_exported(HOST_LABELS), *TARGET_LABELS)


def _selector(metrics: Iterable[str], more: str = "") -> str:
    """All series of these metrics; ``more``: further matchers."""
    return f'{{__name__=~"{"|".join(metrics)}"{more}}}'


def _query_by(labels: Iterable[str], what: str, how: str = "max") -> str:
    """One series for each combination of the labels; the others make answers several times as long."""
    return f"{how} by ({','.join(labels)}) ({what})"


def query_of_gpus(uuids: Iterable[str]) -> str:
    """All readings of these GPUs."""
    listed = sorted({f"{kind}{uuid.removeprefix('GPU-')}" for uuid in uuids for kind in ("GPU-", "")})
    wanted = "|".join(re.sub(r"[^A-Za-z0-9_-]", ".", uuid) for uuid in listed)
    either = " or ".join(_selector(exporter_names_of(), f', {label}=~"{wanted}"') for label in ("uuid", "UUID"))
    return _query_by(_KEYS, either)


VALUES = _query_by(_KEYS, _selector(exporter_names_of(*LISTED)))
"""The readings of all GPUs."""
OTHERS = _selector(_BESIDE)
"""Query for series that are not GPU readings: findings, owners, processes, the age of the data."""
INFO = _selector(_INFO)
"""Names of GPUs and drivers, as labels."""
OWNED = _query_by(
    ("UUID", "GPU_I_ID", *with_exported(_OWNERS)),
    'DCGM_FI_DEV_FB_USED{pod!=""} or DCGM_FI_DEV_FB_USED{exported_pod!=""} or DCGM_FI_DEV_FB_USED{hpc_job!=""}',
    "group",
)
"""The pods and jobs that schedulers gave GPUs to, from dcgm-exporter."""
IDENTITY = _query_by(
    ("UUID", "gpu", "modelName", "pci_bus_id", "DCGM_FI_DRIVER_VERSION", *with_exported(HOST_LABELS), *TARGET_LABELS),
    "DCGM_FI_DEV_FB_USED",
    "group",
)
"""Names of GPUs and drivers, from dcgm-exporter's labels."""
EXPORTERS = _query_by(("namespace", "pod"), 'up{pod!=""} and on (instance, job) DCGM_FI_DEV_FB_USED', "group")
"""Pods of the exporters themselves, where Prometheus found them in Kubernetes."""
LISTED_HOSTS = _query_by(_SEEN, f"last_over_time({_selector(_ONE_OF_EACH)}[{_KNOWN_FOR}])", "count")
"""Hosts that had data within the last hour."""
DOWN = "up == 0"
"""Targets that Prometheus cannot scrape."""
