"""GPU time of processes and devices: what was held, what was used, by whom; counted per hour, exact to the sample.

Each sample counts the time since the previous one, unless that is a gap. A process held a GPU for this time if it was
on it in both samples. The time of a GPU is divided equally among the processes that held it, so that sums over
processes are hours of cards. Graphics clients (Xorg) hold no GPU here.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

import msgspec
from msgspec.structs import fields, replace

from gpuwatch.core.formatting.command_lines import program_in_command
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.process_activity import MAX_IDLE_PERCENT
from gpuwatch.core.model.reading import max_known
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.machine.history.energy import has_no_counter
from gpuwatch.machine.history.process_usage import UnsampledProcesses
from gpuwatch.machine.history.sample_frames import decoded, decompress_zlib
from gpuwatch.machine.history.sample_gaps import unobserved_limit

HOUR_SECONDS = 3600
"""Seconds of what is counted together; it begins at a multiple of them."""
_MAX_REMEMBERED_ROWS = 256
_MAX_PROCESSES = 4000
"""Processes of one hour that are kept apart."""
_MAX_WINDOW_SECONDS = 120.0
"""Seconds after which an energy counter that has not moved is taken to stand still: every card draws some power."""
_GRAPHICS = "G"

ProcessKey = tuple[int, float | None, str, str | None]
"""Pid, start time, UUID of the device, MIG instance."""
_Seconds = dict[ProcessKey, float]
"""By process."""


def hour_of(at: float) -> int:
    """Start of the hour in which the time before a sample at ``at`` is counted: at 14:00:00 that of 13:00."""
    return (math.ceil(at / HOUR_SECONDS) - 1) * HOUR_SECONDS


class ProcessTime(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A process on a device, or on a MIG instance of it, over some time."""

    pid: int
    create_time: float | None
    device_uuid: str
    mig_instance: str | None = None
    user: str | None = None
    command: str | None = None
    """With secrets masked."""
    name: str | None = None
    framework: str | None = None
    container: str | None = None
    more: int = 0
    """Other short processes of the same user and program that are counted with it (:func:`with_bounded_processes`)."""
    samples: int = 0
    """Samples in which it was seen."""
    process_seconds: float = 0.0
    """Seconds for which it was on the device."""
    gpu_seconds: float = 0.0
    """The same, divided by the number of processes that held the device then."""
    own_seconds: float = 0.0
    """Seconds for which its own SM utilization is known."""
    shared_seconds: float = 0.0
    """Seconds for which only that of the device is known, which was divided."""
    used_seconds: float = 0.0
    """Seconds times SM utilization, over both."""
    sm_percent_max: float | None = None
    memory_peak_bytes: float | None = None
    energy_joules: float = 0.0
    energy_seconds: float = 0.0
    """The part of :attr:`gpu_seconds` for which the device's energy is known."""
    sampled_seconds: float = 0.0
    """The part of these for which it is integrated from power samples."""

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.create_time, self.device_uuid, self.mig_instance)

    def merge(self, other: ProcessTime) -> None:
        _add_numbers(self, other)
        self.sm_percent_max = max_known((self.sm_percent_max, other.sm_percent_max))
        self.memory_peak_bytes = max_known((self.memory_peak_bytes, other.memory_peak_bytes))
        self.copy_facts(other)

    def copy_facts(self, source: ProcessTime | Process) -> None:
        for name in _FACT_FIELDS:
            setattr(self, name, getattr(source, name) or getattr(self, name))


_FACT_FIELDS = ("user", "command", "name", "framework", "container")


