"""``gpuwatch report``, ``-o`` and ``--redact`` as a user meets them."""

from __future__ import annotations

import datetime
import getpass
import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model.json_codec import to_json
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.forked import gpuwatch_forked
from tests.recording import incident
from tests.recording.make_fixture import FOLDER
from tests.reports.documents import bare_run, full_run

SECRETS = {
    "environment": "Qz7EnvTr0ub4dor",
    "option": "Qz7OptTr0ub4dor",
    "assigned": "Qz7AsgTr0ub4dor",
    "url": "Qz7UrlTr0ub4dor",
    "json": "Qz7JsnTr0ub4dor",
    "log": "Qz7LogTr0ub4dor",
    "header": "Qz7HdrTr0ub4dor",
}


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@pytest.fixture
def own(tmp_path: Path) -> dict[str, str]:
    """An environment in which the kept runs are this test's own."""
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


# -- the report of this machine --------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".html", ".md", ".json", ".txt", ".csv"])
def test_a_report_of_a_simulated_machine_in_every_format(tmp_path: Path, own: dict[str, str], suffix: str) -> None:
    path = tmp_path / f"diag{suffix}"
    result = gpuwatch("report", "--sim", "2x8GiB", "--no-doctor", "-o", str(path), environment=own)
    assert (result.code, result.out) == (0, "")
    assert result.err == f"written: {path}\n"
    drawn = path.read_text(encoding="utf-8")
    assert "healthy" in drawn
    if suffix != ".csv":
        assert "left out with --no-doctor" in drawn
        assert "gpuwatch probe --group memory" in drawn, "what is not there is told with what makes it"


def test_what_given_files_tell_is_in_it_without_secrets(tmp_path: Path, own: dict[str, str]) -> None:
    """The cause of the log leads, with the file's name as its source; a file without a problem is said to have none."""
    log, fine = tmp_path / "alice.log", tmp_path / "fine.log"
    log.write_text(
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    fit(x)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
        f" 23.69 GiB of which 1.00 GiB is free. https://alice:{SECRETS['url']}@example.org\n"
    )
    fine.write_text("nothing of note\n")
    asked = ("report", "--sim", "1x8GiB", "--no-doctor", "--json", "--with", str(log), "--with", str(fine))
    result = gpuwatch(*asked, environment=own)
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert document["primary"].startswith("memory.")
    assert document["findings"][0]["sources"] == ["alice.log"]
    assert document["excerpts"][-1]["name"] == "fine.log"
    assert "Nothing recognized" in document["excerpts"][-1]["lines"][0]
    assert SECRETS["url"] not in result.out
    assert "alice" not in gpuwatch(*asked, "--redact", environment=own).out
    saved = tmp_path / "saved.json"
    saved.write_text(result.out)
    assert "--with" in gpuwatch("report", str(saved), "--with", str(log), environment=own).err
    refused = gpuwatch("report", "--with", str(tmp_path / "none.log"), environment=own)
    assert (refused.code, refused.err.count("\n")) == (2, 1)


def test_kept_runs_of_this_kind_of_machine_are_in_it(own: dict[str, str]) -> None:
    store = RunStore(Path(own["XDG_STATE_HOME"]) / "gpuwatch" / "runs")
    host = socket.gethostname()
    store.save(full_run(config="growth", host=host, simulated=False, started_at=_now()))
    store.save(full_run(host=host, simulated=True, started_at=_now()))
    (store.folder / "20260101T000000.0-broken.json").write_text("{")
    result = gpuwatch("report", "--sim", "1x8GiB", "--no-doctor", "--json", environment=own)
    document = json.loads(result.out)
    assert document["schema"] == "gpuwatch.diagnostic/1"
    assert document["simulated"] is True
    assert [run["config"] for run in document["probes"]["runs"]] == ["soft-missing"]
    told = " ".join(gap["why"] for gap in document["missing"])
    assert "1 of real GPUs: left out" in told
    assert "1 file in" in told


