"""Which GPUs are free for another program: :func:`pick_gpus` chooses from one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.sentences import and_more
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.pick_result import Pick, PickedGpu, RefusedGpu
from gpuwatch.core.model.snapshot import Device, MigInstance, Process, Snapshot, Topology
from gpuwatch.core.model.visible_devices import has_mig, read_visible
from gpuwatch.explain.diagnosis.idle_and_busy_limits import MIN_HELD_BYTES, MIN_IN_USE_PERCENT
from gpuwatch.explain.diagnosis.rules.finding_texts import process_name

_MAX_PROCESSES_NAMED = 2
"""Processes that a reason names."""
_MAX_GPUS_SHOWN = 4
"""GPUs whose reasons one line gives."""


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
        return f"{self.count} GPU{'s' if self.count != 1 else ''}" + (f" ({', '.join(rest)})" if rest else "")


@dataclass(frozen=True, slots=True)
class _CudaUnit:
    """What CUDA_VISIBLE_DEVICES can name: a GPU without MIG, or a MIG instance."""

    device: Device
    instance: MigInstance | None
    tenants: tuple[Process, ...]
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
    def busy(self) -> float | None:
        """Utilization in percent; None if unknown, as for a MIG instance."""
        return self.device.number("utilization.gpu_percent") if self.instance is None else None

    @property
    def load(self) -> tuple[int, bool]:
        """The lowest is the best: the number of processes, and whether it is busy."""
        return len(self.tenants), (self.busy or 0.0) >= MIN_IN_USE_PERCENT

    @property
    def preference(self) -> tuple[tuple[int, bool], float, int]:
        """Sort key for choosing; lower is better."""
        return self.load, -(self.bytes("free") or 0.0), self.device.index


def pick_gpus(
    machine: Snapshot,
    requirements: Requirements,
    environment: Mapping[str, str],
    reserved: Mapping[str, str],
    findings: Sequence[Finding] = (),
    used: Mapping[str, str] | None = None,
) -> Pick:
    """Chooses GPUs.

    ``environment``: its CUDA_VISIBLE_DEVICES limits the choice, as in a Slurm job. ``reserved``: who reserved a GPU, in
    words, by UUID. ``findings``: of the snapshot; a GPU with one of severity error is refused. ``used``: why GPUs are
    refused for what is known of them besides the snapshot, by the UUID of the whole GPU.

    Raises:
        UsageError: CUDA_VISIBLE_DEVICES cannot be read as GPUs of this machine.
    """
    allowed = _visible_uuids(machine.devices, environment)
    errors: dict[str | None, str] = {
        finding.device_uuid: finding.title for finding in findings if finding.severity == "error"
    }
    errors.update(used or {})
    fit: list[_CudaUnit] = []
    refused: list[RefusedGpu] = []
    for unit in _units(machine):
        if allowed is not None and not _is_visible(unit, allowed):
            reason = "hidden by CUDA_VISIBLE_DEVICES"
        else:
            reason = _why_not(unit, requirements, errors, reserved)
        if reason:
            refused.append(
                RefusedGpu(uuid=unit.uuid, index=unit.device.index, mig_instance=unit.mig_instance, reason=reason)
            )
        else:
            fit.append(unit)
    fit.sort(key=lambda unit: unit.preference)
    enough = len(fit) >= requirements.count
    taken = _choose_units(fit, requirements.count, machine.topology) if enough else []
    return Pick(
        taken_at=machine.taken_at,
        wanted=requirements.count,
        chosen=tuple(map(_picked_gpu, taken)),
        connection=_slowest_connection([unit.device for unit in taken], machine.topology),
        spare=len(fit) - (requirements.count if enough else 0),
        refused=tuple(refused),
    )


def idle_units(
    machine: Snapshot, reserved: Mapping[str, str], findings: Sequence[Finding] = ()
) -> Iterator[tuple[Device, MigInstance | None, bool]]:
    """Every GPU or MIG instance, and whether ``pick --idle`` would choose it; arguments as of :func:`pick_gpus`."""
    errors = {finding.device_uuid: finding.title for finding in findings if finding.severity == "error"}
    requirements = Requirements(idle=True)
    for unit in _units(machine):
        # Asked of every sample: why one in use is refused needs no words.
        yield unit.device, unit.instance, not unit.tenants and not _why_not(unit, requirements, errors, reserved)


def why_impossible(machine: Snapshot, requirements: Requirements) -> str:
    """Why no waiting helps; empty if it may."""
    units = list(_units(machine))
    usable = [unit for unit in units if unit.instance is None] if requirements.count > 1 else units
    if requirements.count > len(usable):
        kind = " without MIG" if len(usable) < len(units) else ""
        return f"this machine has {len(usable)} GPU{'s' if len(usable) != 1 else ''}{kind}, not {requirements.count}"
    if requirements.free_bytes is None or any(unit.bytes("total") is None for unit in usable):
        return ""
    totals = sorted((unit.bytes("total") or 0.0 for unit in usable), reverse=True)
    if totals[requirements.count - 1] >= requirements.free_bytes:
        return ""
    have = "no GPU here has" if requirements.count == 1 else f"fewer than {requirements.count} GPUs here have"
    return f"{have} {size(requirements.free_bytes)}; the largest has {size(totals[0])}"


def refusal_reasons(picked: Pick) -> str:
    """Why GPUs were refused: ``GPU 0: 3.1 of 24.0 GiB free, held by alice's train.py (4711)``; empty without any."""
    # What a user can change comes first.
    ordered = sorted(picked.refused, key=lambda refused: refused.reason.startswith("hidden by"))
    shown = [
        f"GPU {refused.index}{f' MIG {refused.mig_instance}' if refused.mig_instance else ''}: {refused.reason}"
        for refused in ordered[:_MAX_GPUS_SHOWN]
    ]
    rest = len(ordered) - _MAX_GPUS_SHOWN
    return "; ".join(shown) + (f"; and {rest} more" if rest > 0 else "")


