"""Who holds a GPU's memory, and what to do about it on this machine: which process to end, which other GPU has room."""

from __future__ import annotations

import msgspec

from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.run_memory import DeviceMemory
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.core.safe_text import printable, shorten

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
