"""What conditions judge: one sample, and the history of the samples before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.core.model.clock_event_reasons import clock_reasons
from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.machine.history.gone_gpus import forget_gone

BUCKET_SECONDS = 10.0
"""Seconds in a bucket."""
MAX_BUCKETS = 12
"""Buckets that are kept: two minutes."""
MIN_UNDER_LOAD_PERCENT = 50.0
"""Utilization in percent from which a device is busy: idle links and clocks are slow by design."""
SETTLED_SECONDS = 600.0
"""Age in seconds from which a program that is first seen at work has finished compiling."""
MAX_RESTING_PERCENT = 10.0
"""Utilization in percent below which a device is waiting for work."""
MEMORY_WINDOW_SECONDS = 90.0
"""Seconds for which samples of each device's memory in use are kept."""
_MIN_MEMORY_STEP_SECONDS = 0.7
"""Minimum seconds between two of them."""
_REMOVED_SECONDS = 900.0
"""Seconds after which a device that is no longer listed counts as removed."""
_MAX_XIDS = 8

ProcessKey = tuple[int, float | None]


@dataclass(slots=True)
class NumberStatistics:
    """Statistics of a number over samples."""

    first: float = 0.0
    last: float = 0.0
    minimum: float = float("inf")
    maximum: float = float("-inf")
    total: float = 0.0
    count: int = 0

    @property
    def mean(self) -> float:
        return self.total / self.count

    def add(self, value: float) -> None:
        self.first, self.last = self.first if self.count else value, value
        self.minimum, self.maximum = min(self.minimum, value), max(self.maximum, value)
        self.total += value
        self.count += 1


@dataclass(slots=True)
class Bucket:
    """Ten seconds of one process."""

    utilization: NumberStatistics = field(default_factory=NumberStatistics)
    """Percent."""
    rises: int = 0
    """How often the device went from idle to busy."""
    cpu: NumberStatistics = field(default_factory=NumberStatistics)
    """Percent of one core, including its workers."""
    disk_wait_samples: int = 0
    """Samples in which the process waited for a disk (state D)."""


def mean_of(parts: Iterable[NumberStatistics]) -> float | None:
    """The mean over all samples of the parts; None without any."""
    known = [part for part in parts if part.count]
    return sum(part.total for part in known) / sum(part.count for part in known) if known else None


class ProcessBuckets:
    """The last minutes of one process in buckets; the last one is still being filled."""

    def __init__(self, at: float, *, was_old: bool = False) -> None:
        self.first_seen = at
        self.was_old = was_old
        """Whether it was already old when first seen, and has not been idle for minutes since."""
        self.active_since: float | None = None
        """When its GPU was first seen working."""
        self.buckets: deque[Bucket] = deque([Bucket()], maxlen=MAX_BUCKETS + 1)
        self._filled_until = at + BUCKET_SECONDS
        self._resting: bool | None = None

    def roll(self, at: float) -> None:
        """Advances to the bucket of ``at``; a gap leaves empty ones."""
        while at >= self._filled_until:
            self.buckets.append(Bucket())
            self._filled_until += BUCKET_SECONDS
            resting = all(bucket.utilization.maximum < MAX_RESTING_PERCENT for bucket in self.buckets)
            if resting and len(self.buckets) > MAX_BUCKETS:
                self.active_since, self.was_old = None, False  # what follows is a new start
            if at - self._filled_until > BUCKET_SECONDS * MAX_BUCKETS:
                self.buckets.clear()
                self.buckets.append(Bucket())
                self._filled_until = at + BUCKET_SECONDS

    def add_utilization(self, at: float, value: float) -> None:
        """Adds the utilization of the process, or of its device if it is alone there."""
        bucket = self.buckets[-1]
        bucket.utilization.add(value)
        resting = value < MAX_RESTING_PERCENT
        if self._resting and not resting:
            bucket.rises += 1
        self._resting = resting
        if not resting and self.active_since is None:
            self.active_since = at

    @property
    def mean_utilization(self) -> float | None:
        """Over all its buckets; None if it could not be read."""
        return mean_of(bucket.utilization for bucket in self.buckets)

    def complete(self, count: int) -> Sequence[Bucket]:
        """The latest ``count`` complete buckets, oldest first; empty if there are fewer."""
        complete = list(self.buckets)[:-1]
        return complete[-count:] if len(complete) >= count else ()


@dataclass(slots=True)
class ErrorCount:
    """One error counter of one device."""

    first: float
    """Its first reading, or the first after a reset: anything above it is new."""
    latest: float
    in_event: float
    """Its value at its last event."""
    event_at: float = float("-inf")


class SampleHistory:
    """What is kept from one sample to the next."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        """Each device as last seen, including those no longer listed."""
        self.unlisted_since: dict[str, float] = {}
        """Since when a device is not listed anymore, in seconds since the epoch."""
        self.processes: dict[ProcessKey, ProcessBuckets] = {}
        """Only processes with a framework."""
        self.memory_used: dict[str, deque[tuple[float, float]]] = {}
        """Memory in use by device: seconds since the epoch, bytes."""
        self.unthrottled_mhz: dict[str, float] = {}
        """Highest SM clock (MHz) of each device while busy and not throttled."""
        self.counters: dict[tuple[str, str], ErrorCount] = {}
        """By UUID and metric."""
        self.xids: dict[str, tuple[Xid, ...]] = {}
        """Hardware errors that the driver reported, by UUID; a replacement collector may not know them."""
        self.seconds_since_xid: dict[str, float] = {}
        """Observed seconds since the latest of them. Of the first sample's, all time since: nothing else is known."""
        self.last_xid_event_at: dict[str, float] = {}
        """When the latest of them with an event was reported."""

    def restart(self) -> None:
        """Drops everything with a time: the clock was set back."""
        self.processes.clear()
        self.memory_used.clear()
        self.unlisted_since.clear()

    def add_devices(self, listed: Mapping[str, Device], at: float) -> None:
        """Adds the devices of a sample; one that is not listed anymore is kept for a quarter of an hour."""
        for uuid in self.devices.keys() - listed.keys():
            identified = any(device.identifies(self.devices[uuid]) for device in listed.values())
            if identified or at - self.unlisted_since.setdefault(uuid, at) > _REMOVED_SECONDS:
                del self.devices[uuid]
                self.unlisted_since.pop(uuid, None)
        for uuid in self.unlisted_since.keys() & listed.keys():
            del self.unlisted_since[uuid]
        self.devices.update(listed)
        of_xids = (self.xids, self.seconds_since_xid, self.last_xid_event_at)
        forget_gone(listed, self.memory_used, self.unthrottled_mhz, self.counters, *of_xids)


