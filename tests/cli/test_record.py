"""``gpuwatch record`` as users run it: until a signal, a kill, or a full disk."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import jsonschema
import pytest

from gpuwatch.core.model.json_codec import schema_of
from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.machine.recording.recording_info import check_recording
from gpuwatch.session.session import replay_session
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.every import every
from tests.forked import start_gpuwatch
from tests.recording.make_fixture import FOLDER
from tests.recording.recordings import wait_for_samples
from tests.terminal import Terminal, family, wait_until_ended, workers
from tests.waiting import wait_for


@pytest.fixture
def environment(sim_machine: Callable[[str], SimMachine]) -> dict[str, str]:
    return sim_machine("2x8GiB").environment(os.environ)


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, most_bytes: int | None = None, seal: float = 5.0) -> subprocess.Popen[str]:
        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes or 0, most_bytes or 0))

        process = start_gpuwatch(
            *("record", *arguments),
            env={**environment, "GPUWATCH_RECORD_SEAL_SECONDS": str(seal)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **({} if most_bytes is None else {"preexec_fn": limit}),
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "a.gpuwatch"
    process = start(str(file), "--every", "250ms")
    wait_for_samples(file, 3)
    (collector,) = children(process.pid)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert out == ""
    assert "gpuwatch: recorded" in err
    wait_until_ended(collector)
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    with Recording(file) as recording:
        assert [run.why for run in recording.sessions] == [f"by {number.name}"]
        assert len(next(iter(recording.snapshots())).snapshot.devices) == 2
        assert {"recording.began", "recording.ended"} <= {one.kind for one in recording.events()}


def kill_at(start: Start, file: Path, seconds: float, seal: float) -> None:
    """Records for some seconds, kills it, and looks at what is left."""
    process = start(str(file), seal=seal)
    wait_for_samples(file, 1)
    time.sleep(seconds)  # the moment at which it is killed is what the test varies
    collectors = children(process.pid)
    process.send_signal(signal.SIGKILL)
    killed = time.time()
    process.wait(timeout=10)
    assert collectors
    for collector in collectors:
        wait_until_ended(collector)
    assert not check_recording(file).damaged
    with Recording(file) as recording:
        times = list(recording.times)
        assert len(list(recording.snapshots())) == len(times) >= seconds * 0.8
        slowest = max(kept.snapshot.took_seconds for kept in recording.snapshots())
        # One second between samples, and what the busiest machine takes for one.
        assert killed - times[-1] <= 1.0 + slowest + 1.0
        assert recording.at(times[len(times) // 2]) is not None


def use(file: Path) -> None:
    """Runs the commands that work on a recording."""
    info = gpuwatch("record", "info", str(file))
    assert info.code == 0, info.err
    assert "still running, or killed" in info.out
    checked = gpuwatch("record", "check", str(file))
    assert checked.code == 0, checked.out
    part = file.with_suffix(".part.gpuwatch")
    cut = gpuwatch("record", "cut", str(file), "--since", "-10s", "-o", str(part))
    assert cut.code == 0, cut.err
    assert gpuwatch("record", "check", str(part)).code == 0
    usage = gpuwatch("usage", str(file), "--json")
    assert usage.code == 0, usage.err
    report = gpuwatch("report", str(file), "--since", "-40s", "--json")
    assert report.code == 0, report.err
    period = json.loads(report.out)
    assert len(period["devices"]) == 2
    assert all(one["series"]["memory.used_bytes"]["mean"] for one in period["devices"])
    for name in ("csv", "pftrace"):
        export = gpuwatch("export", str(file), "-o", str(file.with_suffix(f".{name}")))
        assert export.code == 0, export.err
    with Recording(file) as recording:
        assert recording.end is not None
        session = replay_session(RecordingPlayer(recording), recording.end - 30)
        session.start(lambda: None)
        snapshot = session.view().snapshot
        session.stop()
    assert snapshot is not None
    assert len(snapshot.devices) == 2


@pytest.mark.slow
def test_kills_lose_one_second(start: Start, tmp_path: Path) -> None:
    """Three side by side, at different moments of their blocks."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(kill_at, start, tmp_path / f"{n}.gpuwatch", 12.3 + n, 5.0) for n in range(3)]
        for wait in waits:
            wait.result()
    use(tmp_path / "0.gpuwatch")


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_many_kills_of_long_recordings(start: Start, tmp_path: Path) -> None:
    """Twenty recordings of up to ten minutes, side by side, killed at random moments."""
    import random
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(20) as pool:
        waits = [
            pool.submit(kill_at, start, tmp_path / f"{n}.gpuwatch", moment, 60.0)
            for n, moment in enumerate([600.0, *(random.uniform(60, 600) for _ in range(19))])
        ]
        for wait in waits:
            wait.result()
    for n in range(20):
        use(tmp_path / f"{n}.gpuwatch")


