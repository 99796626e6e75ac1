"""``gpuwatch exporter`` on simulated GPUs, as a user starts it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.machine.recording.reader import Recording
from gpuwatch.share import metric_families as families
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.exporter.machines import names_of, one
from tests.exporter.running import RunningExporter

Open = Callable[[str], SimMachine]
Start = Callable[..., RunningExporter]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[RunningExporter] = []

    def started(machine: SimMachine, *arguments: str, **options: str) -> RunningExporter:
        running.append(RunningExporter(machine, *arguments, folder=tmp_path, **options))
        return running[-1]

    yield started
    for one_of_them in running:
        one_of_them.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_ends_at_once_and_leaves_nothing(sim_machine: Open, start: Start, number: int) -> None:
    exporter = start(sim_machine("2x24GiB"), "--every", "1s")
    samples = exporter.wait(families.GPU_FREE.name)
    assert one(samples, families.GPUS) == 2
    children = Path(f"/proc/{exporter.process.pid}/task/{exporter.process.pid}/children").read_text().split()
    with socket.create_connection(tuple(exporter.address.split(":"))):  # type: ignore[arg-type]
        began = time.monotonic()
        assert exporter.end(number) == 0
        assert time.monotonic() - began < 5
    assert exporter.process.stdout is not None
    assert exporter.process.stdout.read() == b""
    assert [line.split(" at ")[0] for line in exporter.said.splitlines()] == [
        "gpuwatch: metrics",
        "gpuwatch: serving samples of its own collector",
    ]
    assert not any(os.path.exists(f"/proc/{child}") for child in children)


def test_a_scrape_answers_in_time_while_the_driver_hangs(sim_machine: Open, start: Start) -> None:
    machine = sim_machine("2x24GiB")
    exporter = start(machine, "--every", "1s")
    exporter.wait(families.GPU_FREE.name)
    began = time.monotonic()
    faults.hang(machine, 20)
    longest = 0.0
    age = before = 0.0
    while time.monotonic() - began < 12:
        asked = time.monotonic()
        samples = exporter.scrape()
        longest = max(longest, time.monotonic() - asked)
        age = one(samples, families.SNAPSHOT_AGE) or 0.0
        time.sleep(0.5)  # between two scrapes
        before = max(before, age)
    assert longest < 5
    assert age > 8
    assert one(samples, families.DRIVER_ANSWERING) == 0
    assert one(samples, families.FINDING, cause="driver.bad-state") == 1
    machine.clear_faults()
    again = exporter.wait(families.DRIVER_ANSWERING.name, "1", 30)
    assert (one(again, families.SNAPSHOT_AGE) or 0.0) < 5
    print(f"longest scrape {longest:.3f} s, age {before:.1f} s")


def test_a_lost_gpu_has_no_readings(sim_machine: Open, start: Start) -> None:
    machine = sim_machine("2x24GiB")
    exporter = start(machine, "--every", "500ms")
    exporter.wait(families.GPU_FREE.name)
    faults.lose(machine, 1)
    samples = exporter.wait(f"{families.GPU_STATE.name}{{", None)
    until = time.monotonic() + 20
    while one(samples, families.GPU_STATE, gpu="1", state="lost") is None and time.monotonic() < until:
        samples = exporter.scrape()
    assert one(samples, families.GPU_STATE, gpu="1", state="lost") == 1
    assert one(samples, "gpuwatch_gpu_utilization_ratio", gpu="1") is None
    assert one(samples, "gpuwatch_gpu_utilization_ratio", gpu="0") == 0
    assert one(samples, families.GPU_FREE, gpu="1") == 0


def test_slurm_jobs_are_owners_and_mapped_to_gpus(sim_machine: Open, start: Start, tmp_path: Path) -> None:
    machine = sim_machine("2x24GiB")
    folder = tmp_path / "jobs"
    folder.mkdir()
    job = subprocess.Popen([shutil.which("sleep") or "sleep", "300"], env={"SLURM_JOB_ID": "4711"})
    try:
        machine.attach(job.pid, 1, 1 << 30, sm_percent=50.0)
        exporter = start(machine, "--every", "500ms", "--write-job-map", str(folder))
        samples = exporter.wait(families.GPU_OWNER_PROCESSES.name)
        assert one(samples, families.GPU_OWNER_PROCESSES, gpu="1", slurm_job="4711") == 1
        assert one(samples, families.GPU_OWNER_MEMORY, gpu="1", slurm_job="4711") == 1 << 30
        assert {path.name: path.read_text() for path in folder.iterdir()} == {"1": "4711\n"}
        assert exporter.end() == 0
        assert list(folder.iterdir()) == []
    finally:
        job.kill()
        job.wait()


def test_samples_are_those_of_a_recorder_on_the_machine(sim_machine: Open, start: Start, tmp_path: Path) -> None:
    """Also if the exporter started first: what it sampled itself until then, and NVML's library, are no fault."""
    machine, file = sim_machine("2x24GiB"), tmp_path / "a.gpuwatch"
    exporter = start(machine, "--every", "1s")
    exporter.wait(families.GPU_FREE.name)
    recorder = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "record", str(file)],
        env=machine.environment(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert recorder.stderr is not None
        assert "recording to" in recorder.stderr.readline()
        until = time.monotonic() + 90
        recorded: set[float] = set()
        while len(recorded) < 3:  # different ones, one after another
            assert time.monotonic() < until, "the samples are its own"
            time.sleep(0.1)  # between two scrapes
            asked = time.time()
            age = one(exporter.scrape(), families.SNAPSHOT_AGE)
            answered = time.time()
            if age is not None and answered - asked < 0.05:  # after a long wait any sample of the second would do
                with Recording(file) as recording:
                    times = [kept.at for kept in recording.snapshots()]
                shown = {at for at in times if asked - 0.002 < at + age < answered + 0.002}
                recorded = recorded | shown if shown else set()
        assert "serving samples of the recorder of" in exporter.said
    finally:
        recorder.terminate()
        recorder.communicate()


def test_many_scrapers_get_one_rendered_page(sim_machine: Open, start: Start) -> None:
    exporter = start(sim_machine("2x24GiB"), "--max-requests", "200")
    exporter.wait(families.GPU_FREE.name)
    seen: list[set[str]] = []
    scrapers = [threading.Thread(target=lambda: seen.append(names_of(exporter.scrape()))) for _ in range(50)]
    for scraper in scrapers:
        scraper.start()
    for scraper in scrapers:
        scraper.join(30)
    assert len(seen) == 50
    assert all(families.SNAPSHOT_AGE.name in listed for listed in seen)


def test_a_used_port_is_one_line(sim_machine: Open, start: Start) -> None:
    first = start(sim_machine("1x24GiB"))
    done = gpuwatch("exporter", "--listen", first.address)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"gpuwatch: cannot listen on {first.address}: address already in use (--listen ADDRESS:PORT)\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "9836"], "'9836' is not an address such as 127.0.0.1:9836"),
        (["--metrics", "some"], "'some' is not one of 'core', 'all'"),
        (["--compat", "smi"], "'smi' is not"),
        (["--commands"], "--commands needs --processes"),
        (["--processes=20000"], "20000 is not in the range"),
        (["--every", "1ms"], "1ms is not between"),
        (["--web-config", "/nonexistent/web.yml"], "cannot read /nonexistent/web.yml"),
        (["--write-job-map", "/nonexistent"], "cannot write to /nonexistent: No such file or directory"),
        (["now"], "unexpected extra argument"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], says: str) -> None:
    done = gpuwatch("exporter", *arguments)
    assert done.code == 2, done.err
    assert says in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_who_can_read_it_is_said_where_others_can(sim_machine: Open, start: Start, tmp_path: Path) -> None:
    machine = sim_machine("1x24GiB")
    open_to_all = start(machine, "--processes", listen="0.0.0.0:0")
    assert "everyone who can reach" in open_to_all.said
    assert "everyone" not in start(machine).said
    import bcrypt

    web = tmp_path / "web.yml"
    web.write_text(f"basic_auth_users:\n  alice: {bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}\n")
    assert "everyone" not in start(machine, "--web-config", str(web), listen="0.0.0.0:0").said


def test_the_unit_starts_what_was_asked_for(tmp_path: Path) -> None:
    plain = gpuwatch("exporter", "--print-unit")
    assert plain.code == 0, plain.err
    (line,) = (line for line in plain.out.splitlines() if line.startswith("ExecStart="))
    assert line.endswith(" exporter")
    assert "IPAddressDeny=any\nIPAddressAllow=localhost\n" in plain.out
    asked = ["--listen", ":9836", "--metrics", "all", "--processes", "--every", "10s", "--compat", "dcgm", "--gpm"]
    done = gpuwatch("exporter", *asked, "--write-job-map", str(tmp_path), "--print-unit")
    (line,) = (line for line in done.out.splitlines() if line.startswith("ExecStart="))
    given = line.partition(" exporter ")[2]
    assert given == (
        f"--listen :9836 --metrics all --compat dcgm --processes 50 --every 10s --write-job-map {tmp_path} --gpm"
    )
    assert "IPAddressDeny" not in done.out
    assert f"ReadWritePaths={tmp_path}\n" in done.out


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "gpuwatch-exporter.service"
    unit.write_text(gpuwatch("exporter", "--print-unit", "--write-job-map", str(tmp_path)).out)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
