"""A call into the driver that crashes or hangs is named, with its signal and time; the other readings stay."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector import collector_supervision
from gpuwatch.machine.collector.collector_supervision import CollectorWatch, SuspectCalls
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.sources import driver_call_tracking, procfs
from gpuwatch.session import snapshots
from gpuwatch.session.snapshots import Silence, without_driver
from gpuwatch.sim.simulated_machine import SimMachine

# Python runs this at its start: the calls of the collector's process alone are replaced, be it forked or started anew.
_FAULTS = """
import ctypes, os, sys, time
def replace():
    import pynvml
    for fault in os.environ["FAULTED_CALLS"].split(","):
        name, _, how = fault.partition(":")
        def bad(*_, how=how):
            if how == "crash":
                ctypes.string_at(0)
            while how == "spin":
                pass
            time.sleep(600)
        setattr(pynvml, name, bad)
if any("collector_process" in argument for argument in sys.orig_argv):
    replace()
else:
    os.register_at_fork(after_in_child=replace)
"""


@pytest.fixture
def snapshot(sim_machine: Callable[[str], SimMachine], tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    (tmp_path / "sitecustomize.py").write_text(_FAULTS)
    environment = sim_machine("2x8GiB").environment(os.environ)

    def take(faults: str) -> dict[str, Any]:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "gpuwatch", "snapshot", "--json"],
            env=environment | {"PYTHONPATH": str(tmp_path), "FAULTED_CALLS": faults},
            capture_output=True,
            text=True,
            check=False,
        )
        document: dict[str, Any] = json.loads(done.stdout)
        return document | {"exit": done.returncode, "took": time.monotonic() - began}

    return take


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("crash", "nvmlDeviceGetMemoryInfo: it crashed the driver's library (SIGSEGV) at "),
        ("hang", "nvmlDeviceGetMemoryInfo: it did not return within 4 s at "),
        ("spin", "nvmlDeviceGetMemoryInfo: it did not return within 4 s at "),
    ],
)
def test_one_call_is_named_and_the_other_readings_stay(
    snapshot: Callable[[str], dict[str, Any]], fault: str, words: str
) -> None:
    found = snapshot(f"nvmlDeviceGetMemoryInfo:{fault}")
    assert (found["exit"], len(found["devices"])) == (0, 2)
    for device in found["devices"]:
        assert device["missing"]["memory.used_bytes"]["detail"].startswith(words)
        assert {"utilization.gpu_percent", "power.draw_watts", "temperature.gpu_celsius"} <= device["readings"].keys()
    assert [one["detail"][: len(words)] for one in found["problems"]] == [words]
    assert {one["title"] for one in found["findings"]} == {f"GPU {at}: memory cannot be read" for at in (0, 1)}


def test_a_driver_that_crashes_as_it_starts_is_said_at_once(snapshot: Callable[[str], dict[str, Any]]) -> None:
    found = snapshot("nvmlInit:crash")
    assert (found["exit"], found["devices"]) == (1, [])
    assert "killed by SIGSEGV in nvmlInit" in found["problems"][0]["detail"]
    assert "--deadline" not in found["problems"][0]["hint"], "waiting longer does not help"
    assert found["took"] < 8, "nobody waits for the deadline"


def test_without_its_uuid_a_gpu_has_its_readings(snapshot: Callable[[str], dict[str, Any]]) -> None:
    found = snapshot("nvmlDeviceGetUUID:crash")
    assert [device["state"] for device in found["devices"]] == ["ok", "ok"]
    assert all("memory.used_bytes" in device["readings"] for device in found["devices"])
    assert "nvmlDeviceGetUUID: it crashed" in found["problems"][0]["detail"]


class Looks:
    """A call that lasts, and a look at its process every second; the clock and what the kernel tells are set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.state, self.ran, self.waited, self.faults = 100.0, b"S", 5.0, 50.0, False
        self.pages = 40
        monkeypatch.setattr(collector_supervision.time, "monotonic", lambda: self.clock)
        monkeypatch.setattr(collector_supervision.procfs, "state", lambda pid: self.state)
        monkeypatch.setattr(collector_supervision.procfs, "cpu_times", lambda pid: (self.ran, self.waited))
        monkeypatch.setattr(collector_supervision.procfs, "in_page_fault", lambda pid: self.faults)
        monkeypatch.setattr(collector_supervision.procfs, "major_faults", lambda pid: self.pages)
        monkeypatch.setattr(driver_call_tracking, "_shared_page", None)  # as it is afterwards
        self.page = driver_call_tracking.CallPage()
        driver_call_tracking.start_tracking(self.page.descriptor, {})
        self.watch = CollectorWatch(1, self.page)
        driver_call_tracking.begin(b"nvmlDeviceGetName")

    def hangs_within(self, seconds: int, *, ran: float = 0.0, waited: float = 0.0, pages: int = 0) -> int | None:
        """The second in which the call is told as hanging.

        Per second: ``ran``, ``waited`` with and for a CPU, ``pages`` from the disk.
        """
        for second in range(1, seconds + 1):
            self.pages += pages
            self.clock, self.ran, self.waited = self.clock + 1, self.ran + ran, self.waited + waited
            if self.watch.find_hung_call() is not None:
                return second
        return None


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Looks]:
    looks = Looks(monkeypatch)
    yield looks
    looks.page.close()