def test_a_full_disk_is_reported_and_the_file_can_be_read(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "a.gpuwatch"
    process = start(str(file), "--every", "250ms", most_bytes=190_000, seal=60.0)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert "cannot write" in err
    assert "Traceback" not in err
    assert not check_recording(file).damaged
    with Recording(file) as recording:
        assert recording.samples > 3


def test_a_dashboard_beside_it_asks_no_driver(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    recorder = start(str(tmp_path / "a.gpuwatch"))
    wait_for_samples(tmp_path / "a.gpuwatch", 2)
    until, asks = time.monotonic() + 120, set[int]()
    # One that begins while the recorder is late, on a busy machine, asks at first, and NVML's library stays loaded.
    while asks != set(children(recorder.pid)):
        assert time.monotonic() < until, "every dashboard asks"
        terminal = Terminal([sys.executable, "-P", "-m", "gpuwatch"], environment)
        try:
            assert terminal.drain(30, lambda output: b"recorded" in output) is not None
            both = {*family(recorder.pid), *family(terminal.pid)}
            asks = {pid for pid in both if "libnvidia-ml" in Path(f"/proc/{pid}/maps").read_text()}
            assert len(workers(terminal.pid)) == 2
        finally:
            terminal.keys("q")
            terminal.close()


def test_a_second_recorder_is_refused_in_one_line(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "a.gpuwatch"
    start(str(file))
    wait_for_samples(file, 1)
    done = gpuwatch("record", str(file), environment=environment)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert "another gpuwatch records to" in done.err


def test_without_a_name_the_state_folder_is_used(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    environment["XDG_STATE_HOME"] = str(tmp_path)
    folder = tmp_path / "gpuwatch" / "recordings"
    process = start()
    (file,) = wait_for(lambda: list(folder.glob("*.gpuwatch")))
    wait_for_samples(file, 1)
    process.terminate()
    process.wait(timeout=20)
    assert file.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


# Files

OLD = FOLDER / "recording-3.gpuwatch"


def test_info_tells_what_is_in_it() -> None:
    done = gpuwatch("record", "info", str(OLD), environment={**os.environ, "TZ": "UTC"})
    assert done.code == 0, done.err
    for text in (
        "2026-05-11 12:04:31 to 2026-05-11 12:06:00",
        "samples   90, every 1 s",
        "GPU 1     NVIDIA H200",
        "processes 3 on GPUs, of 3 users",
        "GPU 0 is throttled",
        "gaps      none",
        "ended by SIGINT",
    ):
        assert text in done.out


def test_info_and_check_as_json_follow_their_schemas(tmp_path: Path) -> None:
    done = gpuwatch("record", "info", str(OLD), "--json")
    assert (done.code, done.err) == (0, "")
    info = json.loads(done.out)
    jsonschema.Draft202012Validator(schema_of("recording")).validate(info)
    assert (info["schema"], info["samples"], info["users"]) == ("gpuwatch.recording/1", 90, 3)
    assert (info["begin"][:19], info["gaps"]) == ("2026-05-11T12:04:31", [])
    assert [gpu["name"] for gpu in info["gpus"]][1:] == ["NVIDIA H200"]
    (hot,) = (one for one in info["problems"] if one["cause"] == "throttle.thermal")
    assert hot["since"] < hot["until"]
    assert [run["ended_by"] for run in info["recorders"]] == ["by SIGINT"]
    damaged = tmp_path / "damaged.gpuwatch"
    data = bytearray(OLD.read_bytes())
    place = data.rfind(b"\x78\x9c") + 40
    data[place : place + 30] = bytes(30)
    damaged.write_bytes(data)
    for file, whole in ((OLD, True), (damaged, False)):
        done = gpuwatch("record", "check", str(file), "--json")
        assert done.code == (0 if whole else 1)
        report = json.loads(done.out)
        jsonschema.Draft202012Validator(schema_of("recording-check")).validate(report)
        assert (report["whole"], bool(report["damaged"]), report["gaps"]) == (whole, not whole, [])


def test_check_tells_damage_by_its_exit_code(tmp_path: Path) -> None:
    done = gpuwatch("record", "check", str(OLD))
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert "schema 3, 90 samples, 0 gaps" in done.out
    data = bytearray(OLD.read_bytes())
    place = data.rfind(b"\x78\x9c") + 40  # in a compressed block
    data[place : place + 30] = bytes(30)
    damaged = tmp_path / "damaged.gpuwatch"
    damaged.write_bytes(data)
    done = gpuwatch("record", "check", str(damaged))
    assert done.code == 1
    assert done.out.startswith("damaged: ")
    assert "Traceback" not in done.err
    damaged.write_bytes(OLD.read_bytes()[:9000])
    done = gpuwatch("record", "check", str(damaged))
    assert done.code == 1
    assert "Traceback" not in done.err + done.out


def test_cut_by_times_as_people_write_them(tmp_path: Path) -> None:
    utc = {**os.environ, "TZ": "UTC"}
    out = tmp_path / "cut.gpuwatch"
    done = gpuwatch(
        "record", "cut", str(OLD), "--since", "12:05", "--until", "30 s ago", "-o", str(out), environment=utc
    )
    assert done.code == 0, done.err
    assert "wrote 31 samples" in done.err
    assert "cut: 2026-05-11 12:05:00" in gpuwatch("record", "info", str(out), environment=utc).out
    private = tmp_path / "private.gpuwatch"
    done = gpuwatch("record", "cut", str(OLD), "-o", str(private), "--redact")
    assert done.code == 0, done.err
    assert "alice" not in gpuwatch("record", "info", str(private)).out


@every(
    [
        (["info", "missing"], "cannot read missing"),
        (["info", __file__], "is not a recording"),
        (["check", __file__], "is not a recording"),
        (["cut", str(OLD)], "-o"),
        (["cut", str(OLD), "--since", "soon", "-o", "x"], "not a time: 'soon'"),
        (["cut", str(OLD), "--since", "2020-01-01", "--until", "2020-01-02", "-o", "x"], "nothing was recorded from"),
        (["cut", str(OLD), "--since", "-1s", "--until", "-5s", "-o", "x"], "is after the end"),
        (["cut", str(OLD), "-o", "/nonexistent/x"], "cannot write /nonexistent/x"),
        (["cut", str(OLD), "-o", str(OLD)], "exists"),
        (["a.gpuwatch", "--every", "soon"], "is not a duration"),
        (["a.gpuwatch", "--every", "1ms"], "is not between 250 ms and 1 min"),
        (["a.gpuwatch", "--max-size", "1 parsec"], "is not a size"),
        (["a.gpuwatch", "--max-size", "1KiB"], "is less than 4 MiB"),
        (["a.gpuwatch", "b.gpuwatch"], "unexpected extra argument"),
        (["--every", "2s", "info", str(OLD)], "--every before info would have no effect"),
        (["/nonexistent/a.gpuwatch"], "cannot record to /nonexistent/a.gpuwatch"),
    ]
)
def test_bad_input_is_one_line(arguments: list[str], says: str) -> None:
    done = gpuwatch("record", *arguments)
    assert done.code == 2, done.err
    assert says in done.err
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_the_unit_starts_what_was_asked_for() -> None:
    done = gpuwatch("record", "/srv/gpu data/%a.gpuwatch", "--every", "5s", "--max-age", "7d", "--print-unit")
    assert done.code == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith("ExecStart="))
    assert line.endswith('record "/srv/gpu data/%%a.gpuwatch" --every 5s --max-size 1024MiB --max-age 7d')
    assert "NoNewPrivileges=yes" in done.out
    assert "User=gpuwatch" in done.out
    default = gpuwatch("record", "--print-unit").out
    assert "record /var/lib/gpuwatch/%H.gpuwatch --every 1s --max-size 1024MiB --max-age 30d" in default


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "gpuwatch.service"
    unit.write_text(gpuwatch("record", "/srv/gpu data/%a.gpuwatch", "--print-unit").out)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