def test_without_a_driver_the_cause_and_the_action_are_in_the_first_lines(own: dict[str, str]) -> None:
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a driver")
    result = gpuwatch("report", "--no-doctor", environment=own)
    assert result.code == 0, "a report tells of errors; it is none"
    first = "\n".join(result.out.splitlines()[:6])
    assert "driver.missing" in first
    assert "→" in first


def test_format_and_json_choose_what_stdout_gets(own: dict[str, str]) -> None:
    arguments = ("report", "--sim", "1x8GiB", "--no-doctor")
    assert gpuwatch(*arguments, "--format", "markdown", environment=own).out.startswith("# GPU diagnostic report")
    assert gpuwatch(*arguments, "-o", "-", environment=own).out.startswith("[SIMULATED]")
    assert gpuwatch(*arguments, "-o", "/dev/stdout", "--format", "html", environment=own).out.startswith("<!doctype")


def test_the_report_itself_is_a_document(tmp_path: Path, own: dict[str, str]) -> None:
    path = tmp_path / "diag.json"
    assert gpuwatch("report", "--sim", "1x8GiB", "--no-doctor", "-o", str(path), environment=own).code == 0
    again = gpuwatch("report", str(path), "--format", "markdown", environment=own)
    assert again.code == 0
    assert again.out.startswith("# GPU diagnostic report")


def test_its_schema_is_published() -> None:
    assert "gpuwatch.diagnostic/1" in gpuwatch("schema", "diagnostic").out


@pytest.mark.parametrize("option", [["--python", "/x"], ["--no-doctor"], ["--sim", "1x8GiB"], ["--framework", "torch"]])
def test_machine_options_are_rejected_with_a_saved_document(tmp_path: Path, option: list[str]) -> None:
    path = tmp_path / "run.json"
    path.write_text(to_json(bare_run()))
    result = gpuwatch("report", str(path), *option)
    assert (result.code, result.out) == (2, "")
    assert option[0] in result.err


# -- where documents go ---------------------------------------------------------------------------

COMMANDS = (
    ["report"],
    ["report", "{run}"],
    ["compare", "{run}"],
    ["explain", "{run}"],
    ["doctor"],
    ["snapshot"],
    ["probe", "--config", "growth"],
)


UNWRITABLE = (
    ("nowhere/x.html", "its folder does not exist"),
    ("x.pdf", "no report format has the suffix .pdf"),
    ("file.txt/x.html", "its folder does not exist"),
    (".", "it is a folder"),
    ("folder.html", "it is a folder"),
    ("x", "it has no suffix, which chooses the format"),
)