class SampleContext:
    """One sample, or several identical ones.

    ``seconds`` is the observed time since the previous one: 0 for the first, and after a gap.
    """

    def __init__(self, snapshot: Snapshot, at: float, seconds: float, history: SampleHistory, samples: int = 1) -> None:
        self.snapshot = snapshot
        self.at = at
        self.seconds = seconds
        self.samples = samples
        self.history = history
        self.devices: dict[str, Device] = {device.uuid: device for device in snapshot.devices}
        self.rows_by_device: dict[str, list[Process]] = {}
        """By UUID: the rows of the processes on a device."""
        self.rows_of_process: dict[ProcessKey, list[Process]] = {}
        """By pid and start time of the process: its rows, one per device."""
        for row in snapshot.processes:
            if row.device_uuid is not None:
                self.rows_by_device.setdefault(row.device_uuid, []).append(row)
                self.rows_of_process.setdefault((row.pid, row.create_time), []).append(row)

    def processes_on(self, uuid: str) -> Sequence[Process]:
        """The rows of the processes on the device with this UUID."""
        return self.rows_by_device.get(uuid, ())

    def buckets_of(self, process: Process) -> ProcessBuckets | None:
        """The last minutes of a process; None without a framework."""
        return self.history.processes.get((process.pid, process.create_time))

    def add_to_history(self) -> None:
        """Adds this sample to the history."""
        history = self.history
        for key in history.processes.keys() - self.rows_of_process.keys():
            del history.processes[key]
        first = not history.devices
        history.add_devices(self.devices, self.at)
        for uuid in history.seconds_since_xid:
            history.seconds_since_xid[uuid] += self.seconds
        utilization: dict[str, float | None] = {}
        for uuid, device in self.devices.items():
            utilization[uuid] = device.number("utilization.gpu_percent")
            self._add_memory_used(uuid, device)
            self._add_unthrottled_clock(uuid, device, utilization[uuid])
            if device.xids:
                known = history.xids.get(uuid, ())
                latest = known[-1].at if known else float("-inf")
                new = [xid for xid in device.xids if xid.is_hardware_fault and xid.at > latest]
                history.xids[uuid] = (*known, *new)[-_MAX_XIDS:]
                if new:
                    history.seconds_since_xid[uuid] = self.at - new[-1].at if first else 0.0
                history.seconds_since_xid.setdefault(uuid, 0.0)
        for key, rows in self.rows_of_process.items():
            if rows[0].framework is not None:
                self._add_to_buckets(key, rows, utilization)

    def _add_memory_used(self, uuid: str, device: Device) -> None:
        used = device.number("memory.used_bytes")
        if used is None:
            self.history.memory_used.pop(uuid, None)
            return
        samples = self.history.memory_used.setdefault(uuid, deque())
        if not samples or self.at - samples[-1][0] >= _MIN_MEMORY_STEP_SECONDS:
            samples.append((self.at, used))
        while len(samples) > 1 and self.at - samples[1][0] >= MEMORY_WINDOW_SECONDS:
            samples.popleft()

    def _add_unthrottled_clock(self, uuid: str, device: Device, utilization: float | None) -> None:
        clock, busy = device.number("clocks.sm_mhz"), (utilization or 0.0) >= MIN_UNDER_LOAD_PERCENT
        if clock is not None and busy and clock_reasons(device) == frozenset():
            self.history.unthrottled_mhz[uuid] = max(clock, self.history.unthrottled_mhz.get(uuid, 0.0))

    def _add_to_buckets(self, key: ProcessKey, rows: list[Process], of_devices: Mapping[str, float | None]) -> None:
        process_buckets = self.history.processes.get(key)
        if process_buckets is None:
            was_old = (rows[0].run_seconds(self.at) or 0.0) >= SETTLED_SECONDS
            process_buckets = self.history.processes[key] = ProcessBuckets(self.at, was_old=was_old)
        process_buckets.roll(self.at)
        own = [value for row in rows if (value := self._utilization(row, of_devices)) is not None]
        if own:
            process_buckets.add_utilization(self.at, max(own))
        bucket, first = process_buckets.buckets[-1], rows[0]
        cpu = number(first.readings.get("cpu_percent"))
        if cpu is not None:
            bucket.cpu.add(cpu + (first.workers_cpu_percent or 0.0))
        if first.state == "D":
            bucket.disk_wait_samples += 1

    def _utilization(self, row: Process, of_devices: Mapping[str, float | None]) -> float | None:
        """Its own if the driver reports it; the device's if nobody else computes there."""
        own = number(row.readings.get("sm_percent"))
        if own is not None:
            return own
        device = row.device_uuid or ""
        others = any(other.pid != row.pid and other.type != "G" for other in self.processes_on(device))
        return None if others else of_devices.get(device)
