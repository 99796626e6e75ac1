"""Receives Xid events from the driver (``nvmlEventSetWait_v2``): one event set for all devices, never waiting.

Earlier Xids are only in the kernel's log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.xids import UNKNOWN, Xid
from gpuwatch.machine.sources.device_source import MAX_XIDS
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import text_from_nvml
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice
from gpuwatch.machine.sources.nvidia.nvml_errors import answer_or_none

_MAX_EVENTS_AT_ONCE = 64
"""Events taken at once: a GPU that reports endlessly must not block sampling."""
_MAY_SLEEP = Missing("no_sample", detail="not registered for events: that might keep the GPU awake")


class XidReceiver:
    """Xids of each device since its first :meth:`register`.

    ``earlier``: Xids that an earlier session received, by UUID of the device.
    """

    def __init__(self, lib: Any, earlier: Mapping[str, tuple[Xid, ...]] | None = None) -> None:
        self._lib = lib
        self._event_set: Any = None
        self._registered: dict[str, Any] = {}
        """Handle by UUID: a device that is listed again has a new one."""
        self._refused: dict[str, tuple[Any, Missing]] = {}
        self._received: dict[str, tuple[Xid, ...]] = dict(earlier or {})

    def register(self, device: NvmlDevice) -> None:
        """Registers a new device for Xid events; sets ``xids_missing`` where that fails."""
        if device.handle is None or device.state != "ok" or self._registered.get(device.uuid) is device.handle:
            return
        if device.may_sleep:
            device.xids_missing = _MAY_SLEEP
            return
        handle, why = self._refused.get(device.uuid, (None, None))
        if handle is not device.handle or why is None:
            why = self._register(device)
        device.xids_missing = why

    def _register(self, device: NvmlDevice) -> Missing | None:
        lib = self._lib
        try:
            if self._event_set is None:
                self._event_set = lib.nvmlEventSetCreate()
            lib.nvmlDeviceRegisterEvents(device.handle, lib.nvmlEventTypeXidCriticalError, self._event_set)
        except lib.NVMLError as error:
            why = nvml_errors.missing_reading(lib, error.value, "nvmlDeviceRegisterEvents")
            if error.value in nvml_errors.PERMANENT:
                self._refused[device.uuid] = (device.handle, why)
            return why
        self._registered[device.uuid] = device.handle
        return None

    def receive(self, devices: Sequence[NvmlDevice]) -> None:
        """Takes the events since the last call, and sets ``xids``. Takes a microsecond if there are none."""
        if self._received:
            for device in devices:
                device.xids = self._received.get(device.uuid, ())
        if not self._registered:
            return
        lib = self._lib
        for _ in range(_MAX_EVENTS_AT_ONCE):
            try:
                event = lib.nvmlEventSetWait_v2(self._event_set, 0)
                uuid = text_from_nvml(lib.nvmlDeviceGetUUID(event.device))
            except lib.NVMLError as error:
                if error.value != lib.NVML_ERROR_TIMEOUT:
                    self._failed(devices, nvml_errors.missing_reading(lib, error.value, "nvmlEventSetWait"))
                return
            code = int(event.eventData)
            xid = Xid(time.time(), None if code == UNKNOWN else code)
            self._received[uuid] = (*self._received.get(uuid, ()), xid)[-MAX_XIDS:]
            for device in devices:
                if device.uuid == uuid:
                    device.xids = self._received[uuid]

    def _failed(self, devices: Sequence[NvmlDevice], why: Missing) -> None:
        """A device was lost, or the driver ended the session: all are registered again in the next slow sample."""
        for device in devices:
            if device.uuid in self._registered:
                device.xids_missing = why
        self.forget()

    def forget(self) -> None:
        """Frees the event set; the Xids received so far are kept."""
        events, self._event_set = self._event_set, None
        self._registered.clear()
        self._refused.clear()
        if events is not None:
            answer_or_none(self._lib, self._lib.nvmlEventSetFree, events)  # freed already if the session has ended
