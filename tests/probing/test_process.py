"""Probes that misbehave: each ends as a truthful outcome in time, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.probes import BrokenEventLine, Event, decode_event
from gpuwatch.core.model.run import Outcome
from gpuwatch.experiment.probing.probe_process import ProbeProcess, launch_fresh
from tests.waiting import wait_for

_SAY = "import os; fd = int(os.environ['GPUWATCH_EVENT_FD'])\n"
_START = _SAY + 'os.write(fd, b\'{"t": 0, "kind": "start"}\\n\')\n'


class Ran:
    def __init__(self, code: str, deadline: float = 20.0) -> None:
        self.events: list[Event | BrokenEventLine] = []
        self.log_lines = 0
        self.log_bytes = 0
        began = time.monotonic()
        with ProbeProcess(
            launch_fresh([sys.executable, "-u", "-c", code], os.environ),
            on_event=lambda line: self.events.append(decode_event(line)),
            on_log=self._log,
        ) as process:
            self.pid = process.pid
            self.outcome: Outcome = process.run_to_end(deadline)
        self.seconds = time.monotonic() - began

    def _log(self, line: bytes) -> None:
        self.log_lines += 1
        self.log_bytes += len(line)


def group_members(group: int) -> list[int]:
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                members.append(int(entry))
    return members


def assert_gone(group: int) -> None:
    """A killed process needs a moment to leave the table."""
    wait_for(lambda: not group_members(group), lambda: f"the end of {group_members(group)}", 5)


def test_events_and_output_stay_apart() -> None:
    ran = Ran(_START + "import sys; print('half a line', end=''); sys.stderr.write('native noise')")
    assert [event.kind for event in ran.events if isinstance(event, Event)] == ["start"]
    assert ran.log_lines == 2
    assert ran.outcome == Outcome(exit_code=0)


def test_killed_from_outside() -> None:
    ran = Ran(_START + "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert ran.outcome.signal == signal.SIGKILL
    assert ran.outcome.exit_code is None


def test_a_flood_on_stderr_blocks_nobody() -> None:
    ran = Ran(_START + "line = b'E' * 99 + b'\\n'\nfor _ in range(1000): os.write(2, line * 1000)")
    assert ran.outcome.exit_code == 0
    assert ran.log_lines == 1_000_000
    assert ran.log_bytes == 99_000_000


def test_one_endless_line_stays_bounded() -> None:
    ran = Ran("import os\nfor _ in range(200): os.write(1, b'x' * 100_000)")
    assert ran.log_bytes == 20_000_000
    assert ran.log_lines >= 100


def test_half_a_json_line_is_kept_as_broken() -> None:
    ran = Ran(_SAY + 'os.write(fd, b\'{"t": 1, "kind"\'); os._exit(3)')
    (event,) = ran.events
    assert isinstance(event, BrokenEventLine)
    assert ran.outcome.exit_code == 3


def test_deadline_ends_it_even_when_it_ignores_sigterm() -> None:
    ran = Ran(_START + "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", 1.0)
    assert ran.outcome.timed_out
    assert ran.outcome.signal == signal.SIGKILL
    assert ran.seconds < 6


def test_a_child_that_stays_behind_is_killed() -> None:
    ran = Ran(
        _START + "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    )
    assert ran.outcome.exit_code == 0
    assert ran.seconds < 5
    assert_gone(ran.pid)


def test_an_exception_in_between_leaves_nothing() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        ProbeProcess(
            launch_fresh([sys.executable, "-c", "import time; time.sleep(60)"], os.environ),
            on_event=print,
            on_log=print,
        ) as process,
    ):
        process.run_to_end(30, interrupted)
    assert_gone(process.pid)


def test_descriptors_are_given_back() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        Ran("pass")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_program_that_cannot_start_is_one_error() -> None:
    with pytest.raises(GpuwatchError, match="cannot be started"):
        ProbeProcess(launch_fresh(["/nonexistent/python"], os.environ), on_event=print, on_log=print)
