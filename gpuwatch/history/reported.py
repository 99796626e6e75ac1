"""Xids that the driver reported, and that it reports none."""

from __future__ import annotations

from gpuwatch.formatting.text import printable
from gpuwatch.history.happened import Happened, of_device
from gpuwatch.model.snapshot import Device


class Reported:
    """Which Xids were told already."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._deaf: set[str] = set()

    def look(self, device: Device, at: float, *, same: bool = False) -> list[Happened]:
        """The Xids that are new; once, that none can be heard."""
        if same:
            return []
        found: list[Happened] = []
        before = self._told.get(device.uuid, float("-inf"))
        for xid in device.xids:
            if xid.at > before:
                self._told[device.uuid] = xid.at
                text = f"reported {xid.text}"
                found.append(of_device(device, at, "device.xid", text, "error" if xid.hardware else "warning"))
        lack = device.xids_missing
        if lack is None:
            self._deaf.discard(device.uuid)
        elif lack.reason != "device_lost" and device.uuid not in self._deaf:
            self._deaf.add(device.uuid)
            text = f"tells no Xids, its errors are in dmesg alone: {printable(lack.detail or lack.reason)}"
            found.append(of_device(device, at, "device.no-xids", text, "info"))
        return found
