"""Rows of processes and devices are made anew when something changed, and then only."""

from __future__ import annotations

import datetime
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.core.model.process_activity import QUIET_SECONDS
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.process_rows import ProcessRows
from gpuwatch.machine.sources.device_source import GpuProcess, SourceDevice, Utilization
from gpuwatch.machine.sources.process_table import ProcessTable
from tests.diagnosis.watching import gpu, program, sample

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
    device = SourceDevice(0, "GPU-0", "x", "0000:01:00.0", "9.0")
    rows = ProcessRows(ProcessTable())
    entries = [GpuProcess(process.pid, "C", 2**30) for process in processes]
    used: dict[int, Utilization] = {}

    def look(now: float) -> list[object]:
        rows.begin_sample(now)
        return list(rows.rows(entries, device, used, LACK, 50.0))

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
    assert gone[0].note.startswith("in another PID namespace")  # type: ignore[attr-defined]
    assert second[0].create_time is not None  # type: ignore[attr-defined]
    assert gone[0].create_time is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ("rw,hidepid=2", "hidden from this user: /proc is mounted with hidepid=2"),
        ("rw,gid=44,hidepid=invisible", "hidden from this user: /proc is mounted with hidepid=invisible"),
        ("rw,hidepid=0", "in another PID namespace, or exited"),
        ("rw", "in another PID namespace, or exited"),
    ],
)
def test_a_process_that_hidepid_hides_is_not_taken_for_another_container_s(
    tmp_path: Path, start: Callable[[], subprocess.Popen[str]], options: str, note: str
) -> None:
    (tmp_path / "self").mkdir()
    mounts = f"20 1 0:19 / /proc rw,nosuid - proc proc {options}\n21 1 0:20 / /mnt/proc rw - proc proc rw,hidepid=2\n"
    (tmp_path / "self/mountinfo").write_text(mounts)
    running, gone = start(), start()
    gone.kill()
    gone.communicate()
    rows = ProcessRows(ProcessTable(proc=str(tmp_path)))  # shows neither
    rows.begin_sample(1.0)
    device = SourceDevice(0, "GPU-0", "x", "0000:01:00.0", "9.0")
    entries = [GpuProcess(running.pid, "C", 2**30), GpuProcess(gone.pid, "C", 2**30)]
    seen, ended = rows.rows(entries, device, {}, LACK, None)
    assert seen.note == note
    assert ended.note == "in another PID namespace, or exited"
    lack = seen.missing["cpu_percent"]
    assert lack.reason == ("permission_denied" if "hidden" in note else "unknown")


def test_a_row_has_since_when_its_process_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the driver's samples of each process; where it has none, by who else computes there, or that nobody does."""
    clock = [1000.0]
    monkeypatch.setattr("gpuwatch.machine.collector.process_rows.time.time", lambda: clock[0])
    rows = ProcessRows(ProcessTable())
    device = SourceDevice(0, "GPU-0", "x", "0000:01:00.0", "9.0")
    both = [GpuProcess(pid, "C", 1 << 30) for pid in (4_200_001, 4_200_002)]

    def look(
        busy: float | None,
        *shares: tuple[int, int] | None,
        entries: Sequence[GpuProcess] = both,
        lack: Missing = LACK,
    ) -> list[object]:
        """What is shown 100 seconds later than before."""
        clock[0] += 100
        rows.begin_sample(clock[0])
        used = {
            one.pid: Utilization(*share, 0, 0) for one, share in zip(entries, shares, strict=False) if share is not None
        }
        found = rows.rows(entries, device, used, None if used else lack, busy)
        return [row.idle_seconds(clock[0]) for row in found]

    assert look(0.0) == [0.0, 0.0], "idle since the first look"
    assert look(1.0) == [100.0, 100.0]
    assert look(90.0, (90, 4), (0, 0)) == [0.0, 200.0]
    assert look(90.0, (0, 3), None) == [0.0, 300.0], "it copies, and the other has no kernel"
    assert look(0.0) == [0.0, 400.0]
    assert look(90.0) == [None, None], "the driver does not tell which of them"
    assert look(0.0) == [0.0, 0.0], "it may have computed meanwhile"
    assert look(90.0, entries=both[:1]) == [0.0]
    assert look(0.0)[0] == 0.0
    assert look(None) == [None, None], "a sample that failed"
    assert look(0.0) == [200.0, 200.0], "is no sign of work"
    assert look(90.0, lack=Missing("failed", code=999)) == [None, None]
    assert look(90.0, (0, 0), (90, 0)) == [400.0, 0.0]
    for _ in range(2):
        rows.begin_sample(clock[0])  # the list of processes failed
    assert look(0.0)[0] == 500.0
    for _ in range(4):
        look(None)
    assert look(0.0) == [0.0, 0.0], "after so many, it may have computed"
    assert look(1.0, (1, 0), (0, 0)) == [0.0, 100.0], "a small kernel now and then is work, though the GPU is at 1 %"
    assert rows.rows(both, device, {}, LACK, None)[0].missing["idle_since"] == LACK


