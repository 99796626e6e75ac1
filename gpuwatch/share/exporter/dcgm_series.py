"""Names, units and labels of NVIDIA's dcgm-exporter, so that dashboards made for it show what NVML can tell.

By its ``etc/default-counters.csv``, its README and ``internal/pkg/rendermetrics`` (2026). Its label ``Hostname`` became
``hostname`` in 2026 (its pull request 655): both are there, since dashboards use either. A metric that DCGM would show
as a number beyond all bounds is absent here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.share.dcgm_metrics import DCGM_METRICS, DcgmFamily, DcgmMetric
from gpuwatch.share.exporter.process_owners import Owner
from gpuwatch.share.openmetrics_text import Family, label_text

MAX_JOBS_LISTED = 8
"""Jobs on one GPU that get series of their own."""
_COMPUTE_INSTANCE_PREFIX = re.compile(r"^\d+c\.")
"""Start of the profile of a compute instance: ``1c.3g.40gb`` is part of a GPU instance ``3g.40gb``."""


_XID = DcgmFamily("DCGM_FI_DEV_XID_ERRORS", "gauge", "", "Value of the last XID error encountered.")


_Series = Iterator[tuple[Family, str, float | None]]
"""Family, labels as text, and value; None: there is no such sample."""


def dcgm_series(
    device: Device, snapshot: Snapshot, host: str, owners: Iterable[Owner], *, all_metrics: bool
) -> _Series:
    """The series of a GPU; ``all_metrics``: also those that dcgm-exporter only has if its file is changed."""
    gpu_labels = _gpu_labels(device, snapshot, host)
    owner_labels = list(_owner_labels(owners))
    label_texts = [label_text(gpu_labels | owner) for owner in owner_labels]
    is_divided = device.has_mig and bool(device.mig_instances)
    for metric in DCGM_METRICS:
        if (metric.default or all_metrics) and not (is_divided and metric.per_mig_instance):
            yield from _metric_series(metric, device.readings.get(metric.metric_id), label_texts)
    if device.xids_missing is None:
        code = device.xids[-1].code if device.xids else 0
        for labels in label_texts:
            yield _XID, labels, code
    # Compute instances share the memory and the counters of their GPU instance, which is what DCGM tells of.
    instances = {instance.gpu_instance: instance for instance in reversed(device.mig_instances)}
    for instance in reversed(instances.values()) if is_divided else ():
        profile = _COMPUTE_INSTANCE_PREFIX.sub("", instance.profile) if instance.profile is not None else None
        instance_labels = gpu_labels | {"GPU_I_PROFILE": profile, "GPU_I_ID": instance.gpu_instance}
        instance_label_texts = [label_text(instance_labels | owner) for owner in owner_labels]
        for metric in DCGM_METRICS:
            if metric.per_mig_instance and (metric.default or all_metrics):
                yield from _metric_series(metric, instance.readings.get(metric.metric_id), instance_label_texts)


def _metric_series(metric: DcgmMetric, reading: Value | None, label_texts: Sequence[str]) -> _Series:
    if isinstance(reading, str):
        value = {"no": 0.0, "yes": 1.0}.get(reading)
    else:
        value = None if reading is None else round(reading * metric.factor, metric.digits)
    for labels in label_texts:
        yield metric.family, labels, value


def _gpu_labels(device: Device, snapshot: Snapshot, host: str) -> dict[str, object]:
    domain, _, rest = device.pci_bus_id.partition(":")
    return {
        "gpu": device.index,
        "UUID": device.uuid,
        "pci_bus_id": f"{domain:>08}:{rest}".upper(),
        "device": f"nvidia{device.index}",
        "modelName": device.name,
        "hostname": host,
        "Hostname": host,
        "DCGM_FI_DRIVER_VERSION": snapshot.driver.version if snapshot.driver is not None else None,
    }


def _owner_labels(owners: Iterable[Owner]) -> Iterable[dict[str, object]]:
    """Labels of the owner: one set for each Slurm job, as dcgm-exporter does; else the only pod or container."""
    distinct = sorted({owner._replace(user=None) for owner in owners}, key=str)
    jobs: list[dict[str, object]] = [{"hpc_job": owner.slurm_job} for owner in distinct if owner.slurm_job is not None]
    if jobs:
        return jobs[:MAX_JOBS_LISTED]
    if len(distinct) == 1:
        return [{"pod": distinct[0].pod, "container": distinct[0].container}]
    return [{}]
