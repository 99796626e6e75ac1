"""The rows of processes in a snapshot. A row whose facts have not changed is the object of the sample before."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import astuple

from gpuwatch.core.model.process_activity import MAX_IDLE_PERCENT, Activity, activity_after_sample, is_idle
from gpuwatch.core.model.reading import Missing, Reason, Value
from gpuwatch.core.model.snapshot import HOST_PROCESS_READINGS, IDLE_SINCE, RUN_SECONDS, Device, MappedDevice, Process
from gpuwatch.core.model.visible_devices import visible_to
from gpuwatch.machine.sources.device_source import NO_EARLIER_SAMPLE, GpuProcess, SourceDevice, Utilization
from gpuwatch.machine.sources.process_table import ProcessFacts, ProcessTable, cpu_clock_id
from gpuwatch.machine.sources.procfs import HIDDEN

_NO_UTILIZATION = Missing("no_sample", detail="nvmlDeviceGetProcessUtilization: no sample for this process")
_MEMORY_UNKNOWN = Missing("not_supported", detail="the driver does not report this process's memory")
_NO_GPU_ANSWERS = Missing("not_supported", detail="no GPU on this machine answers")
_COMPUTING_UNKNOWN = Missing("not_supported", detail="the driver does not report which process on this GPU computes")
_FAILED_REASONS = frozenset({"failed", "stale", "device_lost"})
_MAX_FAILED_SAMPLES = 3
"""Samples of a device that may fail until its processes may have computed unseen: their idle times begin again."""
_NO_NEWER_SAMPLE_SECONDS = 5.0
"""Seconds without a sample of any process of a busy device after which its driver does not tell who computes. Up to
then nobody's kernel was seen, whatever the device's own utilization says: that of a process that has ended lingers.
"""
_GPU_PERCENTAGES = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")

_Key = tuple[int, str | None]
_BuiltRow = tuple[tuple[object, ...], Process]
"""What a row was built from, and the row."""
_IdleState = tuple[Activity, float | None]
"""Since when a process computes or not, and when it was started."""


class _DeviceRows(NamedTuple):
    """All rows of a device, and what they were built from."""

    entries: Sequence[GpuProcess]
    built_from: tuple[object, ...]
    devices: list[Device]
    known: tuple[tuple[int, ProcessFacts, int], ...]
    """As :meth:`ProcessTable.are_unchanged` takes them."""
    rows: list[Process]


class ProcessRows:
    """Builds the rows of GPU processes, and keeps unchanged ones from one sample to the next."""

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        self._rows: dict[str, dict[_Key, _BuiltRow]] = {}
        self._rows_before: dict[str, dict[_Key, _BuiltRow]] = {}
        """By device, in this sample and in the previous one."""
        self._device_rows: dict[str, _DeviceRows] = {}
        self._device_rows_before: dict[str, _DeviceRows] = {}
        self._devices: list[Device] = []
        self._idle_states: dict[str, dict[_Key, _IdleState]] = {}
        self._becoming_idle: set[str] = set()
        """Devices with a process that will be idle soon unless it computes, though nothing of it changes."""
        self._reported_in: dict[str, int] = {}
        """By device: the number of the last sample in which the driver reported who computes."""
        self._reported_at: dict[str, float] = {}
        """By device: when that was, not counting samples that failed."""
        self._sample = 0
        self._now = 0.0

    def begin_sample(self, now: float) -> None:
        """Begins a new sample, at ``now`` on the monotonic clock."""
        self._rows_before, self._rows = self._rows, {}
        self._device_rows_before, self._device_rows = self._device_rows, {}
        self._now = now
        self._sample += 1

    def set_devices(self, devices: list[Device]) -> None:
        """Sets the devices, without readings, in which a process's CUDA device numbers are looked up."""
        if devices != self._devices:
            self._devices = devices

    def rows(
        self,
        entries: Sequence[GpuProcess],
        device: SourceDevice,
        utilization: Mapping[int, Utilization],
        why_missing: Missing | None,
        gpu_percent: float | None,
    ) -> list[Process]:
        """The rows of a device's processes; only changed rows are new objects.

        ``utilization`` by pid, with the reason where the driver gives none; ``gpu_percent``: that of the device.
        """
        now, devices, uuid = self._now, self._devices, device.uuid
        reason = why_missing.reason if why_missing is not None else None
        device_idle = gpu_percent is not None and gpu_percent <= MAX_IDLE_PERCENT
        stale = device_idle and uuid not in self._reported_in  # the driver's first samples may be of any time before
        if utilization or device_idle:
            self._reported_at[uuid] = now
        no_newer_sample = (
            gpu_percent is not None
            and reason == "no_sample"
            and not device_idle
            and now - self._reported_at.get(uuid, float("-inf")) <= _NO_NEWER_SAMPLE_SECONDS
        )
        failed = gpu_percent is None or (not device_idle and reason in _FAILED_REASONS)
        recent = self._sample - self._reported_in.get(uuid, 0) <= _MAX_FAILED_SAMPLES + 1
        earlier_idle = self._idle_states.get(uuid, {}) if recent else {}
        if utilization or not failed:
            self._reported_in[uuid] = self._sample
        device_state = None if gpu_percent is None else device_idle
        list_built_from = (device.index, utilization, why_missing, device_state, no_newer_sample, stale)
        previous = self._device_rows_before.get(uuid)
        if (
            previous is not None
            and previous.entries is entries
            and previous.devices is devices
            and uuid not in self._becoming_idle
            and previous.built_from == list_built_from
            and self._table.are_unchanged(previous.known, now)
        ):
            self._device_rows[uuid], self._rows[uuid] = previous, self._rows_before[uuid]
            return previous.rows
        before = self._rows_before.get(uuid, {})
        rows_now = self._rows[uuid] = {}
        idle_now = self._idle_states[uuid] = {}
        working = any(max(used.sm, used.memory) > MAX_IDLE_PERCENT for used in utilization.values())
        known: list[tuple[int, ProcessFacts, int]] = []
        rows = []
        for entry in entries:
            pid, key = entry.pid, (entry.pid, entry.mig_instance)
            facts = self._table.facts_of(pid, now)
            used = utilization.get(pid)
            changes: int | str = self._table.why_absent(pid, now) if facts is None else facts.changes
            built = before.get(key)
            create_time = None if facts is None else facts.create_time
            earlier = earlier_idle.get(key)
            if earlier is not None and earlier[1] != create_time:  # another process has its pid
                earlier = None
            if no_newer_sample and earlier is not None:
                idle: bool | None = earlier[0].quiet_since > 0
            else:
                idle = is_idle(
                    gpu_percent,
                    None if used is None or stale else max(used.sm, used.memory),
                    only_others=used is None and working,
                    alone=len(entries) == 1,
                )
            since = None
            if idle is not None:
                activity = activity_after_sample(earlier[0] if earlier is not None else None, idle, int(time.time()))
                since = activity.idle_since
                idle_now[key] = activity, create_time
            elif earlier is not None and (failed or not earlier[0].idle_since):  # it computed, and is not idle at once
                idle_now[key] = earlier if failed else (Activity(0, 0), create_time)
            built_from = (facts, devices, entry, used, why_missing, changes, device.index, since)
            if built is None or not _is_unchanged(built[0], built_from):
                why_absent = changes if isinstance(changes, str) else ""
                built = (built_from, _gpu_process(entry, device, facts, used, why_missing, devices, why_absent, since))
            rows_now[key] = built
            rows.append(built[1])
            if facts is not None:
                known.append((cpu_clock_id(pid), facts, facts.changes))
        becoming_idle = any(activity.quiet_since > 0 and not activity.idle_since for activity, _ in idle_now.values())
        (self._becoming_idle.add if becoming_idle else self._becoming_idle.discard)(uuid)
        if len(known) == len(rows):  # an invisible process may have run without our noticing
            self._device_rows[uuid] = _DeviceRows(entries, list_built_from, devices, tuple(known), rows)
        return rows

    def host_row(self, facts: ProcessFacts) -> Process:
        """The row of a process on a machine where no GPU answers."""
        built_from = (facts, self._devices, facts.changes)
        key = (facts.pid, None)
        built = self._rows_before.get("", {}).get(key)
        if built is None or not _is_unchanged(built[0], built_from):
            built = (built_from, host_process(facts))
        self._rows.setdefault("", {})[key] = built
        return built[1]


