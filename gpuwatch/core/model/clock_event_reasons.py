"""Clock event (throttle) reasons: NVML's names and the words shown for them.

Source: NVML API, nvmlClocksEventReasons.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.core.model.snapshot import Device

THERMAL = frozenset({"sw-thermal", "hw-thermal"})
BRAKE = frozenset({"hw-power-brake", "hw-slowdown"})
"""The board requests lower clocks, by its power brake or for a reason that the driver does not name."""
POWER_CAP = "sw-power-cap"
NAMES = {
    "hw-slowdown": "hardware slowdown",
    "sw-thermal": "thermal",
    "hw-thermal": "thermal (hardware)",
    "hw-power-brake": "power brake",
    POWER_CAP: "power cap",
    "applications-clocks": "application clocks",
    "sync-boost": "sync boost",
    "display-clocks": "display clocks",
}
_IDLE_REASONS = frozenset({"", "none", "idle"})


def clock_reasons(device: Device) -> frozenset[str] | None:
    """The active reasons except idling; None if the driver does not report them."""
    reasons = device.readings.get("clocks.event_reasons")
    return frozenset(reasons.split("+")) - _IDLE_REASONS if isinstance(reasons, str) else None


def clock_reasons_text(reasons: Iterable[str]) -> str:
    """``thermal, power cap``."""
    return ", ".join(NAMES.get(reason, reason) for reason in reasons)
