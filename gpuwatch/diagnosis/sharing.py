"""Who held how much of a GPU while a run worked there, and what that left: one arithmetic for every cause of memory.

Three moments matter. Before the start somebody looked; when the framework made its allocator it granted itself
nearly all that was free then; and while the work went on the driver gave more, or refused. What others held may
differ between them: a process can come, and leave, in between.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.model.run import DeviceMemory, Oom, Run, Worker
from gpuwatch.model.snapshot import Device

_TRIFLE = 1 << 30
_TRIFLING_SHARE = 0.05
"""Memory of others that no failure is blamed on: below this share of the device, and below a GiB."""
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Share:
    """What others held of one GPU, in bytes; None where nobody looked."""

    total: int | None = None
    before: int | None = None
    """At the look before the start."""
    start: int | None = None
    """When the work took its first memory there."""
    peak: int | None = None
    """At most, while it worked."""
    least_free: int | None = None
    """The least that was free on the device in any sample."""
    overhead: int = 0
    """What the driver keeps, and the work's own CUDA context where its size is known."""

    @property
    def most(self) -> int | None:
        """At the start or while it worked; what left before that stood in nobody's way."""
        known = [amount for amount in (self.start, self.peak) if amount is not None]
        return max(known) if known else self.before


def trifling(amount: int, total: int | None) -> bool:
    """Whether so much of a device of ``total`` bytes explains nothing."""
    return amount <= (min(_TRIFLE, _TRIFLING_SHARE * total) if total else _TRIFLE)


def share(device: Device | None, entry: DeviceMemory | None, run: Run | None = None) -> Share:
    """From the look before the start (``device``) and what was seen of it during the run (``entry``).

    NVML lists no process of another container: what was in use before the start and was of no listed process is
    taken to stay.
    """
    total = _number(device, "memory.total_bytes")
    before = _number(device, "memory.used_bytes")
    if entry is None:
        if run is not None:
            total = total if total is not None else run.memory.device_total_bytes
            before = before if before is not None else run.memory.nvml_before_bytes
        return Share(total=total, before=before)
    total = total if total is not None else entry.total_bytes
    listed = entry.others_before_bytes
    before = _first(before, entry.before_bytes, listed)
    hidden = max(before - (listed or 0), 0) if before is not None else 0
    start = None if entry.others_start_bytes is None else entry.others_start_bytes + hidden
    peak = None if entry.others_peak_bytes is None else entry.others_peak_bytes + hidden
    return Share(
        total=total,
        before=before,
        start=start,
        peak=peak,
        least_free=entry.least_free_bytes,
        overhead=(entry.driver_reserved_bytes or 0) + (entry.context_bytes or 0),
    )


def entry_of(run: Run | None, device: Device | None) -> DeviceMemory | None:
    """What was seen of this GPU during the run; of the only one, where it is not known which it was."""
    entries = run.memory.devices if run is not None else ()
    if device is None:
        return entries[0] if len(entries) == 1 else None
    return next((entry for entry in entries if entry.uuid == device.uuid), None)


def beside(evidence: Evidence, oom: Oom | None = None) -> list[tuple[Worker, int, str]]:
    """Processes of this very run that held memory while another of their round ran out of it.

    Each with what it held, in bytes, and who says so: NVML, or the limit of its allocator. Of one that was killed, or
    ended early, only NVML can say that it had got so far.
    """
    run = evidence.run
    if run is None:
        return []
    failed = [worker for worker in run.workers if worker.verdict == "oom"]
    if oom is not None and oom.limit_bytes is not None:
        same = [w for w in failed if w.granted_bytes is not None and abs(w.granted_bytes - oom.limit_bytes) <= _MIB]
        failed = same or failed
    rounds = {worker.setting for worker in failed}
    device = evidence.device_of(oom.device) if oom is not None else None
    found = []
    for worker in run.workers:
        if worker.verdict == "oom" or (failed and worker.setting not in rounds):
            continue
        held, source = _held(run, worker, device)
        if held and (worker.verdict == "ok" or source == "NVML"):
            found.append((worker, held, source))
    return found


def _held(run: Run, worker: Worker, device: Device | None) -> tuple[int | None, str]:
    """On this GPU, where NVML told of the process at all."""
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


def _first(*amounts: int | None) -> int | None:
    return next((amount for amount in amounts if amount is not None), None)
