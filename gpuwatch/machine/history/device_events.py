"""Events of devices without a duration: a new device, a MIG layout, freed memory, Xids of programs."""

from __future__ import annotations

from collections.abc import Mapping

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.snapshot import BAD_STATES, Device, Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.history.gone_gpus import forget_gone
from gpuwatch.machine.history.machine_event import MachineEvent, device_event

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
            text = (
                f"reports no Xids; its errors are only in dmesg: {printable(why_missing.detail or why_missing.reason)}"
            )
            found.append(device_event(device, at, "device.no-xids", text, "info"))
        return found


def _mig_events(before: Device, now: Device, at: float) -> list[MachineEvent]:
    """An event if MIG was switched or its instances changed. A failed reading is not a change."""
    modes = before.get("mig.mode"), now.get("mig.mode")
    then, uuids = ({instance.id: instance for instance in device.mig_instances} for device in (before, now))
    if then.keys() == uuids.keys() or not all(isinstance(mode, str) for mode in modes):
        return []
    profiles = ", ".join(printable(instance.profile or instance.id) for instance in now.mig_instances)
    text = f"MIG layout changed: {profiles or f'no instances, {len(then)} before'}"
    return [device_event(now, at, "mig.changed", text, "info")]
