"""The metric families of gpuwatch: what an export writes, an exporter serves and the fleet reads back.

Names follow from the ids of metrics (:data:`gpuwatch.core.model.metrics.METRICS`): ``memory.used_bytes`` is
``gpuwatch_gpu_memory_used_bytes``. Prometheus wants base units and shares from 0 to 1: ``utilization.gpu_percent``
becomes ``gpuwatch_gpu_utilization_ratio``, ``clocks.sm_mhz`` ``gpuwatch_gpu_clocks_sm_hertz``. Counters add ``_total``.
Families that stand for no metric are the constants below.

Every series has the label ``host``, those of a GPU also ``uuid`` and ``gpu`` (NVML's index). What could not be read has
no series.
"""

from __future__ import annotations

from typing import Literal

from gpuwatch.core.model.metrics import Lane, MetricSpec, Unit
from gpuwatch.core.model.reading import Reading
from gpuwatch.core.model.snapshot import MIG_READINGS, Device, Driver, Process
from gpuwatch.share.openmetrics_text import Family

_BASE_UNITS = {"_percent": ("_ratio", 0.01), "_mhz": ("_hertz", 1e6)}
_UNIT_NAMES = {
    Unit.PERCENT: "ratio",
    Unit.BYTES: "bytes",
    Unit.BYTES_PER_SECOND: "bytes_per_second",
    Unit.CELSIUS: "celsius",
    Unit.WATT: "watts",
    Unit.MEGAHERTZ: "hertz",
    Unit.JOULE: "joules",
    Unit.SECOND: "seconds",
}
_YES_NO = {"no": 0.0, "yes": 1.0}
_PERFORMANCE_STATE = "performance.state"


def family_of(spec: MetricSpec, scope: Literal["gpu", "mig"] = "gpu") -> Family:
    """The family of a metric, of GPUs or of MIG instances, if :func:`has_family`."""
    name, scale = spec.id, 1.0
    for suffix, (new_suffix, factor) in _BASE_UNITS.items():
        if name.endswith(suffix):
            name, scale = name.removesuffix(suffix) + new_suffix, factor
    # utilization.gpu_percent: that it is of the GPU is said already.
    name = f"gpuwatch_{scope}_" + name.replace(".gpu_", "_").replace(".", "_")
    unit = _UNIT_NAMES.get(spec.unit, "")
    if not name.endswith(f"_{unit}"):
        unit = ""
    return Family(name, "counter" if spec.counter else "gauge", unit, spec.title, scale)


def has_family(spec: MetricSpec) -> bool:
    """Whether a metric has a family of its own: numbers, ``yes`` and ``no``, and performance states."""
    return spec.unit is not Unit.NAME or spec.id == _PERFORMANCE_STATE or set(spec.names.values()) == _YES_NO.keys()


def has_mig_family(spec: MetricSpec) -> bool:
    """Whether MIG instances have the metric, too."""
    return spec.id in MIG_READINGS or spec.lane is Lane.GPM


def as_family_value(spec: MetricSpec, reading: Reading) -> float | None:
    """A reading in the unit of its family; None if it is missing, or a name that is no number.

    ``no`` is 0, ``yes`` 1; performance state ``P8`` is 8.
    """
    if isinstance(reading, str):
        if spec.id == _PERFORMANCE_STATE and reading[:1] == "P" and reading[1:].isdecimal():
            return float(reading[1:])
        return _YES_NO.get(reading)
    if not isinstance(reading, (int, float)):
        return None
    for suffix, (_, factor) in _BASE_UNITS.items():
        if spec.id.endswith(suffix):
            return round(reading * factor, 9)  # without digits that only the factor brings in
    return float(reading)


def _gauge(name: str, help_text: str, unit: str = "") -> Family:
    return Family(f"gpuwatch_{name}", "gauge", unit, help_text)


# A GPU. Labels besides uuid, gpu and host are named.
GPU_INFO = Family("gpuwatch_gpu", "info", "", "A GPU and its identity")
"""``name``, ``pci_bus_id``, ``compute_capability``, ``driver``, ``mig`` (enabled or disabled), ``simulated``."""
GPU_MODES = Family("gpuwatch_gpu_modes", "info", "", "Modes and other settings of a GPU, by name")
"""The metrics that are names or never change: ``mode_compute``, ``identity_vbios``, ..."""
GPU_STATE = _gauge("gpu_state", "1 for the state of a GPU: ok, asleep, lost, reset-required or failed")
"""``state``. In the last three its readings are absent."""
GPU_FREE = _gauge("gpu_free", "1 if gpuwatch pick --idle would choose this GPU, 0 if not")
"""Absent for a GPU that MIG divides: :data:`MIG_FREE`."""
GPU_PROCESSES = _gauge("gpu_processes", "Processes that compute on a GPU")
GPU_OWNERS = _gauge("gpu_owners", "Owners of the processes on a GPU, including processes that are not listed")
GPU_OWNER_PROCESSES = _gauge("gpu_owner_processes", "Processes of one owner on a GPU")
"""``user``, ``slurm_job``, ``pod``, ``container``: as far as known. The owners with the most memory."""
GPU_OWNER_MEMORY = _gauge("gpu_owner_memory_bytes", "GPU memory of one owner's processes", "bytes")
"""Labels as :data:`GPU_OWNER_PROCESSES`; absent if it is unknown of one of the processes."""
GPU_XIDS = Family("gpuwatch_gpu_xids", "counter", "", "Errors that the driver reported since the exporter was started")
GPU_XID_ERRORS = Family("gpuwatch_gpu_xid_errors", "counter", "", "The same by Xid, for those that occurred")
"""``xid``; ``unknown`` if the driver does not know the number."""
GPU_CLOCK_REASON = _gauge("gpu_clock_event_reason", "1 for each reason that holds the clocks down")
"""``reason``."""
FINDING = _gauge("finding", "1 while a finding holds, by its cause")
"""``cause``, ``severity``; ``uuid`` and ``gpu`` if it is of one GPU. 0: over (only in exports)."""

