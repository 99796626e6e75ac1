"""gpuwatch beside nvitop on the same simulated NVML: 8 GPUs, 200 processes, 1 Hz, one run.

    python -m tests.benchmarks.against_nvitop --peer-python /path/with/nvitop/bin/python

Prints ratios: machines are noisy, seconds of another machine mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path

from gpuwatch.sim.machine import SimMachine
from gpuwatch.sim.shape import SimShape
from tests.terminal import Terminal, cpu_seconds, memory_bytes

GIB = 1024**3
HERE = Path(__file__).resolve().parent


def populate(machine: SimMachine, processes: int, vary: bool) -> list[subprocess.Popen[bytes]]:
    """Real processes that the simulated devices list, spread over all of them."""
    started = [subprocess.Popen(["sleep", "100000"]) for _ in range(processes)]
    count = len(machine.devices())
    for number, process in enumerate(started):
        machine.attach(
            process.pid,
            number % count,
            (number % 9 + 1) * GIB // 4,
            sm_percent=3 + number % 3,
            memory_percent=1,
            vary=vary,
        )
    return started


def first_frame(command: list[str], environment: dict[str, str], marker: bytes) -> float:
    terminal = Terminal(command, environment)
    try:
        seen = terminal.drain(20, lambda output: marker in output)
    finally:
        terminal.keys("q")
        terminal.close()
    if seen is None:
        raise SystemExit(f"{command[0]}: {marker!r} did not appear within 20 s")
    return seen


def running_cost(command: list[str], environment: dict[str, str], seconds: float) -> tuple[float, int, int]:
    """Share of one core over ``seconds`` after a warm-up, resident and proportional bytes."""
    terminal = Terminal(command, environment)
    try:
        terminal.drain(4)
        before = cpu_seconds(terminal.pid)
        terminal.drain(seconds)
        spent = cpu_seconds(terminal.pid) - before
        resident, proportional = memory_bytes(terminal.pid)
    finally:
        terminal.keys("q")
        terminal.close()
    return spent / seconds, resident, proportional


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=os.environ.get("GPUWATCH_PEER_PYTHON"))
    parser.add_argument("--rounds", type=int, default=30, help="samples timed")
    parser.add_argument("--frames", type=int, default=5, help="starts timed")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of dashboard")
    arguments = parser.parse_args()
    if not arguments.peer_python:
        raise SystemExit("name an interpreter that has nvitop: --peer-python, or GPUWATCH_PEER_PYTHON")
    machine = SimMachine.open(SimShape.parse("8x80GiB"), name=f"benchmark-{os.getpid()}")
    environment = machine.environment(os.environ)
    ours = [sys.executable, "-m", "gpuwatch"]
    nvitop = [arguments.peer_python, "-m", "nvitop", "--interval", "1"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes = populate(machine, 200, vary=True)
        sample = _json([sys.executable, str(HERE / "sample_gpuwatch.py"), str(arguments.rounds)], environment)
        peer = _json([arguments.peer_python, str(HERE / "sample_nvitop.py"), str(arguments.rounds)], environment)
        print(f"devices {sample['devices']}, processes {sample['processes']} (nvitop {peer['processes']})")
        _row("one sample / bare calls", sample["sample"], sample["bare"], 1e3, "ms", "<= 2.5")
        _row("nvitop's snapshot / ours", peer["sample"], sample["sample"], 1e3, "ms", ">= 4")
        for what, marker, bar in (
            ("first frame with GPUs", b"Simulated", "<= 1.5"),
            ("first frame with processes", b"sleep 100000", ""),
        ):
            frames = [
                (first_frame(ours, environment, marker), first_frame(nvitop, environment, marker))
                for _ in range(arguments.frames)
            ]
            own = statistics.median(frame[0] for frame in frames)
            _row(f"{what}, ours / nvitop", own, statistics.median(frame[1] for frame in frames), 1e3, "ms", bar)
        for vary in (True, False):
            if not vary:
                _still(machine, processes)
            cost = running_cost(ours, environment, arguments.seconds)
            peer_cost = running_cost(nvitop, environment, arguments.seconds)
            what = "values changing" if vary else "nothing changing"
            _row(
                f"dashboard CPU, {what}, ours / nvitop", cost[0], peer_cost[0], 100, "% core", "<= 0.4" if vary else ""
            )
        print(
            f"memory of all processes: ours {cost[1] / 2**20:.0f} MB resident, {cost[2] / 2**20:.0f} MB proportional; "
            f"nvitop {peer_cost[1] / 2**20:.0f} / {peer_cost[2] / 2**20:.0f} MB (bar: 90 MB)"
        )
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        machine.remove()


def _still(machine: SimMachine, processes: list[subprocess.Popen[bytes]]) -> None:
    count = len(machine.devices())
    for number, process in enumerate(processes):
        machine.detach(process.pid)
        machine.attach(process.pid, number % count, (number % 9 + 1) * GIB // 4)


def _json(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[1]}: {done.stderr.strip().splitlines()[-1]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _row(what: str, a: float, b: float, scale: float, unit: str, bar: str) -> None:
    print(
        f"{what:<50} {a * scale:9.2f} / {b * scale:9.2f} {unit:<7} = {a / b:6.2f}   {'bar ' + bar if bar else ''}",
        flush=True,
    )


if __name__ == "__main__":
    main()