def _why_not(
    unit: _CudaUnit, requirements: Requirements, errors: Mapping[str | None, str], reserved: Mapping[str, str]
) -> str:
    """Why a GPU is not chosen; empty if it may be."""
    holder = reserved.get(unit.uuid or "")
    reason = errors.get(unit.device.uuid) or _refusal(unit, requirements)
    return reason or (f"reserved by {holder}" if holder else "")


def _choose_units(fit: Sequence[_CudaUnit], count: int, topology: Topology | None) -> list[_CudaUnit]:
    """``count`` of those that fit, which are in the order of preference.

    The least loaded ones; where more than needed are loaded alike, those that are connected best with the others.
    """
    load = fit[count - 1].load
    sure = [unit for unit in fit if unit.load < load]
    alike = [unit for unit in fit if unit.load == load]
    if count == 1 or len(sure) + len(alike) == count or topology is None:
        return list(fit[:count])
    found = best_connected(
        [unit.device.uuid for unit in alike], count - len(sure), topology, [unit.device.uuid for unit in sure]
    )
    return [*sure, *(alike[place] for place in found)]


def _slowest_connection(devices: Sequence[Device], topology: Topology | None) -> str | None:
    """The slowest connection between two devices; None for one, and if one of them is not known."""
    if topology is None or len(devices) < 2:
        return None
    paths = [topology.path(a.uuid, b.uuid) for a, b in combinations(devices, 2)]
    return min(paths, key=connection_rank) if all(paths) else None