@pytest.mark.parametrize("every", [2, 5, 9])
@pytest.mark.parametrize("tells", [True, False])
def test_a_program_with_short_kernels_is_not_idle_by_turns(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], subprocess.Popen[str]], every: int, tells: bool
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("gpuwatch.machine.collector.process_rows.time.time", lambda: clock[0])
    rows = ProcessRows(ProcessTable())
    device, server = SourceDevice(0, "GPU-0", "x", "0000:01:00.0", "9.0"), [GpuProcess(start().pid, "C", 1 << 30)]
    lack = Missing("no_sample" if tells else "not_supported")
    seen = []
    for second in range(100):
        clock[0] += 1
        rows.begin_sample(clock[0])
        kernel = second < 60 and second % every == 0
        used = {server[0].pid: Utilization(3, 1, 0, 0)} if tells and kernel else {}
        seen.append(rows.rows(server, device, used, None if used else lack, 3.0 * kernel)[0].readings["idle_since"])
    assert set(seen[every:60]) == {0}
    last = 1001 + 59 // every * every
    assert seen[-1] == last + 1, "since the first second without a kernel"
    assert seen.index(last + 1) == last + 1 - 1001 + QUIET_SECONDS, "though nothing of it changes any more"


@pytest.mark.parametrize("interval", [0.25, 1.0])
def test_another_process_s_activity_does_not_end_the_idle_time(
    monkeypatch: pytest.MonkeyPatch, interval: float
) -> None:
    """The device's utilization is there before the first sample of who computes, and lingers when that one is gone."""
    clock = [1000.0]
    monkeypatch.setattr("gpuwatch.machine.collector.process_rows.time.time", lambda: clock[0])
    rows = ProcessRows(ProcessTable())
    device = SourceDevice(0, "GPU-0", "x", "0000:01:00.0", "9.0")
    holder, probe = (GpuProcess(pid, "C", 1 << 30) for pid in (4_200_001, 4_200_002))

    def look(busy: float, *entries: GpuProcess, lack: Missing = LACK, **used: int) -> list[float | None]:
        clock[0] += interval
        rows.begin_sample(clock[0])
        shares = {entries[0 if who == "holder" else 1].pid: Utilization(sm, 0, 0, 0) for who, sm in used.items()}
        found = rows.rows(entries, device, shares, None if shares else lack, busy)
        return [row.readings.get("idle_since") for row in found]  # type: ignore[misc]

    began = look(0.0, holder, holder=40)[0]
    assert began, "the driver's first sample is of any time before"
    for _ in range(60):
        look(0.0, holder)
    assert look(8.0, holder, probe) == [began, None], "who of them is not told yet"
    assert look(90.0, holder, probe, probe=90) == [began, 0]
    assert look(90.0, holder, probe) == [began, 0], "nothing newer since the last sample"
    assert look(40.0, holder) == [began], "the probe has ended"
    assert look(0.0, holder) == [began]
    assert look(40.0, holder, holder=40) == [0]
    assert look(40.0, holder) == [0]
    quiet = [look(0.0, holder)[0] for _ in range(math.ceil((QUIET_SECONDS + 2) / interval))]
    assert quiet[0] == 0, "its kernels are short: it is not idle in between"
    assert quiet[-1] is not None
    assert began < quiet[-1] <= clock[0] - QUIET_SECONDS, "idle since the first sample without one"
    assert quiet == sorted(quiet), "once"  # type: ignore[type-var]
    assert look(0.0, holder, holder=40) == [0], "a kernel between two samples"
    told = [look(90.0, holder, probe)[0] for _ in range(40)]
    assert told[0] is not None
    assert told[-1] is None, "a driver that never has a sample does not tell"
    unsupported = Missing("not_supported")
    for _ in range(math.ceil((QUIET_SECONDS + 2) / interval)):
        alone = look(0.0, holder, lack=unsupported)[0]
    assert alone
    assert look(9.0, holder, lack=unsupported) == [0], "alone on it, it must be the one"
    assert look(9.0, holder, probe, lack=unsupported) == [None, None]


def test_a_document_says_for_how_long_a_process_is_idle() -> None:
    at = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)
    rows = [program(pid, gpu=0) for pid in (1, 2, 3)]
    for row, since in zip(rows, (at.timestamp() - 90, 0, None), strict=True):
        row.readings.update({} if since is None else {"idle_since": int(since)})
    snapshot = msgspec.structs.replace(sample(0, [gpu()], rows), taken_at=at)
    written = json.loads(to_json(snapshot))["processes"]
    assert [one["readings"].get("idle_seconds") for one in written] == [90.0, 0.0, None]
    assert not any("idle_since" in one["readings"] for one in written)
    back = from_json(json.dumps(json.loads(to_json(snapshot))).encode())
    assert isinstance(back, Snapshot)
    assert [row.readings.get("idle_since") for row in back.processes] == [at.timestamp() - 90, 0, None]
