"""The dashboard with the samples of a recorder, and with a collector of its own: 8 GPUs, 200 processes, 1 Hz.

    python -m tests.benchmarks.beside_recorder

Prints CPU of both, the time to the first frame of both in turns, and the recorder's own CPU.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuwatch.machine.recording.running_recorders import find_running_recorders
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.benchmarks.against_nvitop import Program, frames, populate, running
from tests.terminal import cpu_seconds, family


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=7, help="starts timed")
    parser.add_argument("--seconds", type=float, default=15, help="seconds of dashboard in each turn")
    parser.add_argument("--turns", type=int, default=2, help="turns of each dashboard")
    parser.add_argument("--processes", type=int, default=200)
    arguments = parser.parse_args()
    machine = SimMachine.open(SimShape.parse("8x80GiB"), name=f"benchmark-{os.getpid()}")
    environment = machine.environment(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as folder:
        shared, alone = (f"XDG_STATE_HOME={folder}/{name}" for name in ("shared", "alone"))
        dashboard = [sys.executable, "-P", "-m", "gpuwatch"]
        programs = [
            Program("samples of the recorder", ["env", shared, *dashboard]),
            Program("own collector", ["env", alone, *dashboard]),
        ]
        try:
            started = populate(machine, arguments.processes, vary=True)
            recorder = subprocess.Popen(
                ["env", shared, *dashboard, "record", f"{folder}/a.gpuwatch"],
                env=environment,
                stderr=subprocess.DEVNULL,
            )
            started.append(recorder)
            os.environ["XDG_STATE_HOME"] = f"{folder}/shared"
            while not find_running_recorders(environment):
                time.sleep(0.1)
            time.sleep(5)  # its first samples are written
            frames(programs, environment, arguments.frames)
            members = family(recorder.pid)
            before, began = {pid: _cpu(pid) for pid in members}, time.monotonic()
            running(programs, environment, "values changing", "", arguments.turns, arguments.seconds)
            seconds = time.monotonic() - began
            for pid, cpu in before.items():
                who = "the recorder" if pid == recorder.pid else "its collector"
                print(f"CPU of {who}: {(_cpu(pid) - cpu) / seconds * 100:.2f} % of a core")
            print(f"both, by the kernel's clocks: {cpu_seconds(recorder.pid):.2f} s since the start")
            print(f"file: {Path(folder, 'a.gpuwatch').stat().st_size / 1e6:.2f} MB")
        finally:
            for process in started:
                process.send_signal(signal.SIGKILL)
                process.wait()
            machine.remove()


def _cpu(pid: int) -> float:
    """CPU seconds of one process."""
    return time.clock_gettime(~pid << 3 | 2)


if __name__ == "__main__":
    main()
