"""Names and lines of OpenMetrics and Prometheus: what an export writes, an exporter serves and the fleet reads back.

Names follow from the ids of metrics (:data:`gpuwatch.core.model.metrics.METRICS`): ``memory.used_bytes`` is
``gpuwatch_gpu_memory_used_bytes``. Prometheus wants base units and shares from 0 to 1: ``utilization.gpu_percent``
becomes ``gpuwatch_gpu_utilization_ratio``, ``clocks.sm_mhz`` ``gpuwatch_gpu_clocks_sm_hertz``. Counters add ``_total``.
Families that stand for no metric are the constants below.

Every series has the label ``host``, those of a GPU also ``uuid`` and ``gpu`` (NVML's index). What could not be read has
no series.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpuwatch.core.model.metrics import Lane, MetricSpec, Unit
from gpuwatch.core.model.reading import Reading
from gpuwatch.core.model.snapshot import MIG_READINGS, Device, Driver, Process
from gpuwatch.core.safe_text import printable

Form = Literal["plain", "openmetrics"]
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
_SUFFIXES = {"counter": "_total", "info": "_info"}
_YES_NO = {"no": 0.0, "yes": 1.0}
_STATE = "performance.state"


class Family(NamedTuple):
    """A metric family."""

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
    def sample(self) -> str:
        return self.name + _SUFFIXES.get(self.kind, "")

    def header(self, form: Form = "openmetrics") -> str:
        """The lines before its samples. Prometheus's text format has neither units nor info."""
        if form == "plain":
            kind = "gauge" if self.kind == "info" else self.kind
            return f"# HELP {self.sample} {_escaped(self.help)}\n# TYPE {self.sample} {kind}\n"
        unit = f"# UNIT {self.name} {self.unit}\n" if self.unit else ""
        return f"# TYPE {self.name} {self.kind}\n{unit}# HELP {self.name} {_escaped(self.help)}\n"


def family_of(spec: MetricSpec, of: Literal["gpu", "mig"] = "gpu") -> Family:
    """The family of a metric, of GPUs or of MIG instances, if :func:`is_number`."""
    name, scale = spec.id, 1.0
    for ours, (theirs, factor) in _RENAMED.items():
        if name.endswith(ours):
            name, scale = name.removesuffix(ours) + theirs, factor
    # utilization.gpu_percent: that it is of the GPU is said already.
    name = f"gpuwatch_{of}_" + name.replace(".gpu_", "_").replace(".", "_")
    unit = _UNITS.get(spec.unit, "")
    if not name.endswith(f"_{unit}"):
        unit = ""
    return Family(name, "counter" if spec.counter else "gauge", unit, spec.title, scale)


def is_number(spec: MetricSpec) -> bool:
    """Whether a metric has a family of its own: numbers, ``yes`` and ``no``, and performance states."""
    return spec.unit is not Unit.NAME or spec.id == _STATE or set(spec.names.values()) == _YES_NO.keys()


def is_of_mig(spec: MetricSpec) -> bool:
    """Whether MIG instances have the metric, too."""
    return spec.id in MIG_READINGS or spec.lane is Lane.GPM


def as_number(spec: MetricSpec, reading: Reading) -> float | None:
    """A reading in the unit of its family; None if it is missing, or a name that is no number.

    ``no`` is 0, ``yes`` 1; performance state ``P8`` is 8.
    """
    if isinstance(reading, str):
        if spec.id == _STATE and reading[:1] == "P" and reading[1:].isdecimal():
            return float(reading[1:])
        return _YES_NO.get(reading)
    if not isinstance(reading, (int, float)):
        return None
    for ours, (_, factor) in _RENAMED.items():
        if spec.id.endswith(ours):
            return round(reading * factor, 9)  # without digits that only the factor brings in
    return float(reading)


def _gauge(name: str, help_text: str, unit: str = "") -> Family:
    return Family(f"gpuwatch_{name}", "gauge", unit, help_text)


