"""Who holds a GPU's memory, before and during a run: one calculation for all memory causes; and what to do about it.

Three moments of a run matter: the snapshot before the start; the creation of the framework's allocator, which gets
nearly all memory that is free then; and the time after that, in which the driver grants more or refuses. Other
processes can start and exit in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.run import Oom, Run, RunProcess, Worker
from gpuwatch.core.model.run_memory import DeviceMemory, Holding
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.logs.device_names import device_name

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


GENERAL_ADVICE = "Free the device, or use another GPU if there is one (CUDA_VISIBLE_DEVICES)."
"""Advice if the machine is unknown."""
_MAX_NAMED = 3
_MIN_SUGGESTED_FREE_BYTES = 1 << 30
"""Minimum free bytes of another GPU to suggest it, if the need is unknown."""
_LATER_PROCESS = Process(pid=0, create_time=0.0, user=None, command=None, type="C", device_uuid=None, readings={})
"""Visible, so it has a start, which was not read."""


def holders(snapshot: Snapshot, device: Device | None) -> list[tuple[int, Process]]:
    """The processes on this GPU (None: any) with known memory, in bytes, largest first."""
    rows = [row for row in snapshot.processes if device is None or row.device_uuid == device.uuid]
    held = [(int(row.number("gpu_memory_bytes") or 0), row) for row in rows]
    return sorted(((amount, row) for amount, row in held if amount > 0), key=lambda pair: (-pair[0], pair[1].pid))


def others_during_run(snapshot: Snapshot, entry: DeviceMemory | None, *, at_start_only: bool = False) -> Snapshot:
    """The machine before a run, with this GPU's processes during it: none that left before it came, and newcomers.

    ``entry``: the GPU's samples during the run. ``at_start_only``: only who held memory when the run came there.
    """
    if entry is None:
        return snapshot
    starts = (holding.first_seconds for holding in entry.holders if holding.own and holding.first_seconds is not None)
    run_start = min(starts, default=0.0)
    present = {
        holding.pid: holding
        for holding in entry.holders
        if not holding.own and holding.last_seconds is not None and holding.last_seconds >= run_start
        if not at_start_only or holding.first_seconds is None or holding.first_seconds <= run_start
    }
    absent_pids = {holding.pid for holding in entry.holders} - present.keys()
    rows = [row for row in snapshot.processes if row.device_uuid != entry.uuid or row.pid not in absent_pids]
    for pid in present.keys() - {row.pid for row in rows}:
        held, note = {"gpu_memory_bytes": present[pid].peak_bytes or 0}, "it started after the first check"
        rows.append(msgspec.structs.replace(_LATER_PROCESS, pid=pid, device_uuid=entry.uuid, note=note, readings=held))
    return msgspec.structs.replace(snapshot, processes=tuple(rows))


def holder_text(amount: int, process: Process) -> str:
    """``process 4711 of alice held 20.0 GiB: python train.py``, or that it is not visible."""
    owner = f" of {printable(process.user)}" if process.user else ""
    held = f"process {process.pid}{owner} held {memory(amount)}"
    command = process.command or process.name
    if command:
        return f"{held}: {shorten(mask_text(printable(command)), 80)}"
    where = printable(process.note) or "its command line cannot be read"
    return f"{held}; its user and command are unknown here ({where})"


def holders_headline(snapshot: Snapshot, device: Device | None) -> str:
    """Who held how much of which GPU; empty if NVML lists nobody."""
    found = holders(snapshot, device)
    if not found or device is None:
        return ""
    total = device.number("memory.total_bytes")
    of = f" of GPU {device.index}'s {size(int(total))}" if total else f" of GPU {device.index}"
    if len(found) == 1:
        amount, process = found[0]
        owner = f" ({printable(process.user)})" if process.user else ""
        return f"Another process, pid {process.pid}{owner}, held {memory(amount)}{of}"
    return f"{len(found)} other processes held {memory(sum(amount for amount, _ in found))}{of}"


def free_memory_advice(snapshot: Snapshot | None, device: Device | None, need: int | None = None) -> str:
    """What to do if others hold this GPU; ``need``: bytes that the program needs, if known."""
    if snapshot is None or device is None:
        return GENERAL_ADVICE
    best, why = _other_gpu_advice(snapshot, device, need)
    ending = _end_process_advice(snapshot, device)
    # Another GPU first, because ending a process takes asking its owner.
    return f"{best}. Or {ending}." if best else f"{ending[:1].upper()}{ending[1:]}{why}."


def _end_process_advice(snapshot: Snapshot, device: Device) -> str:
    found = holders(snapshot, device)[:_MAX_NAMED]
    if not found and device.unified_memory:
        return "end host programs that need much memory (ps aux --sort=-rss): the GPU uses the same memory"
    if not found:
        return (
            f"find who holds GPU {device.index}, because NVML lists no process (nvidia-smi on the host; sudo fuser -v"
            f" /dev/nvidia{device.index}), and ask whether it is still needed"
        )
    visible = [process for _, process in found if process.create_time is not None]
    hidden_pids = [process.pid for _, process in found if process.create_time is None]
    parts = []
    if visible:
        owners = dict.fromkeys(printable(process.user) for process in visible if process.user)
        whose = f" of {', '.join(owners)}" if owners else ""
        parts.append(f"end process {', '.join(str(process.pid) for process in visible)}{whose}, or wait until it exits")
    if hidden_pids:
        pids = ", ".join(map(str, hidden_pids))
        parts.append(
            f"look on the host (nvidia-smi there) for process {pids}, which is not visible here: ask its owner"
            " whether it is still needed, or wait until it exits"
        )
    return "; ".join(parts)


def _other_gpu_advice(snapshot: Snapshot, device: Device, need: int | None) -> tuple[str, str]:
    """Advice to use the GPU with most room, if it has enough; else a remark that there is none."""
    others = [entry for entry in snapshot.devices if entry.uuid != device.uuid]
    if not others:
        return "", "; this machine shows no other GPU"
    candidates = [
        (entry.number("memory.free_bytes") or 0, entry) for entry in others if _accepts_programs(snapshot, entry)
    ]
    free, best = max(candidates, key=lambda pair: pair[0], default=(0, device))
    if free < max(need or 0, _MIN_SUGGESTED_FREE_BYTES):
        return "", "; no other GPU here has enough free memory"
    if free <= (device.number("memory.free_bytes") or 0):
        return "", "; no other GPU here has more free memory"
    alike = len({entry.name for entry in snapshot.devices}) == 1
    # If the models differ, CUDA counts the fastest first: a UUID is unambiguous.
    name = str(best.index) if alike else best.uuid
    return f"Use GPU {best.index}, which has {size(int(free))} free: export CUDA_VISIBLE_DEVICES={name}", ""


def _accepts_programs(snapshot: Snapshot, device: Device) -> bool:
    """Whether another program could start there, by its state and compute mode."""
    mode = device.readings.get("mode.compute")
    closed = mode == "prohibited" or (str(mode).startswith("exclusive") and bool(holders(snapshot, device)))
    return device.state == "ok" and not closed
