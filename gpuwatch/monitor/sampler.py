"""One look at the machine: asks the sources and builds the snapshot. Runs inside the collector.

Rates and everything that needs two samples are derived here, once.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from gpuwatch.model.metrics import METRICS, Lane, MetricSpec, Unit
from gpuwatch.model.reading import Missing, Value
from gpuwatch.model.snapshot import Device, Driver, MigInstance, Problem, Process, Snapshot, Topology
from gpuwatch.monitor.beside import Beside
from gpuwatch.monitor.rows import NO_EARLIER_SAMPLE, ProcessRows, unknown_row
from gpuwatch.monitor.wire import aged
from gpuwatch.sources import procfs
from gpuwatch.sources.ancestry import Ancestry
from gpuwatch.sources.answers import NvmlUnavailable
from gpuwatch.sources.device import ASLEEP, NvmlDevice
from gpuwatch.sources.host import HostReader, ProcessTable
from gpuwatch.sources.nvml import Nvml

_SLOW_EVERY = 4.8
"""Seconds; with a sample a second it is every fifth, also where one comes some milliseconds early."""
_REOPEN_EVERY = 5.0
_DCGM_EVERY = 60.0
_AGAIN_EVERY = 60.0
"""Seconds after which what is not supported is asked for once more."""
_DCGM = "nv-hostengine"
_SHARED = Problem(
    source="gpm",
    reason="gpm.shared",
    detail="DCGM's host engine (nv-hostengine) runs here, and GPM takes the counters that its profiling takes",
    hint="run gpuwatch without --gpm, or pause the other: dcgmi profile --pause",
)
_SLOW_LANES = (Lane.FAST, Lane.SLOW, Lane.ONCE)
_ALL_LANES = (*_SLOW_LANES, Lane.ON_DEMAND)

_RATES = tuple(spec for spec in METRICS if spec.rate_of)

_WENT_BACK = Missing("no_sample", detail="its counter went back, as after a reset; known after the next reading")


class Sampler:
    """Keeps the sources open between samples; one instance per collector."""

    def __init__(self, on_demand: bool = False, *, gpm: bool = False) -> None:
        self._nvml = Nvml()
        self._table = ProcessTable()
        self._beside = Beside(self._table)
        self._ancestry = Ancestry(self._table)
        self._host = HostReader()
        self._slow_at = float("-inf")
        self._slow_reads = 0
        self._tried_at = float("-inf")
        self._again_at = time.monotonic()
        self._problem: Problem | None = None
        self._on_demand = on_demand
        self._gpm = gpm
        self._dcgm_at = float("-inf")
        self._dcgm = False
        self._rates = Rates()
        self._rows = ProcessRows(self._table)
        self._described: list[tuple[object, ...]] = []
        self._made: dict[str, _Made] = {}
        self._topology: Topology | None = None

    def sample(self) -> Snapshot:
        """One snapshot; whatever could not be read is in it with its reason."""
        return aged(self.take())

    def take(self, preview: Callable[[Snapshot], None] | None = None) -> Snapshot:
        """The same, but a process that has not changed is the object of the sample before, run time included.

        :func:`gpuwatch.monitor.wire.aged` brings run times up to date. ``preview`` is given the devices as
        soon as they have been read, with rows of processes of which nothing but their number is known.
        """
        taken_at = datetime.datetime.now(datetime.UTC)
        began = time.monotonic()
        host, host_problems = self._host.read()
        problems: list[Problem] = []
        self._rows.begin(taken_at.timestamp(), began)

        def look_ahead(devices: tuple[Device, ...], processes: tuple[Process, ...]) -> None:
            if preview is not None:
                preview(
                    Snapshot(
                        taken_at=taken_at,
                        took_seconds=time.monotonic() - began,
                        simulated=self._nvml.simulated,
                        driver=self._nvml.driver,
                        devices=devices,
                        processes=processes,
                        host=host,
                        problems=tuple(host_problems),
                    )
                )

        driver, devices, processes = self._gpus(began, problems, look_ahead)
        if not devices:
            processes = [self._rows.host_row(facts) for facts in self._table.everyone(began)]
        bystanders: tuple[Process, ...] = ()
        if devices:
            bystanders = self._beside.look(began, taken_at.timestamp(), processes)
        shown = {process.pid for process in processes}
        self._ancestry.look(began, shown)
        self._table.forget_except(shown | self._beside.pids | self._ancestry.pids)
        return Snapshot(
            taken_at=taken_at,
            took_seconds=time.monotonic() - began,
            simulated=self._nvml.simulated,
            driver=driver,
            devices=tuple(devices),
            processes=tuple(processes),
            host=host,
            problems=(*problems, *host_problems),
            bystanders=bystanders,
            parents=self._ancestry.parents,
            ancestors=self._ancestry.ancestors,
            topology=self._topology if devices else None,
            host_processes=None if devices else self._table.counted,
        )

    @property
    def gpm(self) -> bool:
        """Whether the activity of the GPUs' parts is asked for, with counters that profilers take too."""
        return self._gpm

    @gpm.setter
    def gpm(self, wanted: bool) -> None:
        if self._gpm and not wanted:
            self._nvml.forget_activity()
        self._gpm = wanted

    def close(self) -> None:
        """Ends the session with the driver."""
        self._nvml.close()

    # -- inside ---------------------------------------------------------------------------------

    def _gpus(
        self, now: float, problems: list[Problem], look_ahead: Callable[[tuple[Device, ...], tuple[Process, ...]], None]
    ) -> tuple[Driver | None, list[Device], list[Process]]:
        # The second look comes at once, for rates need two; from then on every five seconds.
        slow = self._slow_reads < 2 or now - self._slow_at >= _SLOW_EVERY
        try:
            if self._problem is None or now - self._tried_at >= _REOPEN_EVERY:
                self._tried_at = now
                self._problem = None
                self._nvml.open()
            if self._problem is None and ((slow and self._slow_reads) or self._nvml.unsettled):
                self._nvml.refresh()
        except NvmlUnavailable as error:
            self._problem = error.problem
        if self._problem is not None:
            problems.append(self._problem)
            return None, [], []
        lanes: Collection[Lane] = (Lane.FAST,)
        if slow:
            if now - self._again_at >= _AGAIN_EVERY:
                self._again_at = now
                self._nvml.ask_again()
            lanes = _ALL_LANES if self._on_demand and self._slow_reads != 1 else _SLOW_LANES
            self._slow_at = now
            self._slow_reads += 1
        if self._gpm:
            lanes = (*lanes, Lane.GPM)
            problems.extend(self._counters_shared(now))
        listed = [(device, *self._nvml.sample(device, lanes)) for device in self._nvml.devices]
        if listed and self._slow_reads == 1:
            look_ahead(
                tuple(_device(d, dict(r), dict(m), self._nvml.simulated) for d, r, m in listed),
                tuple(unknown_row(entry, d) for d, _, _ in listed if d.handle for entry in self._nvml.processes(d)[0]),
            )
        if slow and self._slow_reads > 1:  # not before the first frame
            self._topology = self._nvml.topology()
        self._nvml.hear_xids(listen=slow and self._slow_reads > 1)
        devices: list[Device] = []
        processes: list[Process] = []
        described = [_described(device, self._nvml.simulated) for device, _, _ in listed]
        if described != self._described:
            self._described = described
            self._rows.devices([_device(device, {}, {}, self._nvml.simulated) for device, _, _ in listed])
        for (device, read, lacks), words in zip(listed, described, strict=True):
            rows, complete = self._processes(device, problems)
            made = self._made.get(device.uuid)
            if made is not None and made.same(read, lacks, rows, words) and not device.instances:
                devices.append(made.device)
                processes.extend(rows)
                continue
            readings, missing = dict(read), dict(lacks)
            _unexplained(device, rows, complete, readings, missing)
            self._rates.add(device.uuid, device.slow_at, readings, missing)
            if not self._on_demand:
                _not_asked(readings, missing)
            instances = self._nvml.mig_instances(device, gpm=self._gpm)
            one = _device(device, readings, missing, self._nvml.simulated, instances)
            if complete:
                self._made[device.uuid] = _Made(read, lacks, rows, words, one)
            else:
                self._made.pop(device.uuid, None)
            devices.append(one)
            processes.extend(rows)
        if not devices:
            problems.append(
                Problem(
                    source="nvml",
                    reason="driver.bad-state",
                    detail="the NVIDIA driver answers, and lists no GPU",
                    hint="all were taken out; this puts one back: gpuwatch sim fault add 0"
                    if self._nvml.simulated
                    else "see lspci and dmesg; in a container, check which GPUs it was given",
                )
            )
        return self._nvml.driver, devices, processes

    def _counters_shared(self, now: float) -> tuple[Problem, ...]:
        """Said where DCGM runs: what both read then may be wrong."""
        if now - self._dcgm_at >= _DCGM_EVERY:
            self._dcgm_at, self._dcgm = now, procfs.runs(_DCGM)
        return (_SHARED,) if self._dcgm else ()

    def _processes(self, device: NvmlDevice, problems: list[Problem]) -> tuple[list[Process], bool]:
        """The processes of one device, and whether the list is complete."""
        if device.state in ("lost", "reset-required", ASLEEP) or device.handle is None:
            return [], False
        listed, failed = self._nvml.processes(device)
        problems.extend(
            Problem(source=f"nvml device {device.index}", reason=lack.reason, detail=lack.detail) for lack in failed
        )
        if not listed:
            return [], not failed
        utilization, lack = self._nvml.process_utilization(device)
        rows = self._rows.rows(listed, device, utilization, lack)
        return rows, not failed