# A GPU. Labels besides uuid, gpu and host are named.
INFO = Family("gpuwatch_gpu", "info", "", "A GPU and its identity")
"""``name``, ``pci_bus_id``, ``compute_capability``, ``driver``, ``mig`` (enabled or disabled), ``simulated``."""
MODES = Family("gpuwatch_gpu_modes", "info", "", "Modes and other settings of a GPU, by name")
"""The metrics that are names or never change: ``mode_compute``, ``identity_vbios``, ..."""
STATE = _gauge("gpu_state", "1 for the state of a GPU: ok, asleep, lost, reset-required or failed")
"""``state``. In the last three its readings are absent."""
FREE = _gauge("gpu_free", "1 if gpuwatch pick --idle would choose this GPU, 0 if not")
"""Absent for a GPU that MIG divides: :data:`MIG_FREE`."""
PROCESSES = _gauge("gpu_processes", "Processes that compute on a GPU")
OWNERS = _gauge("gpu_owners", "Owners of the processes on a GPU, including processes that are not listed")
OWNER_PROCESSES = _gauge("gpu_owner_processes", "Processes of one owner on a GPU")
"""``user``, ``slurm_job``, ``pod``, ``container``: as far as known. The owners with the most memory."""
OWNER_MEMORY = _gauge("gpu_owner_memory_bytes", "GPU memory of one owner's processes", "bytes")
"""Labels as :data:`OWNER_PROCESSES`; absent if it is unknown of one of the processes."""
XIDS = Family("gpuwatch_gpu_xids", "counter", "", "Errors that the driver reported since the exporter was started")
XID_ERRORS = Family("gpuwatch_gpu_xid_errors", "counter", "", "The same by Xid, for those that occurred")
"""``xid``; ``unknown`` if the driver does not know the number."""
CLOCK_REASON = _gauge("gpu_clock_event_reason", "1 for each reason that holds the clocks down")
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
LEFT_OUT = _gauge(
    "processes_left_out", "Processes on GPUs that have no series of their own, because too many use more memory"
)

# The machine, with host alone.
GPUS = _gauge("gpus", "GPUs that the driver lists")
DRIVER = Family("gpuwatch_driver", "info", "", "Versions according to NVML")
"""``version``, ``cuda_version``, ``nvml_version``."""
HOST_CPU = _gauge("host_cpu_ratio", "CPU utilization of all cores together", "ratio")
HOST_MEMORY_USED = _gauge("host_memory_used_bytes", "Memory of the host in use", "bytes")
HOST_MEMORY_TOTAL = _gauge("host_memory_total_bytes", "Memory of the host", "bytes")
HOST_LOAD = _gauge("host_load1", "Load average over one minute")

# The exporter itself.
ANSWERING = _gauge("driver_answering", "1 while samples arrive, 0 while the driver or its collector does not answer")
SNAPSHOT_AGE = _gauge("snapshot_age_seconds", "Age of the sample that the other series come from", "seconds")
SNAPSHOT_TOOK = _gauge("snapshot_duration_seconds", "Time that this sample took", "seconds")
REPLACED = Family("gpuwatch_collector_replacements", "counter", "", "Collectors replaced because they hung")
BUILD = Family("gpuwatch_exporter", "info", "", "The exporter")
"""``version``, ``metrics``, ``interval_seconds``."""


def gpu_labels(device: Device, host: str | None) -> dict[str, object]:
    """Those of every series of a GPU."""
    return {"uuid": device.uuid, "gpu": device.index if device.index >= 0 else None, "host": host}


def gpu_identity(device: Device, driver: Driver | None) -> dict[str, object]:
    """The others of its :data:`INFO`."""
    return {
        "name": device.name or None,
        "pci_bus_id": device.pci_bus_id or None,
        "compute_capability": device.compute_capability,
        "driver": driver.version if driver is not None else None,
        "mig": device.readings.get("mig.mode"),
        "simulated": "true" if device.simulated else None,
        "unified_memory": "true" if device.unified_memory else None,
    }


def process_labels(row: Process) -> dict[str, object]:
    """Those of every series of a process, besides its GPU's."""
    return {"pid": row.pid, "user": row.user, "mig_instance": row.mig_instance}


def labels(values: Mapping[str, object]) -> str:
    """``{gpu="0",host="node7"}``; what is None is left out."""
    pairs = ",".join(
        f'{name}="{_escaped(printable(str(value)))}"' for name, value in values.items() if value is not None
    )
    return f"{{{pairs}}}"


class SampleLines:
    """Lines of samples of one host by family: the formats want all samples of one together."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.lines: dict[Family, list[str]] = {}

    def labels(self, device: Device, **more: object) -> str:
        """The labels of a GPU with others of one series."""
        return labels(gpu_labels(device, self.host) | more)

    def add(self, family: Family, own: str, number: float | None) -> None:
        """A sample; ``own``: its labels as text. None: there is no such sample."""
        if number is not None:
            self.lines.setdefault(family, []).append(f"{family.sample}{own} {value_text(float(number))}\n")

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))


def value_text(number: float) -> str:
    """A value; whole ones without a point."""
    return str(int(number)) if number.is_integer() and abs(number) < 1e16 else repr(number)


def timestamp_text(at: float) -> str:
    """A timestamp, in seconds since the epoch with milliseconds."""
    return f"{at:.3f}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
