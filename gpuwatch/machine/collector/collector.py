"""Samples the machine: asks the sources and builds the snapshot. Runs in the collector's process."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec, Unit
from gpuwatch.core.model.reading import Missing, Value, number
from gpuwatch.core.model.snapshot import (
    UNLISTED,
    Device,
    Driver,
    Host,
    Problem,
    Process,
    Reservation,
    Snapshot,
    Topology,
)
from gpuwatch.machine.collector.cpu_programs import CpuPrograms
from gpuwatch.machine.collector.process_rows import ProcessRows, unknown_row
from gpuwatch.machine.history.reused_objects import same_or_new
from gpuwatch.machine.sources.device_source import (
    NO_EARLIER_SAMPLE,
    DeviceSource,
    MissingReadings,
    Readings,
    SeenDevice,
    SourceDevice,
    SourceUnavailable,
)
from gpuwatch.machine.sources.gpu_reservations import reservations
from gpuwatch.machine.sources.host_reader import HostReader
from gpuwatch.machine.sources.nvidia.nvml_source import NvmlSource
from gpuwatch.machine.sources.process_table import ProcessTable
from gpuwatch.machine.sources.process_tree import ProcessTree

_SLOW_SAMPLE_SECONDS = 4.8
"""Seconds between slow samples: every fifth at one sample a second, even if one comes some milliseconds early."""
_REOPEN_SECONDS = 5.0
"""Seconds between attempts to open a source that could not be opened."""
_SLOW_LANES = (Lane.FAST, Lane.SLOW, Lane.ONCE)


def device_sources(seen: Sequence[SeenDevice]) -> tuple[DeviceSource[Any], ...]:
    """A new source of each kind of GPU, not yet opened. ``seen``: the devices of an earlier collector."""
    return (NvmlSource(seen),)


class _SampledDevice(NamedTuple):
    """A device as its source has just read it."""

    source: DeviceSource[SourceDevice]
    device: SourceDevice
    readings: Readings
    missing: MissingReadings
    description: Device
    """The device without its readings and MIG instances."""


class Collector:
    """Keeps the sources open between samples; one per process."""

    def __init__(self, on_demand: bool = False, *, gpm: bool = False, seen: Sequence[SeenDevice] = ()) -> None:
        """``on_demand``: reads :attr:`Lane.ON_DEMAND` too. ``seen``: the devices of an earlier collector."""
        self._connections = [_Connection(source) for source in device_sources(seen)]
        self._table = ProcessTable()
        self._cpu_programs = CpuPrograms(self._table)
        self._tree = ProcessTree(self._table)
        self._host_reader = HostReader()
        self._slow_at = float("-inf")
        """When the slow lane was last read, on the monotonic clock."""
        self._slow_samples = 0
        self._on_demand = on_demand
        self.gpm = gpm
        """Whether the activity of the GPUs' parts is read, with counters that profilers take too."""
        self._rates = CounterRates()
        self._rows = ProcessRows(self._table)
        self._built_devices: dict[str, _BuiltDevice] = {}
        """By UUID, in the previous sample."""
        self._topology: Topology | None = None
        self._reservations: tuple[Reservation, ...] = ()
        self._devices: tuple[Device, ...] = ()
        self._processes: tuple[Process, ...] = ()

    def sample(self, preview: Callable[[Snapshot], None] | None = None) -> Snapshot:
        """One snapshot; what could not be read is in it with its reason.

        Unchanged objects are those of the previous sample: a device, a process, the tuple of all of them.
        ``preview`` is called with the devices as soon as they have been read, and with processes of which only the
        pid is known.
        """
        taken_at = datetime.datetime.now(datetime.UTC)
        began = time.monotonic()
        host, host_problems = self._host_reader.read()
        problems: list[Problem] = []
        self._rows.begin_sample(began)

        def snapshot(devices: tuple[Device, ...], processes: tuple[Process, ...], **more: Any) -> Snapshot:
            return Snapshot(
                taken_at=taken_at,
                took_seconds=time.monotonic() - began,
                simulated=any(connection.source.simulated for connection in self._connections),
                driver=self._driver,
                devices=devices,
                processes=processes,
                host=host,
                **more,
            )

        sampled = self._sample_devices(began, problems)
        if preview is not None and sampled and self._slow_samples == 1:
            preview(snapshot(*_preview_rows(sampled), problems=tuple(host_problems)))
        devices, processes = self._build(sampled, host, problems)
        bystanders: tuple[Process, ...] = ()
        if devices:
            bystanders = self._cpu_programs.rows(began, processes)
        else:
            processes = [self._rows.host_row(facts) for facts in self._table.busiest(began)]
        pids = {process.pid for process in processes}
        self._tree.update(began, pids)
        self._table.keep_only(pids | self._cpu_programs.pids | self._tree.pids)
        self._devices = same_or_new(self._devices, devices)
        self._processes = same_or_new(self._processes, processes)
        return snapshot(
            self._devices,
            self._processes,
            problems=(*problems, *host_problems),
            bystanders=bystanders,
            parents=self._tree.parents,
            ancestors=self._tree.ancestors,
            topology=self._topology if devices else None,
            reservations=self._reservations if devices else (),
            host_processes=None if devices else self._table.process_count,
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.source.close()

    def _sample_devices(self, now: float, problems: list[Problem]) -> list[_SampledDevice]:
        """Reads the metrics of all devices; adds what the user must know to ``problems``. ``now`` is monotonic."""
        # The second slow sample follows at once, because rates need two; then one every five seconds.
        slow = self._slow_samples < 2 or now - self._slow_at >= _SLOW_SAMPLE_SECONDS
        sources: list[DeviceSource[SourceDevice]] = []
        for connection in self._connections:
            problem = connection.connect(now, refresh=slow and bool(self._slow_samples))
            if problem is None:
                sources.append(connection.source)
            else:
                problems.append(problem)
        if not sources:
            return []
        lanes: tuple[Lane, ...] = (Lane.FAST,)
        if slow:
            found = reservations()
            self._reservations = self._reservations if found == self._reservations else found
            lanes = (*_SLOW_LANES, Lane.ON_DEMAND) if self._on_demand and self._slow_samples != 1 else _SLOW_LANES
            self._slow_at = now
            self._slow_samples += 1
        if self.gpm:
            lanes = (*lanes, Lane.GPM)
        read = [(source, device, *source.sample(device, lanes)) for source in sources for device in source.devices]
        sampled = [_SampledDevice(*entry, _describe(entry[1], entry[0])) for entry in read]
        if slow and self._slow_samples > 1:  # not before the first frame
            self._topology = self._join_topologies([source.topology() for source in sources])
        for source in sources:
            problems.extend(source.problems)
        return sampled

    def _build(
        self, sampled: list[_SampledDevice], host: Host, problems: list[Problem]
    ) -> tuple[list[Device], list[Process]]:
        """The devices and their processes, the same objects where nothing changed."""
        devices: list[Device] = []
        processes: list[Process] = []
        self._rows.set_devices([entry.description for entry in sampled])
        for source, device, read, unread, description in sampled:
            rows, complete = self._read_processes(source, device, problems, number(read.get("utilization.gpu_percent")))
            processes.extend(rows)
            if device.accounted is not description.accounted:  # a process has just exited
                description = replace(description, accounted=device.accounted)
            built = self._built_devices.get(device.uuid)
            unified = _is_unified(read, unread)
            is_plain = not device.mig_instances and not unified
            if built is not None and is_plain and built.is_of(read, unread, rows, description):
                devices.append(built.device)
                continue
            readings, missing = dict(read), dict(unread)
            _add_unexplained_memory(rows, complete, readings, missing)
            if unified:
                _add_host_memory(host, readings, missing)
                description = replace(description, unified_memory=True)
            self._rates.add(device.uuid, device.counters_at, readings, missing)
            if not self._on_demand:
                for metric_id in _ON_DEMAND_IDS:
                    if metric_id not in readings:
                        missing.setdefault(metric_id, _NOT_ON_DEMAND)
            devices.append(replace(description, readings=readings, missing=missing, mig_instances=device.mig_instances))
            if complete:
                self._built_devices[device.uuid] = _BuiltDevice(read, unread, rows, description, devices[-1])
            else:
                self._built_devices.pop(device.uuid, None)
        return devices, processes

    @property
    def _driver(self) -> Driver | None:
        ready = (connection.source for connection in self._connections if connection.problem is None)
        return next((source.driver for source in ready if source.driver is not None), None)

    def _join_topologies(self, found: list[Topology]) -> Topology:
        """One topology of all sources; the same object while it does not change."""
        if len(found) == 1:
            return found[0]
        joined = Topology(
            places=tuple(place for topology in found for place in topology.places),
            connections=tuple(connection for topology in found for connection in topology.connections),
            switch_nvlinks={uuid: links for topology in found for uuid, links in topology.switch_nvlinks.items()},
        )
        return self._topology if self._topology == joined else joined

    def _read_processes(
        self,
        source: DeviceSource[SourceDevice],
        device: SourceDevice,
        problems: list[Problem],
        gpu_percent: float | None,
    ) -> tuple[list[Process], bool]:
        """The processes of one device, and whether the list is complete. ``gpu_percent``: its utilization."""
        found = source.processes(device)
        if found is None:
            return [], False
        listed, failed = found
        name = f"{source.name} device {device.index}"
        problems.extend(Problem(source=name, reason=why.reason, detail=why.detail) for why in failed)
        if not listed:
            return [], not failed
        utilization, why_missing = source.utilization(device)
        return self._rows.rows(listed, device, utilization, why_missing, gpu_percent), not failed


def _preview_rows(sampled: list[_SampledDevice]) -> tuple[tuple[Device, ...], tuple[Process, ...]]:
    """The devices, and their processes of which only the pid is known."""
    return (
        tuple(
            replace(
                entry.description,
                readings=dict(entry.readings),
                missing=dict(entry.missing),
                mig_instances=entry.device.mig_instances,
            )
            for entry in sampled
        ),
        tuple(
            unknown_row(process, entry.device)
            for entry in sampled
            for process in (entry.source.processes(entry.device) or ((), ()))[0]
        ),
    )


class _Connection:
    """A source, opened when it can be."""

    def __init__(self, source: DeviceSource[SourceDevice]) -> None:
        self.source = source
        self.problem: Problem | None = None
        """Why the source could not be opened."""
        self._tried_at = float("-inf")

    def connect(self, now: float, *, refresh: bool) -> Problem | None:
        """Opens the source if that is due, and refreshes its list of devices; returns why it cannot be used.

        ``now`` is monotonic; ``refresh``: refresh the list even if the source does not ask for it.
        """
        try:
            if self.problem is None or now - self._tried_at >= _REOPEN_SECONDS:
                self._tried_at = now
                self.problem = None
                self.source.open()
            if self.problem is None and (refresh or self.source.unsettled):
                self.source.refresh()
        except SourceUnavailable as error:
            self.problem = error.problem
        return self.problem


class _BuiltDevice(NamedTuple):
    """A device as it was last built, and what it was built from."""

    readings: Readings
    missing: MissingReadings
    rows: list[Process]
    description: Device
    """Without readings."""
    device: Device

    def is_of(self, readings: Readings, missing: MissingReadings, rows: list[Process], description: Device) -> bool:
        """Whether it would be built from the same again. Sources return the same objects while nothing changes."""
        return (
            self.readings is readings
            and self.missing is missing
            and (self.rows is rows or not (self.rows or rows))
            and self.description == description
        )


def _describe(device: SourceDevice, source: DeviceSource[SourceDevice]) -> Device:
    """The device without its readings and MIG instances."""
    return Device(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        pci_bus_id=device.pci_bus_id,
        compute_capability=device.compute_capability,
        simulated=source.simulated,
        state=device.state,
        state_detail=device.state_detail,
        readings={},
        missing={},
        xids=device.xids,
        xids_missing=device.xids_missing,
        accounted=device.accounted,
    )


_ON_DEMAND_IDS = tuple(spec.id for spec in METRICS if spec.lane is Lane.ON_DEMAND)
_NOT_ON_DEMAND = Missing(
    "no_sample",
    detail="only gpuwatch snapshot makes this call, which takes 20 ms, and with --every only while no recorder runs;"
    " --gpm reads the mean",
)


def _is_unified(readings: Readings, missing: MissingReadings) -> bool:
    """Whether the GPU has no memory of its own, as GB10: NVML supports neither its size nor its clock, and no BAR1.

    The size alone says less: a driver may not tell that of a card, whose memory is not the host's.
    """
    if readings.get("bar1.total_bytes"):
        return False
    reasons = (missing.get(name) for name in ("memory.total_bytes", "clocks.memory_mhz"))
    return all(why is not None and why.reason == "not_supported" for why in reasons)


def _add_host_memory(host: Host, readings: Readings, missing: MissingReadings) -> None:
    total, used = host.memory_total_bytes, host.memory_used_bytes
    if total is not None and used is not None:
        free = max(total - used, 0)
        for name, value in (("total", total), ("used", used), ("free", free)):
            readings[f"memory.{name}_bytes"] = value
            missing.pop(f"memory.{name}_bytes", None)


def _add_unexplained_memory(rows: list[Process], complete: bool, readings: Readings, missing: MissingReadings) -> None:
    """Adds used memory minus that of the listed processes, if the memory of each of them is known."""
    used, why_missing = readings.get("memory.used_bytes"), missing.get("memory.used_bytes")
    key = "memory.unexplained_bytes"
    if not complete:
        missing[key] = why_missing if why_missing is not None and why_missing.reason == "device_lost" else UNLISTED
        return
    if not isinstance(used, int):
        missing[key] = why_missing or Missing("unknown", detail="used memory is not known")
        return
    owned = [row.readings.get("gpu_memory_bytes") for row in rows]
    known = [amount for amount in owned if isinstance(amount, int)]
    if len(known) < len(owned):
        missing[key] = Missing("unknown", detail="the driver does not report the memory of every process")
        return
    readings[key] = max(0, used - sum(known))


_RATES = tuple(spec for spec in METRICS if spec.rate_of)
_COUNTER_RESET = Missing("no_sample", detail="its counter was reset; known after the next reading")


class CounterRates:
    """Metrics per second, from two readings of a counter (``MetricSpec.rate_of``).

    Counters are read in the slow lane: a rate is the average since the previous reading, and kept until the next.
    """

    def __init__(self) -> None:
        self._previous: dict[tuple[str, str], tuple[float, float]] = {}
        """By device and metric: when its counter was last read, and what it had counted."""
        self._rates: dict[str, tuple[float, dict[str, Value | Missing]]] = {}
        """By device: when its counters were last read, and the rates since the reading before."""

    def add(self, uuid: str, read_at: float, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
        """Adds the rates of a device to its readings; the counters were read at ``read_at`` (monotonic)."""
        if not read_at:
            return  # the slow lane has not been read yet
        known = self._rates.get(uuid)
        if known is None or known[0] != read_at:
            known = (read_at, {spec.id: self._rate(uuid, spec, read_at, readings, missing) for spec in _RATES})
            self._rates[uuid] = known
        for metric_id, rate in known[1].items():
            if isinstance(rate, Missing):
                missing.setdefault(metric_id, rate)
            elif metric_id not in missing:
                readings[metric_id] = rate

    def _rate(
        self, uuid: str, spec: MetricSpec, read_at: float, readings: dict[str, Value], missing: dict[str, Missing]
    ) -> Value | Missing:
        total = readings.get(spec.rate_of)
        if not isinstance(total, (int, float)):
            return missing.get(spec.rate_of, NO_EARLIER_SAMPLE)
        previous = self._previous.get((uuid, spec.id))
        self._previous[uuid, spec.id] = (read_at, total)
        if previous is None or read_at <= previous[0]:
            return NO_EARLIER_SAMPLE
        counted = total - previous[1]
        if counted < 0:
            return _COUNTER_RESET
        rate = counted / (read_at - previous[0]) * spec.scale
        return min(rate, 100.0) if spec.unit is Unit.PERCENT else rate