class DeviceTime(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A device over some time."""

    uuid: str
    index: int
    name: str
    seconds: float = 0.0
    """Seconds for which its processes were recorded."""
    held_seconds: float = 0.0
    """Seconds for which at least one process held it."""
    idle_seconds: float = 0.0
    """The part of them in which it was idle."""
    unknown_seconds: float = 0.0
    """The part of them in which its utilization is unknown."""
    energy_joules: float = 0.0
    energy_seconds: float = 0.0
    """Seconds for which its energy is known."""
    sampled_seconds: float = 0.0
    """The part of them for which it is integrated from power samples: it has no energy counter."""
    free_joules: float = 0.0
    """The part of its energy while nobody held it."""
    unsampled_processes: int = 0
    """Processes that were in no sample, by the driver's accounting mode."""
    unsampled_seconds: float = 0.0
    """Seconds for which those held it."""

    def merge(self, other: DeviceTime) -> None:
        self.index, self.name = other.index, other.name
        _add_numbers(self, other)


_SUMMED_FIELDS = {
    kind: tuple(field.name for field in fields(kind) if type(field.default) in (int, float))
    for kind in (ProcessTime, DeviceTime)
}
"""Names of the fields that are added up, by class."""


def _add_numbers(to: ProcessTime | DeviceTime, other: ProcessTime | DeviceTime) -> None:
    for name in _SUMMED_FIELDS[type(to)]:
        setattr(to, name, getattr(to, name) + getattr(other, name))


class GpuTime(msgspec.Struct):
    """GPU time counted over some period, by device and process."""

    seconds: float = 0.0
    """Seconds that were recorded."""
    simulated: bool = False
    graphics: int = 0
    """The most graphics clients in a sample, which are not counted."""
    devices: list[DeviceTime] = []
    processes: list[ProcessTime] = []


def pack_gpu_time(time: GpuTime) -> bytes:
    """GPU time as a recording stores it."""
    return zlib.compress(msgspec.msgpack.encode(time), 6)


_decode_gpu_time = msgspec.msgpack.Decoder(GpuTime).decode


def unpack_gpu_time(data: bytes) -> GpuTime:
    """What :func:`pack_gpu_time` stored. Raises :class:`~gpuwatch.machine.history.sample_frames.DamagedData`."""
    return decoded(_decode_gpu_time, decompress_zlib(data))


class _EnergyWindow:
    """A device since its energy counter moved: who has held it and who has used it, in seconds."""

    __slots__ = ("counter", "free", "held", "seconds", "used")

    def __init__(self, counter: float) -> None:
        self.counter = counter
        self.free = self.seconds = 0.0
        self.held: _Seconds = {}
        self.used: _Seconds = {}


class _Draft:
    """GPU time while it is added up."""

    def __init__(self) -> None:
        self.time = GpuTime()
        self.devices: dict[str, DeviceTime] = {}
        self.processes: dict[ProcessKey, ProcessTime] = {}

    def finished(self) -> GpuTime:
        self.time.devices = list(self.devices.values())
        self.time.processes = list(self.processes.values())
        return self.time


class GpuTimeMeter:
    """Counts samples in their order."""

    def __init__(self, interval: float) -> None:
        """``interval``: seconds between samples, as they were asked for."""
        self.max_gap_seconds = unobserved_limit(interval)
        self._at: float | None = None
        self._holders: dict[str, set[ProcessKey]] = {}
        """The processes of each device in the last sample; a device whose list could not be read is missing."""
        self._windows: dict[str, _EnergyWindow] = {}
        self._last_watts: dict[str, float] = {}
        """The power of each device in the last sample, if it has no energy counter."""
        self._unsampled = UnsampledProcesses()
        self._hours: dict[int, _Draft] = {}
        self._latest_rows: dict[ProcessKey, Process] = {}
        """The latest row of each process, by its key."""

    def pop_hours(self) -> dict[int, GpuTime]:
        """GPU time counted since the last call, by the start of its hour in seconds since the epoch."""
        found = {begin: hour.finished() for begin, hour in self._hours.items()}
        self._hours = {}
        return found

    def add(self, snapshot: Snapshot, *, counted: bool = True) -> None:
        """Takes a sample; ``counted`` False: only as the one before the next."""
        at = snapshot.taken_at.timestamp()
        seconds = 0.0 if self._at is None else at - self._at
        if not 0 < seconds <= self.max_gap_seconds:
            seconds = 0.0
            self._windows.clear()  # nobody knows who used what was counted meanwhile
            self._last_watts.clear()
        self._at = at
        hour = self._hours.setdefault(hour_of(at), _Draft()) if counted else _Draft()
        hour.time.seconds += seconds
        hour.time.simulated = hour.time.simulated or snapshot.simulated
        rows = group_by((row for row in snapshot.processes if row.type != _GRAPHICS), lambda row: row.device_uuid)
        hour.time.graphics = max(hour.time.graphics, sum(row.type == _GRAPHICS for row in snapshot.processes))
        before, self._holders = self._holders, {}
        for device in snapshot.devices:
            if device.lists_processes:
                here = rows.get(device.uuid, [])
                self._holders[device.uuid] = {_process_key(row) for row in here}
                known = before.get(device.uuid)
                self._add_device(hour, device, here, known or set(), seconds if known is not None else 0.0)
        for uuid in self._windows.keys() - {device.uuid for device in snapshot.devices}:
            del self._windows[uuid]  # nobody knows who uses it while it is not listed
        for device, process in self._unsampled.observe(snapshot):
            if (time := hour.devices.get(device.uuid)) is not None:
                time.unsampled_processes += 1
                time.unsampled_seconds += process.used_seconds
        if len(self._latest_rows) > _MAX_REMEMBERED_ROWS + 2 * len(snapshot.processes):
            needed = set().union(*self._holders.values(), *(window.held for window in self._windows.values()))
            self._latest_rows = {key: row for key, row in self._latest_rows.items() if key in needed}

    def _add_device(
        self, hour: _Draft, device: Device, rows: list[Process], before: set[ProcessKey], seconds: float
    ) -> None:
        uuid = device.uuid
        time = hour.devices.get(uuid)
        if time is None:
            time = hour.devices[uuid] = DeviceTime(uuid=uuid, index=device.index, name=device.name)
        time.seconds += seconds
        entries = [(_process_key(row), row) for row in rows]
        for key, row in entries:
            self._add_process_sample(hour, key, row)
        holders = [(key, row) for key, row in entries if key in before]
        gpu_percent = device.number("utilization.gpu_percent")
        shares: _Seconds = {}
        if holders and seconds:
            time.held_seconds += seconds
            left = before - {key for key, _ in entries}
            found = _sm_percentages(rows, gpu_percent, len(left))  # who came or went shares it
            used = [pair for (key, _), pair in zip(entries, found, strict=True) if key in before]
            own = [percent for percent, _ in used if percent is not None]
            if gpu_percent is not None or len(own) == len(used):
                idle = (gpu_percent if gpu_percent is not None else max(own)) <= MAX_IDLE_PERCENT
                time.idle_seconds += seconds if idle else 0.0
            else:
                time.unknown_seconds += seconds
            share = seconds / len(holders)
            for (key, _), (percent, is_own) in zip(holders, used, strict=True):
                process = hour.processes[key]
                process.process_seconds += seconds
                process.gpu_seconds += share
                if percent is not None:
                    process.used_seconds += seconds * percent / 100
                    process.sm_percent_max = max_known((process.sm_percent_max, percent))
                    process.own_seconds += seconds if is_own else 0.0
                    process.shared_seconds += 0.0 if is_own else seconds
            by_use = sum(own) if len(own) == len(used) else 0.0
            shares = {
                key: seconds * percent / by_use if by_use and percent is not None else share
                for (key, _), (percent, _) in zip(holders, used, strict=True)
            }
        self._add_energy(hour, time, device, shares, seconds)

    def _add_process_sample(self, hour: _Draft, key: ProcessKey, row: Process) -> None:
        process = self._process(hour, key, row)
        process.samples += 1
        process.memory_peak_bytes = max_known((process.memory_peak_bytes, row.number("gpu_memory_bytes")))
        if self._latest_rows.get(key) is not row:
            self._latest_rows[key] = row
            process.copy_facts(row)

    def _process(self, hour: _Draft, key: ProcessKey, row: Process) -> ProcessTime:
        process = hour.processes.get(key)
        if process is None:
            process = hour.processes[key] = ProcessTime(
                pid=key[0], create_time=key[1], device_uuid=key[2], mig_instance=key[3]
            )
            process.copy_facts(row)
        return process

    def _add_energy(self, hour: _Draft, time: DeviceTime, device: Device, shares: _Seconds, seconds: float) -> None:
        """Divides what the counter has counted since it last moved; it is read every few seconds only.

        ``shares``: the seconds, divided among the holders by their SM utilization: one that computes draws the power,
        not one that only holds memory. Equally where nobody computes, or where the driver does not say who does.
        """
        value = device.number("energy_joules")
        if value is None:
            self._windows.pop(device.uuid, None)
            self._add_power(hour, time, device, shares, seconds)
            return
        self._last_watts.pop(device.uuid, None)
        window = self._windows.get(device.uuid)
        if window is None or value < window.counter:  # a lower one was reset with the driver
            self._windows[device.uuid] = _EnergyWindow(value)
            return
        for key, share in shares.items():
            window.used[key] = window.used.get(key, 0.0) + share
            window.held[key] = window.held.get(key, 0.0) + seconds / len(shares)
        if not shares:
            window.free += seconds
        window.seconds += seconds
        if value == window.counter:
            if window.seconds > max(_MAX_WINDOW_SECONDS, 2 * self.max_gap_seconds):
                self._windows[device.uuid] = _EnergyWindow(value)  # else it would keep each process that ever ran
            return
        all_seconds = window.free + sum(window.held.values())
        self._windows[device.uuid] = _EnergyWindow(value)
        if not all_seconds:
            return
        per_second = (value - window.counter) / all_seconds
        time.energy_joules += value - window.counter
        time.energy_seconds += all_seconds
        time.free_joules += per_second * window.free
        for key, held in window.held.items():
            process = self._process(hour, key, self._latest_rows[key])
            process.energy_joules += per_second * window.used[key]
            process.energy_seconds += held

    def _add_power(self, hour: _Draft, time: DeviceTime, device: Device, shares: _Seconds, seconds: float) -> None:
        """Integrates power between two samples of a device that has no energy counter."""
        watts = device.number("power.draw_watts") if has_no_counter(device) else None
        before = self._last_watts.pop(device.uuid, None)
        if watts is None:
            return
        self._last_watts[device.uuid] = watts
        if before is None or not seconds:
            return
        joules = (before + watts) / 2 * seconds
        time.energy_joules += joules
        time.energy_seconds += seconds
        time.sampled_seconds += seconds
        if not shares:
            time.free_joules += joules
        for key, share in shares.items():
            process = hour.processes[key]
            process.energy_joules += joules * share / seconds
            process.energy_seconds += seconds / len(shares)
            process.sampled_seconds += seconds / len(shares)


def _process_key(row: Process) -> ProcessKey:
    return (row.pid, row.create_time, row.device_uuid or "", row.mig_instance)


def _sm_percentages(rows: list[Process], gpu_percent: float | None, left_count: int) -> list[tuple[float | None, bool]]:
    """The SM utilization of each process in percent, and whether it is its own: otherwise the device's, divided.

    Of processes that the driver samples, one without a sample ran no kernel. ``left_count``: how many have left.
    """
    own = [row.number("sm_percent") for row in rows]
    known = [percent for percent in own if percent is not None]
    divided = None
    if gpu_percent is not None:
        divided = max(gpu_percent - sum(known), 0.0) / max(len(own) - len(known) + left_count, 1)
    if known:
        unsampled = [(why := row.missing.get("sm_percent")) is not None and why.reason == "no_sample" for row in rows]
        own = [0.0 if percent is None and idle else percent for percent, idle in zip(own, unsampled, strict=True)]
    return [(divided, False) if percent is None else (percent, True) for percent in own]


def with_bounded_processes(time: GpuTime, newest: GpuTime) -> GpuTime:
    """With a bounded number of processes: the shorter ones count together, by user and program, so that sums stay.

    ``newest``: the part that was counted last; its processes may go on, so they stay apart.
    """
    if len(time.processes) <= _MAX_PROCESSES:
        return time
    going_on = {process.key for process in newest.processes}
    ended = [process for process in time.processes if process.key not in going_on]
    ended.sort(key=lambda process: -process.process_seconds)
    merged: dict[object, ProcessTime] = {}
    for process in ended[_MAX_PROCESSES // 2 :]:
        program = program_in_command(process.command or process.name or "")
        group = (process.user, program, process.framework, process.container, process.device_uuid, process.mig_instance)
        if (first := merged.setdefault(group, process)) is not process:
            first.merge(process)
            first.more += 1
    ongoing = [process for process in time.processes if process.key in going_on]
    time.processes = [*ongoing, *ended[: _MAX_PROCESSES // 2], *merged.values()]
    return time


def merged_times(times: Iterable[GpuTime]) -> GpuTime:
    """The sum of several GPU times."""
    total = _Draft()
    for time in times:
        total.time.seconds += time.seconds
        total.time.simulated = total.time.simulated or time.simulated
        total.time.graphics = max(total.time.graphics, time.graphics)
        for device in time.devices:
            if (there := total.devices.get(device.uuid)) is not None:
                there.merge(device)
            else:
                total.devices[device.uuid] = replace(device)
        for process in time.processes:
            if (known := total.processes.get(process.key)) is not None:
                known.merge(process)
            else:
                total.processes[process.key] = replace(process)
    return total.finished()
