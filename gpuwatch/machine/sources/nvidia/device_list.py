"""Which GPUs NVML lists. A suspended GPU is not queried: that would wake it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuwatch.core.model.metrics import Lane
from gpuwatch.machine.sources.base import ASLEEP
from gpuwatch.machine.sources.nvidia import errors
from gpuwatch.machine.sources.nvidia.decode import bus_id, decode, text_of
from gpuwatch.machine.sources.nvidia.device import NvmlDevice
from gpuwatch.machine.sources.runtime_pm import RuntimePm

_SUSPENDED = "suspended by the kernel; reading it would wake it"


_MOST = 1024
"""More GPUs no host has."""


class DeviceList:
    """The devices of a session, listed again when they change. Cached facts about a device outlive the session."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._runtime_pm = RuntimePm()
        self.devices: list[NvmlDevice] = []
        self.woke = False
        """A device that was asleep when it was listed has woken up and must be described."""

    def changed(self) -> bool:
        """Whether the list is out of date. ``NVMLError`` if the devices cannot be counted."""
        count = self._lib.count("nvmlDeviceGetCount", _MOST)
        if count != len(self.devices):
            return True
        return any(map(self._differs, self.devices))

    def renew(self) -> None:
        """Lists the devices again. ``NVMLError`` if they cannot be counted."""
        known = {device.uuid: device for device in self.devices}
        count = self._lib.count("nvmlDeviceGetCount", _MOST)
        there = self._runtime_pm.gpus()
        asleep = {
            index: pci
            for index, pci in enumerate(there)
            if len(there) == count and self._runtime_pm.managed(pci) and self._runtime_pm.asleep(pci)
        }
        self.devices = [
            self._sleeping(index, asleep[index]) if index in asleep else self._describe(index, known)
            for index in range(count)
        ]
        self.woke = False

    def note_power_management(self, device: NvmlDevice) -> None:
        """Updates ``device.may_sleep``."""
        device.may_sleep = self._runtime_pm.managed(device.pci_bus_id)

    def asleep(self, device: NvmlDevice) -> bool:
        """Whether the kernel has suspended the device; sets its state."""
        if self._runtime_pm.asleep(device.pci_bus_id):
            device.state, device.state_detail = ASLEEP, _SUSPENDED
            return True
        if device.state == ASLEEP:
            if device.handle is None:
                self.woke = True
                return True
            device.state, device.state_detail = "ok", ""
        return False

    # -- inside ---------------------------------------------------------------------------------

    def _differs(self, device: NvmlDevice) -> bool:
        """Whether a device has to be described again: it is another one, it woke up, or it answers again."""
        if device.state == ASLEEP:
            return device.handle is None and not self._runtime_pm.asleep(device.pci_bus_id)
        uuid = self._uuid_at(device.index)
        return uuid is not None and (device.handle is None or uuid != device.uuid)

    def _uuid_at(self, index: int) -> str | None:
        """UUID of the device that is at ``index`` now; None if it does not answer (a lost device)."""
        try:
            return decode(self._lib.nvmlDeviceGetUUID(self._lib.nvmlDeviceGetHandleByIndex(index)))
        except self._lib.NVMLError:
            return None

    def _sleeping(self, index: int, pci_bus_id: str) -> NvmlDevice:
        """A suspended device: the known one, or a placeholder for its PCI address."""
        for device in self.devices:
            if device.pci_bus_id == pci_bus_id and device.handle is not None:
                device.index, device.state = index, ASLEEP
                return device
        return NvmlDevice(
            index, f"asleep-{pci_bus_id}", "sleeping GPU", pci_bus_id, state=ASLEEP, state_detail=_SUSPENDED
        )

    def _describe(self, index: int, known: dict[str, NvmlDevice]) -> NvmlDevice:
        lib = self._lib
        before = next((device for device in known.values() if device.index == index), None)
        handle, called = None, "nvmlDeviceGetHandleByIndex"
        try:
            handle = lib.nvmlDeviceGetHandleByIndex(index)
            called = "nvmlDeviceGetUUID"
            uuid = decode(lib.nvmlDeviceGetUUID(handle))
        except lib.NVMLError as error:
            lost = errors.LOST.get(error.value)
            if handle is None or lost:
                # A lost device has no handle; its row stays, with what was known of this slot.
                detail = f"{called}: {errors.text(lib, error.value)}"
                device = before or NvmlDevice(index, f"unknown-{index}", "unknown GPU", "")
                device.handle, device.state, device.state_detail = None, lost or "failed", detail
                return device
            uuid = before.uuid if before is not None else f"unknown-{index}"  # the other queries may well answer
        if uuid in known:
            device = known[uuid]
            device.index, device.handle = index, handle
            device.permanent.clear()
            device.mig_on, device.instances = None, []
            device.kept.pop(Lane.ONCE, None)
            device.last = None
            device.state, device.state_detail = "ok", ""
            return device
        name = maybe(lib, lib.nvmlDeviceGetName, handle)
        pci = maybe(lib, lib.nvmlDeviceGetPciInfo, handle)
        capability = maybe(lib, lib.nvmlDeviceGetCudaComputeCapability, handle)
        return NvmlDevice(
            index,
            uuid,
            "unknown GPU" if name is None else decode(name),
            "" if pci is None else bus_id(text_of(pci, "busId")),
            None if capability is None else f"{capability[0]}.{capability[1]}",
            handle=handle,
        )


def maybe(lib: Any, call: Callable[..., Any], *args: Any) -> Any:
    """The answer, or None if NVML fails: for identity facts, which have no reason of their own."""
    try:
        return call(*args)
    except lib.NVMLError:
        return None