@pytest.mark.parametrize(("state", "ran", "waited"), [(b"S", 0.0, 0.0), (b"D", 0.0, 0.01), (b"R", 0.99, 0.01)])
def test_a_call_that_hangs_is_told(looks: Looks, state: bytes, ran: float, waited: float) -> None:
    looks.state = state
    assert looks.hangs_within(9, ran=ran, waited=waited) in (4, 5)
    driver_call_tracking.end()
    assert looks.watch.find_hung_call() is None
    assert looks.watch.collector_fault(), "it is not in the driver"


@pytest.mark.parametrize(
    ("state", "ran", "waited", "faults", "pages", "blame"),
    [
        (b"R", 0.05, 0.95, False, 0, "waits for a CPU: the machine is busy"),
        (b"S", 0.0, 0.95, False, 0, "waits for a CPU: the machine is busy"),
        (b"R", 0.0, 0.0, False, 0, ""),  # in a queue for all that time, or its virtual CPU stands still
        (b"S", 0.0, 0.0, True, 0, "waits for memory: the machine is busy"),
        (b"D", 0.0, 0.0, True, 0, "waits for memory: the machine is busy"),
        (b"D", 0.05, 0.0, False, 3, "waits for memory: the machine is busy"),  # each look falls between two pages
        (b"T", 0.0, 0.0, False, 0, ""),
        (b"t", 0.0, 0.0, False, 0, ""),
    ],
)
def test_who_could_not_run_does_not_hang_in_the_driver(
    looks: Looks, state: bytes, ran: float, waited: float, faults: bool, pages: int, blame: str
) -> None:
    looks.state, looks.faults = state, faults
    assert looks.hangs_within(20, ran=ran, waited=waited, pages=pages) is None
    assert looks.watch.collector_fault() == blame
    looks.state, looks.faults = b"S", False
    assert looks.hangs_within(9) in (3, 4, 5), "from now on it could run"


def test_a_machine_that_stood_still_does_not_hang_in_the_driver(looks: Looks) -> None:
    looks.clock += 3600
    assert looks.hangs_within(1) is None
    looks.clock += 3600
    assert looks.hangs_within(1) is None


def test_one_look_between_two_calls_tells_nothing(looks: Looks) -> None:
    """Half of the page may be of one call and half of another."""
    assert looks.hangs_within(3) is None
    driver_call_tracking.begin(b"nvmlDeviceGetUUID")
    assert looks.hangs_within(2) is None
    assert driver_call_tracking._shared_page is not None
    driver_call_tracking._shared_page[:8] = bytes(8)
    assert looks.watch.call is None
    assert looks.hangs_within(9) is None


