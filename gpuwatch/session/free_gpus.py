"""Which GPUs are free for another program, and connected best: :func:`pick_gpus` chooses from one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.sentences import and_more, count_text
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.pick_result import Pick, PickedGpu, RefusedGpu
from gpuwatch.core.model.process_activity import MIN_IN_USE_PERCENT
from gpuwatch.core.model.snapshot import Device, MigInstance, Process, Snapshot, Topology
from gpuwatch.core.model.visible_devices import read_visible
from gpuwatch.explain.diagnosis.conditions.idle_and_unexplained_memory import MIN_HELD_BYTES
from gpuwatch.machine.history.process_labels import label_in_sentence
from gpuwatch.session.view import View

_MAX_PROCESSES_NAMED = 2
"""Processes that a reason names."""
_MAX_GPUS_SHOWN = 4
"""GPUs whose reasons one line gives."""
_CONNECTION_LEVELS = (None, "SYS", "NODE", "PHB", "PXB", "PIX", "INT")
"""From the slowest to the fastest; NVLinks are faster, the more the better."""
_MAX_COMBINATIONS_TRIED = 15_000
"""Choices up to which each is looked at: 8 of 16 GPUs are 12,870."""
_CAUSES_OF_SILENCE = ("driver.bad-state", "unknown")
"""Causes, of no GPU, of a time without samples: the driver's, and the collector's own."""


@dataclass(frozen=True, slots=True)
class Requirements:
    """What GPUs must meet to be chosen."""

    count: int = 1
    free_bytes: int | None = None
    """Memory that must be free on each."""
    idle: bool = False
    """Whether nobody may compute on them."""

    def __str__(self) -> str:
        rest = [f"with {size(self.free_bytes)} free"] if self.free_bytes is not None else []
        rest += ["idle"] if self.idle else []
        return f"{count_text(self.count, 'GPU')}" + (f" ({', '.join(rest)})" if rest else "")


@dataclass(frozen=True, slots=True)
class _CudaDevice:
    """What CUDA_VISIBLE_DEVICES can name: a GPU without MIG, or a MIG instance."""

    device: Device
    instance: MigInstance | None
    compute_processes: tuple[Process, ...]
    """Processes that compute on it."""

    @property
    def uuid(self) -> str | None:
        return self.device.uuid if self.instance is None else self.instance.uuid

    @property
    def mig_instance(self) -> str | None:
        return None if self.instance is None else self.instance.id

    def bytes(self, kind: str) -> float | None:
        """Its ``free``, ``used`` or ``total`` memory; None if unknown."""
        return (self.device if self.instance is None else self.instance).number(f"memory.{kind}_bytes")

    @property
    def utilization_percent(self) -> float | None:
        """Utilization in percent; None if unknown, as for a MIG instance."""
        return self.device.number("utilization.gpu_percent") if self.instance is None else None

    @property
    def load_rank(self) -> tuple[int, bool]:
        """The lowest is the best: the number of processes, and whether it is busy."""
        return len(self.compute_processes), (self.utilization_percent or 0.0) >= MIN_IN_USE_PERCENT

    @property
    def choice_rank(self) -> tuple[tuple[int, bool], float, int]:
        """Sort key for choosing; lower is better."""
        return self.load_rank, -(self.bytes("free") or 0.0), self.device.index


def pick_gpus(
    machine: Snapshot,
    requirements: Requirements,
    environment: Mapping[str, str],
    reserved_by: Mapping[str, str],
    findings: Sequence[Finding] = (),
    refusals: Mapping[str, str] | None = None,
) -> Pick:
    """Chooses GPUs.

    ``environment``: its CUDA_VISIBLE_DEVICES limits the choice, as in a Slurm job. ``reserved_by``: who reserved a GPU,
    in words, by UUID. ``findings``: of the snapshot; a GPU with one that rules out work is refused. ``refusals``: why
    GPUs are refused for what is known of them besides the snapshot, by the UUID of the whole GPU.

    Raises:
        UsageError: CUDA_VISIBLE_DEVICES cannot be read as GPUs of this machine.
    """
    visible_uuids = _visible_uuids(machine.devices, environment)
    refusal_by_gpu = _faults_by_gpu(findings) | dict(refusals or {})
    suitable: list[_CudaDevice] = []
    refused: list[RefusedGpu] = []
    for unit in _cuda_devices(machine):
        if visible_uuids is not None and not _is_visible(unit, visible_uuids):
            reason = "hidden by CUDA_VISIBLE_DEVICES"
        else:
            reason = _why_refused(unit, requirements, refusal_by_gpu, reserved_by)
        if reason:
            refused.append(
                RefusedGpu(uuid=unit.uuid, index=unit.device.index, mig_instance=unit.mig_instance, reason=reason)
            )
        else:
            suitable.append(unit)
    suitable.sort(key=lambda unit: unit.choice_rank)
    are_enough = len(suitable) >= requirements.count
    chosen = _choose_units(suitable, requirements.count, machine.topology) if are_enough else []
    return Pick(
        taken_at=machine.taken_at,
        wanted=requirements.count,
        chosen=tuple(map(_picked_gpu, chosen)),
        connection=_slowest_connection([unit.device for unit in chosen], machine.topology),
        spare=len(suitable) - (requirements.count if are_enough else 0),
        refused=tuple(refused),
    )


def idle_devices(
    machine: Snapshot, reserved_by: Mapping[str, str], findings: Sequence[Finding] = ()
) -> Iterator[tuple[Device, MigInstance | None, bool]]:
    """Every GPU or MIG instance, and whether ``pick --idle`` would choose it; arguments as of :func:`pick_gpus`."""
    faults = _faults_by_gpu(findings)
    requirements = Requirements(idle=True)
    for unit in _cuda_devices(machine):
        # Asked of every sample: why one in use is refused needs no words.
        yield (
            unit.device,
            unit.instance,
            not unit.compute_processes and not _why_refused(unit, requirements, faults, reserved_by),
        )


def free_or_used_devices(view: View, snapshot: Snapshot) -> list[tuple[Device, MigInstance | None, bool]]:
    """As :func:`idle_devices`; what is reserved, or used by a holder that the list of hosts knows, is not free."""
    reserved = {found.uuid: found.holder for found in snapshot.reservations if found.counts}
    found = idle_devices(snapshot, reserved, view.findings)
    return [(device, instance, idle and device.uuid not in view.owners) for device, instance, idle in found]


def is_silent(view: View) -> bool:
    """Whether the driver or the collector gives no samples: what was free before may be taken."""
    errors = (f for f in view.errors_and_warnings if f.severity == "error" and f.device_uuid is None)
    return any(finding.id in _CAUSES_OF_SILENCE for finding in errors)


def unused_gpus(view: View) -> frozenset[str]:
    """UUIDs of the GPUs that nobody uses, in no MIG instance either; none where that is not known now."""
    if view.snapshot is None or view.waiting or view.stale or is_silent(view):
        return frozenset()
    units = free_or_used_devices(view, view.snapshot)
    return frozenset(device.uuid for device, _, _ in units) - {device.uuid for device, _, idle in units if not idle}


def _faults_by_gpu(findings: Sequence[Finding]) -> dict[str | None, str]:
    return {finding.device_uuid: finding.title for finding in findings if finding.rules_out_work}


def why_impossible(machine: Snapshot, requirements: Requirements) -> str:
    """Why no waiting helps; empty if it may."""
    units = list(_cuda_devices(machine))
    usable = [unit for unit in units if unit.instance is None] if requirements.count > 1 else units
    if requirements.count > len(usable):
        without_mig = " without MIG" if len(usable) < len(units) else ""
        gpus = f"{count_text(len(usable), 'GPU')}{without_mig}"
        return f"this machine has {gpus}, not {requirements.count}"
    if requirements.free_bytes is None or any(unit.bytes("total") is None for unit in usable):
        return ""
    totals_descending = sorted((unit.bytes("total") or 0.0 for unit in usable), reverse=True)
    if totals_descending[requirements.count - 1] >= requirements.free_bytes:
        return ""
    which_gpus = "no GPU here has" if requirements.count == 1 else f"fewer than {requirements.count} GPUs here have"
    return f"{which_gpus} {size(requirements.free_bytes)}; the largest has {size(totals_descending[0])}"


def refusal_reasons(picked: Pick) -> str:
    """Why GPUs were refused: ``GPU 0: 3.1 of 24.0 GiB free, held by alice's train.py (4711)``; empty without any."""
    # What a user can change comes first.
    changeable_first = sorted(picked.refused, key=lambda refused: refused.reason.startswith("hidden by"))
    texts = [
        f"GPU {refused.index}{f' MIG {refused.mig_instance}' if refused.mig_instance else ''}: {refused.reason}"
        for refused in changeable_first[:_MAX_GPUS_SHOWN]
    ]
    omitted = len(changeable_first) - _MAX_GPUS_SHOWN
    return "; ".join(texts) + (f"; and {omitted} more" if omitted > 0 else "")


