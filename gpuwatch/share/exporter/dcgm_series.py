"""Names, units and labels of NVIDIA's dcgm-exporter, so that dashboards made for it show what NVML can tell.

By its ``etc/default-counters.csv``, its README and ``internal/pkg/rendermetrics`` (2026). Its label ``Hostname`` became
``hostname`` in 2026 (its pull request 655): both are there, since dashboards use either. A metric that DCGM would show
as a number beyond all bounds is absent here. Not among them: DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL and the violation
times, whose units differ between its documents; vGPU licenses, which gpuwatch does not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.share.exporter.process_owners import Owner
from gpuwatch.share.openmetrics_text import Family, label_text

MAX_JOBS_LISTED = 8
"""Jobs on one GPU that get series of their own."""
_COMPUTE_INSTANCE_PREFIX = re.compile(r"^\d+c\.")
"""Start of the profile of a compute instance: ``1c.3g.40gb`` is part of a GPU instance ``3g.40gb``."""


class DcgmFamily(Family):
    """A family of dcgm-exporter's: its counters do not end in ``_total``."""

    @property
    def sample_name(self) -> str:
        return self.name


class _DcgmMetric(NamedTuple):
    name: str
    """Without ``DCGM_FI_``."""
    help: str
    metric_id: str
    factor: float = 1.0
    counter: bool = False
    default: bool = True
    """Whether dcgm-exporter shows it by default, or has it commented out in its file."""
    digits: int = 0
    per_mig_instance: bool = False
    """Whether there is a series for each MIG instance, instead of one for the GPU that is divided."""

    @property
    def family(self) -> DcgmFamily:
        return DcgmFamily(f"DCGM_FI_{self.name}", "counter" if self.counter else "gauge", "", self.help)


_counter = partial(_DcgmMetric, counter=True)
_optional = partial(_DcgmMetric, counter=True, default=False)
_per_mig = partial(_DcgmMetric, per_mig_instance=True)
_memory = partial(_per_mig, factor=1 / 2**20)
_ratio = partial(_per_mig, factor=0.01, digits=6)
"""A profiling metric, from GPM."""
DCGM_METRICS = (
    _DcgmMetric("DEV_SM_CLOCK", "SM clock frequency (in MHz).", "clocks.sm_mhz"),
    _DcgmMetric("DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", "clocks.memory_mhz"),
    _DcgmMetric("DEV_MEMORY_TEMP", "Memory temperature (in C).", "temperature.memory_celsius"),
    _DcgmMetric("DEV_GPU_TEMP", "GPU temperature (in C).", "temperature.gpu_celsius"),
    _DcgmMetric("DEV_POWER_USAGE", "Power draw (in W).", "power.draw_watts", digits=3),
    _counter("DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy since boot (in mJ).", "energy_joules", 1000.0),
    _counter("DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", "pcie.replays"),
    _DcgmMetric("DEV_GPU_UTIL", "GPU utilization (in %).", "utilization.gpu_percent"),
    _DcgmMetric("DEV_MEM_COPY_UTIL", "Memory utilization (in %).", "utilization.memory_percent"),
    _DcgmMetric("DEV_ENC_UTIL", "Encoder utilization (in %).", "utilization.encoder_percent"),
    _DcgmMetric("DEV_DEC_UTIL", "Decoder utilization (in %).", "utilization.decoder_percent"),
    _memory("DEV_FB_FREE", "Framebuffer memory free (in MiB).", "memory.free_bytes"),
    _memory("DEV_FB_USED", "Framebuffer memory used (in MiB).", "memory.used_bytes"),
    _memory("DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", "memory.reserved_bytes"),
    _counter(
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        "remapped_rows.uncorrectable",
    ),
    _counter(
        "DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors", "remapped_rows.correctable"
    ),
    _DcgmMetric("DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", "remapped_rows.failure"),
    _optional("DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.", "ecc.corrected"),
    _optional("DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", "ecc.uncorrected"),
    _optional("DEV_ECC_SBE_AGG_TOTAL", "Total number of single-bit persistent ECC errors.", "ecc.corrected_lifetime"),
    _optional("DEV_ECC_DBE_AGG_TOTAL", "Total number of double-bit persistent ECC errors.", "ecc.uncorrected_lifetime"),
    _optional("DEV_RETIRED_SBE", "Total number of retired pages due to single-bit errors.", "retired_pages.single_bit"),
    _optional("DEV_RETIRED_DBE", "Total number of retired pages due to double-bit errors.", "retired_pages.double_bit"),
    _optional(
        "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "Total number of NVLink flow-control CRC errors.", "nvlink.crc_errors"
    ),
    _optional(
        "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "Total number of NVLink data CRC errors.", "nvlink.data_crc_errors"
    ),
    _optional("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Total number of NVLink retries.", "nvlink.replays"),
    _optional("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Total number of NVLink recovery errors.", "nvlink.recoveries"),
    _DcgmMetric("DEV_POWER_MGMT_LIMIT", "Power limit (in W).", "power.limit_watts", default=False),
    _memory("DEV_FB_TOTAL", "Total framebuffer memory (in MiB).", "memory.total_bytes", default=False),
    _ratio("PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", "activity.graphics_percent"),
    _ratio("PROF_SM_ACTIVE", "Ratio of cycles an SM has at least 1 warp assigned.", "activity.sm_percent"),
    _ratio("PROF_SM_OCCUPANCY", "Ratio of warps resident on an SM.", "activity.sm_occupancy_percent"),
    _ratio("PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.", "activity.tensor_percent"),
    _ratio("PROF_DRAM_ACTIVE", "Ratio of cycles the memory interface is active.", "activity.dram_percent"),
    _ratio("PROF_PIPE_FP64_ACTIVE", "Ratio of cycles the fp64 pipe is active.", "activity.fp64_percent"),
    _ratio("PROF_PIPE_FP32_ACTIVE", "Ratio of cycles the fp32 pipe is active.", "activity.fp32_percent"),
    _ratio("PROF_PIPE_FP16_ACTIVE", "Ratio of cycles the fp16 pipe is active.", "activity.fp16_percent"),
    _per_mig("PROF_PCIE_TX_BYTES", "Rate of data sent over PCIe (in B/s).", "activity.pcie_tx_bytes_per_second"),
    _per_mig("PROF_PCIE_RX_BYTES", "Rate of data received over PCIe (in B/s).", "activity.pcie_rx_bytes_per_second"),
)
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


def _metric_series(metric: _DcgmMetric, reading: Value | None, label_texts: Sequence[str]) -> _Series:
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
