"""Who held how much of a GPU during a run: one calculation for all memory causes.

Three moments matter: the snapshot before the start; the creation of the framework's allocator, which gets nearly all
memory that is free then; and the time after that, in which the driver grants more or refuses. Other processes can
start and exit in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.model.run import Oom, Run, RunProcess, Worker
from gpuwatch.core.model.run_memory import DeviceMemory, Holding
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.logs.sizes_and_device_names import device_name

_NEGLIGIBLE_BYTES = 1 << 30
_NEGLIGIBLE_SHARE = 0.05
"""Memory of others below this share of the device and below a GiB explains no failure."""
_MIB = 1 << 20
_SAME_LIMIT_SHARE = 0.01
"""Logs round limits: two that differ by less than this share are the same."""


@dataclass(frozen=True, slots=True)
class OthersMemory:
    """Memory that others held on one GPU, in bytes; None if not checked."""

    total: int | None = None
    before: int | None = None
    """Before the start."""
    start: int | None = None
    """When the program first allocated memory there."""
    peak: int | None = None
    """Maximum while it ran."""
    least_free: int | None = None
    """Least free memory of the device in any sample."""
    overhead: int = 0
    """The driver's part, and the program's own CUDA context if its size is known."""

    @property
    def max_from_start(self) -> int | None:
        """Maximum from the start on; what was freed earlier does not matter."""
        known = [amount for amount in (self.start, self.peak) if amount is not None]
        return max(known) if known else self.before


def is_negligible(amount: int, total: int | None) -> bool:
    """Whether ``amount`` bytes of a device of ``total`` bytes are too little to explain a failure."""
    return amount <= (min(_NEGLIGIBLE_BYTES, _NEGLIGIBLE_SHARE * total) if total else _NEGLIGIBLE_BYTES)


def others_memory(device: Device | None, entry: DeviceMemory | None, run: Run | None = None) -> OthersMemory:
    """From the device before the start and its samples during the run (``entry``).

    NVML does not list processes of other containers: memory of no listed process before the start is assumed to stay.
    """
    total = _number(device, "memory.total_bytes")
    before = _number(device, "memory.used_bytes")
    if entry is None:
        if run is not None:
            total = total if total is not None else run.memory.device_total_bytes
            before = before if before is not None else run.memory.nvml_before_bytes
        return OthersMemory(total=total, before=before)
    total = total if total is not None else entry.total_bytes
    listed = entry.others_before_bytes
    before = next((amount for amount in (before, entry.before_bytes, listed) if amount is not None), None)
    unified = device is not None and device.unified_memory  # then it is that of the host's programs, which swap and end
    hidden = max(before - (listed or 0), 0) if before is not None and not unified else 0
    start = None if entry.others_start_bytes is None else entry.others_start_bytes + hidden
    peak = None if entry.others_peak_bytes is None else entry.others_peak_bytes + hidden
    return OthersMemory(
        total=total,
        before=before,
        start=start,
        peak=peak,
        least_free=entry.least_free_bytes,
        overhead=(entry.driver_reserved_bytes or 0) + (entry.context_bytes or 0),
    )


def samples_of(run: Run | None, device: Device | None) -> DeviceMemory | None:
    """The samples of this GPU during the run; if it is unknown, those of the only GPU."""
    entries = run.memory.devices if run is not None else ()
    if device is None:
        return entries[0] if len(entries) == 1 else None
    return next((entry for entry in entries if entry.uuid == device.uuid), None)


class ConcurrentHolder(NamedTuple):
    """A process of the run that held memory beside another."""

    name: str
    """Name of a probe's worker; empty for a process of a user's program."""
    pid: int | None
    held_bytes: int
    source: str
    """NVML, or its allocator's limit."""


