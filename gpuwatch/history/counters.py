"""Counters of errors that grow, and flags of health that change."""

from __future__ import annotations

from gpuwatch.formatting.text import printable
from gpuwatch.history.happened import Happened, Severity, of_device
from gpuwatch.model.snapshot import Device

_COUNTERS: dict[str, tuple[str, Severity]] = {
    "ecc.uncorrected": ("uncorrected ECC errors", "error"),
    "ecc.corrected": ("corrected ECC errors", "info"),
    "remapped_rows.uncorrectable": ("memory rows remapped after uncorrectable errors", "error"),
    "remapped_rows.correctable": ("memory rows remapped after correctable errors", "warning"),
    "retired_pages.double_bit": ("memory pages retired after double-bit errors", "error"),
    "retired_pages.single_bit": ("memory pages retired after single-bit errors", "warning"),
    "nvlink.crc_errors": ("NVLink CRC errors", "warning"),
    "nvlink.recoveries": ("NVLink recoveries", "warning"),
    "nvlink.replays": ("NVLink replays", "info"),
    "pcie.replays": ("PCIe replays", "info"),
}
_FLAGS: dict[str, tuple[str, Severity]] = {
    "remapped_rows.pending": ("rows that wait to be remapped at the next reset", "warning"),
    "remapped_rows.failure": ("failure to remap rows of memory", "error"),
    "retired_pages.pending": ("pages that wait to be retired at the next reboot", "warning"),
    "health.recovery_action": ("action that the driver asks for", "error"),
}
_FINE = frozenset({"no", "none"})
_PAUSE = 60.0
"""Seconds in which one counter is told once, with all that came meanwhile."""


class Counters:
    """What was counted at the look before, and when growth was told last."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], tuple[float, float]] = {}
        self._flags: dict[tuple[str, str], str] = {}
        self._unsupported: set[tuple[str, str]] = set()
        """Counters that a device said it has none of: what they begin with is news."""
        self._waiting: set[tuple[str, str]] = set()
        """Counters that have grown since they were told, and are told after the pause."""

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be told: while devices stay as they are, nothing happens."""
        return not self._waiting

    def look(self, device: Device, at: float, *, same: bool = False) -> list[Happened]:
        """Counters that have grown, flags that have changed; ``same``: the device is as it was at the look before."""
        if same and not self._waiting:
            return []
        found: list[Happened] = []
        for metric, (words, severity) in _COUNTERS.items():
            count = device.number(metric)
            key = (device.uuid, metric)
            if count is None:
                lack = device.missing.get(metric)
                if lack is not None and lack.reason == "not_supported":
                    self._unsupported.add(key)
                continue
            told = self._told.get(key)
            if told is None and key in self._unsupported and count:
                self._told[key] = (at, count)
                text = f"counts {count:.0f} {words}; before now it did not count them"
                found.append(of_device(device, at, metric, text, severity))
            elif told is None or count < told[1]:
                self._told[key] = (float("-inf"), count)  # a reset, or the first look, is no event
                self._waiting.discard(key)
            elif count > told[1] and at - told[0] < _PAUSE:
                self._waiting.add(key)
            elif count > told[1]:
                self._told[key] = (at, count)
                self._waiting.discard(key)
                text = f"has {count - told[1]:.0f} more {words}, {count:.0f} in all"
                found.append(of_device(device, at, metric, text, severity))
        for metric, (words, severity) in _FLAGS.items():
            value = device.get(metric)
            if not isinstance(value, str):
                continue
            before = self._flags.get((device.uuid, metric))
            self._flags[device.uuid, metric] = value
            if before is not None and before != value:
                text = f"{words}: {printable(value)}, before {printable(before)}"
                found.append(of_device(device, at, metric, text, "good" if value in _FINE else severity))
        return found
