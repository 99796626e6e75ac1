"""Rows of processes and devices are made anew when something changed, and then only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from gpuwatch.model.reading import Missing
from gpuwatch.monitor.rows import ProcessRows
from gpuwatch.sources.answers import GpuProcess, Utilization
from gpuwatch.sources.device import NvmlDevice
from gpuwatch.sources.host import ProcessTable

LACK = Missing("no_sample", detail="none")
_WORK = "import sys\nfor line in sys.stdin:\n    sum(range(10 ** 6))\n    print('done', flush=True)\n"


@pytest.fixture
def start() -> Iterator[Callable[[], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def one() -> subprocess.Popen[str]:
        command = [sys.executable, "-S", "-c", _WORK]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield one
    for process in started:
        process.kill()
        process.communicate()


def work(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def test_a_list_is_the_same_list_until_one_of_its_processes_runs_or_goes(
    start: Callable[[], subprocess.Popen[str]],
) -> None:
    processes = [start(), start()]
    for process in processes:
        work(process)
    device = NvmlDevice(0, object(), "GPU-0", "x", "0000:01:00.0", "9.0")
    rows = ProcessRows(ProcessTable())
    entries = [GpuProcess(process.pid, "C", 2**30) for process in processes]
    used: dict[int, Utilization] = {}

    def look(now: float) -> list[object]:
        rows.begin(1e9 + now, now)
        return list(rows.rows(entries, device, used, LACK))

    look(1.0)
    second, third, fourth = look(2.0), look(3.0), look(4.0)
    assert [row.readings["cpu_percent"] for row in third] == [0.0, 0.0]  # type: ignore[attr-defined]
    assert all(a is b for a, b in zip(third, fourth, strict=True))
    work(processes[1])
    fifth = look(5.0)
    assert fifth[0] is fourth[0]
    assert fifth[1].readings["cpu_percent"] > 0  # type: ignore[attr-defined]
    assert look(6.0)[1].readings["cpu_percent"] == 0.0  # type: ignore[attr-defined]
    used = {processes[0].pid: Utilization(50, 5, 0, 0)}
    assert look(7.0)[0].readings["sm_percent"] == 50  # type: ignore[attr-defined]
    look(8.0)
    processes[0].kill()
    processes[0].communicate()
    gone = look(9.0)
    assert gone[0].note.startswith("not in this PID namespace")  # type: ignore[attr-defined]
    assert second[0].create_time is not None  # type: ignore[attr-defined]
    assert gone[0].create_time is None  # type: ignore[attr-defined]
