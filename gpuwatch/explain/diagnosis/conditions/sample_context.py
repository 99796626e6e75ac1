"""One sample as the conditions see it: the snapshot, and what is kept of earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
_MISSED_SECONDS = 900.0
"""Seconds after which a device that is no longer listed counts as removed."""
_MAX_XIDS = 8

Who = tuple[int, float | None]


@dataclass(slots=True)
class Bucket:
    """Ten seconds of one process."""

    count: int = 0
    utilization: float = 0.0
    """Sum over the samples."""
    least: float = 100.0
    most: float = 0.0
    rises: int = 0
    """How often the device went from idle to busy."""
    cpu: float = 0.0
    """Sum over the samples, including its workers."""
    cpu_count: int = 0
    disk: int = 0
    """Samples in which the process waited for a disk (state D)."""


class ProcessBuckets:
    """The last minutes of one process in buckets; the last one is still being filled."""

    def __init__(self, at: float, *, old: bool = False) -> None:
        self.began = at
        self.old = old
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
            if len(self.buckets) > MAX_BUCKETS and all(bucket.most < MAX_RESTING_PERCENT for bucket in self.buckets):
                self.active_since, self.old = None, False  # what follows is a new start
            if at - self._filled_until > BUCKET_SECONDS * MAX_BUCKETS:
                self.buckets.clear()
                self.buckets.append(Bucket())
                self._filled_until = at + BUCKET_SECONDS

    def add_utilization(self, at: float, value: float) -> None:
        """Adds the utilization of the process, or of its device if it is alone there."""
        bucket = self.buckets[-1]
        bucket.count += 1
        bucket.utilization += value
        bucket.least, bucket.most = min(bucket.least, value), max(bucket.most, value)
        resting = value < MAX_RESTING_PERCENT
        if self._resting and not resting:
            bucket.rises += 1
        self._resting = resting
        if not resting and self.active_since is None:
            self.active_since = at

    @property
    def mean_utilization(self) -> float | None:
        """Over all its buckets; None if it could not be read."""
        count = sum(bucket.count for bucket in self.buckets)
        return sum(bucket.utilization for bucket in self.buckets) / count if count else None

    def whole(self, count: int) -> Sequence[Bucket]:
        """The latest ``count`` complete buckets, oldest first; empty if there are fewer."""
        complete = list(self.buckets)[:-1]
        return complete[-count:] if len(complete) >= count else ()


@dataclass(slots=True)
class ErrorCount:
    """One error counter of one device."""

    base: float
    """Its first reading, or the first after a reset: anything above it is new."""
    now: float
    in_event: float
    """Its value at its last event."""
    event_at: float = float("-inf")


class KeptBetweenSamples:
    """State that conditions keep from one sample to the next."""

    def __init__(self) -> None:
        self.devices: dict[str, Device] = {}
        """Each device as last seen, including those no longer listed."""
        self.missed: dict[str, float] = {}
        """Since when a device is no longer listed, in seconds since the epoch."""
        self.processes: dict[Who, ProcessBuckets] = {}
        """Only processes with a framework."""
        self.used: dict[str, deque[tuple[float, float]]] = {}
        """Memory in use by device: seconds since the epoch, bytes."""
        self.free_clock: dict[str, float] = {}
        """Highest SM clock (MHz) of each device while busy and not throttled."""
        self.counters: dict[tuple[str, str], ErrorCount] = {}
        """By UUID and metric."""
        self.xids: dict[str, tuple[Xid, ...]] = {}
        """Hardware errors that the driver reported, by UUID; a replacement collector may not know them."""
        self.without_xid: dict[str, float] = {}
        """Observed seconds since the latest of them. Of the first sample's, all time since: nothing else is known."""
        self.xids_in_events: dict[str, float] = {}
        """When the latest of them with an event was reported."""

    def restart(self) -> None:
        """Drops everything with a time: the clock was set back."""
        self.processes.clear()
        self.used.clear()
        self.missed.clear()

    def know_devices(self, here: Mapping[str, Device], at: float) -> None:
        """Adds the devices of a sample; one that is no longer listed is missed for a quarter of an hour."""
        for uuid in self.devices.keys() - here.keys():
            identified = any(device.was(self.devices[uuid]) for device in here.values())
            if identified or at - self.missed.setdefault(uuid, at) > _MISSED_SECONDS:
                del self.devices[uuid]
                self.missed.pop(uuid, None)
        for uuid in self.missed.keys() & here.keys():
            del self.missed[uuid]
        self.devices.update(here)
        forget_gone(here, self.used, self.free_clock, self.counters, self.xids, self.without_xid, self.xids_in_events)


