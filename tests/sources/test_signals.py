"""Signals go to the process that was meant, and to no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from gpuwatch.machine.sources import process_signals
from gpuwatch.machine.sources.process_table import ProcessTable
from tests.waiting import remains


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def begun(pid: int) -> float:
    facts = ProcessTable().facts_of(pid, time.monotonic())
    assert facts is not None
    return facts.create_time


@pytest.mark.parametrize("pidfd", [True, False])
def test_the_process_that_is_meant_gets_it(
    sleeper: subprocess.Popen[bytes], pidfd: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not pidfd:
        monkeypatch.delattr(os, "pidfd_open")
    assert process_signals.send_signal(sleeper.pid, begun(sleeper.pid), signal.SIGTERM) == process_signals.SignalResult(
        "delivered"
    )
    assert sleeper.wait(10) == -signal.SIGTERM


@pytest.mark.parametrize("shift", [-3600.0, -0.02, 0.02, 0.5, 2.0, 90000.0])
def test_another_start_time_is_another_process(sleeper: subprocess.Popen[bytes], shift: float) -> None:
    outcome = process_signals.send_signal(sleeper.pid, begun(sleeper.pid) + shift, signal.SIGKILL)
    assert outcome.state == "reused"
    assert "another process" in outcome.reason
    remains(lambda: sleeper.poll() is None, 0.05)


def test_a_boot_time_that_moved_by_a_second_is_the_same_process(sleeper: subprocess.Popen[bytes]) -> None:
    assert process_signals.send_signal(sleeper.pid, begun(sleeper.pid) + 1.0, 0).state == "delivered"


def test_one_that_ended_is_gone(sleeper: subprocess.Popen[bytes]) -> None:
    when = begun(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    zombie = process_signals.send_signal(sleeper.pid, when, signal.SIGTERM)
    assert zombie.state == "gone"
    assert "not waited for it" in zombie.reason
    sleeper.wait()
    assert process_signals.send_signal(sleeper.pid, when, signal.SIGTERM).state == "gone"


def test_what_cannot_be_identified_is_refused() -> None:
    outcome = process_signals.send_signal(os.getpid(), None, signal.SIGKILL)
    assert outcome.state == "denied"
    assert "namespace" in outcome.reason
    assert process_signals.send_signal(1, begun(1), signal.SIGTERM).state == "denied"
    assert process_signals.send_signal(0, 1.0, signal.SIGTERM).state == "denied"


def test_a_refusal_of_the_kernel_has_its_reason(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(handle: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    outcome = process_signals.send_signal(sleeper.pid, begun(sleeper.pid), signal.SIGTERM)
    assert outcome == process_signals.SignalResult("denied", "it belongs to another user")
