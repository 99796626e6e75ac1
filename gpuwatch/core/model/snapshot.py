"""A snapshot: one sample of the machine. ``gpuwatch.snapshot/1`` is its JSON."""

from __future__ import annotations

import datetime
from operator import attrgetter, is_

import msgspec

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID, Lane
from gpuwatch.core.model.reading import Missing, Reading, Value, number
from gpuwatch.core.model.xids import Xid

HOST_PROCESS_READINGS = ("cpu_percent", "host_memory_bytes", "threads")
"""Those of a process's readings that come from /proc."""
PROCESS_READINGS = (
    "gpu_memory_bytes",
    "sm_percent",
    "memory_percent",
    "encoder_percent",
    "decoder_percent",
    *HOST_PROCESS_READINGS,
)
"""Ids of a process's readings, in column order."""

RUN_SECONDS = "run_seconds"
"""A reading of processes in documents, computed by :meth:`Process.run_seconds`: if stored, every row would change in
every snapshot."""

IDLE_SINCE = "idle_since"
"""A reading of processes: since when no kernel of it was seen (seconds since the epoch), or since when the collector
looks; 0 while it computes. Documents have :data:`IDLE_SECONDS` instead."""
IDLE_SECONDS = "idle_seconds"

CPU_BUILD = "+cpu"
"""Ends the version in :attr:`Process.framework` if the framework was built without CUDA."""

MIG_READINGS = ("memory.total_bytes", "memory.used_bytes", "memory.free_bytes", "memory.reserved_bytes")
"""Ids of a MIG instance's readings. Utilization is not among them: NVML has none while MIG is on. GPUs with GPM also
have its activity (``activity.sm_percent`` ...), if the user opted in."""

WSL = "wsl"
"""Treated like a container: Windows has the GPU, and its processes are not listed."""

UNLISTED = Missing("unknown", detail="the list of processes could not be read")
"""Reason of a missing ``memory.unexplained_bytes``: a device without processes may have some."""
ASLEEP = "asleep"
"""State of a suspended device, which is not queried because that would wake it."""
BAD_STATES = frozenset({"lost", "reset-required", "failed"})
"""States of a device in which its readings cannot be trusted."""
_NEVER_READ = Missing("unknown", detail="not requested")
_OPT_IN = Missing("no_sample", detail="only with --gpm: it occupies the counters that profilers use")


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """Versions by NVML; None if it refused."""

    version: str | None
    cuda_version: str | None
    """Highest CUDA version that the driver supports, ``13.0`` (nvmlSystemGetCudaDriverVersion)."""
    nvml_version: str | None


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A MIG instance, which CUDA offers to one process as its device.

    ``readings`` has the ids of :data:`MIG_READINGS`; those without a value are in ``missing``.
    """

    id: str
    """``1/0``: GPU instance and compute instance, as in :attr:`Process.mig_instance`; ``#4`` (its index) if NVML does
    not report them."""
    index: int
    """NVML's number within its GPU. The numbers have gaps."""
    uuid: str | None
    """``MIG-...``, for CUDA_VISIBLE_DEVICES; None if NVML refused."""
    gpu_instance: int | None
    compute_instance: int | None
    profile: str | None
    """``1g.10gb``, ``1c.3g.40gb``: slices of compute and memory, as in ``nvidia-smi -L``."""
    gpu_slices: int | None = None
    compute_slices: int | None = None
    multiprocessors: int | None = None
    readings: dict[str, Value] = {}
    missing: dict[str, Missing] = {}

    def get(self, reading_id: str) -> Reading:
        """One of :data:`MIG_READINGS`, or a GPM metric; KeyError for another id."""
        value = self.readings.get(reading_id)
        if value is not None:
            return value
        spec = BY_ID.get(reading_id)
        opted_in = spec is not None and spec.lane is Lane.GPM
        if reading_id not in MIG_READINGS and not opted_in:
            raise KeyError(reading_id)
        return self.missing.get(reading_id) or (_OPT_IN if opted_in else _NEVER_READ)

    def number(self, reading_id: str) -> float | None:
        """The reading as a number, or None."""
        return number(self.get(reading_id))