def _visible_uuids(devices: Sequence[Device], environment: Mapping[str, str]) -> frozenset[str] | None:
    """UUIDs, maybe abbreviated, that CUDA_VISIBLE_DEVICES leaves; None: all."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is None:
        return None
    seen = read_visible(listed, devices)
    if seen.hides_all:
        raise UsageError(f"CUDA_VISIBLE_DEVICES={listed} hides all GPUs", hint="unset it")
    numbers = any(entry.isdigit() for entry in seen.entries)
    if (
        numbers
        and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"
        and len({device.name for device in devices}) > 1
    ):
        raise UsageError(
            f"CUDA_VISIBLE_DEVICES={listed} counts the GPUs fastest first, which differs from nvidia-smi's order",
            hint="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or list UUIDs",
        )
    return frozenset(
        entry if device is None else device.uuid for entry, device in zip(seen.entries, seen.devices, strict=True)
    )


def _is_visible(unit: _CudaUnit, allowed: frozenset[str]) -> bool:
    if unit.device.uuid in allowed:
        return True
    return unit.instance is not None and unit.uuid is not None and unit.uuid.startswith(tuple(allowed))


def _units(machine: Snapshot) -> Iterator[_CudaUnit]:
    tenants: dict[str | None, list[Process]] = {}
    for row in machine.processes:
        if row.type != "G":
            tenants.setdefault(row.device_uuid, []).append(row)
    for device in machine.devices:
        rows = tenants.get(device.uuid, [])
        if not has_mig(device):
            yield _CudaUnit(device, None, tuple(rows))
            continue
        for instance in device.mig_instances:
            yield _CudaUnit(device, instance, tuple(row for row in rows if row.mig_instance == instance.id))
        if not device.mig_instances:
            yield _CudaUnit(device, None, tuple(rows))


def _refusal(unit: _CudaUnit, requirements: Requirements) -> str:
    """Why a GPU does not meet the requirements; empty if it does."""
    device = unit.device
    if device.state not in ("ok", "asleep"):
        return device.state_detail or device.state
    if unit.instance is None and has_mig(device):
        return "MIG is on, but it has no instances"
    if unit.uuid is None:
        return "the driver does not report the UUID of this MIG instance"
    if unit.instance is not None and requirements.count > 1:
        return "CUDA gives a program only one MIG instance"
    mode = device.readings.get("mode.compute")
    if mode == "prohibited":
        return "its compute mode prohibits programs"
    if unit.tenants and mode in ("exclusive-process", "exclusive-thread"):
        return f"its compute mode is exclusive, and {_tenant_names(unit.tenants)} is on it"
    return _why_too_full(unit, requirements) or (_why_in_use(unit) if requirements.idle else "")


def _why_too_full(unit: _CudaUnit, requirements: Requirements) -> str:
    if requirements.free_bytes is None:
        return ""
    free, total = unit.bytes("free"), unit.bytes("total")
    if free is None:
        return "its free memory could not be read"
    if free >= requirements.free_bytes:
        return ""
    if total is not None and total < requirements.free_bytes:
        return f"has only {size(total)}"
    of = f"{size(free)} of {size(total)} free"
    return f"{of}, held by {_tenant_names(unit.tenants)}" if unit.tenants else of


def _why_in_use(unit: _CudaUnit) -> str:
    """Why it is not idle; what cannot be known counts against it."""
    if unit.tenants:
        return f"used by {_tenant_names(unit.tenants)}"
    if unit.device.state == "asleep":
        return ""
    # Programs in other containers are not listed, but their memory is seen.
    used = unit.bytes("used")
    if used is None:
        return "its used memory could not be read"
    if used >= MIN_HELD_BYTES and not unit.device.unified_memory:  # there it is that of all programs of the host
        return f"{size(used)} used by no listed process"
    if unit.instance is not None:
        return ""  # NVML has no utilization of MIG instances
    if unit.busy is None:
        return "its utilization could not be read"
    return f"{unit.busy:.0f} % utilization by no listed process" if unit.busy >= MIN_IN_USE_PERCENT else ""


def _tenant_names(tenants: Sequence[Process]) -> str:
    """The largest ones, and how many more."""
    largest = sorted(tenants, key=lambda row: -(row.number("gpu_memory_bytes") or 0.0))[:_MAX_PROCESSES_NAMED]
    shown = [
        process_name(row) + (f" {memory(held)}" if (held := row.number("gpu_memory_bytes")) is not None else "")
        for row in largest
    ]
    return ", ".join(shown) + and_more(len(tenants) - _MAX_PROCESSES_NAMED)


def _picked_gpu(unit: _CudaUnit) -> PickedGpu:
    assert unit.uuid is not None  # else refused
    return PickedGpu(
        uuid=unit.uuid,
        index=unit.device.index,
        name=unit.device.name,
        mig_instance=unit.mig_instance,
        memory_free_bytes=None if (free := unit.bytes("free")) is None else int(free),
        processes=len(unit.tenants),
    )


_LEVELS = (None, "SYS", "NODE", "PHB", "PXB", "PIX", "INT")
"""From the slowest to the fastest; NVLinks are faster, the more the better."""
_MAX_CHOICES_TRIED = 15_000
"""Choices up to which each is looked at: 8 of 16 GPUs are 12,870."""


def connection_rank(path: str | None) -> int:
    """How fast a connection is, compared with others; ``path`` as :meth:`Topology.path` has it."""
    if path is not None and path.startswith("NV"):
        return len(_LEVELS) + int(path[2:])
    return _LEVELS.index(path)


def best_connected(uuids: Sequence[str], count: int, topology: Topology, beside: Sequence[str] = ()) -> list[int]:
    """Places in ``uuids`` of those ``count`` that are connected best, together with all of ``beside``; in their order.

    Of choices that are equal, the first. With very many choices, a good one: what was chosen is extended by one GPU at
    a time, from each GPU as the first.
    """
    everyone = [*uuids, *beside]
    ranks = [[connection_rank(topology.path(a, b)) if a != b else 0 for b in everyone] for a in everyone]
    always = range(len(uuids), len(everyone))

    def quality(chosen: Iterable[int]) -> list[int]:
        """The connections between all, slowest first: the larger, the better."""
        return sorted(ranks[a][b] for a, b in combinations((*chosen, *always), 2))

    if comb(len(uuids), count) <= _MAX_CHOICES_TRIED:
        return list(max(combinations(range(len(uuids)), count), key=quality))
    best: list[int] = []
    for first in range(len(uuids)):
        chosen = [first]
        while len(chosen) < count:
            left = (place for place in range(len(uuids)) if place not in chosen)
            chosen.append(max(left, key=lambda place: quality([*chosen, place])))
        if not best or quality(chosen) > quality(best):
            best = chosen
    return sorted(best)
