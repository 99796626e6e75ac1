"""Clocks that the driver holds down: thermal, by the power brake, at the power limit; and each reason's history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from gpuwatch.diagnosis.conditions.durations import duration, lasted, mean
from gpuwatch.diagnosis.conditions.hysteresis import Occurrence, Sign
from gpuwatch.diagnosis.conditions.registry import Condition, condition
from gpuwatch.diagnosis.conditions.sample_context import UNDER_LOAD, SampleContext
from gpuwatch.diagnosis.registry import finding
from gpuwatch.diagnosis.rules.heat import heat
from gpuwatch.diagnosis.rules.phrasing import seen_as
from gpuwatch.model.clock_reasons import BRAKE, NAMES, POWER_CAP, THERMAL, clock_reasons
from gpuwatch.model.findings import Finding, Severity
from gpuwatch.model.snapshot import Device

_LITTLE = 0.03
"""Share of the clock whose loss to heat is worth a note and no warning."""
_MUCH = 0.35
"""Share of the clock whose loss to the power cap is more than the everyday."""
_EPISODES = 400


def _numbers(device: Device) -> dict[str, float | None]:
    return {
        "clock": device.number("clocks.sm_mhz"),
        "temperature": device.number("temperature.gpu_celsius"),
        "draw": device.number("power.draw_watts"),
        "busy": device.number("utilization.gpu_percent"),
    }


def _lost(occurrence: Occurrence, context: SampleContext) -> tuple[float | None, str]:
    """The share of the clock that was lost, and a line that says so in MHz."""
    device = occurrence.sign.device
    clock = occurrence.figure("clock")
    if device is None or clock is None:
        return None, ""
    free = context.memory.free_clock.get(device.uuid)
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


@condition
class Thermal(Condition):
    """The driver holds the clocks because the card, or its memory, is hot: it says so, and is believed at once."""

    name = "throttle"
    causes = ("throttle.thermal",)
    looks_for = "thermal throttling"
    needs = ("clocks.event_reasons",)
    appears = 0.0
    leaves = 30.0
    one_sample = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """As the driver gives its reasons."""
        for device in context.devices.values():
            reasons = clock_reasons(device)
            if reasons is None:
                yield Sign(cause="throttle.thermal", device=device, holds=None)
            elif reasons & THERMAL:
                yield Sign(cause="throttle.thermal", device=device, numbers=_numbers(device))

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A warning unless next to nothing is lost."""
        device = occurrence.sign.device
        assert device is not None
        reasons = clock_reasons(device) or frozenset()
        share, loss = _lost(occurrence, context)
        little = share is not None and share < _LITTLE and "hw-thermal" not in reasons
        measured = occurrence.figure("temperature")
        hot = heat(device, measured.mean if measured is not None else None)
        counted = device.number("events.thermal_percent")
        return finding(
            "throttle.thermal",
            "info" if little else "warning",
            "fact",
            title=hot.title,
            evidence=(
                lasted(occurrence, context.at),
                f"the driver's reasons: {'+'.join(sorted(reasons & THERMAL))}",
                loss,
                hot.evidence,
                f"the driver's counter: throttled by heat {counted:.0f} % of the last seconds" if counted else "",
            ),
            action=hot.action,
            device_uuid=device.uuid,
        )

    def ended(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """``GPU 0 no longer throttled (thermal, 3 min)``."""
        assert occurrence.sign.device is not None
        return f"{seen_as(occurrence.sign.device)} no longer throttled (thermal, {duration(occurrence)})"


@condition
class PowerBrake(Condition):
    """The board itself asks for less. ``hw-slowdown`` may flash at a change of clocks (NVML), so it must last."""

    name = "power-brake"
    causes = ("throttle.power",)
    looks_for = "throttling by the power brake"
    needs = ("clocks.event_reasons",)
    appears = 5.0
    leaves = 30.0
    one_sample = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """Where heat is not the reason."""
        for device in context.devices.values():
            reasons = clock_reasons(device)
            if reasons is None:
                yield Sign(cause="throttle.power", device=device, holds=None, about="brake")
            elif reasons & BRAKE and not reasons & THERMAL:
                yield Sign(cause="throttle.power", device=device, about="brake", numbers=_numbers(device))

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A warning at any load."""
        device = occurrence.sign.device
        assert device is not None
        action = "Check the power cables and the supply of the machine: the board itself asks for less."
        if "hw-power-brake" not in (clock_reasons(device) or ()):
            action = "Check cooling, power cables and supply: the driver does not say which of them it was."
        return finding(
            "throttle.power",
            "warning",
            "fact",
            title=f"{seen_as(device)} throttled ({self._reason(device)})",
            evidence=_power_evidence(occurrence, context, BRAKE),
            action=action,
            device_uuid=device.uuid,
        )

    @staticmethod
    def _reason(device: Device) -> str:
        reasons = clock_reasons(device) or ()
        return NAMES["hw-power-brake" if "hw-power-brake" in reasons else "hw-slowdown"]

    def ended(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """``GPU 0 no longer throttled (power brake, 3 min)``."""
        device = occurrence.sign.device
        assert device is not None
        return f"{seen_as(device)} no longer throttled ({self._reason(device)}, {duration(occurrence)})"


@condition
class PowerCap(Condition):
    """The clocks are held at the power limit while the card is busy: how a busy card works every day."""

    name = "power-cap"
    causes = ("throttle.power",)
    looks_for = "throttling by the power cap"
    needs = ("clocks.event_reasons", "utilization.gpu_percent")
    appears = 20.0
    leaves = 60.0
    one_sample = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """Under load only: an idle card may name the cap at any time."""
        for device in context.devices.values():
            reasons = clock_reasons(device)
            busy = device.number("utilization.gpu_percent")
            if reasons is None:
                yield Sign(cause="throttle.power", device=device, holds=None, about="cap")
            elif POWER_CAP in reasons and busy is not None and busy >= UNDER_LOAD and not reasons & BRAKE:
                yield Sign(cause="throttle.power", device=device, about="cap", numbers=_numbers(device))

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A note; a warning where much of the clock is lost."""
        device = occurrence.sign.device
        assert device is not None
        share, _ = _lost(occurrence, context)
        limit, default = device.number("power.limit_watts"), device.number("power.default_limit_watts")
        lowered = bool(limit and default and limit < 0.97 * default)
        severity: Severity = "info"
        if share is not None and share >= _MUCH:
            severity = "warning"
            title = f"{seen_as(device)} throttled (power cap), far below its clock"
            action = "Raise the power limit (nvidia-smi -pl) as far as supply and cooling allow."
        elif not lowered:
            title = f"{seen_as(device)} at its power limit, as a busy GPU usually is"
            action = "Nothing needs to be done; a higher limit (nvidia-smi -pl) would raise the clock a little."
        if lowered:
            title = f"{seen_as(device)} throttled (power cap): its power limit was lowered"
            action = f"If nobody needs the lower limit: nvidia-smi -i {device.index} -pl {default:.0f}"
        return finding(
            "throttle.power",
            severity,
            "fact",
            title=title,
            evidence=(
                *_power_evidence(occurrence, context, frozenset({POWER_CAP})),
                f"the card's default limit is {default:.0f} W" if lowered else "",
            ),
            action=action,
            device_uuid=device.uuid,
        )

    def ended(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """``GPU 0 no longer at its power limit (3 min)``."""
        assert occurrence.sign.device is not None
        return f"{seen_as(occurrence.sign.device)} no longer at its power limit ({duration(occurrence)})"


def _power_evidence(occurrence: Occurrence, context: SampleContext, of: frozenset[str]) -> tuple[str, ...]:
    device = occurrence.sign.device
    assert device is not None
    limit, draw = device.number("power.limit_watts"), mean(occurrence, "draw", "W")
    return (
        lasted(occurrence, context.at),
        f"the driver's reasons: {'+'.join(sorted((clock_reasons(device) or frozenset()) & of))}",
        f"{draw} on average of {limit:.0f} W" if draw and limit else "",
        _lost(occurrence, context)[1],
        f"utilization {mean(occurrence, 'busy', '%')}" if occurrence.figure("busy") else "",
    )


class Episode(msgspec.Struct):
    """One reason on one device, from its onset on."""

    uuid: str
    reason: str
    began: float
    last: float
    """When it was seen last."""
    ended: float | None = None
    """When it had been away for long enough to say so; None while it lasts."""
    at_start: bool = False
    """Whether it was there already in the first sample."""


class ClockEpisodes:
    """When each reason held clocks down, on all devices: every reason but idling, everyday ones included."""

    def __init__(self) -> None:
        self._episodes: deque[Episode] = deque(maxlen=_EPISODES)
        self._lasting: dict[tuple[str, str], Episode] = {}

    def look(self, device: Device, at: float, *, first: bool) -> None:
        """One more sample of a device. Unknown reasons are neither an onset nor an end."""
        reasons = clock_reasons(device)
        if reasons is None or not (reasons or self._lasting):
            return
        for reason in reasons:
            episode = self._lasting.get((device.uuid, reason))
            if episode is None:
                episode = Episode(device.uuid, reason, at, at, at_start=first)
                self._lasting[device.uuid, reason] = episode
                self._episodes.append(episode)
            episode.last = at
        for key, episode in list(self._lasting.items()):
            leaves = PowerCap.leaves if episode.reason == POWER_CAP else Thermal.leaves
            if key[0] == device.uuid and episode.reason not in reasons and at - episode.last >= leaves:
                episode.ended = at
                del self._lasting[key]

    def of(self, uuid: str, until: float) -> list[Episode]:
        """Episodes of a device as they were known at a moment, the latest onset first."""
        known = [one for one in self._episodes if one.uuid == uuid and one.began <= until]
        return [
            msgspec.structs.replace(
                one,
                last=min(one.last, until),
                ended=one.ended if one.ended is not None and one.ended <= until else None,
            )
            for one in reversed(known)
        ]