def _why_refused(
    unit: _CudaDevice,
    requirements: Requirements,
    refusal_by_gpu: Mapping[str | None, str],
    reserved_by: Mapping[str, str],
) -> str:
    """Why a GPU is not chosen; empty if it may be."""
    owner = reserved_by.get(unit.uuid or "")
    fault = refusal_by_gpu.get(unit.device.uuid, "").removeprefix(f"GPU {unit.device.index}").lstrip(": ")
    reason = fault or _why_unfit(unit, requirements)
    return reason or (f"reserved by {owner}" if owner else "")


def _choose_units(suitable: Sequence[_CudaDevice], count: int, topology: Topology | None) -> list[_CudaDevice]:
    """``count`` of those that fit, which are in the order of preference.

    The least loaded ones; where more than needed are loaded alike, those that are connected best with the others.
    """
    max_load = suitable[count - 1].load_rank
    certain = [unit for unit in suitable if unit.load_rank < max_load]
    equally_loaded = [unit for unit in suitable if unit.load_rank == max_load]
    if count == 1 or len(certain) + len(equally_loaded) == count or topology is None:
        return list(suitable[:count])
    best_places = best_connected(
        [unit.device.uuid for unit in equally_loaded],
        count - len(certain),
        topology,
        [unit.device.uuid for unit in certain],
    )
    return [*certain, *(equally_loaded[place] for place in best_places)]


