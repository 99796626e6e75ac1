"""Throttling by heat, power brake and power cap, and when each clock event reason was active, normal ones included."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import ClassVar

import msgspec

from gpuwatch.core.model.clock_event_reasons import BRAKE, NAMES, POWER_CAP, THERMAL, clock_reasons
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import MIN_UNDER_LOAD_PERCENT, SampleContext

_COOL_MARGIN_CELSIUS = 20.0
"""°C below its threshold at which a core is not hot; cards begin to throttle up to 15 °C before it."""
_COOL_CELSIUS = 65.0
"""°C below which a core is not hot on any card; used if its thresholds are unknown."""
_MEMORY_HOT_MARGIN_CELSIUS = 10.0
"""°C below its maximum temperature at which memory is hot."""
_MUCH_CLOCK_LOSS_SHARE = 0.35
"""Share of the clock from which a loss to the power cap is a warning."""
_NEAR_LIMIT_SHARE = 0.85
"""Share of the power limit from which a card is at it."""
_MAX_EPISODES = 400
_METRICS = {
    "clock": "clocks.sm_mhz",
    "temperature": "temperature.gpu_celsius",
    "margin": "temperature.margin_celsius",
    "memory": "temperature.memory_celsius",
    "busy": "utilization.gpu_percent",
    "power": "power.draw_watts",
}
_COOLING = "Improve the cooling (fans, dust, airflow between cards), or lower the power limit."


def thermal_title_and_action(
    device: Device, core_celsius: float | None, margin_celsius: float | None = None, memory_celsius: float | None = None
) -> tuple[str, str]:
    """Title and action for thermal throttling.

    Each is the extreme meanwhile, in °C, None if unknown: the highest temperatures of core and memory, and the least
    that was left to the core's nearest slowdown.

    The driver's reason (sw-thermal, hw-thermal) does not name the part (NVML, nvmlClocksEventReasons).
    """
    threshold, memory_max = _lowest_threshold(device), device.number("temperature.memory_max_celsius")
    name = f"GPU {device.index} throttled (thermal)"
    cool_below = threshold - _COOL_MARGIN_CELSIUS if threshold is not None else _COOL_CELSIUS
    cool = core_celsius is not None and core_celsius < cool_below
    if threshold is None and margin_celsius is not None:
        cool = core_celsius is not None and margin_celsius > _COOL_MARGIN_CELSIUS
    if not cool:
        return name, _COOLING
    if memory_celsius is not None and memory_max and memory_celsius >= memory_max - _MEMORY_HOT_MARGIN_CELSIUS:
        return f"{name}: its memory is hot", _COOLING
    memory_or = "memory, its " * (memory_celsius is None)
    pads = f"heat pads over {'memory and ' * (memory_celsius is None)}voltage regulators"
    return (
        f"{name} while its core is cool: its {memory_or}voltage regulators or a sensor",
        f"Cooling the core will not help: check the {pads}; if it throttles when cold too "
        "(nvidia-smi -q -d TEMPERATURE,PERFORMANCE), have the card checked.",
    )


def _temperatures_text(device: Device) -> str:
    """Temperatures of one sample, and their thresholds; empty if none is known."""
    threshold, margin = _lowest_threshold(device), device.number("temperature.margin_celsius")
    memory, memory_maximum = (device.number(f"temperature.memory_{name}celsius") for name in ("", "max_"))
    core, texts = device.number("temperature.gpu_celsius"), []
    if core is not None:
        texts.append(f"core {core:.0f} °C" + (f" (maximum {threshold:.0f} °C)" if threshold else ""))
    if margin is not None:
        left = "core " * (core is None) + f"{abs(margin):.0f} °C {'below' if margin >= 0 else 'above'}"
        texts.append(f"{left} its nearest slowdown")
    if memory is not None:
        texts.append(f"memory {memory:.0f} °C" + (f" (maximum {memory_maximum:.0f} °C)" if memory_maximum else ""))
    return ", ".join(texts)


def _lowest_threshold(device: Device) -> float | None:
    """°C at which the core begins to throttle, as far as the driver tells."""
    known = map(device.number, ("temperature.operating_max_celsius", "temperature.slowdown_celsius"))
    return min((celsius for celsius in known if celsius is not None), default=None)


def _clock_loss(occurrence: Occurrence, context: SampleContext) -> tuple[float | None, str]:
    """The share of the clock that was lost, and a line with the loss in MHz."""
    device, clock = occurrence.device, occurrence.statistics.get("clock")
    if clock is None:
        return None, ""
    free = context.history.unthrottled_mhz.get(device.uuid)
    most = device.number("clocks.sm_max_mhz")
    measured = f"SM clock {clock.mean:.0f} MHz{_on_average(occurrence)}"
    busy = occurrence.statistics.get("busy")
    if busy is not None and busy.maximum < MIN_UNDER_LOAD_PERCENT:  # its clock is low anyway
        return None, f"{measured}, without load"
    if free is not None and free > clock.mean:
        lost = f"{free - clock.mean:.0f} MHz lost"
        return 1 - clock.mean / free, f"{measured}, {free:.0f} MHz when not throttled: {lost}"
    if most:
        below = max(most - clock.mean, 0.0)
        share = below / most if free is None else 0.0
        return share, f"{measured}, {below:.0f} MHz below the card's maximum ({most:.0f})"
    return None, measured


def _on_average(occurrence: Occurrence) -> str:
    return " on average" if occurrence.samples > 1 else ""


class _ReasonGiven(Condition):
    """The driver gives reasons of one kind for lower clocks."""

    causes = ("throttle.power",)
    needed_metrics: ClassVar[tuple[str, ...]] = ("clocks.event_reasons",)
    reported_from_one_sample = True
    variant: ClassVar[str] = ""

    @abstractmethod
    def holds(self, reasons: frozenset[str], device: Device) -> bool:
        """Whether the reasons are of this kind."""

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """Unknown if the driver gives no reasons."""
        for device in context.devices.values():
            reasons = clock_reasons(device)
            if reasons is None:
                yield Sign(cause=self.causes[0], device=device, holds=None, variant=self.variant)
            elif self.holds(reasons, device):
                numbers = {name: device.number(metric) for name, metric in _METRICS.items()}
                yield Sign(cause=self.causes[0], device=device, variant=self.variant, numbers=numbers)


class _Throttled(_ReasonGiven):
    """A reason for which a GPU counts as throttled: another one than its power limit."""

    @abstractmethod
    def reason(self, device: Device) -> str:
        """``thermal``, ``power brake``."""

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        device = occurrence.device
        return f"GPU {device.index} no longer throttled ({self.reason(device)}, {occurrence.duration_text})"


@condition
class Thermal(_Throttled):
    """Throttled because the card, or its memory, is hot: reported at once, because the driver says so."""

    name = "throttle"
    causes = ("throttle.thermal",)
    looks_for = "thermal throttling"
    end_after_seconds = 30.0

    def holds(self, reasons: frozenset[str], device: Device) -> bool:
        return bool(reasons & THERMAL)

    def reason(self, device: Device) -> str:
        return "thermal"

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A warning, however little is lost: what one sample shows, a longer time does not take back."""
        device = occurrence.device
        reasons = clock_reasons(device) or frozenset()
        core, margin, memory = map(occurrence.statistics.get, ("temperature", "margin", "memory"))
        left, hottest = margin.minimum if margin else None, memory.maximum if memory else None
        title, action = thermal_title_and_action(device, core.maximum if core else None, left, hottest)
        counted = device.number("events.thermal_percent")
        return self.make_finding(
            occurrence,
            "warning",
            title=title,
            evidence=(
                occurrence.time_text(context.at),
                f"the driver's reasons: {'+'.join(sorted(reasons & THERMAL))}",
                *occurrence.first_and_latest(_temperatures_text),
                # If neither the first nor the latest sample was the hottest.
                f"between them: core up to {core.maximum:.0f} °C"
                if core is not None and round(core.maximum) > round(max(core.first, core.last))
                else "",
                _clock_loss(occurrence, context)[1],
                f"the driver's counter: throttled by heat in {counted:.0f} % of the last seconds" if counted else "",
            ),
            action=action,
        )


