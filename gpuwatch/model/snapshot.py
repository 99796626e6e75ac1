"""A snapshot: one look at the machine. ``gpuwatch.snapshot/1`` is its JSON."""

from __future__ import annotations

import datetime
from operator import attrgetter, is_

import msgspec

from gpuwatch.model.findings import Finding
from gpuwatch.model.metrics import BY_ID, Lane
from gpuwatch.model.reading import Missing, Reading, Value, number
from gpuwatch.model.xids import Xid

PROCESS_READINGS = (
    "gpu_memory_bytes",
    "sm_percent",
    "memory_percent",
    "encoder_percent",
    "decoder_percent",
    "cpu_percent",
    "host_memory_bytes",
    "threads",
)
"""Ids of a process's readings, in their order of columns."""

RUN_SECONDS = "run_seconds"
"""What documents have among the readings of a process, and :meth:`Process.run_seconds` computes: stored, it would
make every row another one in every snapshot."""

MIG_READINGS = ("memory.total_bytes", "memory.used_bytes", "memory.free_bytes", "memory.reserved_bytes")
"""Ids of a MIG instance's readings. Utilization is not among them: NVML has none while MIG is on. Beside them
stands its activity (``activity.sm_percent`` ...) where somebody opted in and the GPU has GPM."""

WSL = "wsl"
"""Stands for a container: Windows has the GPU, and its processes are not listed."""

BAD_STATES = frozenset({"lost", "reset-required", "failed"})
"""States of a device in which its readings cannot be believed."""
_NEVER_READ = Missing("unknown", detail="not asked for")
_OPT_IN = Missing("no_sample", detail="asked for with --gpm only: it takes the counters that profilers take")


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """Versions as NVML tells them; None where it refused."""

    version: str | None
    cuda_version: str | None
    """Highest CUDA version that the driver supports, ``13.0`` (nvmlSystemGetCudaDriverVersion)."""
    nvml_version: str | None


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a GPU that MIG made: what CUDA offers one process as its device.

    ``readings`` has the ids of :data:`MIG_READINGS`; what an instance does not tell is in ``missing``.
    """

    id: str
    """``1/0``: GPU instance and compute instance, as :attr:`Process.mig_instance` has it; ``#4`` (its index)
    where NVML does not tell them."""
    index: int
    """NVML's number in its GPU. The numbers have gaps."""
    uuid: str | None
    """``MIG-...``, which CUDA_VISIBLE_DEVICES takes; None where NVML refused."""
    gpu_instance: int | None
    compute_instance: int | None
    profile: str | None
    """``1g.10gb``, ``1c.3g.40gb``: slices of compute and of memory, as ``nvidia-smi -L`` has it."""
    gpu_slices: int | None = None
    compute_slices: int | None = None
    multiprocessors: int | None = None
    readings: dict[str, Value] = {}
    missing: dict[str, Missing] = {}

    def get(self, reading_id: str) -> Reading:
        """One of :data:`MIG_READINGS`, or an activity (GPM) of the metric table; KeyError for another id."""
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


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU. ``uuid`` is the only join key; ``index`` is NVML's, in PCI bus order."""

    index: int
    uuid: str
    name: str
    pci_bus_id: str
    """``0000:01:00.0``: domain of four digits as TensorFlow prints it, lower case."""
    compute_capability: str | None = None
    simulated: bool = False
    state: str = "ok"
    """``ok``, ``lost``, ``reset-required``, ``asleep`` or ``failed``."""
    state_detail: str = ""
    readings: dict[str, Value]
    missing: dict[str, Missing]
    mig_instances: tuple[MigInstance, ...] = ()
    """Its MIG instances by index. Empty without MIG; the reading ``mig.instances`` says why else."""
    xids: tuple[Xid, ...] = ()
    """The latest errors that the driver reported since gpuwatch began to listen, the newest last."""
    xids_missing: Missing | None = None
    """Why none can be heard; None where they can, or where nobody has tried."""

    def get(self, metric_id: str) -> Reading:
        """The reading of a metric of the table; KeyError for an unknown id."""
        value = self.readings.get(metric_id)
        if value is not None:
            return value
        if metric_id not in BY_ID:
            raise KeyError(metric_id)
        return self.missing.get(metric_id) or (_OPT_IN if BY_ID[metric_id].lane is Lane.GPM else _NEVER_READ)

    def number(self, metric_id: str) -> float | None:
        """The reading as a number, or None."""
        return number(self.get(metric_id))