# A MIG instance: uuid, gpu and host of its GPU, and mig_instance ("1/0": GPU instance, compute instance).
MIG_INFO = Family("gpuwatch_mig", "info", "", "A MIG instance and its identity")
"""``mig_uuid``, ``profile``."""
MIG_FREE = _gauge("mig_free", "1 if gpuwatch pick --idle would choose this MIG instance, 0 if not")

# A process, where they are asked for: uuid, gpu, host, pid, user, and mig_instance under MIG.
PROCESS_INFO = Family("gpuwatch_process", "info", "", "A process on a GPU")
"""``name``, ``type``, ``framework``, ``slurm_job``, ``pod``, ``container``; ``command`` if that is asked for, too."""
PROCESS_MEMORY = _gauge("process_gpu_memory_bytes", "GPU memory of a process", "bytes")
PROCESS_SM = _gauge("process_sm_ratio", "SM utilization of a process", "ratio")
PROCESS_CPU = _gauge("process_cpu_ratio", "CPU time of a process, of one core", "ratio")
PROCESS_HOST_MEMORY = _gauge("process_host_memory_bytes", "Host memory of a process (resident)", "bytes")
PROCESS_IDLE = _gauge(
    "process_idle_since_timestamp_seconds", "Time since which a process has not computed; 0 if it computes", "seconds"
)
PROCESS_FAMILIES = (
    (PROCESS_MEMORY, "gpu_memory_bytes", 1.0),
    (PROCESS_SM, "sm_percent", 0.01),
    (PROCESS_CPU, "cpu_percent", 0.01),
    (PROCESS_HOST_MEMORY, "host_memory_bytes", 1.0),
    (PROCESS_IDLE, "idle_since", 1.0),
)
"""With the reading of a process that each has, and its factor."""
PROCESSES_LEFT_OUT = _gauge(
    "processes_left_out", "Processes on GPUs that have no series of their own, because too many use more memory"
)

# The machine, with host alone.
GPUS = _gauge("gpus", "GPUs that the driver lists")
DRIVER_INFO = Family("gpuwatch_driver", "info", "", "Versions according to NVML")
"""``version``, ``cuda_version``, ``nvml_version``."""
HOST_CPU = _gauge("host_cpu_ratio", "CPU utilization of all cores together", "ratio")
HOST_MEMORY_USED = _gauge("host_memory_used_bytes", "Memory of the host in use", "bytes")
HOST_MEMORY_TOTAL = _gauge("host_memory_total_bytes", "Memory of the host", "bytes")
HOST_LOAD = _gauge("host_load1", "Load average over one minute")

# The exporter itself.
DRIVER_ANSWERING = _gauge(
    "driver_answering", "1 while samples arrive, 0 while the driver or its collector does not answer"
)
SNAPSHOT_AGE = _gauge("snapshot_age_seconds", "Age of the sample that the other series come from", "seconds")
SNAPSHOT_DURATION = _gauge("snapshot_duration_seconds", "Time that this sample took", "seconds")
COLLECTOR_REPLACEMENTS = Family(
    "gpuwatch_collector_replacements", "counter", "", "Collectors replaced because they hung"
)
EXPORTER_INFO = Family("gpuwatch_exporter", "info", "", "The exporter")
"""``version``, ``metrics``, ``interval_seconds``."""


def gpu_labels(device: Device, host: str | None) -> dict[str, object]:
    """Those of every series of a GPU."""
    return {"uuid": device.uuid, "gpu": device.index if device.index >= 0 else None, "host": host}


def gpu_identity(device: Device, driver: Driver | None) -> dict[str, object]:
    """The others of its :data:`GPU_INFO`."""
    return {
        "name": device.name or None,
        "pci_bus_id": device.pci_bus_id or None,
        "compute_capability": device.compute_capability,
        "driver": driver.version if driver is not None else None,
        "mig": device.readings.get("mig.mode"),
        "simulated": "true" if device.simulated else None,
        "unified_memory": "true" if device.unified_memory else None,
    }


def process_labels(process: Process) -> dict[str, object]:
    """Those of every series of a process, besides its GPU's."""
    return {"pid": process.pid, "user": process.user, "mig_instance": process.mig_instance}
