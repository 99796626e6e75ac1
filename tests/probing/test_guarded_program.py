"""What ``gpuwatch run`` does before the program starts."""

import errno
import os
import socket
import subprocess
import sys

from gpuwatch.experiment.probing import guard_process
from gpuwatch.experiment.probing.execve_errors import not_started
from gpuwatch.experiment.probing.guard_process import descendants
from gpuwatch.experiment.probing.launch_program import GuardedProgram, WatchOptions
from tests.terminal import wait_until_ended

_LATER = (
    "gpuwatch.explain.diagnosis",
    "gpuwatch.machine.history.saved_runs",
    "gpuwatch.explain.logs",
    "gpuwatch.core.model.run",
    "gpuwatch.experiment.probing.run_draft",
    "gpuwatch.experiment.probing.watch_program",
    "gpuwatch.share.reports.formats",
    "gpuwatch.sim.simulated_machine",
    "importlib.metadata",
    "jinja2",
    "psutil",
    "pynvml",
    "textual",
)


def test_what_the_program_need_not_wait_for_is_not_imported_before_it() -> None:
    code = (
        "import sys, gpuwatch.cli.run, gpuwatch.experiment.probing.launch_program\n"
        f"print([name for name in sys.modules if name.startswith({_LATER!r})])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_program_that_nobody_came_to_watch_is_ended() -> None:
    command = [sys.executable, "-c", "import os, time; os.write(2, b'here'); time.sleep(300)"]
    with GuardedProgram(command, WatchOptions(output=None)) as program:
        program.start()
        assert program.guard is not None
        assert os.read(program.channel.read_fd, 4) == b"here"
        (pid,) = descendants(program.guard.pid)
    wait_until_ended(pid)


def test_at_the_limit_of_processes_the_program_is_not_started() -> None:
    """It is no traceback of the guard, and no signal."""
    refused = (
        "import errno, os, runpy, sys\n"
        "def fork(): raise BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "os.fork = fork\nrunpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
    )
    ours, its = socket.socketpair()
    with ours, its:
        command = [sys.executable, "-c", refused, guard_process.__file__, str(its.fileno()), "-1", "-1", "-", "true"]
        done = subprocess.run(command, pass_fds=[its.fileno()], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        said = ours.recv(100).decode()
    assert said == f"failed {errno.EAGAIN}\n"
    error = not_started("true", errno.EAGAIN)
    assert (error.exit_code, "ulimit -u" in error.hint) == (126, True)
