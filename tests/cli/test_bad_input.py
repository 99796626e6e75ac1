"""Bad input gets one clear line on stderr, the right exit code, and nothing on stdout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from gpuwatch.cli.main import cli
from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.json_codec import WRITE_ONLY_DOCUMENTS, schema_of
from tests.conftest import gpuwatch
from tests.every import every


@every(
    [
        (["probe", "--config", "grwoth"], 2, "unknown configuration 'grwoth'"),
        (["probe"], 2, "nothing to run"),
        (["probe", "--config", "growth", "-o", "/nonexistent/x.html"], 2, "its folder does not exist"),
        (["probe", "--config", "growth", "-o", "x.pdf"], 2, ".html"),
        (["probe", "--config", "growth", "--seconds", "soon"], 2, "soon"),
        (["probe", "--config", "growth", "--python", "/nonexistent/python"], 2, "no such program"),
        (["probe", "--group", "everything"], 2, "everything"),
        (["probe", "--config", "growth", "--seconds", "nan"], 2, "not a finite number"),
        (["probe", "--config", "growth", "--memory-limit", "77"], 2, "does not apply to growth"),
        (["probe", "--config", "growth", "--seconds", "5", "--deadline", "4"], 2, "growth cannot finish within"),
        (["probe", "--config", "growth", "--gpu", "0,0", "--sim", "2x8GiB"], 2, "GPU 0 is listed twice"),
        (
            ["probe", "--config", "contention", "--workload", "conv"],
            2,
            "configurations with their own work: contention (matmul)",
        ),
        (["probe", "--config", "contention", "--seconds", "30", "--deadline", "180"], 2, "10 measurements of"),
        (["probe", "--config", "growth", "--gpu", "0,", "--python", "/nonexistent"], 2, "an entry is empty"),
        (
            ["probe", "--config", "growth", "--python", "/bin/ls"],
            2,
            "--python /bin/ls: it is not a usable Python: /bin/ls: ",
        ),
        (["doctor", "--python", "/tmp"], 2, "--python /tmp: it is a folder, not a program"),
        (["doctor", "--python", "/etc/passwd"], 2, "this user cannot execute it (its mode is -rw"),
        (["cause", "OOM"], 2, "did you mean memory.model-too-large or memory.other-process or memory.limit-too-small"),
        (["cause", "out of memory"], 2, "did you mean memory.model-too-large or"),
        (["cause", "memory.fragmnted"], 2, "did you mean memory.fragmented"),
        (["frobnicate", "x.gpuwatch"], 2, "no such command: 'frobnicate' (choose from"),
        (["repotr"], 2, "did you mean report?"),
        (["sim", "--no-such-option", "--", "true"], 2, "--no-such-option"),
        (["schema"], 2, "Missing argument"),
        (["--interval", "2", "snapshot"], 2, "--interval before snapshot would have no effect"),
        (["--sim", "0x1"], 2, "0x1"),
        (["snapshot", "--sim", "0x1"], 2, "0x1"),
        (["snapshot", "--sim", "2x"], 2, "2x"),
        (["snapshot", "--json", "--csv"], 2, "cannot be combined"),
        (["snapshot", "--jsno"], 2, "--jsno"),
        (["smapshot"], 2, "smapshot"),
        (["report", "/nonexistent/run.json"], 2, "No such file"),
        (["report", "/"], 2, "directory"),
        (["compare", "/nonexistent/run.json"], 2, "No such file"),
        (["sim"], 2, "no command"),
        (["sim", "--gpus", "99", "--", "true"], 2, "99"),
        (["sim", "--", "no-such-program-here"], 127, "command not found"),
        (["schema", "nothing"], 2, "nothing"),
        ([], 2, "needs a terminal"),
    ]
)
def test_an_error_is_one_line_with_its_exit_code(arguments: list[str], code: int, says: str) -> None:
    result = gpuwatch(*arguments)
    assert result.code == code, result.err
    assert result.out == ""
    assert result.err.count("\n") == 1, result.err
    assert says in result.err


def test_a_file_that_is_not_a_document(tmp_path: Path) -> None:
    for number, content in enumerate([b"", b"{", b"[1, 2]", b'{"schema": "gpuwatch.run/99"}', b"\xff\x00", b"null"]):
        path = tmp_path / f"{number}.json"
        path.write_bytes(content)
        result = gpuwatch("report", str(path))
        assert (result.code, result.out) == (2, "")
        assert result.err.count("\n") == 1
        assert "not a gpuwatch document" in result.err


def test_no_tensorflow_in_the_interpreter(tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    result = gpuwatch("probe", "--config", "growth", "--python", str(bare))
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "TensorFlow is not installed" in result.err
    as_json = gpuwatch("probe", "--config", "growth", "--python", str(bare), "--json")
    assert as_json.code == 1
    assert '"verdict": "error"' in as_json.out


def test_no_compiler(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CC": "",
    }
    result = gpuwatch("snapshot", "--sim", "1x8GiB", environment=environment)
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "compiler" in result.err


def test_a_closed_pipe_prints_no_traceback() -> None:
    import subprocess

    done = subprocess.run(
        f"{sys.executable} -m gpuwatch schema snapshot | head -c 10",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["probe --list", "schema snapshot"])
def test_a_reader_that_closes_the_pipe(command: str) -> None:
    import subprocess

    shell = f"{sys.executable} -m gpuwatch {command} | head -1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    # 141 where the pipe closed before all was written, 0 where the reader was slower.
    assert (done.stdout.strip() in ("0", "141"), done.stderr) == (True, "")


@every(
    [
        ("probes", ["probe", "--list"]),
        ("recipes", ["probe", "--config", "growth", "--explain"]),
        ("cause", ["cause", "pcie.degraded"]),
        ("causes", ["cause"]),
    ]
)
def test_printed_documents_match_their_schema(name: str, arguments: list[str]) -> None:
    printed = gpuwatch(*arguments, "--json").out
    document = msgspec.json.decode(printed, type=WRITE_ONLY_DOCUMENTS[name])
    assert json.loads(msgspec.json.encode(document)) == json.loads(printed)
    definitions = schema_of(name)["$defs"]
    assert isinstance(definitions, dict)
    assert definitions[WRITE_ONLY_DOCUMENTS[name].__name__]["properties"]["schema"]["enum"] == [f"gpuwatch.{name}/1"]


@every(
    [
        (["probe", "--group", "memry"], "memory"),
        (["probe", "--workload", "matmull"], "matmul"),
        (["probe", "--framework", "tensorfow"], "tensorflow"),
        (["probe", "--sim-tier", "plug-in"], "plugin"),
        (["probe", "--config", "growht"], "growth"),
        (["probe", "--config", "growth", "-o", "run.htm"], ".html"),
        (["doctor", "--framework", "troch"], "torch"),
        (["report", "--format", "htlm"], "html"),
        (["sim", "--tier", "drivers", "--", "true"], "driver"),
        (["sim", "fault", "mismacth"], "mismatch"),
        (["schema", "snapshots"], "snapshot"),
        (["completion", "fihs"], "fish"),
        (["cause", "memory.fragmentd"], "memory.fragmented"),
        (["--theme", "gpuwach", "--tab", "probes"], "gpuwatch"),
        (["compair"], "compare"),
    ]
)
def test_a_typo_of_any_name_gets_a_suggestion(arguments: list[str], meant: str) -> None:
    with pytest.raises((UsageError, click.UsageError)) as caught:
        cli.main(arguments, prog_name="gpuwatch", standalone_mode=False)
    message = caught.value.message
    assert f"; did you mean {meant}" in message, message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("arguments", "option", "advice"),
    [
        (["--interval", "2", "snapshot"], "--interval", "leave --interval out"),
        (["--theme", "gpuwatch-light", "doctor"], "--theme", "leave --theme out"),
        (["--no-ascii", "--filter", "x", "cause"], "--no-ascii and --filter", "leave --no-ascii and --filter out"),
        (["--interval", "2", "run", "--", "true"], "--interval", "write gpuwatch run --interval ..."),
        (["--gpm", "cause"], "--gpm", "leave --gpm out"),
        (["--sim", "1x8GiB", "schema", "run"], "--sim", "leave --sim out"),
        (["--config-file", "x.toml", "sim", "--", "true"], "--config-file", "leave --config-file out"),
    ],
)
def test_a_dashboard_option_before_a_command_is_rejected(
    arguments: list[str], option: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUWATCH_CONFIG_FILE", "/somewhere.toml")  # which is given to all of them
    with pytest.raises(UsageError) as caught:
        cli.main(arguments, prog_name="gpuwatch", standalone_mode=False)
    assert caught.value.message.startswith(f"{option} before ")
    assert caught.value.hint == advice


def _closed(command: str) -> subprocess.CompletedProcess[str]:
    """``command`` of gpuwatch, in a shell that closes one of its streams."""
    return subprocess.run(
        ["sh", "-c", f"{sys.executable} -m gpuwatch {command}"], capture_output=True, text=True, timeout=60, check=False
    )


def test_without_a_stderr_the_data_come_all_the_same() -> None:
    done = _closed("schema run 2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert "properties" in done.stdout
    json.loads(done.stdout)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("schema run >&-", "stdout is closed"),
        ("--help >&-", "stdout is closed"),
        ("schema run > /dev/full", "No space left on device"),
    ],
)
def test_unwritable_stdout_is_a_failure(command: str, why: str) -> None:
    done = _closed(command)
    assert done.returncode == 1
    assert done.stderr == f"gpuwatch: cannot write the output: {why}\n"


def test_messages_cannot_move_the_cursor() -> None:
    done = gpuwatch("run", "--no-save", "--", "a\x1b[31m\u202eb\x07\nz")
    assert done.code == 127
    assert done.err == "gpuwatch: a\\x1b[31m\\u202eb\\x07 z: command not found\n"


def test_the_simulation_says_why_a_program_cannot_be_started(tmp_path: Path) -> None:
    for command, code, says in (("nosuch-program", 127, "command not found"), (str(tmp_path), 126, "is a folder")):
        done = gpuwatch("sim", "--", command)
        assert (done.code, done.err.count("\n")) == (code, 1)
        assert says in done.err
    done = gpuwatch("sim", "--gpus", "2", "--sim", "3x8GiB", "--", "true")
    assert (done.code, done.out) == (2, "")
    assert "cannot be combined" in done.err


def test_usage_is_checked_before_the_environment(tmp_path: Path) -> None:
    """No compiler, nothing compiled: what is wrong with the command line is said all the same, and nothing else."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CC": "/nonexistent/cc", "PATH": str(tmp_path)}
    for arguments, says in (
        (["probe", "--config", "growth", "--python", "/nonexistent/python"], "no such program"),
        (["doctor", "--python", "/nonexistent/python"], "no such program"),
        (["probe", "--config", "growth", "--gpu", "0,0"], "is listed twice"),
        (["snapshot", "-o", "x.pdf"], ".html"),
    ):
        done = gpuwatch(*arguments, "--sim", "1x8GiB", environment=environment)
        assert (done.code, done.out) == (2, ""), done.err
        assert says in done.err


@pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv to give up root's right to look everywhere")
def test_what_a_user_cannot_read_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    rights = "-dac_override,-dac_read_search"
    less = ["setpriv", f"--inh-caps={rights}", f"--bounding-set={rights}"] if os.geteuid() == 0 else []
    for arguments, says in (
        (["doctor", "--python", f"{closed}/bin/python"], "permission denied for one of its parent folders"),
        (["snapshot", "-o", f"{closed}/x/out.json"], f"cannot write {closed}/x/out.json: this user may not access"),
        (["snapshot", "-o", f"{closed}/out.json"], f"cannot write {closed}/out.json: its folder is not writable"),
    ):
        command = [*less, sys.executable, "-m", "gpuwatch", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stderr
        assert says in done.stderr
        assert len(done.stderr.splitlines()) == 1
    closed.chmod(0o700)