class SampleContext:
    """One sample, or several identical ones.

    ``seconds`` is the observed time since the previous one: 0 for the first, and after a gap.
    """

    def __init__(
        self, snapshot: Snapshot, at: float, seconds: float, memory: KeptBetweenSamples, samples: int = 1
    ) -> None:
        self.snapshot = snapshot
        self.at = at
        self.seconds = seconds
        self.samples = samples
        self.memory = memory
        self.devices: dict[str, Device] = {device.uuid: device for device in snapshot.devices}
        self.processes: dict[str, list[Process]] = {}
        """By UUID of the device."""
        self.of: dict[Who, list[Process]] = {}
        """The rows of a process, one per device."""
        for row in snapshot.processes:
            if row.device_uuid is not None:
                self.processes.setdefault(row.device_uuid, []).append(row)
                self.of.setdefault((row.pid, row.create_time), []).append(row)

    def on(self, uuid: str) -> Sequence[Process]:
        """The rows of the processes on the device with this UUID."""
        return self.processes.get(uuid, ())

    def series(self, process: Process) -> ProcessBuckets | None:
        """The series of a process; None without a framework."""
        return self.memory.processes.get((process.pid, process.create_time))

    def remember(self) -> None:
        """Adds this sample to what is kept."""
        memory = self.memory
        for who in memory.processes.keys() - self.of.keys():
            del memory.processes[who]
        first = not memory.devices
        memory.know_devices(self.devices, self.at)
        for uuid in memory.without_xid:
            memory.without_xid[uuid] += self.seconds
        busy: dict[str, float | None] = {}
        for uuid, device in self.devices.items():
            busy[uuid] = device.number("utilization.gpu_percent")
            self._used(uuid, device)
            self._clock(uuid, device, busy[uuid])
            if device.xids:
                known = memory.xids.get(uuid, ())
                latest = known[-1].at if known else float("-inf")
                new = [xid for xid in device.xids if xid.hardware and xid.at > latest]
                memory.xids[uuid] = (*known, *new)[-_MAX_XIDS:]
                if new:
                    memory.without_xid[uuid] = self.at - new[-1].at if first else 0.0
                memory.without_xid.setdefault(uuid, 0.0)
        for who, rows in self.of.items():
            if rows[0].framework is not None:
                self._process(who, rows, busy)

    def _used(self, uuid: str, device: Device) -> None:
        used = device.number("memory.used_bytes")
        if used is None:
            self.memory.used.pop(uuid, None)
            return
        samples = self.memory.used.setdefault(uuid, deque())
        if not samples or self.at - samples[-1][0] >= _MIN_MEMORY_STEP_SECONDS:
            samples.append((self.at, used))
        while len(samples) > 1 and self.at - samples[1][0] >= MEMORY_WINDOW_SECONDS:
            samples.popleft()

    def _clock(self, uuid: str, device: Device, utilization: float | None) -> None:
        clock, busy = device.number("clocks.sm_mhz"), (utilization or 0.0) >= MIN_UNDER_LOAD_PERCENT
        if clock is not None and busy and clock_reasons(device) == frozenset():
            self.memory.free_clock[uuid] = max(clock, self.memory.free_clock.get(uuid, 0.0))

    def _process(self, who: Who, rows: list[Process], busy: Mapping[str, float | None]) -> None:
        series = self.memory.processes.get(who)
        if series is None:
            old = (rows[0].run_seconds(self.at) or 0.0) >= SETTLED_SECONDS
            series = self.memory.processes[who] = ProcessBuckets(self.at, old=old)
        series.roll(self.at)
        own = [value for row in rows if (value := self._utilization(row, busy)) is not None]
        if own:
            series.add_utilization(self.at, max(own))
        bucket, first = series.buckets[-1], rows[0]
        cpu = number(first.readings.get("cpu_percent"))
        if cpu is not None:
            bucket.cpu += cpu + (first.workers_cpu_percent or 0.0)
            bucket.cpu_count += 1
        if first.state == "D":
            bucket.disk += 1

    def _utilization(self, row: Process, busy: Mapping[str, float | None]) -> float | None:
        """Its own if the driver reports it; the device's if nobody else computes there."""
        own = number(row.readings.get("sm_percent"))
        if own is not None:
            return own
        device = row.device_uuid or ""
        others = any(other.pid != row.pid and other.type != "G" for other in self.on(device))
        return None if others else busy.get(device)