class Mapped(msgspec.Struct, frozen=True, kw_only=True):
    """One of a process's own device numbers, and the physical GPU behind it."""

    ordinal: int
    """CUDA ordinal inside the process."""
    uuid: str
    index: int
    """NVML index of the same GPU."""
    certainty: str = "likely"
    """``fact`` where a probe or driver said it, ``likely`` where derived from the environment."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one device (a process on two devices is two entries with one pid)."""

    pid: int
    create_time: float | None
    """Seconds since the epoch; with ``pid`` the identity of the process. None: cannot be seen."""
    user: str | None
    command: str | None
    """Command line as the process set it: control characters are still in it."""
    name: str | None = None
    type: str
    """``C`` compute, ``G`` graphics, ``C+G``, ``M`` MPS client, ``H`` on the host only."""
    device_uuid: str | None
    device_index: int | None = None
    mig_instance: str | None = None
    """``1/0``, the :attr:`MigInstance.id` that it runs on; None without MIG."""
    framework: str | None = None
    """``tensorflow 2.21.0``, ``torch 2.11.0``, or None when none was recognised."""
    container: str | None = None
    cuda_visible_devices: str | None = None
    device_map: tuple[Mapped, ...] = ()
    note: str = ""
    """Why facts are missing: ``permission denied``, ``another PID namespace``, ``gone``."""
    state: str | None = None
    """``D`` waits for a disk, ``Z`` has ended and nobody has collected it (proc(5)); None in any other state."""
    workers_cpu_percent: float | None = None
    """CPU of its descendants together, of one core; None where nobody has looked, or there are none."""
    cuda_loaded: bool | None = None
    """Whether libcuda is mapped; asked of :attr:`Snapshot.bystanders` only."""
    readings: dict[str, Value]
    missing: dict[str, Missing] = {}

    @property
    def key(self) -> tuple[str | None, int, float | None]:
        """Identity of the row: device, pid and start time."""
        return (self.device_uuid, self.pid, self.create_time)

    def run_seconds(self, at: float) -> float | None:
        """Seconds for which it had run at a moment (seconds since the epoch); None where its start is unknown."""
        return None if self.create_time is None else max(at - self.create_time, 0.0)

    def get(self, reading_id: str) -> Reading:
        """One of :data:`PROCESS_READINGS`; KeyError for another id."""
        value = self.readings.get(reading_id)
        if value is not None:
            return value
        if reading_id not in PROCESS_READINGS:
            raise KeyError(reading_id)
        return self.missing.get(reading_id, _NEVER_READ)

    def number(self, reading_id: str) -> float | None:
        """The reading as a number, or None."""
        return number(self.get(reading_id))


class Ancestor(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the host that is on no GPU, and that started one that is, or an ancestor of it."""

    pid: int
    create_time: float
    """Seconds since the epoch."""
    user: str | None
    command: str | None
    """Command line as the process set it: control characters are still in it."""
    name: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where one GPU sits in the machine; None where NVML refused, with the reason in ``missing``."""

    uuid: str
    cpus: str | None = None
    """The CPUs beside it, ``0-15,32-47``."""
    numa_nodes: str | None = None
    """The NUMA nodes of the host beside it, ``0``."""
    missing: dict[str, Missing] = {}


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """How two GPUs reach each other. The names are those of ``nvidia-smi topo -m``."""

    first: str
    second: str
    """UUIDs; ``first`` has the lower index. Each pair stands once."""
    level: str | None
    """What they have in common: ``INT`` (one board), ``PIX`` (one PCIe bridge), ``PXB`` (several bridges),
    ``PHB`` (the host bridge), ``NODE`` (host bridges of one NUMA node), ``SYS`` (between NUMA nodes)."""
    nvlinks: int = 0
    """Active NVLinks from the one to the other."""
    missing: Missing | None = None

    @property
    def name(self) -> str | None:
        """``NV4`` where NVLinks join them, else the level."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.level


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """How the GPUs hang together; read once for a list of devices."""

    places: tuple[Place, ...] = ()
    connections: tuple[Connection, ...] = ()
    switch_nvlinks: dict[str, int] = {}
    """Active NVLinks by UUID that end at an NVSwitch, which joins all GPUs that have such links."""

    @property
    def incomplete(self) -> bool:
        """Whether something failed that may be told another time."""
        lacks = [lack for place in self.places for lack in place.missing.values()]
        lacks += [found.missing for found in self.connections if found.missing is not None]
        return any(lack.reason == "failed" for lack in lacks)

    def between(self, first: str, second: str) -> Connection | None:
        """The connection of two UUIDs, in either order."""
        for found in self.connections:
            if {found.first, found.second} == {first, second}:
                return found
        return None


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine around the GPUs; None where it could not be read."""

    hostname: str | None
    cpu_percent: float | None
    """Of all cores together, 0-100, since the sample before."""
    cpu_count: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    load: tuple[float, float, float] | None = None
    uptime_seconds: float | None = None
    container: str | None = None
    """The kind of container that gpuwatch itself runs in, or :data:`WSL`; None outside of one."""


FAILED_ITSELF = "gpuwatch.failed"
"""Reason of a :class:`Problem` of gpuwatch itself, or of the Python that it runs in: the driver was not asked."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a source could not do, and what helps."""

    source: str
    reason: str
    detail: str
    hint: str = ""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.snapshot/1"):
    """One look at the machine."""

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
    """None where it has not been read."""
    bystanders: tuple[Process, ...] = ()
    """Programs of this host that have a GPU framework loaded, keep a core busy, and are on none of its GPUs."""
    parents: dict[int, int] = {}
    """Parent by pid, of the processes and of their ancestors, up to the first process of the machine."""
    ancestors: tuple[Ancestor, ...] = ()
    """Those that started the processes and are not among them."""
    host_processes: int | None = None
    """Without a GPU ``processes`` are the busiest of so many that this host runs; None with one."""

    def unchanged(self, before: Snapshot | None, *, devices: bool = True) -> bool:
        """Whether nothing but its moment and the host's own readings is new since ``before``.

        Compares identities: feeds give the same objects where nothing has changed. ``devices`` False: whatever
        its devices are.
        """
        return (
            before is not None
            and (self.devices is before.devices or not devices)
            and all(map(is_, _lasting(self), _lasting(before)))
        )

    def device(self, uuid: str | None) -> Device | None:
        """The device with this UUID, or None."""
        for device in self.devices:
            if device.uuid == uuid:
                return device
        return None


_MOVING = ("taken_at", "took_seconds", "host", "devices")
_lasting = attrgetter(*(name for name in Snapshot.__struct_fields__ if name not in _MOVING))


def pci_slot(pci_bus_id: str) -> str:
    """``01:00.0``: TensorFlow and NVML write the domain with different widths."""
    domain, _, rest = pci_bus_id.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"
