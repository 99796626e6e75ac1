"""What a feed's host answers beside snapshots: this machine by its /proc, another one with the reason why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from gpuwatch.machine.collector.host_processes import HostProcesses, LocalProcesses
from gpuwatch.machine.sources.process_table import ProcessTable


def test_this_machine_answers_and_another_says_why_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={**os.environ, "LOOK": "here"})
    try:
        facts = ProcessTable().facts_of(child.pid, time.monotonic())
        assert facts is not None
        here, there = LocalProcesses(), HostProcesses("node07")
        assert here.name == os.uname().nodename
        assert not here.unreachable
        end = time.monotonic() + 10
        while (found := here.details(child.pid, facts.create_time)).environment is None or "LOOK" not in (
            found.environment
        ):
            assert time.monotonic() < end
        assert found.environment["LOOK"] == "here"

        assert "node07 is another host" in there.unreachable
        assert there.details(child.pid, facts.create_time).problem == there.unreachable
        assert there.details(child.pid, facts.create_time).environment is None
        assert there.device_numbers(child.pid) == ()
        refused = there.signal(child.pid, facts.create_time, signal.SIGKILL)
        assert (refused.state, refused.reason) == ("denied", there.unreachable)
        assert child.poll() is None

        assert here.signal(child.pid, facts.create_time, signal.SIGTERM).state == "delivered"
        assert child.wait(10) == -signal.SIGTERM
    finally:
        child.kill()
        child.wait()


def test_whether_simulated_gpus_were_asked_for_is_in_the_environment() -> None:
    assert not LocalProcesses({}).simulated
    assert LocalProcesses({"GPUWATCH_SIM_STATE": "/nowhere/shared-2x24GiB.state"}).simulated
    assert LocalProcesses({}).device_numbers(os.getpid()) == (), "a real driver tells none"