def _is_unchanged(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    """Whether a row would be built from the same; facts and list of devices must be identical objects."""
    return before[0] is now[0] and before[1] is now[1] and before[2:] == now[2:]


def unknown_row(entry: GpuProcess, device: SourceDevice) -> Process:
    """The row of a process of which only the pid is known."""
    return Process(
        pid=entry.pid,
        create_time=None,
        user=None,
        command=None,
        type=entry.kind,
        device_uuid=device.uuid,
        device_index=device.index,
        mig_instance=entry.mig_instance,
        readings={},
    )


def _gpu_process(
    entry: GpuProcess,
    device: SourceDevice,
    facts: ProcessFacts | None,
    utilization: Utilization | None,
    why_missing: Missing | None,
    devices: list[Device],
    why_absent: str,
    idle_since: int | None,
) -> Process:
    readings: dict[str, Value] = {}
    missing: dict[str, Missing] = {}
    if entry.used_bytes is None:
        missing["gpu_memory_bytes"] = _MEMORY_UNKNOWN
    else:
        readings["gpu_memory_bytes"] = entry.used_bytes
    if utilization is None:
        missing.update(dict.fromkeys(_GPU_PERCENTAGES, why_missing or _NO_UTILIZATION))
    else:
        readings.update(zip(_GPU_PERCENTAGES, astuple(utilization), strict=True))
    if idle_since is None:
        missing[IDLE_SINCE] = why_missing or _COMPUTING_UNKNOWN
    else:
        readings[IDLE_SINCE] = idle_since
    mapped, note = device_numbers_of(facts, devices) if facts is not None else ((), why_absent)
    return Process(
        pid=entry.pid,
        **_identity_fields(facts),
        type=entry.kind,
        device_uuid=device.uuid,
        device_index=device.index,
        mig_instance=entry.mig_instance,
        device_map=mapped,
        note=note,
        state=None if facts is None else facts.state,
        readings=readings | _host_readings(facts, missing, why_absent),
        missing=missing,
    )


def _identity_fields(facts: ProcessFacts | None) -> dict[str, Any]:
    """The fields of a row that say what a process is."""
    if facts is None:
        return {"create_time": None, "user": None, "command": None}
    return {
        "create_time": facts.create_time,
        "user": facts.user,
        "command": facts.command,
        "name": facts.name,
        "framework": facts.framework,
        "container": facts.job_or_container,
        "cuda_visible_devices": (facts.environment or {}).get("CUDA_VISIBLE_DEVICES"),
    }


def device_numbers_of(facts: ProcessFacts, devices: Sequence[Device]) -> tuple[tuple[MappedDevice, ...], str]:
    """The process's CUDA device numbers, from its environment, and a note for the user."""
    if facts.environment is None:
        return (), facts.note or "environment cannot be read"
    visible = visible_to(facts.environment, devices)
    return visible.map, facts.note or visible.why_unsure


def _host_readings(facts: ProcessFacts | None, missing: dict[str, Missing], why_absent: str = "") -> dict[str, Value]:
    if facts is None:
        reason: Reason = "permission_denied" if why_absent.startswith(HIDDEN) else "unknown"
        why = Missing(reason, detail=f"the process is {why_absent}")
        missing.update(dict.fromkeys((*HOST_PROCESS_READINGS, RUN_SECONDS), why))
        return {}
    if facts.cpu_percent is None:
        missing["cpu_percent"] = NO_EARLIER_SAMPLE
        return facts.readings
    return facts.readings | {"cpu_percent": facts.cpu_percent}


def host_process(facts: ProcessFacts) -> Process:
    """A row without a GPU."""
    missing = dict.fromkeys(("gpu_memory_bytes", *_GPU_PERCENTAGES, IDLE_SINCE), _NO_GPU_ANSWERS)
    readings = _host_readings(facts, missing)
    return Process(
        pid=facts.pid,
        **_identity_fields(facts),
        type="H",
        device_uuid=None,
        note=facts.note,
        readings=readings,
        missing=missing,
    )
