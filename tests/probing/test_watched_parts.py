"""The parts of ``run``: floods, long times, lines of several processes, what was asked, whom the kernel killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.run import DeviceMapping, Devices, Outcome, RunError, Worker
from gpuwatch.experiment.probing import program_end, watch_program
from gpuwatch.experiment.probing.op_placement import OpCounts
from gpuwatch.experiment.probing.output_backlog import MAX_QUEUED_BYTES, OutputBacklog
from gpuwatch.experiment.probing.run_draft import RunDraft, RunDraftBuilder
from gpuwatch.experiment.probing.run_gpu_memory import MAX_POINTS as POINTS
from gpuwatch.experiment.probing.run_gpu_memory import MemoryTimeline
from gpuwatch.experiment.probing.stream_reader import LineSplitter, StreamReader
from gpuwatch.experiment.probing.watch_program import Watch
from gpuwatch.experiment.probing.watched_processes import WatchedProcesses
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.machine.sources.oom_kills import OomKills, find_kernel_log_line, read_oom_kills
from gpuwatch.machine.sources.procfs import descends, leader_of
from gpuwatch.share.reports import run_report
from tests.diagnosis.cases import draft
from tests.probing.test_watcher import load
from tests.reports.documents import STARTED, bare_run
from tests.ui import machines


def draft_of(
    builder: RunDraftBuilder,
    *,
    exit_code: int = 0,
    seconds: float = 1.0,
    environment: Mapping[str, str] | None = None,
    simulation: Any = None,
) -> RunDraft:
    """What a builder made of a program that ended."""
    return builder.build(
        watch_program._script_of_command(["python"]),
        Outcome(exit_code=exit_code),
        started_at=STARTED,
        total_seconds=seconds,
        fresh=True,
        environment=dict(environment or {}),
        simulation=simulation,
    )


@given(st.lists(st.binary(max_size=200), max_size=30))
def test_lines_are_what_split_says(chunks: list[bytes]) -> None:
    taken: list[bytes] = []
    lines = LineSplitter(taken.append)
    for chunk in chunks:
        lines.feed(chunk)
    lines.close()
    whole = b"".join(chunks).split(b"\n")
    assert taken == (whole[:-1] if whole[-1] == b"" else whole)


def test_a_backlog_is_bounded_and_keeps_what_tells_something() -> None:
    taken: list[bytes] = []
    backlog = OutputBacklog(taken.append)
    backlog.queue(b"ValueError: early\n")
    for _ in range(40):
        backlog.queue(b"a line that says nothing at all\n" * 32768)
        assert len(backlog) <= MAX_QUEUED_BYTES
    backlog.close()
    assert taken[0] == b"ValueError: early"
    assert backlog.skipped_bytes > 20 << 20
    assert set(taken[1:]) <= {b"a line that says nothing at all"} | {line for line in taken if len(line) < 31}
    assert len(taken) * 32 <= MAX_QUEUED_BYTES + (1 << 20)


def test_lines_around_a_gap_are_not_joined() -> None:
    taken: list[bytes] = []
    backlog = OutputBacklog(taken.append)
    backlog.queue(b"x" * 65536)
    backlog.parse_next()
    for _ in range(MAX_QUEUED_BYTES // 65536 + 4):
        backlog.queue(b"y" * 65536)
    backlog.queue(b"\nlast\n")
    backlog.close()
    assert taken[0] == b"x" * 65536
    assert taken[-1] == b"last"


def test_a_month_is_no_longer_than_an_hour_and_keeps_its_peak() -> None:
    timeline = MemoryTimeline(0.0)
    device = machines.device(0, busy=50)
    for tick in range(50_000):
        held = 40 * machines.GIB if tick == 31_234 else machines.GIB
        timeline.take_snapshot(machines.snapshot((device,), ()), {device.uuid: float(held)}, None, float(tick), set())
        if tick % 997 == 0:
            assert len(timeline.busiest_timeline.points()) <= 2 * POINTS
    points = timeline.busiest_timeline.points()
    assert max(point.process_bytes or 0 for point in points) == 40 * machines.GIB
    gaps = {round(after.t - before.t) for before, after in pairwise(points[:-1])}
    assert len(gaps) == 1, "evenly spaced"
    peak = max(points, key=lambda point: point.process_bytes or 0)
    assert abs(peak.t - 31_234) <= next(iter(gaps))


def test_a_line_of_a_log_finds_the_process_whose_thread_wrote_it() -> None:
    streams = StreamReader()
    reports = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    family = WatchedProcesses(streams, reports)
    threads: list[int] = []
    done, known = threading.Event(), threading.Event()

    def work() -> None:
        threads.append(threading.get_native_id())
        known.set()
        done.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    known.wait(10)
    try:
        line = (
            f"I0000 00:00:1795165884.889690 {threads[0]:7} pluggable_device_factory.cc:271] Created TensorFlow device "
            "(/job:localhost/replica:0/task:0/device:GPU:0 with 22860 MB memory) -> physical PluggableDevice "
            "(device: 0, name: GPUWATCH, pci bus id: <undefined>)"
        )
        family.take_log_line(line.encode())
        family.take_log_line(line.encode())
    finally:
        done.set()
        thread.join()
    oom = (
        f"W0000 00:00:1795165884.1 {os.getpid()} bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of memory trying "
        "to allocate 4.00GiB"
    )
    family.take_log_line(oom.encode())
    family.take_log_line(oom.encode() + b" The caller indicates that this is not a failure, but this may mean")
    family.take_log_line(b"I0000 00:00:1795165884.1 4194304000 gpu_device.cc:1] Created device nobody")
    (process,) = family.processes({})
    assert process.pid == os.getpid()
    assert [mapping.framework_device for mapping in process.device_map] == ["/device:GPU:0"]
    assert process.ooms == 1
    family.close()
    reports.close()
    streams.close()


@pytest.mark.parametrize(("last", "cut"), [("", True), ("end", False)])
def test_a_process_that_is_gone_without_a_last_report_had_perhaps_more_ops(last: str, cut: bool) -> None:
    streams, reports = StreamReader(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    reports.bind(f"\0gpuwatch-test-{os.getpid()}-{last}")
    reports.listen()
    family = WatchedProcesses(streams, reports)
    process = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    process.connect(reports.getsockname())
    placed = {"op": "Tanh", "dtype": "float32", "requested": "GPU:0", "actual": "CPU:0", "count": 1}
    for kind, data in (("placement", placed), (last, {"ok": True})):
        event = {"t": 0.0, "kind": kind, "data": data}
        process.sendall((json.dumps(event) + "\n").encode() if kind else b"")
    while not family.op_counts():
        streams.drain(1)
    assert family.pids_without_last_report() == (), "it may still run"
    process.close()
    while streams.drain(0.1):
        pass
    assert family.pids_without_last_report() == ((os.getpid(),) if cut else ())
    family.close()
    reports.close()
    streams.close()


@pytest.mark.parametrize("listens", [True, False])
def test_what_a_process_said_before_its_connection_was_accepted_is_read(listens: bool) -> None:
    streams, reports = StreamReader(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    reports.bind(f"\0gpuwatch-test-{os.getpid()}-{listens}")
    reports.listen()
    reports.setblocking(False)
    family = WatchedProcesses(streams, reports)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as process:
        process.connect(reports.getsockname())
        placed = {"op": "Tanh", "dtype": "float32", "requested": "GPU:0", "actual": "CPU:0", "count": 1}
        process.sendall((json.dumps({"t": 0.0, "kind": "placement", "data": placed}) + "\n").encode())
    if not listens:
        family.stop_accepting()
    while streams.drain(0):
        pass
    assert family.op_counts()
    family.close()
    reports.close()
    streams.close()


def test_who_descends_from_whom() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert descends(child.pid, os.getpid())
        assert descends(os.getpid(), os.getpid())
        assert not descends(os.getpid(), child.pid)
        assert leader_of(child.pid) == child.pid
    finally:
        child.kill()
        child.wait()
    assert not descends(child.pid, os.getpid())
    assert leader_of(child.pid) is None


def _machine(root: Path, cgroup: str, files: dict[str, str], vmstat: str = "nr_free 1\noom_kill 3\n") -> Path:
    for name, text in {"proc/vmstat": vmstat, "proc/self/cgroup": cgroup, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_counters_of_the_oom_killer_in_both_kinds_of_control_groups(tmp_path: Path) -> None:
    two = _machine(
        tmp_path / "2",
        "0::/slurm/job_7\n",
        {
            "sys/fs/cgroup/slurm/job_7/memory.events": "low 0\nmax 12\noom 1\noom_kill 1\n",
            "sys/fs/cgroup/slurm/job_7/memory.max": "17179869184\n",
        },
    )
    assert read_oom_kills(two) == OomKills(1, 3, 16 << 30)
    one = _machine(
        tmp_path / "1",
        "5:cpu,cpuacct:/a\n4:memory:/docker/b\n",
        {
            "sys/fs/cgroup/memory/docker/b/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
            "sys/fs/cgroup/memory/docker/b/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert read_oom_kills(one) == OomKills(2, 3, None)
    assert read_oom_kills(tmp_path / "nothing") == OomKills(None, None, None)
    unlimited = _machine(
        tmp_path / "3",
        "0::/\n",
        {"sys/fs/cgroup/memory.events": "oom_kill 0\n", "sys/fs/cgroup/memory.max": "max\n"},
    )
    assert read_oom_kills(unlimited) == OomKills(0, 3, None)
    for number, odd in enumerate(("", "²", "9" * 5000, "-1", "1.5", "\x00")):
        text = {"sys/fs/cgroup/memory.events": f"oom_kill {odd}\n", "sys/fs/cgroup/memory.max": f"{odd}\n"}
        assert read_oom_kills(_machine(tmp_path / f"odd {number}", "0::/\n", text)) == OomKills(None, 3, None)
    for number, groups in enumerate((":\n", "0::\n", "0:\n::\n", "0::/../../..\n", "4:memory\n")):
        assert read_oom_kills(_machine(tmp_path / f"groups {number}", groups, {})) == OomKills(None, 3, None)


@pytest.mark.parametrize(
    ("error", "received", "verdict"),
    [
        (RunError(type="KeyboardInterrupt", message="", by_signal=True), (), "interrupted"),
        (RunError(type="KeyboardInterrupt", message=""), (2,), "interrupted"),
        (RunError(type="KeyboardInterrupt", message=""), (15,), "interrupted"),
        (RunError(type="KeyboardInterrupt", message=""), (), "error"),
        (RunError(type="RuntimeError", message="KeyboardInterrupt: <EMPTY>"), (), "interrupted"),
        (RunError(type="SignalException", message="Process 19 got signal: 2"), (2,), "interrupted"),
        (RunError(type="ValueError", message="shapes"), (15,), "error"),
    ],
)
def test_an_exception_that_a_signal_raised_is_no_error(
    error: RunError, received: tuple[int, ...], verdict: str
) -> None:
    facts = program_end.EndFacts(
        outcome=Outcome(exit_code=1), received_signals=received, oom_kills_before=OomKills(None, None)
    )
    run = program_end.with_program_end(msgspec.structs.replace(bare_run(), errors=(error,)), facts)
    assert (run.verdict, run.errors) == (verdict, () if verdict == "interrupted" else (error,))


@pytest.mark.parametrize(
    ("message", "ending"),
    [
        (
            "Error downloading a.gz:\nTried https://a.org, got:\n<urlopen error>\n",
            "a.gz: Tried https://a.org, got: <urlopen error>.",
        ),
        ("for the following reason:", "for the following reason."),
        ("Building [1/2] c++ ...", "Building [1/2] c++."),
    ],
)
def test_the_reason_has_the_whole_error_and_one_period(message: str, ending: str) -> None:
    run = msgspec.structs.replace(bare_run(), errors=(RunError(type="RuntimeError", message=message),))
    facts = program_end.EndFacts(outcome=Outcome(exit_code=1), oom_kills_before=OomKills(None, None))
    assert program_end.with_program_end(run, facts).verdict_reason.endswith(ending)


def test_a_logged_error_ended_it_and_not_the_signal_before() -> None:
    for logged, verdict in (
        ("ValueError", "error"),
        ("SystemExit", "interrupted"),
        ("KeyboardInterrupt", "interrupted"),
    ):
        facts = program_end.EndFacts(
            outcome=Outcome(exit_code=1),
            received_signals=(15,),
            logged_errors=(RunError(type=logged, message="shapes"),),
            oom_kills_before=OomKills(None, None),
        )
        assert program_end.with_program_end(bare_run(), facts).verdict == verdict


@pytest.mark.parametrize(
    ("received", "reason"),
    [
        ((), ""),
        ((signal.SIGUSR1,), ""),
        ((signal.SIGINT, signal.SIGTERM), "It was sent SIGTERM after 12 s, and ended by itself."),
    ],
)
def test_a_signal_that_a_program_handled_is_in_its_reason(received: tuple[int, ...], reason: str) -> None:
    facts = program_end.EndFacts(
        outcome=Outcome(exit_code=0),
        received_signals=received,
        signal_seconds={signal.SIGINT: 5.0, signal.SIGTERM: 12.0},
        oom_kills_before=OomKills(None, None),
    )
    run = program_end.with_program_end(bare_run(), facts)
    assert (run.verdict, run.verdict_reason) == ("ok", reason)


@pytest.mark.parametrize(
    ("before", "after", "killed"),
    [
        (OomKills(0, 5), OomKills(1, 6), True),
        (OomKills(0, 5), OomKills(0, 6), False),
        (OomKills(None, 5), OomKills(None, 6), True),
        (OomKills(None, None), OomKills(None, None), False),
    ],
)
def test_the_nearest_counter_is_the_witness(before: OomKills, after: OomKills, killed: bool) -> None:
    assert ((program_end._kills_between(before, after) or 0) > 0) is killed


@pytest.mark.parametrize(
    ("outcome", "starved", "told"),
    [
        (Outcome(exit_code=0), False, True),
        (Outcome(exit_code=1), False, True),
        (Outcome(signal=9), True, False),
    ],
)
def test_a_worker_that_the_kernel_killed_is_told_where_the_program_goes_on(
    outcome: Outcome, starved: bool, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_end, "read_oom_kills", lambda: OomKills(1, 6, 1 << 30))
    run = program_end.with_program_end(
        bare_run(), program_end.EndFacts(outcome=outcome, oom_kills_before=OomKills(0, 5, 1 << 30))
    )
    assert run.host_memory_out is starved
    assert any("perhaps one of its workers" in problem for problem in run.problems) is told


def test_the_kernels_own_line_about_a_process_that_it_killed(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    log.write_text(
        "6,1,5,-;usb 1-1: new device\n"
        "3,2,9,-;Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:2kB\n"
        "3,3,9,-;Out of memory: Killed process 12 (other)\n"
    )
    assert find_kernel_log_line({4711}, log).startswith("Memory cgroup out of memory: Killed process 4711 (python)")
    assert find_kernel_log_line({47}, log) == ""
    assert find_kernel_log_line({4711}, tmp_path / "nothing") == ""


@pytest.mark.parametrize(
    ("looks", "allocated", "known"), [(1, 1 << 30, False), (0, 1 << 30, False), (0, None, False), (1, None, True)]
)
def test_what_nobody_looked_at_is_not_0(looks: int, allocated: int | None, known: bool) -> None:
    """A program that held memory between two looks at NVML: its peak is missing, with that reason."""
    free = machines.snapshot((machines.device(0, busy=0),), ())
    builder = RunDraftBuilder(0.0, free, lambda pid: pid == 7)
    for at in range(looks):
        builder.take_snapshot(free, float(at))
    if allocated is not None:
        builder.received.allocator_peaks["/device:GPU:0"] = allocated
    run = draft_of(builder).run
    assert run.memory.nvml_peak_bytes is None
    assert (run.memory.nvml_device_peak_bytes is not None) is known
    assert any("no sample was taken while" in problem for problem in run.problems) is not known
    told = dict(run_report._facts(run))["seen by NVML"]
    assert ("no sample was taken while" in told) is not known


@pytest.mark.parametrize(("used", "missed"), [(0, True), (30 << 30, False)])
def test_a_probe_whose_other_process_filled_the_gpu_between_two_looks(used: int, missed: bool) -> None:
    free = machines.snapshot((machines.device(0, busy=0, readings={"memory.used_bytes": 0}),), ())
    builder = RunDraftBuilder(0.0, free)
    builder.take_snapshot(machines.snapshot((machines.device(0, readings={"memory.used_bytes": used}),), ()), 0.0)
    builder.received.workers.append(Worker(name="first", pid=8, granted_bytes=30 << 30))
    told = dict(run_report._facts(draft_of(builder).run))["seen by NVML"]
    assert ("no sample was taken while its processes held memory" in told) is missed
    assert " 0 B of" not in told


@pytest.mark.parametrize(("has_speed", "times", "told"), [(False, [], True), (True, [(1.0, 0.1, 9, 1)], False)])
def test_a_program_with_too_few_steps_says_why_it_has_no_speed(has_speed: bool, times: list[Any], told: bool) -> None:
    builder = RunDraftBuilder(0.0, None, lambda pid: pid == 7)
    needs = load("_gpuwatch_steps").Steps.speed_needs
    data = {"counted": "batches of Keras", "count": 9, "warm_up": 5, "has_speed": has_speed, "speed_needs": needs}
    event = {"t": 1.0, "kind": "steps", "data": {**data, "times": times}}
    builder.received.take_line(msgspec.json.encode(event))
    run = draft_of(builder).run
    reason = "speed: too few steps (batches of Keras: 9); it takes 10 timed ones after the first 5"
    assert (reason in run.problems) is told


@pytest.mark.parametrize(("name", "told"), [("jax", True), ("torch", False)])
def test_a_program_whose_steps_are_not_counted_says_why_it_has_no_speed(name: str, told: bool) -> None:
    builder = RunDraftBuilder(0.0, None, lambda pid: pid == 7)
    data = {"name": name, "version": "1", "gpu_build": True, "interpreter": "", "python_version": ""}
    builder.received.take_line(msgspec.json.encode({"t": 1.0, "kind": "framework", "data": data}))
    problems = draft_of(builder).run.problems
    assert any(problem.startswith("speed: steps of JAX are not counted") for problem in problems) is told


_PEAK = {"kind": "memory", "data": {"device": "cuda:0", "current": 0, "peak": 1 << 20}}
_OPTIMIZER_STEPS = {"counted": "steps of the optimizer", "count": 3, "warm_up": 5, "has_speed": False, "times": []}


@pytest.mark.parametrize(
    ("seconds", "event", "told"),
    [
        (1.5, None, False),  # it only imported PyTorch
        (1.5, _PEAK, True),
        (30.0, None, True),  # on the CPU
        (30.0, {"kind": "steps", "data": _OPTIMIZER_STEPS}, False),
    ],
)
def test_a_pytorch_program_without_an_optimizer_says_why_it_has_no_speed(
    seconds: float, event: dict[str, Any] | None, told: bool
) -> None:
    builder = RunDraftBuilder(0.0, None, lambda pid: pid == 7)
    data = {"name": "torch", "version": "2", "gpu_build": True, "interpreter": "", "python_version": ""}
    builder.received.take_line(msgspec.json.encode({"t": 1.0, "kind": "framework", "data": data}))
    if event is not None:
        builder.received.take_line(msgspec.json.encode({"t": 1.2, **event}))
    problems = draft_of(builder, seconds=seconds).run.problems
    assert any("PyTorch are counted by its optimizers, and none made a step" in text for text in problems) is told


def test_the_last_report_counts_too_few_calls_of_a_function() -> None:
    steps = load("_gpuwatch_steps")
    sent: list[dict[str, Any]] = []

    def inner() -> None: ...

    def outer() -> None: ...

    # Of a function that it calls while it is traced, TensorFlow counts the first call before its own.
    detectors = {lambda: inner.__code__: 3, lambda: outer.__code__: 3}
    for trial in (None, object()):
        calls = steps.Calls()
        watcher = SimpleNamespace(counters=SimpleNamespace(kinds=tuple, calls=calls), trial=trial)
        watcher.emit = lambda kind, **data: sent.append(data)
        reports = steps.StepReports(watcher)
        reports.tell(last=True)
        calls.look(detectors, lambda _, count: (1, count), 1.0, last=True)
        reports.tell()
        assert len(sent) == (trial is not None)
        reports.tell(last=True)
    (data,) = sent
    name = f"calls of the tf.function outer (test_watched_parts.py:{outer.__code__.co_firstlineno})"
    assert (data["counted"], data["count"], data["has_speed"]) == (name, 3, False)


_CUPY = (
    b"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 17,179,869,184 bytes (allocated so far:"
    b" 133,143,986,176 bytes).\n"
)


@pytest.mark.parametrize(("looks", "known"), [(2, False), (9, True)])
def test_a_short_program_that_ran_out_of_memory_was_on_the_gpu_between_two_looks(looks: int, known: bool) -> None:
    """In a container NVML may list no process at all, however often it is asked."""
    free = machines.snapshot((machines.device(0, busy=0),), ())
    builder = RunDraftBuilder(0.0, free, lambda pid: pid == 7)
    builder.take_log_line(_CUPY)
    for at in range(looks):
        builder.take_snapshot(free, float(at))
    draft = draft_of(builder, exit_code=1, seconds=1.7)
    told = dict(run_report._facts(draft.run))["seen by NVML"]
    assert ("no sample was taken while" in told, "none of its processes" in told) == (not known, known)
    assert [(oom.allocator, oom.in_use_bytes) for oom in draft.run.ooms] == [("cupy", 133_143_986_176)]


@pytest.mark.parametrize(
    ("named", "reporting", "says"),
    [
        ("cupy", False, "cupy, which its output mentions, is not watched"),
        ("cupy", True, "cupy, which its output mentions, is not watched"),
        ("pytorch", False, "ignores PYTHONPATH"),
        ("pytorch", True, "none of its Python processes reported its framework before it ended"),
        ("tensorflow", True, "none of its Python processes reported its framework before it ended"),
    ],
)
def test_why_a_program_was_not_watched_inside(
    monkeypatch: pytest.MonkeyPatch, named: str, reporting: bool, says: str
) -> None:
    watching = Watch.__new__(Watch)
    processes = {"pids_without_last_report": lambda: (), "any_has_reported": reporting}
    parts = {"log": SimpleNamespace(frameworks=[named])}, {"skipped_bytes": 0}, {"read_log": True}, processes
    for name, part in zip(("_builder", "_backlog", "_options", "_processes"), parts, strict=True):
        monkeypatch.setattr(watching, name, SimpleNamespace(**part), raising=False)
    (problem,) = watching._problems(  # type: ignore[arg-type]
        SimpleNamespace(framework=None, outcome=Outcome(exit_code=0))
    )
    assert says in problem


@pytest.mark.parametrize(
    ("mapped", "gpus", "unused", "says"),
    [
        ((), 0, False, "no process of the program used a GPU"),
        ((), 1, False, "why is not known"),
        ((0, 1), 0, False, "why is not known"),
        ((0, 1), 0, True, "allocated nothing"),
    ],
)
def test_why_no_memory_profile_came(
    monkeypatch: pytest.MonkeyPatch, mapped: tuple[int, ...], gpus: int, unused: bool, says: str
) -> None:
    watching = Watch.__new__(Watch)
    processes = SimpleNamespace(
        memory_profiles=lambda: ((), ()),
        gpus_and_bytes_in_use=lambda: (gpus, 0),
        allocated_nothing=lambda: unused,
    )
    for name, part in (("_options", SimpleNamespace(record_memory=True)), ("_processes", processes)):
        monkeypatch.setattr(watching, name, part, raising=False)
    devices = tuple(DeviceMapping(framework_device=f"/device:GPU:{number}", cuda_ordinal=0) for number in mapped)
    (problem,) = watching._with_memory(RunDraft(draft(device_map=devices), parse(""), None)).run.problems
    assert says in problem


def test_a_process_that_is_about_to_exit_is_looked_at_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []
    watching = Watch.__new__(Watch)
    processes = SimpleNamespace(ended_count=lambda: len(ended), gpus_and_bytes_in_use=lambda: (0, 0))
    ended: list[int] = []
    for name, value in {
        "_ended_at_sample": 0,
        "_gpus_at_sample": 0,
        "_bytes_at_sample": 0,
        "_next_extra_sample_at": 0.0,
        "_processes": processes,
    }.items():
        monkeypatch.setattr(watching, name, value, raising=False)
    monkeypatch.setattr(watching, "_sample_now", lambda: looks.append("look"), raising=False)
    for now in ([], [1], [1], [1, 2]):
        ended[:] = now
        watching._sample_before_exit()
    assert len(looks) == 2


@pytest.mark.parametrize("looks", [0, 1])
def test_a_first_look_that_came_too_late_makes_no_real_gpus_of_simulated_ones(looks: int) -> None:
    """On a busy machine no sample may come before the start, or none at all."""
    device = msgspec.structs.replace(machines.device(0, busy=0), simulated=True)
    rows = tuple(msgspec.structs.replace(machines.process(number), pid=pid) for number, pid in enumerate((7, 8)))
    late = msgspec.structs.replace(machines.snapshot((device,), rows), simulated=True)
    builder = RunDraftBuilder(0.0, None, lambda pid: pid == 7)
    builder.pid = 7
    for at in range(looks):
        builder.take_snapshot(late, float(at))
    draft = draft_of(builder, environment={"GPUWATCH_SIM_STATE": "/dev/shm/state"}, simulation="plugin")
    run = draft.run
    assert (run.simulated, run.simulation) == (True, "plugin")
    assert [problem for problem in run.problems if problem.startswith("GPUs: no sample was taken")]
    assert len(run.gpus) == looks
    assert run.memory.nvml_before_bytes is None, "what was in use before the start is not known"
    if draft.before is not None:
        assert [process.pid for process in draft.before.processes] == [8]
        assert draft.before.devices[0].number("memory.used_bytes") is None


def test_phases_end_when_their_events_came() -> None:
    builder = RunDraftBuilder(100.0, None)
    builder.take_event_line(b'{"t":102.5,"kind":"phase","data":{"name":"import","seconds":2.0}}')
    draft = draft_of(builder, seconds=3.0)
    assert (draft.run.phases.import_seconds, draft.run.phases.ended_at) == (2.0, {"import": 2.5})


def test_a_device_policy_is_asked_for_by_the_program_and_not_by_a_strategy() -> None:
    settings = load("_gpuwatch_tensorflow_settings").Settings(load("_gpuwatch_descriptors").Attribute)

    def device_policy(policy: str) -> None:  # TensorFlow's setter
        settings._value(sys._getframe(), "_device_policy")

    def of_a_strategy() -> None:
        device_policy("silent")

    def set_device_policy() -> None:  # TensorFlow's public function
        device_policy("warn")

    of_a_strategy()
    assert "device policy" not in settings.asked
    set_device_policy()
    assert "device policy" in settings.asked


def test_a_configuration_that_no_session_was_given() -> None:
    """Unless one was; what the first session has is not what the second one lacks."""
    settings = load("_gpuwatch_tensorflow_settings").Settings(load("_gpuwatch_descriptors").Attribute)
    options = {"allow_growth": True, "per_process_gpu_memory_fraction": 0, "visible_device_list": ""}
    module = SimpleNamespace(TF_NewSessionOptions=lambda target, config: None)
    settings._sessions(module)

    class ConfigProto(SimpleNamespace):
        pass

    given = ConfigProto(gpu_options=SimpleNamespace(**options, allocator_type=""))
    module.TF_NewSessionOptions(config=None)
    asked = settings.asked["allow_growth"]
    assert "session of test_watched_parts" in asked["note"]
    assert (list(settings.asked), asked["source"]) == (["allow_growth"], "")
    given.gpu_options.allocator_type = "BFC"
    module.TF_NewSessionOptions(config=None)
    assert list(settings.asked) == ["allow_growth"]


@pytest.mark.parametrize(
    ("policy", "types", "told"),
    [
        ("mixed_float16", ["float32", "float32"], True),
        ("mixed_float16", ["float32", "float16"], False),
        ("mixed_float16", [], False),
        ("float32", ["float32"], False),
    ],
)
def test_a_policy_of_mixed_precision_that_no_layer_computes_in(
    policy: str, types: list[str], told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load("_gpuwatch_tensorflow_settings").Settings(load("_gpuwatch_descriptors").Attribute)

    class Layer:
        def __init__(self, kind: str, *weights: str) -> None:
            self.compute_dtype, self._trainable_variables = kind, list(weights)

    found = SimpleNamespace(name=policy, compute_dtype=policy.removeprefix("mixed_"))
    state = SimpleNamespace(get_global_attribute={"dtype_policy": found}.get)
    monkeypatch.setitem(sys.modules, "keras.src.backend.common.global_state", state)
    monkeypatch.setitem(sys.modules, "keras.src.layers.layer", SimpleNamespace(Layer=Layer))
    layers = [Layer("float16"), *(Layer(kind, "kernel") for kind in types)]
    said: list[str] = []
    settings.policy(lambda kind, **data: said.append(data["note"]))
    assert said == ["not in effect: no layer computes in it, all 2 with weights in another type"] * told
    assert len(layers) == 1 + len(types)


class _Callbacks:
    """Keras's list of callbacks, as its models call it."""

    failing = False


