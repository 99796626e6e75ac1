"""Clocks that are held down: by heat, and by the power limit."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.overtime.look import UNDER_LOAD, Look
from gpuwatch.diagnosis.overtime.registry import LastingRule, lasting
from gpuwatch.diagnosis.overtime.stretch import Sign, Stretch
from gpuwatch.diagnosis.overtime.words import lasted, mean
from gpuwatch.diagnosis.registry import finding
from gpuwatch.diagnosis.rules.words import seen_as
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.snapshot import Device

_HEAT = frozenset({"sw-thermal", "hw-thermal"})
_BRAKE = frozenset({"hw-power-brake", "hw-slowdown"})
_LITTLE = 0.03
"""Share of the clock whose loss to heat is worth a note and no warning."""
_MUCH = 0.35
"""Share of the clock whose loss to the power cap is more than the everyday."""


def _reasons(device: Device) -> frozenset[str] | None:
    said = device.readings.get("clocks.event_reasons")
    return frozenset(said.split("+")) if isinstance(said, str) else None


def _numbers(device: Device) -> dict[str, float | None]:
    return {
        "clock": device.number("clocks.sm_mhz"),
        "temperature": device.number("temperature.gpu_celsius"),
        "draw": device.number("power.draw_watts"),
        "busy": device.number("utilization.gpu_percent"),
    }


def _lost(stretch: Stretch, look: Look) -> tuple[float | None, str]:
    """The share of the clock that was lost, and a line that says so in MHz."""
    device = stretch.sign.device
    clock = stretch.figure("clock")
    if device is None or clock is None:
        return None, ""
    free = look.memory.free_clock.get(device.uuid)
    most = device.number("clocks.sm_max_mhz")
    if free is not None and free > clock.mean:
        return 1 - clock.mean / free, (
            f"SM clock {clock.mean:.0f} MHz meanwhile, {free:.0f} MHz under load when nothing held it:"
            f" {free - clock.mean:.0f} MHz lost"
        )
    if most:
        below = max(most - clock.mean, 0.0)
        share = below / most if free is None else 0.0
        return share, f"SM clock {clock.mean:.0f} MHz meanwhile, {below:.0f} MHz below the card's highest ({most:.0f})"
    return None, f"SM clock {clock.mean:.0f} MHz meanwhile"


@lasting
class Heat(LastingRule):
    """The driver holds the clocks because the card, or its memory, is hot."""

    causes = ("throttle.thermal",)
    looks_for = "clocks held down by heat"
    needs = ("clocks.event_reasons",)
    appears = 10.0
    leaves = 30.0

    def signs(self, look: Look) -> Iterator[Sign]:
        """As the driver gives its reasons."""
        for device in look.devices.values():
            reasons = _reasons(device)
            if reasons is None:
                yield Sign(cause="throttle.thermal", device=device, holds=None)
            elif reasons & _HEAT:
                yield Sign(cause="throttle.thermal", device=device, numbers=_numbers(device))

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """A warning unless next to nothing is lost."""
        device = stretch.sign.device
        assert device is not None
        reasons = _reasons(device) or frozenset()
        share, loss = _lost(stretch, look)
        little = share is not None and share < _LITTLE and "hw-thermal" not in reasons
        severity: Severity = "info" if little else "warning"
        threshold = device.number("temperature.slowdown_celsius")
        heat = mean(stretch, "temperature", "°C")
        if heat and threshold:
            heat += f" on average, the hardware slows down at {threshold:.0f} °C"
        counted = device.number("events.thermal_percent")
        return finding(
            "throttle.thermal",
            severity,
            "fact",
            title=f"{seen_as(device)} slows down because it is hot",
            evidence=(
                lasted(stretch, look.at),
                f"the driver's reasons: {'+'.join(sorted(reasons & _HEAT))}",
                loss,
                heat,
                f"the driver's counter: clocks held by heat {counted:.0f} % of the last seconds" if counted else "",
            ),
            action="Improve the cooling (fans, dust, airflow between cards), or lower the power limit.",
            device_uuid=device.uuid,
        )


@lasting
class Power(LastingRule):
    """The clocks are held at the power limit while the card is busy, or by the power brake."""

    causes = ("throttle.power",)
    looks_for = "clocks held down by the power limit"
    needs = ("clocks.event_reasons", "utilization.gpu_percent")
    appears = 20.0
    leaves = 60.0

    def signs(self, look: Look) -> Iterator[Sign]:
        """The cap counts under load only: an idle card may name it at any time."""
        for device in look.devices.values():
            reasons = _reasons(device)
            busy = device.number("utilization.gpu_percent")
            if reasons is None:
                yield Sign(cause="throttle.power", device=device, holds=None)
            elif (reasons & _BRAKE and not reasons & _HEAT) or (
                "sw-power-cap" in reasons and busy is not None and busy >= UNDER_LOAD
            ):
                yield Sign(cause="throttle.power", device=device, numbers=_numbers(device))

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """The software cap is how a busy card reaches its limit every day; the brake is not."""
        device = stretch.sign.device
        assert device is not None
        reasons = _reasons(device) or frozenset()
        brake = sorted(reasons & _BRAKE)
        share, loss = _lost(stretch, look)
        limit, default = device.number("power.limit_watts"), device.number("power.default_limit_watts")
        draw = mean(stretch, "draw", "W")
        lowered = bool(limit and default and limit < 0.97 * default)
        much = share is not None and share >= _MUCH
        severity: Severity = "warning" if brake or much else "info"
        if brake:
            title = f"{seen_as(device)} is slowed down by its power brake"
            action = "Check the power cables and the supply of the machine: the board itself asks for less."
            if "hw-power-brake" not in brake:
                title = f"{seen_as(device)} is slowed down by its hardware"
                action = "Check cooling, power cables and supply: the driver does not say which of them it was."
        elif lowered:
            title = f"{seen_as(device)} runs at a power limit that was lowered"
            action = f"If nobody needs the lower limit: nvidia-smi -i {device.index} -pl {default:.0f}"
        elif much:
            title = f"{seen_as(device)} runs far below its clock at the power limit"
            action = "Raise the power limit (nvidia-smi -pl) as far as supply and cooling allow."
        else:
            title = f"{seen_as(device)} is at its power limit, as a busy card usually is"
            action = "Nothing needs to be done; a higher limit (nvidia-smi -pl) would raise the clock a little."
        return finding(
            "throttle.power",
            severity,
            "fact",
            title=title,
            evidence=(
                lasted(stretch, look.at),
                f"the driver's reasons: {'+'.join(brake) or 'sw-power-cap'}",
                f"{draw} on average of {limit:.0f} W" if draw and limit else "",
                f"the card's default limit is {default:.0f} W" if lowered else "",
                loss,
                f"utilization {mean(stretch, 'busy', '%')}" if stretch.figure("busy") else "",
            ),
            action=action,
            device_uuid=device.uuid,
        )