class _Made(NamedTuple):
    """A device as it was made last, and what it was made of."""

    readings: dict[str, Value]
    missing: dict[str, Missing]
    rows: list[Process]
    words: tuple[object, ...]
    device: Device

    def same(
        self, readings: dict[str, Value], missing: dict[str, Missing], rows: list[Process], words: tuple[object, ...]
    ) -> bool:
        """Whether it would be made of the same again. Sources give the same objects where nothing has changed."""
        return (
            self.readings is readings
            and self.missing is missing
            and (self.rows is rows or not (self.rows or rows))
            and self.words == words
        )


class Rates:
    """What grows per second: the metrics that name a counter, from two readings of it.

    Counters come with the slow lane, so a rate is the mean since it was last read, and is kept between.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], tuple[float, float]] = {}
        self._kept: dict[str, tuple[float, dict[str, Value | Missing]]] = {}

    def add(self, uuid: str, read_at: float, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
        """Puts the rates of a device beside its readings, which were read at ``read_at`` (monotonic)."""
        if not read_at:
            return  # the slow lane has not been read yet
        kept = self._kept.get(uuid)
        if kept is None or kept[0] != read_at:
            kept = (read_at, {spec.id: self._rate(uuid, spec, read_at, readings, missing) for spec in _RATES})
            self._kept[uuid] = kept
        for metric_id, rate in kept[1].items():
            if isinstance(rate, Missing):
                missing.setdefault(metric_id, rate)
            elif metric_id not in missing:
                readings[metric_id] = rate

    def _rate(
        self, uuid: str, spec: MetricSpec, now: float, readings: dict[str, Value], missing: dict[str, Missing]
    ) -> Value | Missing:
        total = readings.get(spec.rate_of)
        if not isinstance(total, (int, float)):
            return missing.get(spec.rate_of, NO_EARLIER_SAMPLE)
        before = self._before.get((uuid, spec.id))
        self._before[uuid, spec.id] = (now, total)
        if before is None or now <= before[0]:
            return NO_EARLIER_SAMPLE
        grown = total - before[1]
        if grown < 0:
            return _WENT_BACK
        rate = grown / (now - before[0]) * spec.scale
        return min(rate, 100.0) if spec.unit is Unit.PERCENT else rate


def _described(device: NvmlDevice, simulated: bool) -> tuple[object, ...]:
    """All that :func:`_device` says of a device beside what is read of it."""
    return (
        device.index,
        device.uuid,
        device.name,
        device.pci_bus_id,
        device.compute_capability,
        simulated,
        device.state,
        device.state_detail,
        device.xids,
        device.xids_missing,
    )


def _device(
    device: NvmlDevice,
    readings: dict[str, Value],
    missing: dict[str, Missing],
    simulated: bool,
    instances: tuple[MigInstance, ...] = (),
) -> Device:
    return Device(
        index=device.index,
        uuid=device.uuid,
        name=device.name,
        pci_bus_id=device.pci_bus_id,
        compute_capability=device.compute_capability,
        simulated=simulated,
        state=device.state,
        state_detail=device.state_detail,
        readings=readings,
        missing=missing,
        mig_instances=instances,
        xids=device.xids,
        xids_missing=device.xids_missing,
    )


_ON_DEMAND_IDS = tuple(spec.id for spec in METRICS if spec.lane is Lane.ON_DEMAND)
_ON_DEMAND = Missing("no_sample", detail="asked for on demand only: the call takes 20 ms")


def _not_asked(readings: dict[str, Value], missing: dict[str, Missing]) -> None:
    for metric_id in _ON_DEMAND_IDS:
        if metric_id not in readings:
            missing.setdefault(metric_id, _ON_DEMAND)


def _unexplained(
    device: NvmlDevice,
    rows: list[Process],
    complete: bool,
    readings: dict[str, Value],
    missing: dict[str, Missing],
) -> None:
    """Used memory less that of the listed processes; only where every one of them is told."""
    used = readings.get("memory.used_bytes")
    key = "memory.unexplained_bytes"
    if not isinstance(used, int):
        missing[key] = missing.get("memory.used_bytes", Missing("unknown", detail="memory used is not known"))
        return
    if not complete:
        missing[key] = Missing("unknown", detail="the list of processes could not be read")
        return
    owned = [row.readings.get("gpu_memory_bytes") for row in rows]
    known = [amount for amount in owned if isinstance(amount, int)]
    if len(known) < len(owned):
        missing[key] = Missing("unknown", detail="the driver does not tell the memory of every process")
        return
    readings[key] = max(0, used - sum(known))
