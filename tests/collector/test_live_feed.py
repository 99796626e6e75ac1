"""The collector over simulated NVML: what it says, and what it survives."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.collector import live_feed
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.collector.protocol import PREVIEW
from gpuwatch.machine.history.sample_frames import KEY, read_frame
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.attached_process import attach_process
from tests.terminal import wait_until_ended
from tests.waiting import wait_for, wait_for_sample

Open = Callable[[str], SimMachine]
GIB = 1024**3


def test_a_feed_that_was_started_early_keeps_its_samples_for_who_comes_later(sim_machine: Open) -> None:
    feed = LiveFeed(0.1, environment=sim_machine("1x24GiB").environment(os.environ))
    woken = threading.Event()
    try:
        feed.start()
        wait_for(lambda: feed.status().state == "ok")
        feed.start(woken.set)
        assert feed.drain()
        assert woken.wait(10)
        assert len(feed._threads) == 1
    finally:
        feed.stop()


def test_who_reads_ok_finds_the_sample(sim_machine: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    noted = live_feed.note_seen_devices

    def slowly(*arguments: Any) -> None:
        time.sleep(0.3)  # the reader's thread loses the CPU
        noted(*arguments)

    monkeypatch.setattr(live_feed, "note_seen_devices", slowly)
    feed = LiveFeed(0.5, environment=sim_machine("1x24GiB").environment(os.environ))
    try:
        feed.start()
        wait_for(lambda: feed.status().state == "ok", pause=0.005)
        assert feed.drain()
    finally:
        feed.stop()


def test_what_somebody_else_has_read_of_a_collector_is_not_lost(sim_machine: Open, sleeper: Callable[[], int]) -> None:
    machine = sim_machine("1x24GiB")
    machine.attach(sleeper(), 0, GIB)
    feed = LiveFeed(0.1, environment=machine.environment(os.environ))
    stream = feed.launch().stdout
    assert stream is not None
    frames = []
    while not frames or frames[-1][0] != KEY:
        frame = read_frame(stream)
        assert frame is not None
        frames.append(frame)
    feed.read_ahead(frames)
    try:
        feed.start()
        found = feed.wait(3, 10)
    finally:
        feed.stop()
    assert frames[0][0] == PREVIEW
    assert len(found[0].processes) == 1
    assert len({one.taken_at for one in found}) == len(found) >= 3


def test_devices_and_processes(
    sim_machine: Open, sleeper: Callable[[], int], start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x24GiB")
    pid = sleeper()
    attach_process(machine, pid, 1, 3 * GIB, sm_percent=50, memory_percent=20)
    feed = start_feed(machine, 0.3)
    feed.wait(4, 10)
    snapshot = feed.wait(4, 10)[-1]
    assert snapshot.simulated
    assert [device.index for device in snapshot.devices] == [0, 1]
    assert all(device.simulated and device.state == "ok" for device in snapshot.devices)
    (process,) = snapshot.processes
    busy = snapshot.devices[1]
    assert (process.pid, process.device_uuid, process.type) == (pid, busy.uuid, "C")
    assert process.readings["gpu_memory_bytes"] == 3 * GIB
    assert process.command is not None
    assert process.command.endswith("sleep 300")
    assert [entry.index for entry in process.device_map] == [0, 1]
    assert busy.number("memory.used_bytes") == 3 * GIB
    assert busy.number("memory.unexplained_bytes") == 0
    assert (busy.number("utilization.gpu_percent") or 0) > 30
    assert isinstance(busy.get("pcie.tx_bytes_per_second"), Missing), "on demand only"


def test_memory_that_nobody_owns_is_shown_as_such(
    sim_machine: Open, sleeper: Callable[[], int], start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("1x8GiB")
    machine.attach(sleeper(), 0, 1 * GIB)
    machine.inject("nvmlDeviceGetComputeRunningProcesses_v3", code=999)
    snapshot = start_feed(machine).wait(1, 10)[-1]
    device = snapshot.devices[0]
    unexplained = device.get("memory.unexplained_bytes")
    assert isinstance(unexplained, Missing), "the list failed: nothing may be called unexplained"
    assert any(problem.reason == "failed" for problem in snapshot.problems)


def test_without_a_driver_the_host_remains(start_feed: Callable[..., LiveFeed]) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a driver")
    snapshot = start_feed(None).wait(2, 10)[-1]
    assert snapshot.driver is None
    assert snapshot.devices == ()
    (problem,) = snapshot.problems
    assert problem.reason == "driver.missing"
    assert "--sim" in problem.hint
    assert any(process.pid == os.getpid() and process.type == "H" for process in snapshot.processes)
    assert snapshot.host.memory_total_bytes


def test_a_lost_device_keeps_its_row_and_comes_back(sim_machine: Open, start_feed: Callable[..., LiveFeed]) -> None:
    machine = sim_machine("2x8GiB")
    feed = start_feed(machine)
    uuids = [device.uuid for device in feed.wait(1, 10)[-1].devices]
    machine.inject("*", code=15, device=0)
    lost = wait_for_sample(feed, lambda s: s.devices[0].state == "lost")
    assert [device.uuid for device in lost.devices] == uuids
    assert lost.devices[0].readings == {}
    assert lost.devices[0].missing["utilization.gpu_percent"].reason == "device_lost"
    assert lost.devices[1].state == "ok"
    machine.clear_faults()
    back = wait_for_sample(feed, lambda s: s.devices[0].state == "ok")
    assert back.devices[0].number("memory.total_bytes")


def test_init_that_fails_is_tried_again(sim_machine: Open, start_feed: Callable[..., LiveFeed], monkeypatch) -> None:
    machine = sim_machine("1x8GiB")
    machine.inject("nvmlInitWithFlags", code=18)
    machine.inject("nvmlInit_v2", code=18)
    feed = start_feed(machine, 0.2)
    broken = feed.wait(1, 10)[-1]
    assert broken.problems[0].reason == "driver.mismatch"
    machine.clear_faults()
    assert len(wait_for_sample(feed, lambda s: s.driver is not None).devices) == 1


def test_a_stopped_collector_is_noticed_and_replaced(
    sim_machine: Open, start_feed: Callable[..., LiveFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "_REPLACE_SECONDS", 1.5)
    monkeypatch.setattr(live_feed, "_OVERDUE_SECONDS", 0.3)
    feed = start_feed(sim_machine("1x8GiB"))
    feed.wait(1, 10)
    process = feed._process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    wait_for(lambda: feed.status().state == "not-answering")
    assert feed.status().collector_fault == "was stopped", "it is not the driver that is waited for"
    feed.drain()
    assert feed.wait(1, 15), "no snapshot after the replacement"
    assert (feed.status().replacements, feed.status().collector_fault) == (1, "")
    assert "stopped" in feed.status().detail
    assert process.wait(5) == -signal.SIGKILL


def test_a_collector_that_does_not_start_again_is_not_the_driver_s_silence(
    sim_machine: Open, start_feed: Callable[..., LiveFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "_OVERDUE_SECONDS", 0.1)
    monkeypatch.setattr(LiveFeed, "_spawn", lambda _: subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE))
    first = subprocess.Popen(["sh", "-c", "kill -SEGV $$"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    feed = LiveFeed(0.1, first=first)
    feed.start()
    try:
        wait_for(lambda: feed.status().state == "not-answering")
        assert feed.status().collector_fault == "was killed by SIGSEGV"
    finally:
        feed.stop()


def open_pages() -> int:
    """Pages shared with collectors that this process has open."""
    return sum("gpuwatch-call" in os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())


def test_where_no_thread_or_process_can_be_started_it_is_said_and_tried_again(
    sim_machine: Open, start_feed: Callable[..., LiveFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "_FAILED_PAUSE_SECONDS", 0.2)
    refused = ["thread", "process"]
    start, popen = threading.Thread.start, subprocess.Popen

    def start_thread(thread: threading.Thread) -> None:
        if thread.name == "gpuwatch-reader" and "thread" in refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    def start_process(*arguments: Any, **options: Any) -> Any:
        if "process" in refused and "thread" not in refused:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return popen(*arguments, **options)

    monkeypatch.setattr(threading.Thread, "start", start_thread)
    monkeypatch.setattr(live_feed.subprocess, "Popen", start_process)
    before = open_pages()
    feed = start_feed(sim_machine("1x1GiB"))
    wait_for(lambda: feed.failure.startswith("the system starts no more threads; at the limit of processes"))
    refused.remove("thread")
    wait_for(lambda: feed.failure.startswith("the collector cannot be started: Resource temporarily unavailable; at"))
    refused.clear()
    wait_for(lambda: bool(feed.drain()))
    assert feed.failure == ""
    feed.stop()
    assert open_pages() == before, "of collectors that did not start, too"


@pytest.mark.parametrize("place", ["import", "sample"])
def test_an_error_of_gpuwatch_itself_is_shown_as_that_at_once(sim_machine: Open, tmp_path: Path, place: str) -> None:
    # A binding of NVML that lacks what is asked of it, as an older or a foreign one does.
    broken = "raise KeyError('no such thing')" if place == "import" else "from os import nothing_of_that_name"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "import importlib.abc, importlib.machinery\n"
        "class Broken(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'gpuwatch.machine.sources.nvidia.{'nvml_source' if place == 'import' else 'gpm'}':\n"
        f"            {broken}\n"
        "sys.meta_path.insert(0, Broken())\n"
    )
    environment = sim_machine("1x8GiB").environment(os.environ)
    environment |= {"PYTHONPATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    feed = LiveFeed(1.0, environment=environment)
    feed.start()
    try:
        began = time.monotonic()
        assert feed.wait(1, 30) == []
        assert time.monotonic() - began < 20, "nobody waits for what cannot come"
        status = feed.status()
        assert (status.state, status.collector_fault) == ("not-answering", "failed")
        assert "an error in gpuwatch itself" in status.detail
        (kept,) = (tmp_path / "state" / "gpuwatch").glob("crash-*.txt")
        assert str(kept) in status.detail
        assert "Traceback" in kept.read_text()
    finally:
        feed.stop()


def test_what_the_driver_reported_once_outlives_the_collector(
    sim_machine: Open, start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x8GiB")
    feed = start_feed(machine)
    assert len(feed.wait(3, 10)) >= 3
    machine.override(1, "xid", 79)
    seen = wait_for_sample(feed, lambda s: s.devices[1].xids)
    process = feed._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: feed.status().replacements)
    feed.drain()
    first, *_ = feed.wait(1, 15)
    assert [device.xids for device in first.devices] == [(), seen.devices[1].xids]
    status = feed.status()
    assert status.state == "ok"
    assert "was killed by SIGKILL" in status.detail


def test_who_stood_still_himself_does_not_blame_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = LiveFeed(1.0)
    now = time.monotonic()
    feed._last_arrival = now
    monkeypatch.setattr(time, "monotonic", lambda: now + 300)
    assert feed.status().state == "not-answering"
    feed.resumed()
    assert feed.status().state == "ok"
    monkeypatch.setattr(time, "monotonic", lambda: now + 304)
    assert feed.status().waiting_seconds == pytest.approx(3.0)


def test_a_driver_that_answers_slowly_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = LiveFeed(1.0)
    now = feed._last_arrival = time.monotonic()
    for took in (4.0, 0.3, 0.3, 0.3):  # one sample in a few asks for much
        feed._note_duration(took)
    monkeypatch.setattr(time, "monotonic", lambda: now + 6.0)
    assert feed.status().state == "ok"
    monkeypatch.setattr(time, "monotonic", lambda: now + 8.0)
    assert feed.status().state == "not-answering"
    for _ in range(300):
        feed._note_duration(0.01)
    monkeypatch.setattr(time, "monotonic", lambda: now + 3.5)
    assert feed.status().state == "not-answering", "it was slow once"


def test_while_the_driver_hangs_the_collector_is_not_blamed(
    sim_machine: Open, start_feed: Callable[..., LiveFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "_OVERDUE_SECONDS", 0.3)
    machine = sim_machine("1x8GiB")
    feed = start_feed(machine)
    feed.wait(1, 10)
    faults.hang(machine, 60)
    wait_for(lambda: feed.status().state == "not-answering")
    assert feed.status().collector_fault == ""
    first = wait_for(lambda: feed.status().machine)
    assert first is not None
    wait_for(lambda: feed.status().machine is not first, "the host, which goes on")
    now = feed.status().machine
    assert now is not None
    assert (now.devices, now.taken_at > first.taken_at) == ((), True)
    assert now.host.memory_used_bytes
    assert now.host.cpu_percent is not None
    machine.clear_faults()
    wait_for_sample(feed, lambda s: s.devices)
    assert feed.status().machine is None


def test_nothing_is_left_after_stop(sim_machine: Open, start_feed: Callable[..., LiveFeed]) -> None:
    feed = start_feed(sim_machine("1x8GiB"))
    feed.wait(1, 10)
    process = feed._process
    assert process is not None
    began = time.monotonic()
    feed.stop()
    assert time.monotonic() - began < 1.5
    assert process.poll() is not None


def test_the_collector_dies_with_a_parent_that_is_killed(sim_machine: Open) -> None:
    import sys

    code = (
        "import time; from gpuwatch.machine.collector.live_feed import LiveFeed; c = LiveFeed(0.1); c.start(); "
        "c.wait(1, 10); print(c._process.pid, flush=True); time.sleep(60)"
    )
    environment = sim_machine("1x8GiB").environment(os.environ)
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until_ended(pid)


def test_a_fresh_snapshot_is_newer_than_the_question(sim_machine: Open, start_feed: Callable[..., LiveFeed]) -> None:
    feed = start_feed(sim_machine("1x8GiB"), 30.0)
    assert feed.wait(1, 10)
    began = time.time()
    snapshot = feed.fresh(5.0)
    assert snapshot is not None
    assert snapshot.taken_at.timestamp() >= began
    assert time.time() - began < 2, "it did not wait for the interval"


def test_a_driver_that_went_away_is_named_and_found_again(
    sim_machine: Open, start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x8GiB")
    feed = start_feed(machine, 0.2)
    uuids = [device.uuid for device in feed.wait(1, 10)[-1].devices]
    faults.fail_init(machine, NvmlReturn.LIB_RM_VERSION_MISMATCH, None)
    broken = wait_for_sample(feed, lambda s: not s.devices)
    assert broken.problems[0].reason == "driver.mismatch", "the reason of the new start, not of the old session"
    machine.clear_faults()
    back = wait_for_sample(feed, lambda s: s.devices and s.devices[0].readings)
    assert [device.uuid for device in back.devices] == uuids


def test_devices_come_and_go(sim_machine: Open, start_feed: Callable[..., LiveFeed]) -> None:
    machine = sim_machine("3x8GiB")
    uuids = [device.uuid for device in machine.devices()]
    feed = start_feed(machine, 0.2)
    feed.wait(1, 10)
    machine.show_device(0, False)
    gone = wait_for_sample(feed, lambda s: len(s.devices) == 2)
    assert [(device.index, device.uuid) for device in gone.devices] == [(0, uuids[1]), (1, uuids[2])]
    machine.show_device(0)
    back = wait_for_sample(feed, lambda s: len(s.devices) == 3)
    assert [device.uuid for device in back.devices] == uuids
    assert all(device.state == "ok" and device.readings for device in back.devices)


def test_a_mig_layout_is_followed_while_it_changes(
    sim_machine: Open, sleeper: Callable[[], int], start_feed: Callable[..., LiveFeed]
) -> None:
    machine = sim_machine("2x8GiB")
    feed = start_feed(machine, 0.2)
    assert feed.wait(1, 10)[-1].devices[0].mig_instances == ()
    machine.set_mig(0, "1g,-,3g")
    pid = sleeper()
    machine.attach(pid, 0, GIB, mig=2)
    divided = wait_for_sample(feed, lambda s: s.devices[0].mig_instances)
    first, third = divided.devices[0].mig_instances
    assert (first.index, first.profile, third.index, third.profile) == (0, "1g.1gb", 2, "3g.4gb")
    assert third.readings["memory.used_bytes"] == GIB
    (process,) = divided.processes
    assert process.mig_instance == third.id
    utilization = divided.devices[0].missing["utilization.gpu_percent"]
    assert "while MIG is on" in utilization.detail
    assert "utilization.gpu_percent" in divided.devices[1].readings
    machine.set_mig(0, "7g")
    (only,) = wait_for_sample(feed, lambda s: len(s.devices[0].mig_instances) == 1).devices[0].mig_instances
    assert only.uuid not in (first.uuid, third.uuid)
    machine.set_mig(0, "off")
    whole = wait_for_sample(feed, lambda s: "utilization.gpu_percent" in s.devices[0].readings)
    assert whole.devices[0].mig_instances == ()


def test_a_slow_driver_is_waited_for(
    sim_machine: Open, start_feed: Callable[..., LiveFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_feed, "_REPLACE_SECONDS", 1.0)
    machine = sim_machine("1x8GiB")
    faults.slow(machine, 0.02, None)  # a first sample then takes some seconds
    feed = start_feed(machine)
    assert feed.wait(1, 120), "patience grows until a snapshot comes"
    replaced = feed.status().replacements
    assert replaced >= 1
    assert len(feed.wait(5, 120)) >= 5
    # One more where this machine was slower still for a moment; without the growth it would be one for each sample.
    assert feed.status().replacements <= replaced + 1, "and does not end when it is known how long one takes"
