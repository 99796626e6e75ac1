"""One sample as rules over time see it: the snapshot, and the little that is kept of those before."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.model.snapshot import Device, Process, Snapshot

BUCKET = 10.0
"""Seconds that are summed up together."""
BUCKETS = 12
"""How many of them are kept: two minutes."""
UNDER_LOAD = 50.0
"""Utilization in percent from which a device is busy: idle links and idle clocks are slow by design."""
SETTLED = 600.0
"""Age in seconds from which a program is taken to be past its compilation when it is first seen at work."""
RESTING = 10.0
"""Utilization in percent below which a device waits between two pieces of work."""

Who = tuple[int, float | None]


@dataclass(slots=True)
class Bucket:
    """Ten seconds of one subject."""

    count: int = 0
    utilization: float = 0.0
    """Sum over the samples."""
    least: float = 100.0
    most: float = 0.0
    rises: int = 0
    """How often the device went from rest to work."""
    cpu: float = 0.0
    """Sum over the samples, its workers' included."""
    cpu_count: int = 0
    disk: int = 0
    """Samples in which the process waited for a disk (state D)."""
    memory: float | None = None
    """Bytes in use at the end."""


class Series:
    """The last minutes of one subject in buckets; the newest is still being filled."""

    def __init__(self, at: float, *, old: bool = False) -> None:
        self.began = at
        self.old = old
        """Whether it had lived long when it was first seen, and has not rested for minutes since."""
        self.active_since: float | None = None
        """When its GPU was first seen working."""
        self.buckets: deque[Bucket] = deque([Bucket()], maxlen=BUCKETS + 1)
        self.verdict: dict[str, float | None] | None = None
        """What a rule concluded from the complete buckets; kept until there is another."""
        self._filled_until = at + BUCKET
        self._judged: float | None = None
        self._resting: bool | None = None

    def roll(self, at: float) -> None:
        """To the bucket of ``at``; a gap leaves empty ones."""
        while at >= self._filled_until:
            self.buckets.append(Bucket())
            self._filled_until += BUCKET
            if len(self.buckets) > BUCKETS and all(bucket.most < RESTING for bucket in self.buckets):
                self.active_since, self.old = None, False  # what begins now begins anew
            if at - self._filled_until > BUCKET * BUCKETS:
                self.buckets.clear()
                self.buckets.append(Bucket())
                self._filled_until = at + BUCKET

    def add_utilization(self, at: float, value: float) -> None:
        """Of the device, or of the process on it."""
        bucket = self.buckets[-1]
        bucket.count += 1
        bucket.utilization += value
        bucket.least, bucket.most = min(bucket.least, value), max(bucket.most, value)
        resting = value < RESTING
        if self._resting and not resting:
            bucket.rises += 1
        self._resting = resting
        if not resting and self.active_since is None:
            self.active_since = at

    def due(self) -> bool:
        """Whether a bucket was completed since this was last asked."""
        judged, self._judged = self._judged, self._filled_until
        return judged != self._filled_until

    def whole(self, count: int) -> Sequence[Bucket]:
        """The newest ``count`` that are complete, oldest first; empty when there are not as many."""
        complete = list(self.buckets)[:-1]
        return complete[-count:] if len(complete) >= count else ()


class Memory:
    """What is kept between samples: buckets per device and per process of a framework, and clocks."""

    def __init__(self) -> None:
        self.devices: dict[str, Series] = {}
        self.processes: dict[Who, Series] = {}
        self.free_clock: dict[str, float] = {}
        """Highest SM clock (MHz) of each device while it was busy and nothing held it."""
        self.counters: dict[tuple[str, str], float] = {}
        """First reading of each error counter since the watch began."""

    def forget(self, devices: Mapping[str, Device], processes: set[Who]) -> None:
        """Drops subjects that are gone."""
        for uuid in self.devices.keys() - devices.keys():
            del self.devices[uuid]
        for who in self.processes.keys() - processes:
            del self.processes[who]


class Look:
    """One sample. ``seconds`` is the observed time since the one before: 0 for the first, and after a gap."""

    def __init__(self, snapshot: Snapshot, at: float, seconds: float, memory: Memory) -> None:
        self.snapshot = snapshot
        self.at = at
        self.seconds = seconds
        self.memory = memory
        self.devices: dict[str, Device] = {device.uuid: device for device in snapshot.devices}
        self.processes: dict[str, list[Process]] = {}
        """By UUID of the device."""
        self.of: dict[Who, list[Process]] = {}
        """Rows by process: one for each of its devices."""
        for row in snapshot.processes:
            if row.device_uuid is not None:
                self.processes.setdefault(row.device_uuid, []).append(row)
                self.of.setdefault((row.pid, row.create_time), []).append(row)

    def on(self, uuid: str) -> Sequence[Process]:
        """The processes of a device."""
        return self.processes.get(uuid, ())

    def series(self, process: Process) -> Series | None:
        """What is kept of a framework's process."""
        return self.memory.processes.get((process.pid, process.create_time))

    def remember(self) -> None:
        """Puts this sample into the buckets."""
        memory = self.memory
        memory.forget(self.devices, set(self.of))
        busy: dict[str, float | None] = {}
        for uuid, device in self.devices.items():
            series = memory.devices.get(uuid)
            if series is None:
                series = memory.devices[uuid] = Series(self.at)
            series.roll(self.at)
            utilization = busy[uuid] = device.number("utilization.gpu_percent")
            if utilization is not None:
                series.add_utilization(self.at, utilization)
            series.buckets[-1].memory = device.number("memory.used_bytes")
            self._clock(uuid, device, utilization)
        for who, rows in self.of.items():
            if rows[0].framework is not None:
                self._process(who, rows, busy)

    def _clock(self, uuid: str, device: Device, utilization: float | None) -> None:
        clock = device.number("clocks.sm_mhz")
        if (
            clock is not None
            and (utilization or 0.0) >= UNDER_LOAD
            and device.readings.get("clocks.event_reasons") in ("none", "idle")
        ):
            self.memory.free_clock[uuid] = max(clock, self.memory.free_clock.get(uuid, 0.0))

    def _process(self, who: Who, rows: list[Process], busy: Mapping[str, float | None]) -> None:
        series = self.memory.processes.get(who)
        if series is None:
            age = rows[0].number("run_seconds")
            series = self.memory.processes[who] = Series(self.at, old=age is not None and age >= SETTLED)
        series.roll(self.at)
        own = [value for row in rows if (value := self._utilization(row, busy)) is not None]
        if own:
            series.add_utilization(self.at, max(own))
        bucket, first = series.buckets[-1], rows[0]
        cpu = first.number("cpu_percent")
        if cpu is not None:
            bucket.cpu += cpu + (first.workers_cpu_percent or 0.0)
            bucket.cpu_count += 1
        if first.state == "D":
            bucket.disk += 1

    def _utilization(self, row: Process, busy: Mapping[str, float | None]) -> float | None:
        """Its own where the driver tells it; the device's where nobody else computes there."""
        own = row.number("sm_percent")
        if own is not None:
            return own
        device = row.device_uuid or ""
        others = any(other.pid != row.pid and other.type != "G" for other in self.on(device))
        return None if others else busy.get(device)
