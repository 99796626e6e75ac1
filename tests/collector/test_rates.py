"""Rates from counters: two readings on the monotonic clock, and never a number without them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.machine.collector.collector import Rates
from gpuwatch.sim.machine import SimMachine
from tests.sim.conftest import REPOSITORY

SENT = "nvlink.tx_bytes"
SENDING = "nvlink.tx_bytes_per_second"
HELD = "events.thermal_seconds"
SHARE = "events.thermal_percent"


def look(
    rates: Rates, at: float, uuid: str = "GPU-a", lost: Missing | None = None, **totals: Value
) -> dict[str, Value | Missing]:
    readings: dict[str, Value] = {name.replace("__", "."): total for name, total in totals.items()}
    missing = {} if lost is None else {SENT: lost}
    rates.add(uuid, at, readings, missing)
    assert not readings.keys() & missing.keys()
    return {**readings, **missing}


def test_the_second_reading_tells_the_rate() -> None:
    rates = Rates()
    first = look(rates, 10.0, nvlink__tx_bytes=1000.0)[SENDING]
    assert isinstance(first, Missing)
    assert first.reason == "no_sample"
    assert look(rates, 15.0, nvlink__tx_bytes=6000.0)[SENDING] == 1000.0
    assert look(rates, 20.0, nvlink__tx_bytes=6000.0)[SENDING] == 0.0, "nothing moved: that is a value"


def test_between_two_readings_the_rate_is_kept() -> None:
    rates = Rates()
    look(rates, 10.0, nvlink__tx_bytes=0)
    look(rates, 15.0, nvlink__tx_bytes=500)
    for _ in range(3):
        assert look(rates, 15.0, nvlink__tx_bytes=500)[SENDING] == 100.0


def test_a_counter_that_goes_back_tells_no_rate() -> None:
    rates = Rates()
    look(rates, 10.0, nvlink__tx_bytes=5000)
    look(rates, 15.0, nvlink__tx_bytes=6000)
    after = look(rates, 20.0, nvlink__tx_bytes=10)[SENDING]
    assert isinstance(after, Missing)
    assert "was reset" in after.detail
    assert look(rates, 25.0, nvlink__tx_bytes=60)[SENDING] == 10.0


def test_a_reading_that_fails_in_between_is_bridged_and_gives_its_reason() -> None:
    rates = Rates()
    look(rates, 10.0, nvlink__tx_bytes=0)
    lack = Missing("failed", code=999)
    assert look(rates, 15.0, lost=lack)[SENDING] == lack
    assert look(rates, 20.0, nvlink__tx_bytes=1000)[SENDING] == 100.0


def test_seconds_per_second_are_a_share_of_time() -> None:
    rates = Rates()
    look(rates, 10.0, events__thermal_seconds=1.0)
    assert look(rates, 14.0, events__thermal_seconds=2.0)[SHARE] == 25.0
    assert look(rates, 18.0, events__thermal_seconds=6.1)[SHARE] == 100.0, "the two clocks differ a little"


def test_devices_are_kept_apart() -> None:
    rates = Rates()
    look(rates, 10.0, "GPU-a", nvlink__tx_bytes=0)
    assert isinstance(look(rates, 15.0, "GPU-b", nvlink__tx_bytes=100)[SENDING], Missing)
    assert look(rates, 15.0, "GPU-a", nvlink__tx_bytes=100)[SENDING] == 20.0


def test_a_lost_device_stays_lost() -> None:
    rates = Rates()
    look(rates, 10.0, nvlink__tx_bytes=0)
    look(rates, 15.0, nvlink__tx_bytes=100)
    lost = Missing("device_lost")
    missing = {spec.id: lost for spec in METRICS}
    readings: dict[str, Value] = {}
    rates.add("GPU-a", 15.0, readings, missing)
    assert readings == {}
    assert set(missing.values()) == {lost}


_COPIES = """
import ctypes, json, time
from gpuwatch.machine.collector.collector import Collector
from tests.sim import cuda_client as c
c.use()
address = c.allocate(64 << 20)[1]
host = ctypes.create_string_buffer(64 << 20)
collector = Collector()
first = collector.sample().devices[0]
c.check(c.cuda.cuMemcpyHtoD_v2(address, host, 64 << 20))
time.sleep(0.1)
second = collector.sample().devices[0]
kept = collector.sample().devices[0]
names = ("pcie.rx_mean_bytes_per_second", "pcie.tx_mean_bytes_per_second", "pcie.rx_bytes")
print(json.dumps([[device.number(name) for name in names] for device in (first, second, kept)]))
"""


def test_bytes_that_a_program_copies_become_a_rate(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("1x8GiB").environment({**os.environ, "PYTHONPATH": str(REPOSITORY)})
    done = subprocess.run([sys.executable, "-c", _COPIES], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second, kept = json.loads(done.stdout)
    assert first == [None, None, 0]
    assert second[2] == 64 << 20
    assert 0 < second[0] <= (64 << 20) / 0.1
    assert second[1] == 0
    assert kept == second