UNIDENTIFIED_PREFIX, ASLEEP_PREFIX = "unknown-", "asleep-"
"""Start of what stands for the UUID of a device of which only the place is known: it does not answer, or sleeps."""


MAX_CLOCK_SKEW_SECONDS = 2.0
"""Seconds by which the clocks of the driver and of the kernel may differ."""


class AccountedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a GPU from its start to its end, by the driver (nvmlDeviceGetAccountingStats)."""

    pid: int
    started_at: float
    """When it began to use the GPU, in seconds since the epoch."""
    used_seconds: float
    """Seconds for which it had a context on the GPU."""
    gpu_percent: int | None
    """Percent of this time in which one of its kernels ran; null if the driver does not report it."""
    memory_percent: int | None
    """Percent of this time in which device memory was read or written."""
    peak_bytes: int | None
    """The most memory that it held."""

    def may_be(self, pid: int, create_time: float | None) -> bool:
        """Whether it can be this process: a pid is used again."""
        return self.pid == pid and (create_time is None or self.started_at >= create_time - MAX_CLOCK_SKEW_SECONDS)


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A physical GPU. ``uuid`` is the only join key; ``index`` is NVML's, in PCI bus order."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    """``0000:01:00.0``: with a four-digit domain as TensorFlow prints it, in lower case."""
    compute_capability: str | None = None
    simulated: bool = False
    state: str = "ok"
    """``ok``, ``lost``, ``reset-required``, ``asleep`` or ``failed``."""
    state_detail: str = ""
    readings: dict[str, Value]
    missing: dict[str, Missing]
    mig_instances: tuple[MigInstance, ...] = ()
    """Its MIG instances by index. Empty without MIG; otherwise the reading ``mig.instances`` says why."""
    xids: tuple[Xid, ...] = ()
    """The latest errors that the driver reported since gpuwatch started listening, the newest last."""
    xids_missing: Missing | None = None
    """Why none can be received; None if they can, or it was not tried."""
    accounted: tuple[AccountedProcess, ...] = ()
    """The latest processes that ended, the newest last, if the driver's accounting mode is on."""
    unified_memory: bool = False
    """Whether it has no memory of its own: total, used and free are the host's, which other programs use, too."""

    def get(self, metric_id: str) -> Reading:
        """The reading of a metric; KeyError for an unknown id."""
        value = self.readings.get(metric_id)
        if value is not None:
            return value
        if metric_id not in BY_ID:
            raise KeyError(metric_id)
        return self.missing.get(metric_id) or (_OPT_IN if BY_ID[metric_id].lane is Lane.GPM else _NEVER_READ)

    def number(self, metric_id: str) -> float | None:
        """The reading as a number, or None."""
        return number(self.get(metric_id))

    @property
    def lists_processes(self) -> bool:
        """Whether its processes were listed; a list that failed, or of a suspended GPU, is empty though none exited."""
        unread = self.missing.get("memory.unexplained_bytes")
        answers = self.state not in BAD_STATES and self.state != ASLEEP
        return answers and (unread is None or "list of processes" not in unread.detail)

    @property
    def has_mig(self) -> bool:
        """Whether MIG is on."""
        return self.readings.get("mig.mode") == "enabled"

    @property
    def is_placeholder(self) -> bool:
        """Whether only its place is known: it does not answer, or is suspended, since gpuwatch was started."""
        return self.uuid.startswith((UNIDENTIFIED_PREFIX, ASLEEP_PREFIX))

    def identifies(self, placeholder: Device) -> bool:
        """Whether it is the device for which the placeholder stood, of which only the place was known."""
        if self.is_placeholder or not placeholder.is_placeholder:
            return False
        if placeholder.pci_bus_id:
            return self.pci_bus_id == placeholder.pci_bus_id
        return self.index == placeholder.index


class MappedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device number of a process, and its physical GPU."""

    ordinal: int
    """CUDA ordinal inside the process."""
    uuid: str
    index: int
    """NVML index of the same GPU."""
    certainty: str = "likely"
    """``fact`` if reported by a probe or driver, ``likely`` if derived from the environment."""


SAME_START_SECONDS = 1.5
"""Seconds by which two programs may compute the start time of the same process differently."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a device (a process on two devices is two entries with one pid)."""

    pid: int
    create_time: float | None
    """Seconds since the epoch; identifies the process together with ``pid``. None: not visible."""
    user: str | None
    command: str | None
    """Raw command line, which may contain control characters."""
    name: str | None = None
    type: str
    """``C`` compute, ``G`` graphics, ``C+G``, ``M`` MPS client, ``H`` on the host only."""
    device_uuid: str | None
    device_index: int | None = None
    mig_instance: str | None = None
    """``1/0``, the :attr:`MigInstance.id` that it runs on; None without MIG."""
    framework: str | None = None
    """``tensorflow 2.21.0``, ``torch 2.11.0``; None if none was recognized."""
    container: str | None = None
    cuda_visible_devices: str | None = None
    device_map: tuple[MappedDevice, ...] = ()
    note: str = ""
    """Why facts are missing: ``permission denied``, ``another PID namespace``, ``gone``."""
    state: str | None = None
    """``D``: waiting for a disk, ``Z``: zombie (proc(5)); None in any other state."""
    workers_cpu_percent: float | None = None
    """CPU of its descendants together, in percent of one core; None if not read, or without descendants."""
    cuda_loaded: bool | None = None
    """Whether libcuda is mapped; only known for :attr:`Snapshot.bystanders`."""
    readings: dict[str, Value]
    missing: dict[str, Missing] = {}

    @property
    def key(self) -> tuple[str | None, int, float | None]:
        """Identity of the row: device, pid and start time."""
        return (self.device_uuid, self.pid, self.create_time)

    def run_seconds(self, at: float) -> float | None:
        """Seconds for which it had run at ``at`` (seconds since the epoch); None if its start is unknown."""
        return None if self.create_time is None else max(at - self.create_time, 0.0)

    def idle_seconds(self, at: float) -> float | None:
        """Seconds for which it had not computed on its GPU at ``at``; 0 if it computes, None if that is unknown."""
        since = number(self.readings.get(IDLE_SINCE))
        return None if since is None else max(at - since, 0.0) if since else 0.0

    def get(self, reading_id: str) -> Reading:
        """One of :data:`PROCESS_READINGS`, or :data:`IDLE_SINCE`; KeyError for another id."""
        value = self.readings.get(reading_id)
        if value is not None:
            return value
        if reading_id not in PROCESS_READINGS and reading_id != IDLE_SINCE:
            raise KeyError(reading_id)
        return self.missing.get(reading_id, _NEVER_READ)

    def number(self, reading_id: str) -> float | None:
        """The reading as a number, or None."""
        return number(self.get(reading_id))


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """A process without a GPU that is a parent or further ancestor of one with a GPU."""

    pid: int
    create_time: float
    """Seconds since the epoch."""
    user: str | None
    command: str | None
    """Raw command line, which may contain control characters."""
    name: str


class GpuAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """The affinity of a GPU; None if NVML refused, with the reason in ``missing``."""

    uuid: str
    cpus: str | None = None
    """Local CPUs, ``0-15,32-47``."""
    numa_nodes: str | None = None
    """Local NUMA nodes of the host, ``0``."""
    missing: dict[str, Missing] = {}


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How two GPUs are connected, in the terms of ``nvidia-smi topo -m``."""

    first: str
    second: str
    """UUIDs; ``first`` has the lower index. Each pair occurs once."""
    level: str | None
    """Their closest common link: ``INT`` (one board), ``PIX`` (one PCIe bridge), ``PXB`` (several bridges), ``PHB``
    (the host bridge), ``NODE`` (host bridges of one NUMA node), ``SYS`` (between NUMA nodes)."""
    nvlinks: int = 0
    """Active NVLinks between them."""
    missing: Missing | None = None

    @property
    def name(self) -> str | None:
        """``NV4`` if connected by NVLink, else the level."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.level


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How the GPUs are connected; read once per list of devices."""

    places: tuple[GpuAffinity, ...] = ()
    """CPUs and NUMA nodes near each GPU."""
    connections: tuple[Connection, ...] = ()
    switch_nvlinks: dict[str, int] = {}
    """Active NVLinks to an NVSwitch, by UUID; it connects all GPUs that have such links."""

    @property
    def incomplete(self) -> bool:
        """Whether something failed that may succeed later."""
        lacks = [lack for place in self.places for lack in place.missing.values()]
        lacks += [found.missing for found in self.connections if found.missing is not None]
        return any(lack.reason == "failed" for lack in lacks)

    def path(self, first: str, second: str) -> str | None:
        """``NV4`` if connected by NVLink, directly or through a switch, else the level; None if unknown."""
        found = self.between(first, second)
        if found is not None and found.nvlinks:
            return found.name
        at_switch = min(self.switch_nvlinks.get(first, 0), self.switch_nvlinks.get(second, 0))
        return f"NV{at_switch}" if at_switch else found.level if found is not None else None

    def between(self, first: str, second: str) -> Connection | None:
        """The connection of two UUIDs, in either order."""
        return next((found for found in self.connections if {found.first, found.second} == {first, second}), None)


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU that ``gpuwatch pick --reserve`` keeps for a program. Advisory: others can use it all the same."""

    uuid: str
    """UUID of the GPU or MIG instance."""
    pid: int | None
    """The program for which it was reserved; None for a moment, while it is being reserved."""
    user: str | None = None
    command: str | None = None
    """Command line with secrets masked; it may contain control characters."""
    counts: bool = True
    """False beyond what an administrator lets each user reserve: such a GPU is free all the same."""

    @property
    def holder(self) -> str:
        """``alice (4711)``."""
        if not self.pid:
            return self.user or "somebody"
        return f"{self.user} ({self.pid})" if self.user else f"pid {self.pid}"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The host; None for what could not be read."""

    hostname: str | None
    cpu_percent: float | None
    """Of all cores together, 0-100, since the previous sample."""
    cpu_count: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    load: tuple[float, float, float] | None = None
    uptime_seconds: float | None = None
    container: str | None = None
    """The kind of container that gpuwatch runs in, or :data:`WSL`; None outside a container."""


FAILED_ITSELF = "gpuwatch.failed"
"""Reason of a :class:`Problem` of gpuwatch itself or its Python: the driver was not asked."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a source could not do, and a hint."""

    source: str
    reason: str
    detail: str
    hint: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.snapshot/1"):
    """One sample of the machine."""

    taken_at: datetime.datetime
    took_seconds: float
    simulated: bool
    driver: Driver | None
    devices: tuple[Device, ...]
    processes: tuple[Process, ...]
    host: Host
    problems: tuple[Problem, ...] = ()
    findings: tuple[Finding, ...] = ()
    topology: Topology | None = None
    """None if it was not read."""
    bystanders: tuple[Process, ...] = ()
    """Programs of this host that have a GPU framework loaded and keep a core busy, but use none of its GPUs."""
    parents: dict[int, int] = {}
    """Parent pids of the processes and their ancestors, up to the first process of the machine."""
    ancestors: tuple[Ancestor, ...] = ()
    """Ancestors of the processes that are not among them."""
    reservations: tuple[Reservation, ...] = ()
    """GPUs that are reserved on this machine."""
    host_processes: int | None = None
    """Without a GPU, ``processes`` are the busiest of so many on this host; None with a GPU."""

    def unchanged(self, before: Snapshot | None, *, devices: bool = True) -> bool:
        """Whether only the time and the host's readings differ from ``before``.

        Compares identities: feeds reuse unchanged objects. ``devices`` False ignores the devices.
        """
        return (
            before is not None
            and (self.devices is before.devices or not devices)
            and all(map(is_, _compared_parts(self), _compared_parts(before)))
        )

    def device(self, uuid: str | None) -> Device | None:
        """The device with this UUID, or None."""
        return next((device for device in self.devices if device.uuid == uuid), None)


_ALWAYS_CHANGING = ("taken_at", "took_seconds", "host", "devices")
_compared_parts = attrgetter(*(name for name in Snapshot.__struct_fields__ if name not in _ALWAYS_CHANGING))


def pci_slot(pci_bus_id: str) -> str:
    """``:01:00.0``, a key for addresses: TensorFlow and NVML write the domain with different widths."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
