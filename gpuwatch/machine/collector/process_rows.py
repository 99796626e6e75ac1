"""The rows of processes in a snapshot. A row whose facts have not changed is the object of the sample before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import astuple

from gpuwatch.core.model.process_activity import MAX_IDLE_PERCENT, Activity, activity_after_sample, is_idle
from gpuwatch.core.model.reading import Missing, Reason, Value
from gpuwatch.core.model.snapshot import IDLE_SINCE, RUN_SECONDS, Device, Mapped, Process
from gpuwatch.core.model.visible_devices import visible_to
from gpuwatch.machine.sources.device_source import GpuProcess, SourceDevice, Utilization
from gpuwatch.machine.sources.hidden_processes import HIDDEN
from gpuwatch.machine.sources.process_table import ProcessFacts, ProcessTable, cpu_clock_id

NO_EARLIER_SAMPLE = Missing("no_sample", detail="needs two samples; this is the first")
_NO_UTILIZATION = Missing("no_sample", detail="nvmlDeviceGetProcessUtilization: no sample for this process")
_MEMORY_UNKNOWN = Missing("not_supported", detail="the driver does not report this process's memory")
_NO_GPU = Missing("not_supported", detail="no GPU on this machine answers")
_NOT_TOLD = Missing("not_supported", detail="the driver does not report which process on this GPU computes")
_FAILED = frozenset({"failed", "stale", "device_lost"})
_MAX_FAILED_SAMPLES = 3
"""Samples of a device that may fail until its processes may have computed unseen: their idle times begin again."""
_NO_NEWER_SECONDS = 5.0
"""Seconds without a sample of any process of a busy device after which its driver does not tell who computes. Up to
then nobody's kernel was seen, whatever the device's own utilization says: that of a process that has ended lingers.
"""
_OF_GPUS = ("sm_percent", "memory_percent", "encoder_percent", "decoder_percent")

_Key = tuple[int, str | None]
_BuiltRow = tuple[tuple[object, ...], Process]
"""What a row was built from, and the row."""
_Idle = tuple[Activity, float | None]
"""Whether a process computes, and its start."""


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
        self._facts_of: Callable[[int, float], ProcessFacts | None] = table.facts_of
        self._are_unchanged = table.are_unchanged
        self._why_absent = table.why_absent
        self._rows: dict[str, dict[_Key, _BuiltRow]] = {}
        self._before: dict[str, dict[_Key, _BuiltRow]] = {}
        """By device, in this sample and in the previous one."""
        self._lists: dict[str, _DeviceRows] = {}
        self._lists_before: dict[str, _DeviceRows] = {}
        self._devices: list[Device] = []
        self._idle: dict[str, dict[_Key, _Idle]] = {}
        self._quiet: set[str] = set()
        """Devices with a process that becomes idle unless it computes, though nothing of it changes."""
        self._told_in: dict[str, int] = {}
        """The last sample of each device that told who computes."""
        self._told_at: dict[str, float] = {}
        """When that was, not counting samples that failed."""
        self._sample = 0
        self._now = 0.0

    def begin(self, now: float) -> None:
        """Begins a new sample, at ``now`` on the monotonic clock."""
        self._before, self._rows = self._rows, {}
        self._lists_before, self._lists = self._lists, {}
        self._now = now
        self._sample += 1

    def devices(self, devices: list[Device]) -> None:
        """Sets the devices, without readings, in which a process's CUDA device numbers are looked up."""
        if devices != self._devices:
            self._devices = devices

    def rows(
        self,
        entries: Sequence[GpuProcess],
        device: SourceDevice,
        utilization: Mapping[int, Utilization],
        lack: Missing | None,
        busy: float | None,
    ) -> list[Process]:
        """The rows of a device's processes; only changed rows are new objects. ``busy``: the device's utilization."""
        facts_of, now, devices, uuid, index = self._facts_of, self._now, self._devices, device.uuid, device.index
        still = busy is not None and busy <= MAX_IDLE_PERCENT
        old = still and uuid not in self._told_in  # the driver's first samples may be of any time before
        if utilization or still:
            self._told_at[uuid] = now
        no_newer = busy is not None and lack is not None and lack.reason == "no_sample"
        no_newer = no_newer and not still and now - self._told_at.get(uuid, float("-inf")) <= _NO_NEWER_SECONDS
        built_from_all = (index, utilization, lack, None if busy is None else still, no_newer, old)
        failed = busy is None or (not still and lack is not None and lack.reason in _FAILED)
        was_idle = (
            self._idle.get(uuid, {}) if self._sample - self._told_in.get(uuid, 0) <= _MAX_FAILED_SAMPLES + 1 else {}
        )
        if utilization or not failed:
            self._told_in[uuid] = self._sample
        whole = self._lists_before.get(uuid)
        same = whole is not None and whole.entries is entries and whole.devices is devices
        same = same and uuid not in self._quiet
        if whole is not None and same and whole.built_from == built_from_all and self._are_unchanged(whole.known, now):
            self._lists[uuid], self._rows[uuid] = whole, self._before[uuid]
            return whole.rows
        before = self._before.get(uuid, {})
        here = self._rows[uuid] = {}
        idle_now: dict[_Key, _Idle] = {}
        self._idle[uuid] = idle_now
        working = any(max(used.sm, used.memory) > MAX_IDLE_PERCENT for used in utilization.values())
        known: list[tuple[int, ProcessFacts, int]] = []
        found = []
        for entry in entries:
            pid = entry.pid
            facts = facts_of(pid, now)
            used = utilization.get(pid)
            changes: int | str = self._why_absent(pid, now) if facts is None else facts.changes
            key = (pid, entry.mig_instance)
            kept = before.get(key)
            create_time = None if facts is None else facts.create_time
            was = was_idle.get(key)
            if was is not None and was[1] != create_time:  # another process has its pid
                was = None
            if no_newer and was is not None:
                idle: bool | None = was[0].quiet_since > 0
            else:
                idle = is_idle(
                    busy,
                    None if used is None or old else max(used.sm, used.memory),
                    only_others=used is None and working,
                    alone=len(entries) == 1,
                )
            since = None
            if idle is not None:
                activity = activity_after_sample(was[0] if was is not None else None, idle, int(time.time()))
                since = activity.idle_since
                idle_now[key] = activity, create_time
            elif was is not None and (failed or not was[0].idle_since):  # it computed, and is not idle at once
                idle_now[key] = was if failed else (Activity(0, 0), create_time)
            built_from = (facts, devices, entry, used, lack, changes, index, since)
            if kept is None or not _is_unchanged(kept[0], built_from):
                absent = changes if isinstance(changes, str) else ""
                kept = (built_from, _gpu_process(entry, device, facts, used, lack, devices, absent, since))
            here[key] = kept
            found.append(kept[1])
            if facts is not None:
                known.append((cpu_clock_id(pid), facts, facts.changes))
        waiting = any(activity.quiet_since > 0 and not activity.idle_since for activity, _ in idle_now.values())
        (self._quiet.add if waiting else self._quiet.discard)(uuid)
        if len(known) == len(found):  # an invisible process may have run without our noticing
            self._lists[uuid] = _DeviceRows(entries, built_from_all, devices, tuple(known), found)
        return found

    def host_row(self, facts: ProcessFacts) -> Process:
        """The row of a process on a machine where no GPU answers."""
        built_from = (facts, self._devices, facts.changes)
        key = (facts.pid, None)
        kept = self._before.get("", {}).get(key)
        if kept is None or not _is_unchanged(kept[0], built_from):
            kept = (built_from, host_process(facts))
        self._rows.setdefault("", {})[key] = kept
        return kept[1]


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
    lack: Missing | None,
    devices: list[Device],
    absent: str,
    idle_since: int | None,
) -> Process:
    readings: dict[str, Value] = {}
    missing: dict[str, Missing] = {}
    if entry.used_bytes is None:
        missing["gpu_memory_bytes"] = _MEMORY_UNKNOWN
    else:
        readings["gpu_memory_bytes"] = entry.used_bytes
    if utilization is None:
        missing.update(dict.fromkeys(_OF_GPUS, lack or _NO_UTILIZATION))
    else:
        readings.update(zip(_OF_GPUS, astuple(utilization), strict=True))
    if idle_since is None:
        missing[IDLE_SINCE] = lack or _NOT_TOLD
    else:
        readings[IDLE_SINCE] = idle_since
    mapped, note = device_numbers_of(facts, devices) if facts is not None else ((), absent)
    return Process(
        pid=entry.pid,
        **_described(facts),
        type=entry.kind,
        device_uuid=device.uuid,
        device_index=device.index,
        mig_instance=entry.mig_instance,
        device_map=mapped,
        note=note,
        state=None if facts is None else facts.state,
        readings=readings | _host_readings(facts, missing, absent),
        missing=missing,
    )


