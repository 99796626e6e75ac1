"""Metrics that are rates (bytes per second and so on), computed from two readings of a counter."""

from __future__ import annotations

from gpuwatch.core.model.metrics import METRICS, MetricSpec, Unit
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.machine.collector.process_rows import NO_EARLIER_SAMPLE

_RATES = tuple(spec for spec in METRICS if spec.rate_of)
_COUNTER_RESET = Missing("no_sample", detail="its counter was reset; known after the next reading")


class CounterRates:
    """Metrics per second, from two readings of a counter (``MetricSpec.rate_of``).

    Counters are read in the slow lane: a rate is the average since the previous reading, and kept until the next.
    """

    def __init__(self) -> None:
        self._previous: dict[tuple[str, str], tuple[float, float]] = {}
        """By device and metric: when its counter was last read, and what it had counted."""
        self._rates: dict[str, tuple[float, dict[str, Value | Missing]]] = {}
        """By device: when its counters were last read, and the rates since the reading before."""

    def add(self, uuid: str, read_at: float, readings: dict[str, Value], missing: dict[str, Missing]) -> None:
        """Adds the rates of a device to its readings; the counters were read at ``read_at`` (monotonic)."""
        if not read_at:
            return  # the slow lane has not been read yet
        known = self._rates.get(uuid)
        if known is None or known[0] != read_at:
            known = (read_at, {spec.id: self._rate(uuid, spec, read_at, readings, missing) for spec in _RATES})
            self._rates[uuid] = known
        for metric_id, rate in known[1].items():
            if isinstance(rate, Missing):
                missing.setdefault(metric_id, rate)
            elif metric_id not in missing:
                readings[metric_id] = rate

    def _rate(
        self, uuid: str, spec: MetricSpec, read_at: float, readings: dict[str, Value], missing: dict[str, Missing]
    ) -> Value | Missing:
        total = readings.get(spec.rate_of)
        if not isinstance(total, (int, float)):
            return missing.get(spec.rate_of, NO_EARLIER_SAMPLE)
        previous = self._previous.get((uuid, spec.id))
        self._previous[uuid, spec.id] = (read_at, total)
        if previous is None or read_at <= previous[0]:
            return NO_EARLIER_SAMPLE
        counted = total - previous[1]
        if counted < 0:
            return _COUNTER_RESET
        rate = counted / (read_at - previous[0]) * spec.scale
        return min(rate, 100.0) if spec.unit is Unit.PERCENT else rate
