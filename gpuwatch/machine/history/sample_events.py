"""Events without a duration, found by comparing each sample with the one before: of processes and of devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.snapshot import BAD_STATES, AccountedProcess, Device, Process, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.gone_gpus import forget_gone
from gpuwatch.machine.history.machine_event import MachineEvent, device_event, process_event
from gpuwatch.machine.history.process_usage import ObservedProcess, UnsampledProcesses
from gpuwatch.machine.history.sample_gaps import unobserved_limit

_Key = tuple[str | None, int, float | None]
"""Device, pid and start time of a process."""
_Identity = tuple[int, float | None]
"""Pid and start time of a process."""
_MAX_INTERVALS = 8


class _ProcessOnDevice(ObservedProcess, kw_only=True):
    row: Process
    since_before: bool
    """Whether it was already there in the first sample, so that it may have begun before."""


class ProcessEvents:
    """Tracks processes by device. A device that does not answer keeps its processes until it does.

    A process on several devices has one event, though it opens and closes them one after another. So the event of a
    start waits while the process sees more devices than it uses, and that of an exit while it still uses others. Both
    wait only until a sample in which it opened or closed no further device.
    """

    def __init__(self) -> None:
        self._on_devices: dict[str, dict[_Key, _ProcessOnDevice]] = {}
        self._last_rows: tuple[Process, ...] | None = None
        self._last_read: list[str] = []
        """UUIDs of the devices whose process lists could be read in the last sample."""
        self._starting: dict[_Identity, list[Process]] = {}
        """Rows of processes whose start has not been reported yet."""
        self._leaving: dict[_Identity, list[_ProcessOnDevice]] = {}
        """Processes that have left some of their devices, and may be about to exit."""
        self._unsampled = UnsampledProcesses()
        self._at: float | None = None
        self._intervals: deque[float] = deque(maxlen=_MAX_INTERVALS)
        """Seconds between the last samples."""
        self._peaks: dict[_Identity, float] = {}
        """The most memory that a process held on all its devices together, in bytes."""

    @property
    def waiting(self) -> bool:
        """Whether the next sample brings an event even if nothing changes."""
        return bool(self._starting or self._leaving)

    def observe(self, snapshot: Snapshot, at: float) -> tuple[list[MachineEvent], dict[str, float]]:
        """The events, and the memory of processes that have exited, in bytes by device UUID."""
        read = [device.uuid for device in snapshot.devices if device.lists_processes]
        max_gap_seconds = self._note_time(at)
        unsampled = _unsampled_event(self._unsampled.observe(snapshot), at)
        if snapshot.processes is self._last_rows and read == self._last_read:
            for uuid in read:
                for item in self._on_devices[uuid].values():
                    item.observe(item.row, at, max_gap_seconds)
            return unsampled + (self._events({}, {}, snapshot, at) if self.waiting else []), {}
        self._last_rows, self._last_read = snapshot.processes, read
        gone: dict[_Identity, list[_ProcessOnDevice]] = {}
        added: dict[_Identity, list[Process]] = {}
        freed: dict[str, float] = {}
        rows = group_by(snapshot.processes, lambda row: row.device_uuid)
        for uuid in read:
            now = {row.key: row for row in rows.get(uuid, ())}
            known_here = self._on_devices.get(uuid)
            now_here = self._on_devices[uuid] = {}
            for key, entry in (known_here or {}).items():
                if key not in now:
                    freed[uuid] = freed.get(uuid, 0.0) + (entry.row.number("gpu_memory_bytes") or 0.0)
                    gone.setdefault(_identity(entry.row), []).append(entry)
            for key, row in now.items():
                present = known_here.get(key) if known_here is not None else None
                if present is None:
                    present = _ProcessOnDevice(row=row, last=at, since_before=known_here is None)
                    if known_here is not None:
                        added.setdefault(_identity(row), []).append(row)
                present.row = row
                present.observe(row, at, max_gap_seconds)
                now_here[key] = present
        forget_gone({device.uuid for device in snapshot.devices}, self._on_devices)
        return unsampled + self._events(gone, added, snapshot, at), freed

    def _note_time(self, at: float) -> float:
        """Notes the time of a sample; returns the most seconds before it that are no gap."""
        shortest = min(self._intervals, default=0.0)
        if self._at is not None and at > self._at:
            self._intervals.append(at - self._at)
        self._at = at
        return unobserved_limit(shortest)

    def _events(
        self,
        gone: dict[_Identity, list[_ProcessOnDevice]],
        added: dict[_Identity, list[Process]],
        snapshot: Snapshot,
        at: float,
    ) -> list[MachineEvent]:
        """The events, in the order: exits, then starts."""
        peaks, used = self._peaks, self._update_peaks()
        found: list[MachineEvent] = []
        for program, entries in gone.items():
            if program in self._starting:
                found.append(self._start_event(program, at))
            self._leaving.setdefault(program, []).extend(entries)
        alive = {_identity(row) for row in (*snapshot.processes, *snapshot.bystanders)} if self._leaving else set()
        for program in list(self._leaving):
            if program not in gone or not used.get(program):
                leaving = self._leaving.pop(program)
                found.append(_end_event(leaving, at, snapshot, peaks.get(program), lives=program in alive))
        for program, rows in added.items():
            self._starting.setdefault(program, []).extend(rows)
        for program in list(self._starting):
            if program not in added or len(self._starting[program][0].device_map) <= used.get(program, 0):
                found.append(self._start_event(program, at))
        return found

    def _start_event(self, program: _Identity, at: float) -> MachineEvent:
        rows = self._starting.pop(program)
        where = gpu_list_text(row.device_index for row in rows if row.device_index is not None)
        return process_event(rows, at, "process.started", f"started using {where}{_why_unnamed(rows[0])}")

    def _update_peaks(self) -> dict[_Identity, int]:
        """Updates the peaks; returns the number of devices that each process uses."""
        used: dict[_Identity, int] = {}
        held_bytes: dict[_Identity, float] = {}
        for entries in self._on_devices.values():
            for entry in entries.values():
                program = _identity(entry.row)
                used[program] = used.get(program, 0) + 1
                held_bytes[program] = held_bytes.get(program, 0.0) + (entry.row.number("gpu_memory_bytes") or 0.0)
        self._peaks = {program: max(held_bytes[program], self._peaks.get(program, 0.0)) for program in held_bytes}
        return used


def _identity(row: Process) -> _Identity:
    return (row.pid, row.create_time)


def _end_event(
    entries: list[_ProcessOnDevice], at: float, snapshot: Snapshot, peak: float | None, *, lives: bool
) -> MachineEvent:
    """The end of a process, or of its use of some devices if it ``lives``: what was observed of it there."""
    rows = [entry.row for entry in entries]
    row = rows[0]
    where = gpu_list_text(row.device_index for row in rows if row.device_index is not None)
    ran = row.run_seconds(max(entry.last for entry in entries))
    what = f"stopped using {where}" if lives else f"exited on {where}"
    after = f" after {hours_minutes(ran)}" if ran is not None else ""
    observed = _observed_parts(entries, None if lives else peak)
    accounted = [] if lives else _accounting_parts(rows, snapshot)
    parts = ", ".join((what + after, *observed, *accounted))
    return process_event(rows, at, "process.exited", f"{parts}{_why_unnamed(row)}")


def _accounting_parts(rows: list[Process], snapshot: Snapshot) -> list[str]:
    """The driver's accounting of the whole life of a process on its devices."""
    found = []
    for row in rows:
        device = snapshot.device(row.device_uuid)
        accounted = device.accounted if device is not None else ()
        found += [process for process in accounted if process.may_be(row.pid, row.create_time)][-1:]
    known_here = [process.gpu_percent for process in found if process.gpu_percent is not None]
    if len(found) < len(rows) or not known_here:
        return []
    return [f"according to the driver's accounting, GPU avg {sum(known_here) / len(known_here):.0f} % over its life"]