def _does_nothing(self: _Callbacks, *given: object) -> None:
    assert not self.failing


for _kind in ("train", "predict", "test"):
    for _event in ("begin", "batch_begin", "batch_end", "end"):
        setattr(_Callbacks, f"on_{_kind}_{_event}", _does_nothing)


def _keras_call(kind: str, batches: int, inner: str = "", *, fails: bool = False) -> None:
    callbacks: Any = _Callbacks()
    for part in (kind, inner) if inner else (kind,):
        getattr(callbacks, f"on_{part}_begin")()
        for batch in range(batches):
            getattr(callbacks, f"on_{part}_batch_begin")(batch)
            if fails:
                raise ValueError("as a model may")
            getattr(callbacks, f"on_{part}_batch_end")(batch)
    for part in (inner, kind) if inner else (kind,):
        getattr(callbacks, f"on_{part}_end")()


def test_calls_of_keras_are_counted_with_their_batches_and_no_reference_is_kept() -> None:
    said: list[dict[str, Any]] = []
    watcher = SimpleNamespace(
        changed=lambda key, kind, **data: said.append(data), descriptors=load("_gpuwatch_descriptors")
    )
    calls = load("_gpuwatch_keras_calls").KerasCalls(watcher)
    calls._watch(SimpleNamespace(CallbackList=_Callbacks))
    calls.tell(None)
    assert not said, "nothing was called"
    for _ in range(3):
        _keras_call("predict", 1)
    _keras_call("train", 4, inner="test")  # a fit() with its validation
    with pytest.raises(ValueError, match="as a model may") as raised:
        _keras_call("train", 4, fails=True)
    assert all("_gpuwatch" not in str(entry.path) for entry in raised.traceback)
    _keras_call("train", 2)
    calls.tell(None)
    told = said[-1]["value"]
    assert {kind: entry[:2] for kind, entry in told["calls"].items()} == {"predict": [3, 3], "fit": [3, 6]}
    assert told["calls"]["predict"][2].startswith("test_watched_parts.py:")
    data = SimpleNamespace(
        EpochIterator=type("EpochIterator", (), {"__init__": lambda self, of: setattr(self, "of", of)})
    )
    calls._prepares(data)
    assert data.EpochIterator(of=7).of == 7
    assert (began := calls.prepared_at) is not None
    _keras_call("predict", 1)
    assert calls.prepared_at is None
    assert calls.calls_by_kind["predict"].times[-1][0] >= calls.last_end - began - 1e-9
    kept = weakref.ref(one := _Callbacks())
    one.on_predict_begin()  # type: ignore[attr-defined]
    del one
    assert kept() is None


