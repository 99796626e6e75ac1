"""Listens to the Xids that the driver reports: one set of events for all devices, asked without waiting.

As in :mod:`gpuwatch.sources.calls` the library comes as an argument. What was reported before somebody listened
is in the kernel's log alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuwatch.model.reading import Missing
from gpuwatch.model.xids import UNKNOWN, Xid
from gpuwatch.sources import reasons
from gpuwatch.sources.device import NvmlDevice

_MOST = 8
"""Of a device, the latest are kept."""
_AT_ONCE = 64
"""Events of one look: a GPU that reports without end must not stop it."""
_REGISTER, _WAIT = "nvmlDeviceRegisterEvents", "nvmlEventSetWait"
_SLEEPER = Missing("no_sample", detail="not listened to: that might keep a GPU awake which the kernel suspends")

Lack = Callable[[int, str], Missing]


class Xids:
    """What devices have reported, since :meth:`listen` first saw them."""

    def __init__(self, lib: Any) -> None:
        self._lib = lib
        self._set: Any = None
        self._registered: dict[str, Any] = {}
        """Handle by UUID: a device that is listed anew has another."""
        self._refused: dict[str, tuple[Any, Missing]] = {}
        self._heard: dict[str, tuple[Xid, ...]] = {}

    def listen(self, devices: Sequence[NvmlDevice], lack: Lack) -> None:
        """Registers those that are not yet, and says of each why it cannot be heard, if so."""
        for device in devices:
            device.xids = self._heard.get(device.uuid, ())
            if device.handle is None or device.state != "ok" or self._registered.get(device.uuid) is device.handle:
                continue
            if device.may_sleep:
                device.xids_missing = _SLEEPER
                continue
            handle, why = self._refused.get(device.uuid, (None, None))
            if handle is not device.handle or why is None:
                why = self._register(device, lack)
            device.xids_missing = why

    def _register(self, device: NvmlDevice, lack: Lack) -> Missing | None:
        lib = self._lib
        try:
            if self._set is None:
                self._set = lib.nvmlEventSetCreate()
            lib.nvmlDeviceRegisterEvents(device.handle, lib.nvmlEventTypeXidCriticalError, self._set)
        except lib.NVMLError as error:
            why = lack(error.value, _REGISTER)
            if error.value in reasons.PERMANENT:
                self._refused[device.uuid] = (device.handle, why)
            return why
        self._registered[device.uuid] = device.handle
        return None

    def hear(self, devices: Sequence[NvmlDevice], lack: Lack) -> None:
        """Takes what has come since the last call; a microsecond where nothing has."""
        if not self._registered:
            return
        lib = self._lib
        for _ in range(_AT_ONCE):
            try:
                event = lib.nvmlEventSetWait_v2(self._set, 0)
                uuid = lib.nvmlDeviceGetUUID(event.device)
            except lib.NVMLError as error:
                if error.value != lib.NVML_ERROR_TIMEOUT:
                    self._failed(devices, lack(error.value, _WAIT))
                return
            code = int(event.eventData)
            xid = Xid(time.time(), None if code == UNKNOWN else code)
            uuid = uuid.decode() if isinstance(uuid, bytes) else uuid
            self._heard[uuid] = (*self._heard.get(uuid, ()), xid)[-_MOST:]
            for device in devices:
                if device.uuid == uuid:
                    device.xids = self._heard[uuid]

    def _failed(self, devices: Sequence[NvmlDevice], why: Missing) -> None:
        """A device that is lost, or a driver that ended the session: all are registered anew at the next slow look."""
        for device in devices:
            if device.uuid in self._registered:
                device.xids_missing = why
        self.forget()

    def forget(self) -> None:
        """Gives the set of events back; what was heard stays known."""
        events, self._set = self._set, None
        self._registered.clear()
        self._refused.clear()
        if events is not None:
            try:
                self._lib.nvmlEventSetFree(events)
            except self._lib.NVMLError:
                return  # the session is over, and with it the set