def _unsampled_event(found: list[tuple[Device, AccountedProcess]], at: float) -> list[MachineEvent]:
    """An event for the processes of each device that were in no sample."""
    events = []
    for entries in group_by(found, lambda entry: entry[0].uuid).values():
        device, first = entries[0]
        who = f"process {first.pid}" if len(entries) == 1 else f"{len(entries)} processes"
        seconds = sum(process.used_seconds for _, process in entries)
        peak = max((process.peak_bytes or 0 for _, process in entries), default=0)
        most = f", peak {memory(peak)}" if peak else ""
        text = f": {who} used it for {seconds:.1f} s between samples, according to the driver's accounting{most}"
        events.append(device_event(device, at, "process.exited", text, "info"))
    return events


def _observed_parts(entries: list[_ProcessOnDevice], peak: float | None) -> list[str]:
    """How long it held its GPUs, SM utilization and memory. ``peak``: bytes on all its devices together, if known."""
    parts = []
    several = len(entries) > 1
    freed = sum(entry.row.number("gpu_memory_bytes") or 0.0 for entry in entries)
    if freed:
        parts.append(f"{memory(freed)} freed")
    peak = peak if several else entries[0].memory_peak_bytes
    if peak:
        parts.append(f"peak {memory(peak)}{' in total' if several else ''}")
    held_seconds = sum(entry.held_seconds for entry in entries)
    if held_seconds > 0:
        since = " since gpuwatch started" if any(entry.since_before for entry in entries) else ""
        longest = max(entry.held_seconds for entry in entries)
        together = f" ({hours_minutes(held_seconds)} of GPU time)" if several else ""
        parts.append(f"held {'them' if several else 'it'} for {hours_minutes(longest)}{together}{since}")
    sampled_seconds = sum(entry.sm_seconds for entry in entries)
    peaks = [entry.sm_percent_max for entry in entries if entry.sm_percent_max is not None]
    if sampled_seconds > 0 and peaks:
        part = f" in {hours_minutes(sampled_seconds)} with samples" if sampled_seconds < held_seconds / 2 else ""
        mean = sum(entry.sm_percent_seconds for entry in entries) / sampled_seconds
        parts.append(f"SM avg {mean:.0f} % max {max(peaks):.0f} %{part}")
    return parts