class _Detector:
    """TensorFlow's counter of calls, with our observer: it drops calls before the latest ten when it traces."""

    def __init__(self) -> None:
        self.traces = load("_gpuwatch_traces").Traces(SimpleNamespace(lines=load("_gpuwatch_program_lines")))
        self.code = _Detector.call.__code__
        self._detectors = {self.code: self}
        self._call_count, self._calls_per_tracings = 0, list[int]()
        self.args, self.kwds = (), dict[str, object]()

    def call(self, *, traced: bool) -> None:
        if traced:
            frame = SimpleNamespace(f_locals=vars(self) | {"self": self}, f_code=self.code, f_back=None, f_lineno=1)
            self.traces._traced(self, self.code, frame)
            self._calls_per_tracings.append(0)
        self._call_count += 1
        self._calls_per_tracings[-1] += 1
        while traced and self._call_count - self._calls_per_tracings[0] > 10:
            self._call_count -= self._calls_per_tracings.pop(0)


@pytest.mark.parametrize("every", [1, 2, 3, 4, 7, 50, 61])
def test_calls_that_trace_again_have_no_rate(every: int) -> None:
    """Of a function whose every nth call is traced: no rate where it is, and never a false one."""
    detector, calls = _Detector(), load("_gpuwatch_steps").Calls()
    detectors, made = {lambda: detector.code: detector}, 0
    for look in range(1, 80):
        for _ in range(50):
            detector.call(traced=made % every == 0)
            made += 1
        calls.look(detectors, detector.traces.traces_and_calls, look * 2.0)
    assert calls.functions[detector.code].count == made
    busiest = calls.busiest()
    assert (busiest is None) == (every <= 50)
    for look in range(80, 120):  # then none is traced
        for _ in range(50):
            detector.call(traced=False)
        calls.look(detectors, detector.traces.traces_and_calls, look * 2.0)
    function = calls.functions[calls.busiest()]
    assert function.has_speed()
    assert {seconds / number for _, seconds, _, number in list(function.unsent)[-30:]} == {1 / 25}


