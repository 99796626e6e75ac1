"""/proc as it really looks, and as it may look at its worst (in a folder of our own)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.machine.sources.host_reader import HostReader
from gpuwatch.machine.sources.process_details import read_process_details
from gpuwatch.machine.sources.process_table import ProcessFacts, ProcessTable
from gpuwatch.machine.sources.procfs import process_stat
from tests.waiting import wait_for

CONTAINER = "4f1d" * 16


def fake_process(
    root: Path, pid: int, name: str = "python", *, start: int = 100, ticks: int = 50, maps: str = ""
) -> Path:
    folder = root / str(pid)
    folder.mkdir(exist_ok=True)
    fields = ["S", "1", str(pid), str(pid)] + ["0"] * 7 + [str(ticks), "0", "0", "0", "20", "0", "7", "0", str(start)]
    (folder / "stat").write_text(f"{pid} ({name}) " + " ".join([*fields, "4096", "25", "0"]) + "\n")
    (folder / "cmdline").write_bytes(b"python\0train.py\0--name=\x1b[31m\0")
    (folder / "environ").write_bytes(b"SECRET=x\0CUDA_VISIBLE_DEVICES=1,0\0")
    (folder / "cgroup").write_text(f"0::/kubepods.slice/cri-containerd-{CONTAINER}.scope\n")
    (folder / "maps").write_text(maps)
    return folder


def test_names_with_spaces_and_parentheses(tmp_path: Path) -> None:
    fake_process(tmp_path, 10, name="a) S 1 (b")
    facts = ProcessTable(str(tmp_path)).facts_of(10, 0.0)
    assert facts is not None
    assert facts.name == "a) S 1 (b"
    assert (facts.readings["threads"], facts.start_ticks) == (7, 100)
    assert facts.readings["host_memory_bytes"] == 25 * os.sysconf("SC_PAGE_SIZE")


def test_facts_of_a_process(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "tensorflow-2.21.0.dist-info").mkdir(parents=True)
    fake_process(tmp_path, 10, maps=f"7f00-7f01 r-xp 0 08:01 1 {site}/tensorflow/libtensorflow_framework.so.2\n")
    facts = ProcessTable(str(tmp_path)).facts_of(10, 0.0)
    assert facts is not None
    assert facts.framework == "tensorflow 2.21.0"
    assert facts.environment == {"CUDA_VISIBLE_DEVICES": "1,0"}, "and nothing else of the environment"
    assert facts.job_or_container == f"pod {CONTAINER[:12]}"
    assert facts.command == "python train.py --name=\x1b[31m"
    assert facts.cpu_percent is None, "one look gives no rate"


@pytest.mark.parametrize(
    ("folders", "framework"),
    [
        (["tensorflow_cpu-2.21.0", "tensorflow_estimator-2.15.0"], "tensorflow 2.21.0+cpu"),
        (["tensorflow-2.21.0", "tensorflow_cpu-2.20.0"], "tensorflow 2.21.0"),
        (["tensorflow_rocm-2.14.0"], "tensorflow 2.14.0"),
        ([], "tensorflow"),
    ],
)
def test_the_build_without_cuda_is_told_by_the_name_of_its_wheel(
    tmp_path: Path, folders: list[str], framework: str
) -> None:
    site = tmp_path / "site-packages"
    for name in folders:
        (site / f"{name}.dist-info").mkdir(parents=True)
    fake_process(tmp_path, 10, maps=f"7f00-7f01 r-xp 0 08:01 1 {site}/tensorflow/libtensorflow_framework.so.2\n")
    facts = ProcessTable(str(tmp_path)).facts_of(10, 0.0)
    assert facts is not None
    assert facts.framework == framework


def test_rates_come_from_two_looks_of_the_same_process(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    table = ProcessTable(str(tmp_path))
    fake_process(tmp_path, 10, ticks=0)
    table.facts_of(10, 0.0)
    fake_process(tmp_path, 10, ticks=ticks)
    facts = table.facts_of(10, 2.0)
    assert facts is not None
    assert facts.cpu_percent == 50.0
    fake_process(tmp_path, 10, ticks=0, start=999)  # the pid was reused
    facts = table.facts_of(10, 3.0)
    assert facts is not None
    assert facts.cpu_percent is None


def test_gone_and_cut_files(tmp_path: Path) -> None:
    table = ProcessTable(str(tmp_path))
    assert table.facts_of(10, 0.0) is None
    folder = fake_process(tmp_path, 10)
    (folder / "stat").write_text("10 (python) S 1")
    assert table.facts_of(10, 0.0) is None
    fake_process(tmp_path, 10)
    for name in ("cmdline", "environ", "cgroup", "maps"):
        (folder / name).unlink()
    facts = table.facts_of(10, 1.0)
    assert facts is not None
    assert (facts.command, facts.environment, facts.job_or_container, facts.framework) == (None, None, None, None)


def test_the_real_proc() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], env={**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-1"}
    )
    try:
        table = ProcessTable()

        def busy() -> ProcessFacts | None:
            facts = table.facts_of(child.pid, time.monotonic())
            return facts if facts is not None and (facts.cpu_percent or 0) > 5 else None

        facts = wait_for(busy, pause=0.3)
        assert facts is not None
        assert facts.environment == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
        assert abs(facts.create_time - time.time()) < 10
        everyone = {row.pid for row in table.busiest(time.monotonic(), limit=1000)}
        assert {child.pid, os.getpid()} <= everyone
    finally:
        child.kill()
        child.wait()


def test_the_host_has_no_cpu_share_at_first() -> None:
    reader = HostReader()
    host, problems = reader.read()
    assert host.cpu_percent is None
    assert problems == []
    time.sleep(0.1)  # the time of which it is the share
    host, _ = reader.read()
    assert host.cpu_percent is not None
    assert 0 < (host.memory_used_bytes or 0) < (host.memory_total_bytes or 0)


def test_details_of_a_living_process() -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    environment = {**os.environ, "MY_TOKEN": "x=y", "CUDA_VISIBLE_DEVICES": "1,0"}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        try:
            facts = ProcessTable().facts_of(process.pid, time.monotonic())
            assert facts is not None

            def has_child() -> bool:
                children = read_process_details(process.pid, facts.create_time).children
                return bool(children) and "sleep" in children[0].command

            wait_for(has_child)
            told = read_process_details(process.pid, facts.create_time)
            assert told.environment is not None
            assert (told.environment["MY_TOKEN"], told.environment["CUDA_VISIBLE_DEVICES"]) == ("x=y", "1,0")
            assert told.parents[0].pid == os.getpid()
            assert [parent.depth for parent in told.parents] == list(range(1, len(told.parents) + 1))
            assert "python" in (told.interpreter or "")
            assert told.inner_pid is None
            assert told.why == {}
            assert "another process" in read_process_details(process.pid, facts.create_time - 100).problem
            os.kill(told.children[0].pid, 9)
        finally:
            process.kill()
    assert read_process_details(process.pid, facts.create_time).problem
    assert "PID namespace" in read_process_details(process.pid, None).problem


def test_details_that_may_not_be_read_have_their_reason(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu 1\nbtime 1000\n")
    folder = fake_process(tmp_path, 10, start=100)
    (folder / "environ").unlink()
    (folder / "status").write_text("Name:\tpython\nNSpid:\t10\t3\nThreads:\t1\n")
    tick = os.sysconf("SC_CLK_TCK")
    told = read_process_details(10, 1000 + 100 / tick, proc=str(tmp_path))
    assert told.environment is None
    assert told.why["environment"] == "No such file or directory"
    assert told.inner_pid == 3
    assert told.problem == ""


def test_a_process_that_has_not_run_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its CPU clock stands still, so nothing of it can be another; after a while it is read all the same."""
    table = ProcessTable()
    reads: list[int] = []
    monkeypatch.setattr(
        "gpuwatch.machine.sources.process_table.process_stat",
        lambda pid, proc: reads.append(pid) or process_stat(pid, proc),
    )
    idle = subprocess.Popen(["sleep", "300"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.3)  # both have started
        begin = time.monotonic()
        for pid in (idle.pid, busy.pid):
            table.facts_of(pid, begin)
        time.sleep(0.3)  # one runs
        reads.clear()
        now = time.monotonic()
        asleep, awake = table.facts_of(idle.pid, now), table.facts_of(busy.pid, now)
        assert asleep is not None
        assert awake is not None
        assert reads == [busy.pid]
        assert asleep.cpu_percent == 0.0
        assert awake.cpu_percent is not None
        assert awake.cpu_percent > 1.0
        changes = asleep.changes
        assert table.facts_of(idle.pid, now + 0.5) is asleep
        assert asleep.changes == changes
        table.facts_of(idle.pid, now + 31)
        assert reads[-1] == idle.pid
    finally:
        for process in (idle, busy):
            process.kill()
            process.wait()
    assert table.facts_of(idle.pid, now + 32) is None


def test_a_framework_is_looked_for_again_in_processes_that_have_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has not run since cannot have opened a library, and its maps are long."""
    table = ProcessTable()
    looked: list[int] = []
    monkeypatch.setattr(table, "_find_framework", looked.append)
    idle = subprocess.Popen(["sleep", "300"])
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.3)  # both have started
        now = time.monotonic()
        for later in (0, 60, 300):
            time.sleep(0.1)  # one runs
            for pid in (idle.pid, busy.pid):
                assert table.facts_of(pid, now + later) is not None
        assert looked == [idle.pid, busy.pid, busy.pid, busy.pid]
    finally:
        for process in (idle, busy):
            process.kill()
            process.wait()


def test_the_host_is_read_as_the_kernel_counts_it() -> None:
    reader = HostReader()
    assert reader.read()[0].cpu_percent is None, "one look gives no rate"
    until = time.monotonic() + 5
    while (host := reader.read()[0]).cpu_percent is None:
        assert time.monotonic() < until, "the kernel's ticks are seen to go on"
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert host.memory_total_bytes == int(total.split()[1]) * 1024
    assert host.cpu_count == os.cpu_count()


@pytest.mark.parametrize(
    ("cgroup", "variables", "expected"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0", {}, "slurm job 4711"),
        ("0::/user.slice", {"SLURM_JOB_ID": "4712"}, "slurm job 4712"),
        ("0::/job_4711/x", {"SLURM_JOB_ID": "9"}, "slurm job 4711"),
        ("0::/user.slice", {"SLURM_JOB_ID": "12; rm"}, None),
        (f"0::/kubepods.slice/cri-containerd-{CONTAINER}.scope", {"HOSTNAME": "vm"}, f"pod {CONTAINER[:12]}"),
        ("0::/", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}, "pod train-0"),
        ("0::/", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "x\x1b[31m"}, None),
        (f"0::/docker/{CONTAINER}", {}, f"container {CONTAINER[:12]}"),
        ("0::/user.slice", {"HOSTNAME": "vm"}, None),
    ],
)
def test_job_pod_or_container(tmp_path: Path, cgroup: str, variables: dict[str, str], expected: str | None) -> None:
    folder = fake_process(tmp_path, 10)
    (folder / "cgroup").write_text(f"{cgroup}\n")
    (folder / "environ").write_bytes(b"".join(f"{name}={value}\0".encode() for name, value in variables.items()))
    facts = ProcessTable(str(tmp_path)).facts_of(10, 0.0)
    assert facts is not None
    assert facts.job_or_container == expected
    assert facts.environment == {}, "what names the job is not kept with the GPU settings"


def _changed(script: str, holds: Callable[[ProcessFacts], bool]) -> ProcessFacts:
    """The facts of a shell or Python script when they hold, which has been read before it changed."""
    table = ProcessTable()
    child = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
    try:
        assert child.stdin is not None
        first = table.facts_of(child.pid, time.monotonic())
        assert first is not None
        assert not holds(first)
        changes = first.changes
        child.stdin.write(b"go\n")
        child.stdin.flush()

        def changed() -> ProcessFacts | None:
            facts = table.facts_of(child.pid, time.monotonic())
            return facts if facts is not None and holds(facts) else None

        facts = wait_for(changed)
        assert facts is not None
        assert facts.changes > changes
        return facts
    finally:
        child.kill()
        child.communicate()


def test_a_process_that_executes_another_program_has_its_command() -> None:
    script = "import os; input(); os.environ['CUDA_VISIBLE_DEVICES'] = '3'; os.execlp('sleep', 'sleep', '300')"
    facts = _changed(script, lambda facts: facts.command == "sleep 300")
    assert (facts.name, facts.environment) == ("sleep", {"CUDA_VISIBLE_DEVICES": "3"})


def test_a_process_that_executes_the_same_program_again_has_its_environment() -> None:
    """As every child does that is seen between its fork and its exec."""
    again = "import time; time.sleep(300)"
    script = (
        "import os, sys; input(); os.environ['CUDA_VISIBLE_DEVICES'] = '3';"
        f" os.execv(sys.executable, [sys.executable, '-c', {again!r}])"
    )
    facts = _changed(script, lambda facts: again in (facts.command or "") and "input" not in (facts.command or ""))
    assert facts.environment == {"CUDA_VISIBLE_DEVICES": "3"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_that_becomes_another_user_is_that_users() -> None:
    script = "import os, time; input(); os.setuid(65534); print(time.sleep(300))"
    facts = _changed(script, lambda facts: facts.uid == 65534)
    assert facts.user in {"nobody", "65534"}
