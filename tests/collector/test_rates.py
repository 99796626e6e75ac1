"""Rates from counters: two readings on the monotonic clock, and never a number without them."""

from __future__ import annotations

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.machine.collector.collector import CounterRates

SENT = "nvlink.tx_bytes"
SENDING = "nvlink.tx_bytes_per_second"
HELD = "events.thermal_seconds"
SHARE = "events.thermal_percent"


def look(
    rates: CounterRates, at: float, uuid: str = "GPU-a", lost: Missing | None = None, **totals: Value
) -> dict[str, Value | Missing]:
    readings: dict[str, Value] = {name.replace("__", "."): total for name, total in totals.items()}
    missing = {} if lost is None else {SENT: lost}
    rates.add(uuid, at, readings, missing)
    assert not readings.keys() & missing.keys()
    return {**readings, **missing}


def test_the_second_reading_tells_the_rate() -> None:
    rates = CounterRates()
    first = look(rates, 10.0, nvlink__tx_bytes=1000.0)[SENDING]
    assert isinstance(first, Missing)
    assert first.reason == "no_sample"
    assert look(rates, 15.0, nvlink__tx_bytes=6000.0)[SENDING] == 1000.0
    assert look(rates, 20.0, nvlink__tx_bytes=6000.0)[SENDING] == 0.0, "nothing moved: that is a value"


def test_between_two_readings_the_rate_is_kept() -> None:
    rates = CounterRates()
    look(rates, 10.0, nvlink__tx_bytes=0)
    look(rates, 15.0, nvlink__tx_bytes=500)
    for _ in range(3):
        assert look(rates, 15.0, nvlink__tx_bytes=500)[SENDING] == 100.0


def test_a_counter_that_goes_back_tells_no_rate() -> None:
    rates = CounterRates()
    look(rates, 10.0, nvlink__tx_bytes=5000)
    look(rates, 15.0, nvlink__tx_bytes=6000)
    after = look(rates, 20.0, nvlink__tx_bytes=10)[SENDING]
    assert isinstance(after, Missing)
    assert "was reset" in after.detail
    assert look(rates, 25.0, nvlink__tx_bytes=60)[SENDING] == 10.0


def test_a_reading_that_fails_in_between_is_bridged_and_gives_its_reason() -> None:
    rates = CounterRates()
    look(rates, 10.0, nvlink__tx_bytes=0)
    lack = Missing("failed", code=999)
    assert look(rates, 15.0, lost=lack)[SENDING] == lack
    assert look(rates, 20.0, nvlink__tx_bytes=1000)[SENDING] == 100.0


def test_seconds_per_second_are_a_share_of_time() -> None:
    rates = CounterRates()
    look(rates, 10.0, events__thermal_seconds=1.0)
    assert look(rates, 14.0, events__thermal_seconds=2.0)[SHARE] == 25.0
    assert look(rates, 18.0, events__thermal_seconds=6.1)[SHARE] == 100.0, "the two clocks differ a little"


def test_devices_are_kept_apart() -> None:
    rates = CounterRates()
    look(rates, 10.0, "GPU-a", nvlink__tx_bytes=0)
    assert isinstance(look(rates, 15.0, "GPU-b", nvlink__tx_bytes=100)[SENDING], Missing)
    assert look(rates, 15.0, "GPU-a", nvlink__tx_bytes=100)[SENDING] == 20.0


def test_a_lost_device_stays_lost() -> None:
    rates = CounterRates()
    look(rates, 10.0, nvlink__tx_bytes=0)
    look(rates, 15.0, nvlink__tx_bytes=100)
    lost = Missing("device_lost")
    missing = {spec.id: lost for spec in METRICS}
    readings: dict[str, Value] = {}
    rates.add("GPU-a", 15.0, readings, missing)
    assert readings == {}
    assert set(missing.values()) == {lost}