def concurrent_holders(evidence: Evidence, oom: Oom) -> list[ConcurrentHolder]:
    """Processes of this run that held memory while another one of the program, or of their round, ran out of it.

    Rounds follow one another, so that only those of one round are counted: of the process that failed, if its
    allocator's limit tells which one it was, else the round that held most. For a process that was killed or ended
    early, only NVML counts.
    """
    run = evidence.run
    if run is None:
        return []
    if not run.workers:
        return _other_processes(run, oom)
    failed = _possibly_failed(run, oom)
    device = evidence.device_of(oom.device)
    rounds: dict[str, list[ConcurrentHolder]] = {worker.setting: [] for worker in failed or run.workers}
    for worker in run.workers:
        if worker.verdict == "oom" or worker.setting not in rounds:
            continue
        held, source = _worker_bytes(run, worker, device)
        if held and (worker.verdict == "ok" or source == "NVML"):
            rounds[worker.setting].append(ConcurrentHolder(worker.name, worker.pid, held, source))
    return max(rounds.values(), key=lambda concurrent: sum(holder.held_bytes for holder in concurrent), default=[])


def _other_processes(run: Run, oom: Oom) -> list[ConcurrentHolder]:
    """Processes of a user's program that NVML saw on a GPU while another of its processes ran out of memory there."""
    failed = [process for process in run.processes if process.ooms]
    full = {uuid for process in failed for uuid in _gpus(process, oom)}
    found = []
    for entry in run.memory.devices:
        if entry.uuid not in full:
            continue
        own = [holder for holder in entry.holders if holder.own and holder.peak_bytes]
        failing = [holder for holder in own if any(holder.pid == process.pid for process in failed)]
        found += [
            ConcurrentHolder("", holder.pid, holder.peak_bytes or 0, "NVML")
            for holder in own
            if holder not in failing and any(held_at_once(holder, other) for other in failing)
        ]
    return found


def _gpus(process: RunProcess, oom: Oom) -> list[str]:
    """UUIDs of the process's GPUs; of that of the failure alone, if it names one."""
    wanted = device_name(oom.device) if oom.device else None
    return [
        mapping.uuid
        for mapping in process.device_map
        if mapping.uuid and wanted in (None, device_name(mapping.framework_device))
    ]


def held_at_once(holding: Holding, other: Holding) -> bool:
    """Whether both held memory at some time."""
    if None in (holding.first_seconds, holding.last_seconds, other.first_seconds, other.last_seconds):
        return False
    return holding.first_seconds <= other.last_seconds and other.first_seconds <= holding.last_seconds  # type: ignore[operator]


def _possibly_failed(run: Run, oom: Oom) -> list[Worker]:
    """The processes that may be the one with this failure: those whose limit is nearest to its limit."""
    failed = [worker for worker in run.workers if worker.verdict == "oom"]
    limit = oom.limit_bytes or 0
    off = [(abs(w.granted_bytes - limit), w) for w in failed if w.granted_bytes is not None]
    nearest = min((distance for distance, _ in off), default=float("inf"))
    if nearest > _SAME_LIMIT_SHARE * limit:
        return failed
    return [worker for distance, worker in off if distance <= nearest + _MIB]


def with_concurrent_holders(amount: int, concurrent: int, total: int | None, own: int) -> int:
    """Bytes of others plus those of the run's processes: no more than the device had beside the program's ``own``.

    The peaks of several processes need not have been at the same time.
    """
    return amount + concurrent if total is None else min(amount + concurrent, max(amount, total - own, 0))


def _worker_bytes(run: Run, worker: Worker, device: Device | None) -> tuple[int | None, str]:
    """Bytes of a worker on this GPU if NVML listed it, else as reported, with their source."""
    seen = [
        (entry.uuid, holding.peak_bytes)
        for entry in run.memory.devices
        for holding in entry.holders
        if holding.pid == worker.pid and holding.peak_bytes is not None
    ]
    if seen:
        return max((amount for uuid, amount in seen if device is None or uuid == device.uuid), default=0), "NVML"
    if worker.nvml_bytes is not None:
        return worker.nvml_bytes, "NVML"
    return worker.granted_bytes, "its allocator's limit"


def _number(device: Device | None, metric: str) -> int | None:
    value = device.number(metric) if device is not None else None
    return None if value is None else int(value)