def _why_unnamed(row: Process) -> str:
    """Why its name is unknown; empty if it is known."""
    if row.command or row.name:
        return ""
    return f" ({printable(row.note)})" if row.note else " (only its pid can be read)"


_MIN_FREED_SHARE = 0.05
_MIN_FREED_BYTES = 2**30
_FREED_EVENT_GAP_SECONDS = 60.0
"""Minimum seconds between two such events: some programs allocate and free all the time."""


class DeviceEvents:
    """Compares each device with the previous sample."""

    def __init__(self) -> None:
        self._devices: dict[str, Device] = {}
        self._used_bytes: dict[str, float] = {}
        """Used memory in the previous sample, by UUID."""
        self._freed_at: dict[str, float] = {}
        """Time of the last event about freed memory, by UUID."""
        self._xid_at: dict[str, float] = {}
        """Time of the last Xid that had an event, by UUID."""
        self._without_xids: dict[str, None] = {}

    def observe(self, snapshot: Snapshot, at: float, freed: Mapping[str, float]) -> list[MachineEvent]:
        """The events of this sample; ``freed``: memory of processes that have exited, in bytes by UUID."""
        found: list[MachineEvent] = []
        first = not self._devices
        places = [known for known in self._devices.values() if known.is_placeholder]
        for device in snapshot.devices:
            before = self._devices.get(device.uuid)
            if before is device and not freed:
                continue
            self._devices[device.uuid] = device
            if before is None and not first and not any(map(device.identifies, places)):
                found.append(device_event(device, at, "device.new", "appeared", "good"))
            elif before is not None and device.state not in BAD_STATES:
                found += _mig_events(before, device, at)
            found += self._freed_memory_events(device, at, freed.get(device.uuid, 0.0))
            found += self._xid_events(device, at)
        uuids = {device.uuid for device in snapshot.devices}
        forget_gone(uuids, self._devices, self._used_bytes, self._freed_at, self._xid_at, self._without_xids)
        return found

    def _freed_memory_events(self, device: Device, at: float, freed: float) -> list[MachineEvent]:
        used, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        if used is None or not total or device.state in BAD_STATES:
            self._used_bytes.pop(device.uuid, None)
            return []
        freed_by_running, self._used_bytes[device.uuid] = self._used_bytes.get(device.uuid, used) - used - freed, used
        if freed_by_running < max(_MIN_FREED_BYTES, _MIN_FREED_SHARE * total):
            return []
        if at - self._freed_at.get(device.uuid, float("-inf")) < _FREED_EVENT_GAP_SECONDS:
            return []
        self._freed_at[device.uuid] = at
        text = f"memory: {size(freed_by_running)} freed by running programs, {size(used)} of {size(total)} used"
        return [device_event(device, at, "memory.freed", text, "info")]

    def _xid_events(self, device: Device, at: float) -> list[MachineEvent]:
        """Xids that are about a program, not the hardware; and once, why Xids are not reported."""
        found = []
        for xid in device.xids:
            if not xid.is_hardware_fault and xid.at > self._xid_at.get(device.uuid, float("-inf")):
                self._xid_at[device.uuid] = xid.at
                found.append(device_event(device, at, "program.xid", f": driver reported {xid.text}", "warning"))
        why_missing = device.xids_missing
        if why_missing is None:
            self._without_xids.pop(device.uuid, None)
        elif why_missing.reason != "device_lost" and device.uuid not in self._without_xids:
            self._without_xids[device.uuid] = None
            why = printable(why_missing.detail or why_missing.reason)
            text = f"reports no Xids; its errors are only in dmesg: {why}"
            found.append(device_event(device, at, "device.no-xids", text, "info"))
        return found


def _mig_events(before: Device, now: Device, at: float) -> list[MachineEvent]:
    """An event if MIG was switched or its instances changed. A failed reading is not a change."""
    modes = before.get("mig.mode"), now.get("mig.mode")
    old_ids, new_ids = ({instance.id for instance in device.mig_instances} for device in (before, now))
    if old_ids == new_ids or not all(isinstance(mode, str) for mode in modes):
        return []
    profiles = ", ".join(printable(instance.profile or instance.id) for instance in now.mig_instances)
    text = f"MIG layout changed: {profiles or f'no instances, {len(old_ids)} before'}"
    return [device_event(now, at, "mig.changed", text, "info")]
