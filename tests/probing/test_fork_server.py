"""Forks of a server: the same truth as from a fresh interpreter, and nothing left behind."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest

from gpuwatch.core.model.run import Outcome
from gpuwatch.experiment.probing.fork_server import ForkServer, ForkServerLost
from gpuwatch.experiment.probing.probe_process import ProbeProcess
from tests.terminal import wait_until_ended


@pytest.fixture
def server():
    # Any module does: json stands for a framework.
    server = ForkServer(sys.executable, "json", os.environ, deadline=30)
    yield server
    server.close()


class Ran:
    def __init__(self, server: ForkServer, folder: Path, code: str, deadline: float = 20.0, **environment: str) -> None:
        script = folder / "probe.py"
        script.write_text(textwrap.dedent(code))
        self.events: list[bytes] = []
        self.log: list[bytes] = []
        launch = partial(server.fork, script, {**os.environ, **environment})
        with ProbeProcess(launch, on_event=self.events.append, on_log=self.log.append) as process:
            self.pid = process.pid
            self.outcome: Outcome = process.run_to_end(deadline)


def test_a_fork_has_the_modules_its_own_environment_and_its_own_output(server: ForkServer, tmp_path: Path) -> None:
    code = """
        import os, sys
        assert "json" in sys.modules and __name__ == "__main__"
        os.write(int(os.environ["GPUWATCH_EVENT_FD"]), b"event\\n")
        print("out", os.environ["COLOUR"], os.environ.get("HOME"))
        os.write(2, b"err")
        os.environ["COLOUR"] = "leaked"
        sys.exit(7)
    """
    for colour in ("red", "blue"):
        ran = Ran(server, tmp_path, code, COLOUR=colour)
        assert ran.outcome == Outcome(exit_code=7)
        assert ran.events == [b"event"]
        assert sorted(ran.log) == [b"err", f"out {colour} {os.environ.get('HOME')}".encode()]


def test_a_crash_hurts_nobody_else(server: ForkServer, tmp_path: Path) -> None:
    killed = Ran(server, tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert killed.outcome.signal == signal.SIGSEGV
    raised = Ran(server, tmp_path, "raise ValueError('seen')")
    assert raised.outcome.exit_code == 1
    assert any(b"ValueError: seen" in line for line in raised.log)
    assert Ran(server, tmp_path, "pass").outcome == Outcome(exit_code=0)


def test_a_hang_ends_at_the_deadline(server: ForkServer, tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    assert Ran(server, tmp_path, code, 0.5).outcome == Outcome(signal=signal.SIGKILL, timed_out=True)
    assert Ran(server, tmp_path, "pass").outcome == Outcome(exit_code=0)


def test_what_a_fork_starts_dies_with_it(server: ForkServer, tmp_path: Path) -> None:
    code = "import os, time\npid = os.fork()\nif pid == 0: time.sleep(60)\nprint(pid)"
    ran = Ran(server, tmp_path, code)
    pid = int(ran.log[0])
    wait_until_ended(pid)


def test_closing_ends_a_running_fork(tmp_path: Path) -> None:
    server = ForkServer(sys.executable, "json", os.environ, deadline=30)
    script = tmp_path / "probe.py"
    script.write_text("import time; time.sleep(60)")
    null = os.open(os.devnull, os.O_RDWR)
    child = server.fork(script, os.environ, null, null, null)
    os.close(null)
    server.close()
    wait_until_ended(child.pid)


def test_a_module_that_does_not_import_is_said() -> None:
    with pytest.raises(ForkServerLost, match="ModuleNotFoundError"):
        ForkServer(sys.executable, "no_such_framework", os.environ, deadline=30)


def test_a_lost_template_is_an_error_and_no_hang(server: ForkServer, tmp_path: Path) -> None:
    server._process.kill()
    server._process.wait()
    with pytest.raises(ForkServerLost):
        Ran(server, tmp_path, "pass")


def test_an_import_that_nobody_waits_for_any_more_ends_at_once(tmp_path: Path) -> None:
    number = tmp_path / "pid"
    (tmp_path / "slow.py").write_text(
        f"import os, time; open({str(number)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )

    def between() -> None:
        if number.exists() and number.read_text():
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ForkServer(sys.executable, "slow", {**os.environ, "PYTHONPATH": str(tmp_path)}, while_waiting=between)
    assert time.monotonic() - began < 10
    wait_until_ended(int(number.read_text()))
