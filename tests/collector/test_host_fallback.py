"""The host is told while the driver keeps the first sample waiting."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from gpuwatch.machine.collector.host_snapshots import HostSnapshots
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.waiting import wait_for

Open = Callable[[str], SimMachine]


def test_a_driver_that_hangs_when_it_is_opened_does_not_hide_the_host(
    sim_machine: Open, start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("1x8GiB")
    faults.hang(machine, 60)
    woken = threading.Event()
    feed = start_feed(machine, wake=woken.set)
    assert woken.wait(15), "the dashboard is told"
    assert feed.drain() == [], "it is no sample: no GPU was looked at"
    first = feed.status().machine
    assert first is not None
    assert first.devices == ()
    assert first.host.memory_total_bytes
    me = next(process for process in first.processes if process.pid == os.getpid())
    assert (me.run_seconds(first.taken_at.timestamp()) or 0.0) > 0
    wait_for(lambda: feed.status().machine is not first, "the host, which is read again and again")
    now = feed.status().machine
    assert now is not None
    assert now.host.cpu_percent is not None, "which takes two looks"
    machine.clear_faults()
    (device,) = feed.wait(1, 10)[-1].devices
    assert device.number("memory.total_bytes")
    assert feed.status().machine is None


def test_how_long_the_driver_is_waited_for_counts_from_the_beginning(
    sim_machine: Open,
    start_feed: Callable[..., LiveFeed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gpuwatch.machine.collector import live_feed

    monkeypatch.setattr(live_feed, "_OVERDUE_SECONDS", 0.2)
    monkeypatch.setattr(live_feed, "_REPLACE_SECONDS", 0.5)
    machine = sim_machine("1x8GiB")
    faults.hang(machine, 60)
    feed = start_feed(machine)
    wait_for(lambda: feed.status().replacements)
    status = feed.status()
    assert status.state == "not-answering", "a new collector is no new beginning"
    assert status.waiting_seconds > 0.3


def test_what_is_told_has_no_driver_and_the_busiest_processes() -> None:
    snapshot = HostSnapshots().take()
    assert snapshot.driver is None
    assert snapshot.host_processes is not None
    assert 0 < len(snapshot.processes) <= snapshot.host_processes
    assert all(process.device_uuid is None and process.type == "H" for process in snapshot.processes)