@pytest.mark.parametrize(
    ("command", "name", "said"),
    [(command, *case) for command in COMMANDS for case in (UNWRITABLE if command == COMMANDS[0] else UNWRITABLE[:2])],
)
def test_an_unwritable_file_is_rejected_before_the_work(
    tmp_path: Path, command: list[str], name: str, said: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file.txt").write_text("old")
    (tmp_path / "run.json").write_text(to_json(bare_run()))
    before = sorted(tmp_path.rglob("*"))
    arguments = [part.format(run=tmp_path / "run.json") for part in command]
    started = time.monotonic()
    result = gpuwatch(*arguments, "-o", f"{tmp_path}/{name}")
    assert result.code == 2
    assert result.out == ""
    assert said in result.err
    assert result.err.count("\n") == 1, result.err
    assert sorted(tmp_path.rglob("*")) == before
    assert time.monotonic() - started < 60


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    result = gpuwatch("snapshot", "-o", f"{tmp_path}/x.html")
    assert result.code == 2
    assert "not writable" in result.err


def test_snapshots_can_be_written_too(tmp_path: Path) -> None:
    path = tmp_path / "now.md"
    assert gpuwatch("snapshot", "--sim", "1x8GiB", "-o", str(path)).code == 0
    assert "Simulated" in path.read_text()


# -- secrets through the whole pipeline -------------------------------------------------------------


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A simulated machine with a process that carries secrets in all that others can read of it."""
    machine = SimMachine.open(SimShape.parse("1x8GiB"), name=f"test-secrets-{os.getpid()}")
    folder = tmp_path / f"password={SECRETS['assigned']}"
    folder.mkdir()
    code = (
        "import sys, time\n"
        "from gpuwatch.sim.simulated_machine import SimMachine\n"
        "import os\n"
        "machine = SimMachine.from_environment(os.environ)\n"
        "machine.attach(os.getpid(), 0, memory_bytes=1 << 30)\n"
        "print('up', flush=True)\n"
        "time.sleep(300)\n"
    )
    environment = {
        **os.environ,
        **machine.environment(os.environ),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_TOKEN": SECRETS["environment"],
        "TF_CONFIG": json.dumps({"api_key": SECRETS["json"]}),
    }
    command = [
        sys.executable,
        "-c",
        code,
        "--password",
        SECRETS["option"],
        f"--config=https://joe:{SECRETS['url']}@example.org/x",
        "--header",
        f"Authorization: Bearer {SECRETS['header']}",
    ]
    process = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield {name: value for name, value in environment.items() if name != "CUDA_VISIBLE_DEVICES"}
    process.kill()
    process.wait()
    process.stdout.close()
    machine.remove()


def test_planted_secrets_are_nowhere(planted: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        f"I login with --api-key {SECRETS['log']}\n"
        f"wandb: WANDB_API_KEY={SECRETS['assigned']}\n"
        "2024-01-01 00:00:00.000000: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed call to"
        f" cuInit: CUDA_ERROR_NO_DEVICE token={SECRETS['log']}\n"
    )
    program = f"print('--password {SECRETS['log']}'); raise SystemExit('api_key={SECRETS['assigned']}')"
    run = tmp_path / "run.json"
    done = gpuwatch("run", "-q", "-o", str(run), "--", sys.executable, "-c", program, environment=planted)
    assert done.code == 1
    outputs: list[str] = [run.read_text()]
    report = tmp_path / "report.json"
    for arguments in (
        ["snapshot"],
        ["snapshot", "--json"],
        ["explain", str(log)],
        ["explain", str(log), "--json"],
        ["report", "--no-doctor", "--json", "--redact"],
        ["report", "--no-doctor", "-o", str(report)],
        *(["report", str(report), "--format", name] for name in ("html", "markdown", "text", "csv")),
        *(["report", str(run), "--format", name] for name in ("html", "markdown", "text", "csv")),
        ["compare", str(run), str(run), "--json"],
    ):
        result = gpuwatch(*arguments, environment=planted)
        assert result.code in (0, 3), result.err
        outputs += [result.out, result.err]
    outputs += [path.read_text() for path in (report, *(tmp_path / "state").rglob("*.json"))]
    whole = "\n".join(outputs)
    assert "--password" in whole, "the process is there, with what it was started with"
    assert "failed call to cuInit" in whole
    for name, secret in SECRETS.items():
        assert secret not in whole, name


@pytest.mark.tensorflow
@pytest.mark.slow
def test_planted_secrets_do_not_come_through_the_framework(planted: dict[str, str], tmp_path: Path) -> None:
    """The doctor and a probe hand the environment on to TensorFlow, and tell of it."""
    environment = {**planted, "XLA_FLAGS": "", "CUDA_API_KEY": SECRETS["environment"]}
    bundle, run = tmp_path / "bundle.html", tmp_path / "probe.json"
    for start, arguments in (
        (gpuwatch, ["doctor", "--json"]),
        (gpuwatch_forked, ["doctor", "--redact", "-o", str(bundle)]),
        (gpuwatch_forked, ["probe", "--config", "cpu-only", "--seconds", "0.1", "-o", str(run)]),
        (gpuwatch_forked, ["report", "--format", "html"]),
        (gpuwatch_forked, ["report", "--json"]),
    ):
        result = start(*arguments, environment=environment)
        assert result.code in (0, 3, 4), result.err
        for name, secret in SECRETS.items():
            assert secret not in result.out + result.err, (arguments, name)
    for path in (bundle, run):
        assert all(secret not in path.read_text() for secret in SECRETS.values()), path


def test_a_redacted_comparison_names_nobody(planted: dict[str, str]) -> None:
    user, host = getpass.getuser(), socket.gethostname()
    result = gpuwatch("snapshot", "--json", "--redact", environment=planted)
    document = json.loads(result.out)
    assert document["host"]["hostname"] == "host-1"
    assert document["devices"][0]["uuid"].startswith("GPU-…-")
    (process,) = document["processes"]
    assert process["device_uuid"] == document["devices"][0]["uuid"]
    assert process["user"] in ("user-1", "root", "nobody")
    for name in (host, *([] if user == "root" else [user])):
        assert f'"{name}"' not in result.out


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_run_leaves_stdout_to_the_program(name: str) -> None:
    result = gpuwatch("run", "-o", name, "--", sys.executable, "-c", "print('ran')")
    assert (result.code, result.out) == (2, ""), "the program is not started for nothing"
    assert "stdout belongs to the program" in result.err


def test_a_run_can_be_redacted(tmp_path: Path, own: dict[str, str]) -> None:
    script = tmp_path / "secret_project.py"
    script.write_text(f"print('{tmp_path}/data')\n")
    path = tmp_path / "run.json"
    for arguments, told in (([], True), (["--redact"], False)):
        result = gpuwatch("run", "-q", *arguments, "-o", str(path), "--", sys.executable, str(script), environment=own)
        assert result.code == 0
        assert ("secret_project" in path.read_text()) is told
        assert (socket.gethostname() in json.loads(path.read_text())["host"]) is told


@pytest.fixture(scope="module")
def incident_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("incident") / "incident.gpuwatch"
    incident.record(path)
    return path


def test_a_stretch_of_a_recording(incident_file: Path, tmp_path: Path) -> None:
    shown = gpuwatch("report", str(incident_file), "--since", "-1h")
    assert (shown.code, shown.err) == (0, "")
    assert "throttle.thermal" in shown.out
    assert "enforced power limit 700 W → 500 W" in shown.out
    document = json.loads(gpuwatch("report", str(incident_file), "--since", "2026-05-11T13:00Z", "--json").out)
    assert document["schema"] == "gpuwatch.period/1"
    assert document["begin"].startswith("2026-05-11T13:00")
    for suffix in ("html", "md", "csv", "txt", "json"):
        output = tmp_path / f"incident.{suffix}"
        assert gpuwatch("report", str(incident_file), "-o", str(output), "--redact").code == 0
        assert "node07" not in output.read_text()
    again = gpuwatch("report", str(tmp_path / "incident.json"), "--format", "html")
    assert '<figure class="chart">' in again.out


def test_a_stretch_that_cannot_be_reported_is_one_line(incident_file: Path, tmp_path: Path) -> None:
    empty, foreign, damaged = (tmp_path / f"{name}.gpuwatch" for name in ("empty", "foreign", "damaged"))
    RecordingWriter(empty).close()
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE t (x)")
    damaged.write_bytes(incident_file.read_bytes()[:9000])
    for arguments, code, wanted in (
        ((str(incident_file), "--since", "2027-01-01"), 2, "nothing was recorded from"),
        ((str(incident_file), "--since", "-1h", "--until", "-2h"), 2, "is after the end"),
        ((str(incident_file), "--since", "soon"), 2, "not a time"),
        ((str(incident_file), "--no-doctor"), 2, "--no-doctor applies only"),
        (("--since", "-2h"), 2, "--since applies only to a recording"),
        ((str(empty),), 1, "no samples yet"),
        ((str(foreign),), 2, "is not a recording"),
        ((str(damaged),), 1, "cannot read"),
        ((str(tmp_path / "missing.gpuwatch"),), 2, "cannot read"),
    ):
        shown = gpuwatch("report", *arguments)
        assert (shown.code, shown.out) == (code, ""), shown
        assert wanted in shown.err
        assert shown.err.count("\n") == 1


def test_recordings_of_older_schemas_are_reported() -> None:
    for path in sorted(FOLDER.glob("recording-*.gpuwatch")):
        shown = gpuwatch("report", str(path))
        assert (shown.code, shown.err) == (0, "")
        assert "GPU-hours by process" in shown.out