def _slowest_connection(devices: Sequence[Device], topology: Topology | None) -> str | None:
    """The slowest connection between two devices; None for one, and if one of them is not known."""
    if topology is None or len(devices) < 2:
        return None
    paths = [topology.path(first.uuid, second.uuid) for first, second in combinations(devices, 2)]
    return min(paths, key=connection_rank) if all(paths) else None


def _visible_uuids(devices: Sequence[Device], environment: Mapping[str, str]) -> frozenset[str] | None:
    """UUIDs, maybe abbreviated, that CUDA_VISIBLE_DEVICES leaves; None: all."""
    value = environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return None
    visible = read_visible(value, devices)
    if visible.hides_all:
        raise UsageError(f"CUDA_VISIBLE_DEVICES={value} hides all GPUs", hint="unset it")
    has_indices = any(entry.isdigit() for entry in visible.entries)
    if (
        has_indices
        and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        and len({device.name for device in devices}) > 1
    ):
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={value} counts the GPUs fastest first, which differs from nvidia-smi's order",
            hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list UUIDs",
        )
    return frozenset(
        entry if device is None else device.uuid for entry, device in zip(visible.entries, visible.devices, strict=True)
    )


def _is_visible(unit: _CudaDevice, allowed: frozenset[str]) -> bool:
    if unit.device.uuid in allowed:
        return True
    return unit.instance is not None and unit.uuid is not None and unit.uuid.startswith(tuple(allowed))


def _cuda_devices(machine: Snapshot) -> Iterator[_CudaDevice]:
    compute = (process for process in machine.processes if process.type != "G")
    processes_by_gpu = group_by(compute, lambda process: process.device_uuid)
    for device in machine.devices:
        processes = processes_by_gpu.get(device.uuid, [])
        instances = device.mig_instances if device.has_mig else ()
        for instance in instances:
            own = tuple(process for process in processes if process.mig_instance == instance.id)
            yield _CudaDevice(device, instance, own)
        if not instances:
            yield _CudaDevice(device, None, tuple(processes))


def _why_unfit(unit: _CudaDevice, requirements: Requirements) -> str:
    """Why a GPU does not meet the requirements; empty if it does."""
    device = unit.device
    if device.state not in ("ok", "asleep"):
        return device.state_detail or device.state
    if unit.instance is None and device.has_mig:
        return "MIG is on, but it has no instances"
    if unit.uuid is None:
        return "the driver does not report the UUID of this MIG instance"
    if unit.instance is not None and requirements.count > 1:
        return "CUDA gives a program only one MIG instance"
    compute_mode = device.readings.get("mode.compute")
    if compute_mode == "prohibited":
        return "its compute mode prohibits programs"
    if unit.compute_processes and compute_mode in ("exclusive-process", "exclusive-thread"):
        return f"its compute mode is exclusive, and {_tenant_names(unit.compute_processes)} is on it"
    return _why_too_full(unit, requirements) or (_why_in_use(unit) if requirements.idle else "")


