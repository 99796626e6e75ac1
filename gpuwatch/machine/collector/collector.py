"""Samples the machine: asks the sources and builds the snapshot. Runs in the collector's process."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from gpuwatch.core.model.metrics import METRICS, Lane
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
from gpuwatch.machine.collector.counter_rates import CounterRates
from gpuwatch.machine.collector.cpu_programs import CpuPrograms
from gpuwatch.machine.collector.process_rows import ProcessRows, unknown_row
from gpuwatch.machine.history.reused_objects import same_or_new
from gpuwatch.machine.sources.device_source import DeviceSource, SeenDevice, SourceDevice, SourceUnavailable
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
_ALL_LANES = (*_SLOW_LANES, Lane.ON_DEMAND)


def device_sources(seen: Sequence[SeenDevice]) -> tuple[DeviceSource[Any], ...]:
    """A new source of each kind of GPU, not yet opened. ``seen``: the devices of an earlier collector."""
    return (NvmlSource(seen),)


class Collector:
    """Keeps the sources open between samples; one per process."""

    def __init__(self, on_demand: bool = False, *, gpm: bool = False, seen: Sequence[SeenDevice] = ()) -> None:
        self._connections = [_Connection(source) for source in device_sources(seen)]
        self._table = ProcessTable()
        self._cpu_programs = CpuPrograms(self._table)
        self._tree = ProcessTree(self._table)
        self._host = HostReader()
        self._slow_at = float("-inf")
        self._slow_reads = 0
        self._on_demand = on_demand
        self.gpm = gpm
        """Whether the activity of the GPUs' parts is read, with counters that profilers take too."""
        self._rates = CounterRates()
        self._rows = ProcessRows(self._table)
        self._built: dict[str, _BuiltDevice] = {}
        self._topology: Topology | None = None
        self._reservations: tuple[Reservation, ...] = ()
        self._devices: tuple[Device, ...] = ()
        self._shown: tuple[Process, ...] = ()

    def sample(self, preview: Callable[[Snapshot], None] | None = None) -> Snapshot:
        """One snapshot; what could not be read is in it with its reason.

        Unchanged objects are those of the previous sample: a device, a process, the tuple of all of them.
        ``preview`` is called with the devices as soon as they have been read, and with processes of which only the
        pid is known.
        """
        taken_at = datetime.datetime.now(datetime.UTC)
        began = time.monotonic()
        host, host_problems = self._host.read()
        problems: list[Problem] = []
        self._rows.begin(began)

        def snapshot(devices: tuple[Device, ...], processes: tuple[Process, ...], **more: Any) -> Snapshot:
            return Snapshot(
                taken_at=taken_at,
                took_seconds=time.monotonic() - began,
                simulated=self._simulated,
                driver=self._driver,
                devices=devices,
                processes=processes,
                host=host,
                **more,
            )

        def look_ahead(devices: tuple[Device, ...], processes: tuple[Process, ...]) -> None:
            if preview is not None:
                preview(snapshot(devices, processes, problems=tuple(host_problems)))

        devices, processes = self._gpus(began, host, problems, look_ahead)
        bystanders: tuple[Process, ...] = ()
        if devices:
            bystanders = self._cpu_programs.rows(began, processes)
        else:
            processes = [self._rows.host_row(facts) for facts in self._table.busiest(began)]
        shown = {process.pid for process in processes}
        self._tree.update(began, shown)
        self._table.keep_only(shown | self._cpu_programs.pids | self._tree.pids)
        self._devices, self._shown = same_or_new(self._devices, devices), same_or_new(self._shown, processes)
        return snapshot(
            self._devices,
            self._shown,
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

    def _gpus(
        self,
        now: float,
        host: Host,
        problems: list[Problem],
        look_ahead: Callable[[tuple[Device, ...], tuple[Process, ...]], None],
    ) -> tuple[list[Device], list[Process]]:
        # The second slow sample follows at once, because rates need two; then one every five seconds.
        slow = self._slow_reads < 2 or now - self._slow_at >= _SLOW_SAMPLE_SECONDS
        ready: list[DeviceSource[SourceDevice]] = []
        for connection in self._connections:
            problem = connection.connect(now, refresh=slow and bool(self._slow_reads))
            if problem is None:
                ready.append(connection.source)
            else:
                problems.append(problem)
        if not ready:
            return [], []
        lanes: Collection[Lane] = (Lane.FAST,)
        if slow:
            found = reservations()
            self._reservations = self._reservations if found == self._reservations else found
            lanes = _ALL_LANES if self._on_demand and self._slow_reads != 1 else _SLOW_LANES
            self._slow_at = now
            self._slow_reads += 1
        if self.gpm:
            lanes = (*lanes, Lane.GPM)
        listed = [(source, device, *source.sample(device, lanes)) for source in ready for device in source.devices]
        described = [_device(device, source) for source, device, _, _ in listed]
        if listed and self._slow_reads == 1:
            look_ahead(
                tuple(
                    replace(description, readings=dict(read), missing=dict(lacks), mig_instances=device.mig_instances)
                    for (_, device, read, lacks), description in zip(listed, described, strict=True)
                ),
                tuple(
                    unknown_row(entry, device)
                    for source, device, _, _ in listed
                    for entry in (source.processes(device) or ((), ()))[0]
                ),
            )
        if slow and self._slow_reads > 1:  # not before the first frame
            self._topology = self._joined([source.topology() for source in ready])
        for source in ready:
            problems.extend(source.problems)
        devices: list[Device] = []
        processes: list[Process] = []
        self._rows.devices(described)
        for (source, device, read, lacks), description in zip(listed, described, strict=True):
            rows, complete = self._processes(source, device, problems, number(read.get("utilization.gpu_percent")))
            if device.accounted is not description.accounted:  # a process has just exited
                description = replace(description, accounted=device.accounted)
            built = self._built.get(device.uuid)
            unified = _is_unified(read, lacks)
            unchanged = built is not None and built.same(read, lacks, rows, description)
            if built is not None and unchanged and not device.mig_instances and not unified:
                devices.append(built.device)
                processes.extend(rows)
                continue
            readings, missing = dict(read), dict(lacks)
            _unexplained(rows, complete, readings, missing)
            if unified:
                _add_host_memory(host, readings, missing)
                description = replace(description, unified_memory=True)
            self._rates.add(device.uuid, device.counters_at, readings, missing)
            if not self._on_demand:
                for metric_id in _ON_DEMAND_IDS:
                    if metric_id not in readings:
                        missing.setdefault(metric_id, _ON_DEMAND)
            item = replace(description, readings=readings, missing=missing, mig_instances=device.mig_instances)
            if complete:
                self._built[device.uuid] = _BuiltDevice(read, lacks, rows, description, item)
            else:
                self._built.pop(device.uuid, None)
            devices.append(item)
            processes.extend(rows)
        return devices, processes

    @property
    def _simulated(self) -> bool:
        return any(connection.source.simulated for connection in self._connections)

    @property
    def _driver(self) -> Driver | None:
        ready = (connection.source for connection in self._connections if connection.problem is None)
        return next((source.driver for source in ready if source.driver is not None), None)

    def _joined(self, found: list[Topology]) -> Topology:
        """One topology of all sources; the same object while it does not change."""
        if len(found) == 1:
            return found[0]
        joined = Topology(
            places=tuple(place for topology in found for place in topology.places),
            connections=tuple(connection for topology in found for connection in topology.connections),
            switch_nvlinks={uuid: links for topology in found for uuid, links in topology.switch_nvlinks.items()},
        )
        return self._topology if self._topology == joined else joined

    def _processes(
        self, source: DeviceSource[SourceDevice], device: SourceDevice, problems: list[Problem], busy: float | None
    ) -> tuple[list[Process], bool]:
        """The processes of one device, and whether the list is complete. ``busy``: its utilization in percent."""
        found = source.processes(device)
        if found is None:
            return [], False
        listed, failed = found
        problems.extend(
            Problem(source=f"{source.name} device {device.index}", reason=lack.reason, detail=lack.detail)
            for lack in failed
        )
        if not listed:
            return [], not failed
        utilization, lack = source.utilization(device)
        return self._rows.rows(listed, device, utilization, lack, busy), not failed


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

    readings: dict[str, Value]
    missing: dict[str, Missing]
    rows: list[Process]
    description: Device
    """Without readings."""
    device: Device

    def same(
        self, readings: dict[str, Value], missing: dict[str, Missing], rows: list[Process], description: Device
    ) -> bool:
        """Whether it would be built from the same again. Sources return the same objects while nothing changes."""
        return (
            self.readings is readings
            and self.missing is missing
            and (self.rows is rows or not (self.rows or rows))
            and self.description == description
        )


def _device(device: SourceDevice, source: DeviceSource[SourceDevice]) -> Device:
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
_ON_DEMAND = Missing(
    "no_sample", detail="only gpuwatch snapshot makes this call, which takes 20 ms; --gpm reads the mean"
)


def _is_unified(readings: Mapping[str, Value], missing: Mapping[str, Missing]) -> bool:
    """Whether the GPU has no memory of its own, as GB10: NVML supports neither its size nor its clock, and no BAR1.

    The size alone says less: a driver may not tell that of a card, whose memory is not the host's.
    """
    if readings.get("bar1.total_bytes"):
        return False
    lacks = (missing.get(name) for name in ("memory.total_bytes", "clocks.memory_mhz"))
    return all(lack is not None and lack.reason == "not_supported" for lack in lacks)


def _add_host_memory(host: Host, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
    total, used = host.memory_total_bytes, host.memory_used_bytes
    if total is not None and used is not None:
        free = max(total - used, 0)
        for name, value in (("total", total), ("used", used), ("free", free)):
            readings[f"memory.{name}_bytes"] = value
            missing.pop(f"memory.{name}_bytes", None)


def _unexplained(rows: list[Process], complete: bool, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
    """Used memory minus that of the listed processes, if the memory of each of them is known."""
    used = readings.get("memory.used_bytes")
    key = "memory.unexplained_bytes"
    lack = missing.get("memory.used_bytes")
    if not complete:
        missing[key] = lack if lack is not None and lack.reason == "device_lost" else UNLISTED
        return
    if not isinstance(used, int):
        missing[key] = lack or Missing("unknown", detail="used memory is not known")
        return
    owned = [row.readings.get("gpu_memory_bytes") for row in rows]
    known = [amount for amount in owned if isinstance(amount, int)]
    if len(known) < len(owned):
        missing[key] = Missing("unknown", detail="the driver does not report the memory of every process")
        return
    readings[key] = max(0, used - sum(known))