def test_an_error_of_ours_ends_the_watch_on_an_attribute_and_not_the_program() -> None:
    seen: list[tuple[str, object]] = []

    def see(frame: FrameType, instance: object) -> None:
        seen.append((frame.f_code.co_name, instance))
        if len(seen) == 2:
            raise AttributeError("another version")

    class Context:
        lock = load("_gpuwatch_descriptors").Attribute("lock", see, see, within="start")

    def start(context: Any) -> object:
        return context.lock

    def other(context: Any) -> object:
        return context.lock

    one = Context()
    with pytest.raises(AttributeError):
        start(one)
    one.lock = 1
    assert [start(one), other(one), start(one)] == [1, 1, 1]
    one.lock = 2
    del one.lock
    assert not hasattr(one, "lock")
    own = "test_an_error_of_ours_ends_the_watch_on_an_attribute_and_not_the_program"
    assert seen == [(own, one), ("start", one)]


_ONE_GPU = Devices(logical=("/device:CPU:0", "/device:GPU:0"))
_TWO_GPUS = Devices(logical=("/device:CPU:0", "/device:GPU:0", "/device:GPU:1"))


@pytest.mark.parametrize(
    ("own", "leading", "visible", "asked", "has"),
    [
        (Devices(logical=("/device:CPU:0",)), _ONE_GPU, "", "GPU:0", "no GPU (CUDA_VISIBLE_DEVICES='')"),
        (Devices(logical=("/device:CPU:0",)), _TWO_GPUS, "-1", "GPU:*", "no GPU (CUDA_VISIBLE_DEVICES=-1)"),
        (_ONE_GPU, _TWO_GPUS, "1", "GPU:1", "GPU:0 only (CUDA_VISIBLE_DEVICES=1)"),
        (_ONE_GPU, _TWO_GPUS, None, "GPU:1", "GPU:0 only"),
        (_TWO_GPUS, _ONE_GPU, None, "GPU:1", ""),
        (_ONE_GPU, _TWO_GPUS, "1", "GPU:0", None),
        (_ONE_GPU, _ONE_GPU, "1", "GPU:1", None),
        (Devices(), _ONE_GPU, None, "GPU:0", None),  # its devices are not known
    ],
)
def test_what_a_process_requests_is_judged_by_its_own_devices(
    own: Devices, leading: Devices, visible: str | None, asked: str, has: str | None
) -> None:
    placed = OpCounts()
    for requested in (asked, "CPU:0", None):
        placed.add_placement({"op": "Tanh", "dtype": "float32", "requested": requested, "actual": "CPU:0", "count": 3})
    found = placed.with_process_devices(own, leading, visible)
    assert {one.requested: one.process_has for one in found.counts} == {asked: has, "CPU:0": None, None: None}
    assert list(found.counts.values()) == [3, 3, 3]