def _why_too_full(unit: _CudaDevice, requirements: Requirements) -> str:
    if requirements.free_bytes is None:
        return ""
    free, total = unit.bytes("free"), unit.bytes("total")
    if free is None:
        return "its free memory could not be read"
    if free >= requirements.free_bytes:
        return ""
    if total is not None and total < requirements.free_bytes:
        return f"has only {size(total)}"
    free_text = f"{size(free)} of {size(total)} free"
    return f"{free_text}, held by {_tenant_names(unit.compute_processes)}" if unit.compute_processes else free_text


def _why_in_use(unit: _CudaDevice) -> str:
    """Why it is not idle; what cannot be known counts against it."""
    if unit.compute_processes:
        return f"used by {_tenant_names(unit.compute_processes)}"
    if unit.device.state == "asleep":
        return ""
    # Programs in other containers are not listed, but their memory is seen.
    used_bytes = unit.bytes("used")
    if used_bytes is None:
        return "its used memory could not be read"
    if used_bytes >= MIN_HELD_BYTES and not unit.device.unified_memory:  # there it is that of all programs of the host
        return f"{size(used_bytes)} used by no listed process"
    if unit.instance is not None:
        return ""  # NVML has no utilization of MIG instances
    if unit.utilization_percent is None:
        return "its utilization could not be read"
    return (
        f"{unit.utilization_percent:.0f} % utilization by no listed process"
        if unit.utilization_percent >= MIN_IN_USE_PERCENT
        else ""
    )


def _tenant_names(tenants: Sequence[Process]) -> str:
    """The largest ones, and how many more."""
    largest = sorted(tenants, key=lambda row: -(row.number("gpu_memory_bytes") or 0.0))[:_MAX_PROCESSES_NAMED]
    descriptions = [
        label_in_sentence(row)
        + (f" {memory(held_bytes)}" if (held_bytes := row.number("gpu_memory_bytes")) is not None else "")
        for row in largest
    ]
    return ", ".join(descriptions) + and_more(len(tenants) - _MAX_PROCESSES_NAMED)


def _picked_gpu(unit: _CudaDevice) -> PickedGpu:
    assert unit.uuid is not None  # else refused
    return PickedGpu(
        uuid=unit.uuid,
        index=unit.device.index,
        name=unit.device.name,
        mig_instance=unit.mig_instance,
        memory_free_bytes=None if (free := unit.bytes("free")) is None else int(free),
        processes=len(unit.compute_processes),
    )


def connection_rank(path: str | None) -> int:
    """How fast a connection is, compared with others; ``path`` as :meth:`Topology.path` has it."""
    if path is not None and path.startswith("NV"):
        return len(_CONNECTION_LEVELS) + int(path[2:])
    return _CONNECTION_LEVELS.index(path)


def best_connected(uuids: Sequence[str], count: int, topology: Topology, beside: Sequence[str] = ()) -> list[int]:
    """Places in ``uuids`` of those ``count`` that are connected best, together with all of ``beside``; in their order.

    Of choices that are equal, the first. With very many choices, a good one: what was chosen is extended by one GPU at
    a time, from each GPU as the first.
    """
    all_uuids = [*uuids, *beside]
    ranks = [
        [connection_rank(topology.path(first, second)) if first != second else 0 for second in all_uuids]
        for first in all_uuids
    ]
    beside_places = range(len(uuids), len(all_uuids))

    def quality(chosen: Iterable[int]) -> list[int]:
        """The connections between all, slowest first: the larger, the better."""
        return sorted(ranks[first][second] for first, second in combinations((*chosen, *beside_places), 2))

    if comb(len(uuids), count) <= _MAX_COMBINATIONS_TRIED:
        return list(max(combinations(range(len(uuids)), count), key=quality))
    best: list[int] = []
    for first in range(len(uuids)):
        chosen = [first]
        while len(chosen) < count:
            remaining = (place for place in range(len(uuids)) if place not in chosen)
            chosen.append(max(remaining, key=lambda place: quality([*chosen, place])))
        if not best or quality(chosen) > quality(best):
            best = chosen
    return sorted(best)