def test_a_real_process_that_is_stopped_in_a_call_and_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(collector_supervision.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(driver_call_tracking, "_shared_page", None)
    page = driver_call_tracking.CallPage()
    driver_call_tracking.start_tracking(page.descriptor, {})
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            watch = CollectorWatch(process.pid, page)
            driver_call_tracking.begin(b"nvmlDeviceGetName")

            def hangs_within(seconds: int) -> bool:
                for _ in range(seconds):
                    clock[0] += 1
                    if watch.find_hung_call() is not None:
                        return True
                return False

            for number, state, told in ((signal.SIGSTOP, b"T", False), (signal.SIGCONT, b"S", True)):
                process.send_signal(number)
                while procfs.state(process.pid) != state:
                    os.sched_yield()
                assert hangs_within(9) is told
        finally:
            process.kill()
            page.close()


def test_too_many_calls_that_hang_are_the_driver_as_a_whole() -> None:
    suspects = SuspectCalls()
    assert all(suspects.leave_out(name, "did not return") for name in ("nvmlA", "nvmlB", "nvmlC"))
    assert not suspects.leave_out("nvmlD", "did not return")
    assert suspects.left_out == {}
    assert suspects.leave_out("nvmlE", "did not return")
    suspects.note_sample()
    assert not suspects.leave_out("nvmlInit", "did not return")
    assert list(suspects.left_out) == ["nvmlE"], "a sample came without it"
    first = suspects.left_out["nvmlE"].until
    suspects.leave_out("nvmlE", "did not return")
    assert suspects.left_out["nvmlE"].until > first + 30, "the pauses grow"


def test_a_busy_machine_is_not_told_as_a_driver_that_is_silent() -> None:
    told = without_driver(10, Silence(collector_fault="waits for a CPU: the machine is busy"))
    assert [(one.reason, one.detail) for one in told.problems[:1]] == [
        ("gpuwatch.failed", "no sample within 10 s: the collector waits for a CPU: the machine is busy")
    ]


def test_a_feed_leaves_no_descriptor_behind(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("1x8GiB").environment(os.environ)

    def watched() -> int:
        feed = LiveFeed(0.25, environment=environment)
        feed.start()
        assert feed.wait(1, 20)
        feed.stop()
        return sum("gpuwatch-call" in os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())

    assert watched() == watched() == 0


def test_who_asks_a_driver_that_crashes_waits_without_spinning(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_FAULTS)
    environment = sim_machine("1x8GiB").environment(os.environ)
    environment |= {"PYTHONPATH": str(tmp_path), "FAULTED_CALLS": "nvmlInit:crash"}
    feed = LiveFeed(0.25, environment=environment)
    feed.start()
    used = time.process_time()
    try:
        assert feed.fresh(6.0) is None
    finally:
        feed.stop()
    assert time.process_time() - used < 1.0


@pytest.mark.parametrize(
    ("waited", "asked"),
    [((0.0, 0.0), [2.0]), ((1.5, 1.5), [2.0, 1.5]), ((1.5, 4.0, 4.0), [2.0, 1.5, 2.5]), ((500.0,) * 9, [2.0, 60.0])],
    ids=["silent", "starved", "starved-on", "starved-for-ever"],
)
def test_waits_for_a_cpu_are_added_to_the_drivers_time(
    monkeypatch: pytest.MonkeyPatch, waited: tuple[float, ...], asked: list[float]
) -> None:
    """And no more than that, so that a driver that is silent is told in time."""
    timeouts: list[float] = []

    class Feed:
        failure = ""
        start = stop = lambda self: None

        def __init__(self, *_: object, **options: object) -> None:
            self.waits = iter(waited)

        def wait(self, count: int, timeout: float) -> list[Snapshot]:
            timeouts.append(timeout)
            return []

        @property
        def waited_for_cpu(self) -> float:
            return next(self.waits)

        def silence(self) -> tuple[str, str]:
            return "", "waits for a CPU: the machine is busy"

    monkeypatch.setattr(snapshots, "LiveFeed", Feed)
    found, why = snapshots.take_samples(2, 2.0)
    assert (found, timeouts) == ([], asked)
    assert "CPU" in why.collector_fault