def _described(facts: ProcessFacts | None) -> dict[str, Any]:
    """The fields of a row that say what a process is."""
    if facts is None:
        return {"create_time": None, "user": None, "command": None}
    fields = {
        name: getattr(facts, name) for name in ("create_time", "user", "command", "name", "framework", "container")
    }
    return fields | {"cuda_visible_devices": (facts.environment or {}).get("CUDA_VISIBLE_DEVICES")}


def device_numbers_of(facts: ProcessFacts, devices: Sequence[Device]) -> tuple[tuple[Mapped, ...], str]:
    """The process's CUDA device numbers, from its environment, and a note for the user."""
    if facts.environment is None:
        return (), facts.note or "environment cannot be read"
    visible = visible_to(facts.environment, devices)
    return visible.map, facts.note or visible.unsure


def _host_readings(facts: ProcessFacts | None, missing: dict[str, Missing], absent: str = "") -> dict[str, Value]:
    if facts is None:
        reason: Reason = "permission_denied" if absent.startswith(HIDDEN) else "unknown"
        why = Missing(reason, detail=f"the process is {absent}")
        missing.update(dict.fromkeys(("cpu_percent", "host_memory_bytes", RUN_SECONDS, "threads"), why))
        return {}
    readings: dict[str, Value] = {
        "host_memory_bytes": facts.host_memory_bytes,
        "threads": facts.threads,
    }
    if facts.cpu_percent is None:
        missing["cpu_percent"] = NO_EARLIER_SAMPLE
    else:
        readings["cpu_percent"] = facts.cpu_percent
    return readings


def host_process(facts: ProcessFacts) -> Process:
    """A row without a GPU."""
    missing = dict.fromkeys(("gpu_memory_bytes", *_OF_GPUS, IDLE_SINCE), _NO_GPU)
    readings = _host_readings(facts, missing)
    return Process(
        pid=facts.pid,
        **_described(facts),
        type="H",
        device_uuid=None,
        note=facts.note,
        readings=readings,
        missing=missing,
    )
