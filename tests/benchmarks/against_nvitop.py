"""gpuwatch beside nvitop and nvsonar on the same simulated NVML: 8 GPUs, 200 processes, 1 Hz, one run.

    python -m tests.benchmarks.against_nvitop --peer-python /path/with/nvitop/bin/python \\
        [--sonar-python /path/with/nvsonar/bin/python] [--python /path/with/gpuwatch/bin/python]

Prints ratios: machines are noisy, seconds of another machine mean nothing. CPU is that of the kernel's
clocks, of all processes and threads of a dashboard together, those that have ended included. The
programs take turns, so that what else runs on the machine meets each of them. Each is started once before
its first frame is timed, so that modules are compiled: pip does that to those that it installs.

"Nothing changing": the 200 processes sleep, hold the same memory all the time and use no GPU; clocks, run
times and the host's own CPU and memory go on changing on every screen. nvsonar has no table of processes
and takes no interval, it looks twice a second: its numbers are those of what it does, not of the same work.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.sim.attached_process import attach_process
from tests.terminal import Terminal, cpu_seconds, memory_bytes

GIB = 1024**3
HERE = Path(__file__).resolve().parent
GPUS, PROCESSES = b"Simulated", b"sleep 100000"


@dataclass(frozen=True)
class Program:
    """A dashboard: its name, how it is started, whether it lists processes."""

    name: str
    command: list[str]
    lists_processes: bool = True


def populate(machine: SimMachine, processes: int, vary: bool) -> list[subprocess.Popen[bytes]]:
    """Real processes that the simulated devices list, spread over all of them."""
    started = [subprocess.Popen(["sleep", "100000"]) for _ in range(processes)]
    count = len(machine.devices())
    for number, process in enumerate(started):
        attach_process(
            machine,
            process.pid,
            number % count,
            (number % 9 + 1) * GIB // 4,
            sm_percent=3 + number % 3,
            memory_percent=1,
            vary=vary,
        )
    return started


def first_frame(program: Program, environment: dict[str, str], marker: bytes) -> float:
    terminal = Terminal(program.command, environment)
    try:
        seen = terminal.drain(30, lambda output: marker in output)
    finally:
        terminal.keys("q")
        terminal.close()
    if seen is None:
        raise SystemExit(f"{program.name}: {marker!r} did not appear within 30 s")
    return seen


def running_cost(program: Program, environment: dict[str, str], seconds: float) -> tuple[float, int, int]:
    """CPU seconds over ``seconds`` after a warm-up, resident and proportional bytes."""
    terminal = Terminal(program.command, environment)
    try:
        terminal.drain(5)
        before = cpu_seconds(terminal.pid)
        terminal.drain(seconds)
        spent = cpu_seconds(terminal.pid) - before
        resident, proportional = memory_bytes(terminal.pid)
    finally:
        terminal.keys("q")
        terminal.close()
    return spent, resident, proportional


def frames(programs: list[Program], environment: dict[str, str], count: int) -> None:
    for what, marker, bar in (("GPUs", GPUS, "<= 1.5"), ("processes", PROCESSES, "")):
        shown = [program for program in programs if program.lists_processes or marker is GPUS]
        for program in shown:
            first_frame(program, environment, marker)
        times: dict[str, list[float]] = {program.name: [] for program in shown}
        for _ in range(count):
            for program in shown:
                times[program.name].append(first_frame(program, environment, marker))
        for choose, how in ((statistics.median, "median"), (min, "fastest")):
            _compare(
                f"first frame with {what}, {how} of {count}",
                {name: choose(found) for name, found in times.items()},
                1e3,
                "ms",
                bar if how == "median" else "",
            )


def running(
    programs: list[Program], environment: dict[str, str], what: str, bar: str, turns: int, seconds: float
) -> None:
    spent: dict[str, float] = {program.name: 0.0 for program in programs}
    memory: dict[str, tuple[int, int]] = {}
    for _ in range(turns):
        for program in programs:
            cpu, resident, proportional = running_cost(program, environment, seconds)
            spent[program.name] += cpu
            memory[program.name] = max((resident, proportional), memory.get(program.name, (0, 0)))
    shares = {name: cpu / (turns * seconds) for name, cpu in spent.items()}
    _compare(f"dashboard CPU, {what}", shares, 100, "% core", bar)
    told = ", ".join(f"{name} {r / 2**20:.0f} / {p / 2**20:.0f}" for name, (r, p) in memory.items())
    print(f"  memory of all its processes, resident / proportional MB: {told} (bar: 90)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=os.environ.get("GPUWATCH_PEER_PYTHON"))
    parser.add_argument("--rounds", type=int, default=30, help="samples timed")
    parser.add_argument("--frames", type=int, default=7, help="starts timed")
    parser.add_argument("--seconds", type=float, default=15, help="seconds of dashboard in each turn")
    parser.add_argument("--turns", type=int, default=2, help="turns of each dashboard")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has gpuwatch (default: this one)")
    parser.add_argument("--sonar-python", default=os.environ.get("GPUWATCH_SONAR_PYTHON"))
    arguments = parser.parse_args()
    if not arguments.peer_python:
        raise SystemExit("name an interpreter that has nvitop: --peer-python, or GPUWATCH_PEER_PYTHON")
    machine = SimMachine.open(SimShape.parse("8x80GiB"), name=f"benchmark-{os.getpid()}")
    environment = machine.environment(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    programs = [
        Program("gpuwatch", [arguments.python, "-P", "-m", "gpuwatch"]),
        Program("nvitop", [arguments.peer_python, "-P", "-m", "nvitop", "--interval", "1"]),
    ]
    if arguments.sonar_python:
        programs.append(Program("nvsonar", [arguments.sonar_python, "-P", "-m", "nvsonar"], lists_processes=False))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes = populate(machine, 200, vary=True)
        sample = _json([sys.executable, str(HERE / "sample_gpuwatch.py"), str(arguments.rounds)], environment)
        peer = _json([arguments.peer_python, str(HERE / "sample_nvitop.py"), str(arguments.rounds)], environment)
        print(f"devices {sample['devices']}, processes {sample['processes']} (nvitop {peer['processes']})")
        _row("one sample / bare calls", sample["sample"], sample["bare"], 1e3, "ms", "<= 2.5")
        _row("nvitop's snapshot / ours", peer["sample"], sample["sample"], 1e3, "ms", ">= 4")
        frames(programs, environment, arguments.frames)
        running(programs, environment, "values changing", "<= 0.4", arguments.turns, arguments.seconds)
        _still(machine, processes)
        running(programs, environment, "nothing changing", "<= 0.1", arguments.turns, arguments.seconds)
        if not arguments.sonar_python:
            print("nvsonar was not measured: --sonar-python names an interpreter that has it")
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
    ratio = f"{a / b:6.2f}" if b else "     –, no CPU seen"
    print(
        f"{what:<50} {a * scale:9.2f} / {b * scale:9.2f} {unit:<7} = {ratio}   {'bar ' + bar if bar else ''}",
        flush=True,
    )


def _compare(what: str, found: dict[str, float], scale: float, unit: str, bar: str) -> None:
    """Ours against each peer; the bar is nvitop's."""
    ours, *peers = found
    for peer in peers:
        told = bar if peer == "nvitop" else ""
        _row(f"{what}, ours / {peer}", found[ours], found[peer], scale, unit, told)


if __name__ == "__main__":
    main()