@condition
class PowerBrake(_Throttled):
    """The board requests lower clocks. ``hw-slowdown`` may flash when clocks change (NVML), so it must last."""

    name = "power-brake"
    looks_for = "throttling by the power brake"
    report_after_seconds = 5.0
    end_after_seconds = 30.0
    variant = "brake"

    def holds(self, reasons: frozenset[str], device: Device) -> bool:
        """Unless heat is the reason."""
        return bool(reasons & BRAKE) and not reasons & THERMAL

    def reason(self, device: Device) -> str:
        """``power brake``, or ``hardware slowdown`` if the driver does not say which."""
        return NAMES["hw-power-brake" if "hw-power-brake" in (clock_reasons(device) or ()) else "hw-slowdown"]

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        device = occurrence.device
        action = "Check the power cables and the machine's power supply: the board itself requests lower clocks."
        if "hw-power-brake" not in (clock_reasons(device) or ()):
            action = "Check cooling, power cables and supply: the driver does not say which one it is."
        return self.make_finding(
            occurrence,
            "warning",
            title=f"GPU {device.index} throttled ({self.reason(device)})",
            evidence=_power_evidence(occurrence, context, BRAKE),
            action=action,
        )


@condition
class PowerCap(_ReasonGiven):
    """Clocks limited by the power limit while the card is busy, which is normal for a busy card."""

    name = "power-cap"
    looks_for = "throttling by the power cap"
    needed_metrics = ("clocks.event_reasons", "utilization.gpu_percent")
    report_after_seconds = 20.0
    end_after_seconds = 60.0
    variant = "cap"

    def holds(self, reasons: frozenset[str], device: Device) -> bool:
        """Only under load: an idle card may report the cap at any time."""
        busy = device.number("utilization.gpu_percent")
        return POWER_CAP in reasons and busy is not None and busy >= MIN_UNDER_LOAD_PERCENT and not reasons & BRAKE

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A note; a warning if much of the clock is lost."""
        device = occurrence.device
        share, _ = _clock_loss(occurrence, context)
        limit, default = device.number("power.limit_watts"), device.number("power.default_limit_watts")
        near, power = _near_limit(occurrence), occurrence.statistics.get("power")
        much_lost = share is not None and share >= _MUCH_CLOCK_LOSS_SHARE
        lowered = near and bool(limit and default and limit < 0.97 * default)
        title = f"GPU {device.index} at its power limit, which is normal for a busy GPU"
        action = "Nothing to do; a higher limit (nvidia-smi -pl) would raise the clock a little."
        if not near:
            # The reason alone does not say which limit: it may be that of a module, a rack or the driver's own.
            drawn = f", {power.mean:.0f} of {limit:.0f} W drawn" if power is not None and limit else ""
            title = f"GPU {device.index}: NVML reports a power cap{drawn}"
            action = f"Compare draw and limits: nvidia-smi -i {device.index} -q -d POWER,PERFORMANCE"
        elif lowered:
            title = f"GPU {device.index} at its power limit, which was lowered"
            action = f"If no one needs the lower limit: nvidia-smi -i {device.index} -pl {default:.0f}"
        elif much_lost:
            title = f"GPU {device.index} throttled (power cap), far below its clock"
            action = "Raise the power limit (nvidia-smi -pl) as far as supply and cooling allow."
        return self.make_finding(
            occurrence,
            "warning" if much_lost else "info",
            title=title,
            evidence=(
                *_power_evidence(occurrence, context, frozenset({POWER_CAP})),
                f"the card's default limit is {default:.0f} W" if lowered else "",
            ),
            action=action,
        )

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        if not _near_limit(occurrence):
            return f"GPU {occurrence.device.index}: NVML no longer reports a power cap ({occurrence.duration_text})"
        return f"GPU {occurrence.device.index} no longer at its power limit ({occurrence.duration_text})"


def _near_limit(occurrence: Occurrence) -> bool:
    """Whether the card drew about its limit, by what was measured while the driver gave that reason."""
    power, limit = occurrence.statistics.get("power"), occurrence.device.number("power.limit_watts")
    return power is not None and bool(limit) and power.mean >= _NEAR_LIMIT_SHARE * (limit or 0.0)


def _power_draw_text(device: Device) -> str:
    """What one sample drew; empty if that or the limit is unknown."""
    draw, limit = device.number("power.draw_watts"), device.number("power.limit_watts")
    return f"draws {draw:.0f} W of its limit of {limit:.0f} W" if draw is not None and limit else ""


def _power_evidence(occurrence: Occurrence, context: SampleContext, kind: frozenset[str]) -> tuple[str, ...]:
    device = occurrence.device
    return (
        occurrence.time_text(context.at),
        f"the driver's reasons: {'+'.join(sorted((clock_reasons(device) or frozenset()) & kind))}",
        *occurrence.first_and_latest(_power_draw_text),
        _clock_loss(occurrence, context)[1],
        f"utilization {occurrence.mean_text('busy', '%')}{_on_average(occurrence)}"
        if occurrence.statistics.get("busy")
        else "",
    )


class ClockEventEpisode(msgspec.Struct):
    """One clock event reason on one device, from its onset."""

    uuid: str
    reason: str
    began: float
    last: float
    """When it was last seen."""
    ended: float | None = None
    """When it had been absent long enough to be over; None while it lasts."""
    at_start: bool = False
    """Whether it was already present in the first sample."""


def _end_after_seconds(reason: str) -> float:
    return PowerCap.end_after_seconds if reason == POWER_CAP else Thermal.end_after_seconds


class ClockEventEpisodes:
    """When each clock event reason was active, on all devices: every reason except idling, including normal ones."""

    def __init__(self) -> None:
        self._episodes: deque[ClockEventEpisode] = deque(maxlen=_MAX_EPISODES)
        self._lasting: dict[tuple[str, str], ClockEventEpisode] = {}

    def observe(self, device: Device, at: float, *, first: bool) -> None:
        """Adds a sample of a device. Unknown reasons are neither an onset nor an end."""
        reasons = clock_reasons(device)
        if reasons is None or not (reasons or self._lasting):
            return
        for reason in reasons:
            episode = self._lasting.get((device.uuid, reason))
            if episode is None:
                episode = ClockEventEpisode(device.uuid, reason, at, at, at_start=first)
                self._lasting[device.uuid, reason] = episode
                self._episodes.append(episode)
            episode.last = at
        for key, episode in list(self._lasting.items()):
            absent = key[0] == device.uuid and episode.reason not in reasons
            if absent and at - episode.last >= _end_after_seconds(episode.reason):
                episode.ended = at
                del self._lasting[key]

    def prepend(self, earlier: ClockEventEpisodes) -> None:
        """Adds the episodes of an earlier time; one that was still active then continues here."""
        for key, previous in earlier._lasting.items():
            here = next((episode for episode in self._episodes if (episode.uuid, episode.reason) == key), None)
            if here is not None and here.began - previous.last < _end_after_seconds(previous.reason):
                here.began, here.at_start = previous.began, previous.at_start
                earlier._episodes.remove(previous)
            elif here is None:
                self._lasting[key] = previous
        self._episodes = deque((*earlier._episodes, *self._episodes), maxlen=_MAX_EPISODES)

    def of_device(self, uuid: str, until: float) -> list[ClockEventEpisode]:
        """Episodes of a device as known at a moment, the latest onset first."""
        known = [episode for episode in self._episodes if episode.uuid == uuid and episode.began <= until]
        return [
            msgspec.structs.replace(
                episode,
                last=min(episode.last, until),
                ended=episode.ended if episode.ended is not None and episode.ended <= until else None,
            )
            for episode in reversed(known)
        ]
