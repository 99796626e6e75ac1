"""The list of hosts: CPU at a refresh of 5 s, and how long a key takes, over Prometheus and over ssh.

    python -m tests.benchmarks.fleet [--hosts 125] [--seconds 40]

All values move between two refreshes. The server's and the hosts' own CPU is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import stat
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpuwatch.core.model.json_codec import to_json
from gpuwatch.fleet.prometheus_api import Prometheus
from gpuwatch.fleet.prometheus_source import PrometheusSource
from tests.fleet.demo import fleet
from tests.fleet.prometheus_server import FakePrometheus, Series, served
from tests.terminal import Terminal
from tests.ui import machines

_VARIANTS = 4


class Moving(FakePrometheus):
    """Answers in a few variants, made in advance: the server is not what is measured."""

    def __init__(self, still: FakePrometheus) -> None:
        super().__init__()
        self.past, self.down, self._ready = still.past, still.down, dict[tuple[str, int], bytes]()
        self._variants = [_moved(still.series, random.Random(seed)) for seed in range(_VARIANTS)]

    def reply(self, path: str) -> tuple[int, bytes]:
        turn = int(time.time() / 5) % _VARIANTS
        key = (path.partition("&start")[0], turn)
        if key not in self._ready:
            self.series = self._variants[turn]
            self._ready[key] = super().reply(path)[1]
        return 200, self._ready[key]


def _moved(series: list[Series], chance: random.Random) -> list[Series]:
    return [
        (labels, str(round(float(value) * chance.uniform(0.9, 1.0), 2)) if float(value) > 10 else value)
        for labels, value in series
    ]


def _cpu_seconds(pid: int) -> float:
    """CPU time of one process, without its children (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)


def measure(command: list[str], environment: dict[str, str], seconds: float) -> None:
    """Prints CPU and latencies of one list of hosts."""
    terminal = Terminal(command, environment, 120, 40)
    try:
        first = terminal.drain(60, lambda output: b" answered" in output)
        assert first is not None, bytes(terminal.output[-2000:])
        print(f"  first list after {first:.1f} s")
        settled = time.monotonic() + 12
        while time.monotonic() < settled:
            terminal.drain(1)
        before, began = _cpu_seconds(terminal.pid), time.monotonic()
        while time.monotonic() < began + seconds:
            terminal.drain(1)
        spent = _cpu_seconds(terminal.pid) - before
        print(f"  CPU: {100 * spent / (time.monotonic() - began):.2f} % of a core")
        times = []
        for number in range(120):
            rested = time.monotonic() + 0.05 + (number % 7) * 0.03
            while (left := rested - time.monotonic()) > 0:
                terminal.drain(left)
            sent, length = time.monotonic(), len(terminal.output)
            terminal.keys("k" if number % 2 else "j")  # each one moves the cursor
            while len(terminal.output) == length and time.monotonic() - sent < 2:
                terminal.drain(0.5, lambda output: True)
            times.append(1000 * (time.monotonic() - sent))
        times.sort()
        print(f"  a key: median {statistics.median(times):.0f} ms, p95 {times[113]:.0f} ms, longest {times[-1]:.0f} ms")
    finally:
        terminal.keys("q")
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=125)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        with served(Moving(fleet(arguments.hosts))) as running:
            source = PrometheusSource(Prometheus(running.url))
            for _ in range(_VARIANTS):
                source.read()
                time.sleep(5)  # the pace of the list
            print(running.url, flush=True)
            sys.stdin.read()
        return
    program = [sys.executable, "-m", "gpuwatch"]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_STATE_HOME": folder, "GPUWATCH_CONFIG_FILE": f"{folder}/settings.toml"}
        serve = [sys.executable, "-m", "tests.benchmarks.fleet", "--serve", "--hosts", str(arguments.hosts)]
        with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            print(f"Prometheus, {arguments.hosts} hosts x 8 GPUs:")
            measure([*program, "--prometheus", url], environment, arguments.seconds)
            assert server.stdin is not None
            server.stdin.close()
        ssh = Path(folder, "ssh")
        shots = [machines.many(8, 40, tick=tick) for tick in range(_VARIANTS)]
        for number, shot in enumerate(shots):
            Path(folder, f"{number}.json").write_text(to_json(shot, indent=0))
        size = Path(folder, "0.json").stat().st_size
        ssh.write_text(f'#!/bin/sh\nwhile :; do for n in 0 1 2 3; do cat "{folder}/$n.json"; sleep 5; done; done\n')
        ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        devices = len(json.loads(Path(folder, "0.json").read_text())["devices"])
        print(f"ssh, {arguments.hosts} hosts x {devices} GPUs, {size >> 10} KiB a sample:")
        measure([*program, "--hosts", f"n[1-{arguments.hosts}]"], environment, arguments.seconds)


if __name__ == "__main__":
    main()
