"""Programs that ``gpuwatch try`` runs: how they are measured, how they end, and what is left of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.every import begun
from tests.terminal import wait_until_ended
from tests.trials.programs import document, program, tried
from tests.waiting import wait_for

FOREVER = "while True: time.sleep(0.005); step()\n"
ONE = ("--config", "default", "--rounds", "1", "--stop-after", "20steps", "--")
RUNS_OUT = """import socket
print(
    time.strftime("%Y-%m-%d %H:%M:%S") + ".678901: W tensorflow/core/common_runtime/bfc_allocator.cc:497] Allocator"
    " (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB (rounded to 4294967296)requested by op MatMul",
    file=sys.stderr, flush=True,
)
"""
"""Stands for a framework's line in a process that cannot count its failed requests: one that may talk to another."""


def only(found: dict[str, Any]) -> dict[str, Any]:
    (trial,) = found["trials"]
    assert isinstance(trial, dict)
    return trial


@pytest.fixture(scope="module")
def waited(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Any]]]:
    """What ends by its time alone: begun with the first test of this file, beside the others."""

    def ignoring(signals: str) -> dict[str, Any]:
        text = "".join(f"signal.signal(signal.{name}, signal.SIG_IGN)\n" for name in signals.split()) + FOREVER
        return document(*ONE, *program(tmp_path_factory.mktemp("ignoring"), text))

    def hanging(text: str = "") -> list[str]:
        return program(tmp_path_factory.mktemp("hanging"), f"{text}time.sleep(300)\n")

    budget = ("--config", "default", "--config", "A_B=1", "--budget", "11s", "--no-save", "--")
    calls = {
        "test_what_was_needed_to_end_it[SIGINT-SIGTERM]": lambda: ignoring("SIGINT"),
        "test_what_was_needed_to_end_it[SIGINT SIGTERM-SIGKILL]": lambda: ignoring("SIGINT SIGTERM"),
        "test_one_that_hangs_is_ended_after_its_share_of_the_budget": lambda: tried(*budget, *hanging()),
        "test_one_that_hangs_without_memory_has_run_out_of_it": lambda: document(
            "--config", "default", "--budget", "10s", "--", *hanging(RUNS_OUT)
        ),
    }
    with begun(request, calls) as results:
        yield results


@pytest.mark.usefixtures("waited")
def test_the_same_number_of_steps_in_each_and_in_turns(tmp_path: Path) -> None:
    found = document(
        *("--config", "default", "--config", "A_B=1", "--rounds", "2", "--stop-after", "40steps", "--"),
        *program(tmp_path, FOREVER),
    )
    assert [(trial["asked"], trial["round"]) for trial in found["trials"]] == [
        *(("default", 1), ("A_B=1", 1), ("default", 2), ("A_B=1", 2)),
    ]
    first = found["trials"][0]["steps"]
    assert first >= 40
    assert all(first <= trial["steps"] <= first + 60 for trial in found["trials"])
    assert {trial["ended_by"] for trial in found["trials"]} == {"SIGINT"}
    assert {trial["run"]["verdict"] for trial in found["trials"]} == {"ok"}


def test_a_setting_reaches_the_program_and_its_run_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    text = "open(sys.argv[1], 'w').write(os.environ['GPUWATCH_TRY_RUN'] + os.environ.get('A_B', ''))\n" + FOREVER
    command = [*program(tmp_path, text), str(tmp_path / "out" / "{run}")]
    document("--config", "default", "--config", "A_B=x", "--rounds", "1", "--stop-after", "10steps", "--", *command)
    assert sorted((path.name, path.read_text()) for path in (tmp_path / "out").iterdir()) == [
        *(("A_B-x-1", "A_B-x-1x"), ("default-1", "default-1")),
    ]


def test_a_variable_that_is_set_anyway_is_noted(tmp_path: Path) -> None:
    asked = ("--config", "default", "--config", "A_B=1", "--rounds", "1", "--stop-after", "5steps", "--")
    found = document(*asked, *program(tmp_path, FOREVER), env={**os.environ, "A_B": "0"})
    assert [note.split()[0] for note in found["notes"]] == ["A_B"]


def test_a_second_process_has_time_for_its_first_steps(tmp_path: Path) -> None:
    text = f"""
if len(sys.argv) > 1:
    time.sleep(1.5)
    for _ in range(10): time.sleep(0.005); step()
    open("{tmp_path}/second", "w").close()
    time.sleep(300)
subprocess.Popen([sys.executable, __file__, "second"])
time.sleep(1.2)
{FOREVER}"""
    assert only(document(*ONE, *program(tmp_path, text)))["ended_by"] == "SIGINT"
    assert (tmp_path / "second").exists()


def test_what_it_does_after_the_measurement_counts_for_nothing(tmp_path: Path) -> None:
    text = f"""
try:
    {FOREVER}
except KeyboardInterrupt:
    print("error: saving failed", flush=True)
    sys.exit(3)
"""
    trial = only(document(*ONE, *program(tmp_path, text)))
    assert (trial["run"]["verdict"], trial["ended_by"]) == ("ok", "SIGINT")
    assert not any("saving" in line for line in trial["run"]["log_tail"])


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_program_in_a_shell_script_is_interrupted_as_by_a_terminal(shell: str, tmp_path: Path) -> None:
    text = f"""
try:
    {FOREVER}
except KeyboardInterrupt:
    open("{tmp_path}/interrupted", "w").close()
    raise
"""
    inner, outer = tmp_path / "inner.sh", tmp_path / "train.sh"
    inner.write_text(f"sleep 300 &\n{' '.join(program(tmp_path, text))}\ntouch '{tmp_path}/went-on'\n")
    outer.write_text(f"{shell} '{inner}'\necho done\n")
    assert only(document(*ONE, shell, str(outer)))["ended_by"] == "SIGINT"
    assert (tmp_path / "interrupted").exists()
    assert not (tmp_path / "went-on").exists()


def test_a_child_of_another_program_is_left_to_it(tmp_path: Path) -> None:
    """Only shells rely on the terminal: other programs end their workers themselves."""
    text = f"""
if len(sys.argv) > 1:
    try:
        time.sleep(300)
    except KeyboardInterrupt:
        open("{tmp_path}/interrupted", "w").close()
        raise
worker = subprocess.Popen([sys.executable, __file__, "worker"])
{FOREVER}"""
    assert only(document(*ONE, *program(tmp_path, text)))["ended_by"] == "SIGINT"
    assert not (tmp_path / "interrupted").exists()


@pytest.mark.parametrize(("ignored", "needed"), [("SIGINT", "SIGTERM"), ("SIGINT SIGTERM", "SIGKILL")])
def test_what_was_needed_to_end_it(
    ignored: str, needed: str, waited: dict[str, Future[Any]], request: pytest.FixtureRequest
) -> None:
    assert only(waited[request.node.name].result())["ended_by"] == needed


def test_nothing_is_left_of_a_program_that_forks(tmp_path: Path) -> None:
    text = f"""
for apart in (False, True):
    child = subprocess.Popen(["sleep", "300"], start_new_session=apart)
    open(f"{tmp_path}/pids", "a").write(f"{{child.pid}}\\n")
{FOREVER}"""
    assert only(document(*ONE, *program(tmp_path, text)))["run"]["verdict"] == "ok"
    for pid in (tmp_path / "pids").read_text().split():
        wait_until_ended(int(pid))


def test_one_that_failed_before_the_signal_has_failed(tmp_path: Path) -> None:
    text = "for _ in range(20): time.sleep(0.01); step()\nprint('the end', flush=True)\nraise ValueError('bad')\n"
    wide = {**os.environ, "COLUMNS": "250"}  # the path stays on one line
    result = tried(*ONE[:-2], "200steps", "--no-save", "--", *program(tmp_path, text), env=wide)
    assert result.returncode == 4
    assert result.stdout.startswith("default failed: ")
    assert "ValueError: bad" in result.stdout
    output = Path(result.stdout.rpartition("its output: ")[2].split()[0])
    assert "the end" in output.read_text()
    assert output.stat().st_mode & 0o077 == 0
    assert output.parent.stat().st_mode & 0o077 == 0


def test_one_that_ends_before_its_steps_are_counted(tmp_path: Path) -> None:
    trial = only(document(*ONE, *program(tmp_path, "")))
    assert (trial["steps"], trial["covered"], trial["ended_by"]) == (None, "the whole program", "the program")
    assert trial["run"]["verdict"] == "ok"


def test_one_that_hangs_is_ended_after_its_share_of_the_budget(
    waited: dict[str, Future[Any]], request: pytest.FixtureRequest
) -> None:
    result = waited[request.node.name].result()
    assert result.returncode == 4
    assert "no step could be counted" in " ".join(result.stdout.split())
    assert "within --budget 11 s" in result.stdout


def test_one_that_hangs_without_memory_has_run_out_of_it(
    waited: dict[str, Future[Any]], request: pytest.FixtureRequest
) -> None:
    trial = only(waited[request.node.name].result())
    assert trial["run"]["verdict"] == "oom"
    assert trial["run"]["verdict_reason"].startswith("Out of memory")


@pytest.mark.parametrize(
    ("rest", "verdict"),
    [
        ("time.sleep(0.3)\n", "ok"),
        ("for _ in range(400): time.sleep(0.01); step()\n", "ok"),
        ("sys.exit(1)\n", "oom"),
    ],
    ids=["it succeeds", "it steps on", "it fails"],
)
def test_one_that_handles_that_memory_ran_out_has_not_failed(rest: str, verdict: str, tmp_path: Path) -> None:
    command = program(tmp_path, f"{RUNS_OUT}{rest}")
    found = document("--config", "default", "--rounds", "1", "--stop-after", "250steps", "--", *command)
    assert only(found)["run"]["verdict"] == verdict
    assert any("handled that" in note for note in found["notes"]) == (verdict == "ok")


def test_success_is_what_was_declared(tmp_path: Path) -> None:
    command = program(tmp_path, "print('accuracy 0.93', flush=True)\n" + FOREVER)
    trial = only(document("--config", "default", "--rounds", "1", "--success", "accuracy 0.9", "--", *command))
    assert (trial["run"]["verdict"], trial["ended_by"]) == ("ok", "success")
    command = program(tmp_path, "print('accuracy 0.73', flush=True)\n")
    trial = only(document("--config", "default", "--rounds", "1", "--success", "accuracy 0.9", "--", *command))
    assert "--success" in trial["run"]["verdict_reason"]


def test_an_isolated_run_writes_nowhere_else(tmp_path: Path) -> None:
    text = "import tempfile\nopen('made', 'w').close()\nprint(os.getcwd(), tempfile.gettempdir(), flush=True)\n"
    command = program(tmp_path, text)
    trial = only(document("--isolate", *ONE, sys.executable, "train.py", cwd=tmp_path))
    assert command[1] == str(tmp_path / "train.py")
    folder, temporary = trial["run"]["log_tail"][0].split()
    assert not (tmp_path / "made").exists()
    assert Path(folder).parent == Path(temporary).parent
    assert not Path(folder).exists()


def test_an_interruption_ends_the_run_and_shows_what_is_known(tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n{FOREVER}")
    arguments = ["--config", "default", "--stop-after", "100000steps", "--no-save", "--", *command]
    seen = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "try", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    time.sleep(1)  # some way into the run
    os.killpg(seen.pid, signal.SIGINT)  # as a terminal does at Ctrl+C
    out, err = seen.communicate(timeout=20)
    assert seen.returncode == 130, err
    assert "nothing is known yet" in out
    (line,) = [line for line in err.splitlines() if "round 1" in line]
    assert line.startswith("gpuwatch: 1/3 default, ")
    assert "No step could be counted" not in out
    wait_until_ended(int((tmp_path / "pid").read_text()))


def test_nothing_runs_on_when_gpuwatch_is_killed(tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n{FOREVER}")
    seen = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "try", "--config", "default", "--no-save", "--", *command],
        stderr=subprocess.DEVNULL,
    )
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    seen.kill()
    seen.wait()
    wait_until_ended(pid)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "default"], "no command to run"),
        (["--config", "growht", "--", "true"], "did you mean growth?"),
        (["--config", "default", "--success", "(", "--", "true"], "not a regular expression"),
        (["--config", "default", "--success", "a", "--stop-after", "5s", "--", "true"], "needs --stop-after end"),
        (["--config", "default", "--vary", "B=1", "--", "true"], "the command has no {B}"),
    ],
)
def test_wrong_usage(arguments: list[str], says: str) -> None:
    result = tried(*arguments)
    assert result.returncode == 2
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_command_that_does_not_exist() -> None:
    result = tried("-q", "--config", "default", "--", "nonexistent-program")
    assert (result.returncode, result.stdout) == (127, "")
    assert "command not found" in result.stderr


def test_a_plan_runs_nothing_but_a_first_start(tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/starts', 'a').write('x')\n{FOREVER}")
    result = tried("--plan", "--config", "default", "--config", "A_B=1", "--", *command)
    assert result.returncode == 0
    assert "6 times (2 settings × 3" in result.stdout
    assert "at most 10 min (--budget)" in result.stdout
    assert (tmp_path / "starts").read_text() == "x"


def test_a_program_that_fails_as_it_is_is_not_run_again(tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/starts', 'a').write('x')\nsys.exit('no such data')\n")
    result = tried("--no-save", "--", *command)
    assert result.returncode == 4
    assert result.stdout.startswith("It fails as it is, ")
    assert "no such data" in result.stdout
    assert (tmp_path / "starts").read_text() == "x"


def test_values_are_varied(tmp_path: Path) -> None:
    command = program(tmp_path, "while True: time.sleep(float(sys.argv[1]) / 1000); step()\n")
    result = tried(
        *("--vary", "MS=4,8", "--rounds", "2", "--stop-after", "30steps", "--no-save", "-q", "--"),
        *(*command, "{MS}"),
    )
    assert result.stderr == ""
    took = re.fullmatch(r"MS=4: (.*) ms per step; MS=8: (.*) ms per step; with a different value, .*\n", result.stdout)
    assert took is not None, result.stdout
    assert 4 <= float(took[1]) < float(took[2])


def test_values_without_steps_take_as_long_as_their_runs(tmp_path: Path) -> None:
    command = program(tmp_path, "time.sleep(float(sys.argv[1]))\n")
    result = tried(
        *("--vary", "S=0.2,1.5", "--rounds", "1", "--stop-after", "end", "--no-save", "-q", "--"), *(*command, "{S}")
    )
    took = re.fullmatch(r"S=0.2: (.*) from start to end; S=1.5: (.*) s from start to end\n", result.stdout)
    assert took is not None, result.stdout
    assert 1.5 <= float(took[2]) < 30


def test_nothing_starts_on_a_gpu_that_others_use(tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/starts', 'a').write('x')\n{FOREVER}")
    name = f"try{os.getpid()}"
    holder = [sys.executable, "-m", "gpuwatch", "sim", "--sim", f"2x2GiB@{name}", "--sim-tier", "driver"]
    holder += ["--", sys.executable, "-c", _HOLD]
    with subprocess.Popen(holder, stdout=subprocess.PIPE, text=True, start_new_session=True) as held:
        try:
            assert held.stdout is not None
            assert held.stdout.readline() == "holds\n"
            asked = ("--sim", f"2x2GiB@{name}", "--rounds", "1", "--stop-after", "10steps", "--no-save")
            result = tried(*asked, "--", *command)
            assert result.returncode == 2
            assert "GPU 0 is used by " in result.stderr
            assert f"pid {held.pid}" in result.stderr or "pid " in result.stderr
            assert not (tmp_path / "starts").exists()
            shown = tried(*asked, "--config", "default", "--config", "visible=1", "--", *command)
            assert "--share runs there" in shown.stdout
            assert (tmp_path / "starts").read_text() == "x"
            shared = tried(*asked, "--share", "--config", "default", "--", *command)
            assert shared.returncode == 0, shared.stderr
        finally:
            os.killpg(held.pid, signal.SIGKILL)


_HOLD = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 << 20)) == 0
print("holds", flush=True)
time.sleep(300)
"""


def test_copies_are_measured_while_all_of_them_step(tmp_path: Path) -> None:
    text = "time.sleep(0.3 if sys.argv[1].endswith('copy1') else 1.5)\n" + FOREVER
    found = document(
        *("--copies", "2", "--config", "default", "--stop-after", "40steps", "--"),
        *(*program(tmp_path, text), "{run}"),
    )
    assert [trial["copy"] for trial in found["trials"]] == [0, 1, 2]
    assert all(trial["run"]["verdict"] == "ok" for trial in found["trials"])
    first, second = found["trials"][1:]
    assert min(first["steps"], second["steps"]) >= 40
    # The first has made some hundred steps before the second began: they do not count.
    assert first["steps"] - second["steps"] < 60
    assert found["answer"]["sentence"].startswith("default: 2 copies run at")


def test_a_copy_that_fails_does_not_hold_up_the_other(tmp_path: Path) -> None:
    text = "if sys.argv[1].endswith('copy2'): sys.exit('no room')\n" + FOREVER
    command = [*program(tmp_path, text), "{run}"]
    result = tried("--copies", "2", "--config", "default", "--stop-after", "20steps", "--no-save", "--", *command)
    assert result.stdout.startswith("default: copy 2 of 2 fails")
    assert "no room" in result.stdout


@pytest.mark.parametrize("form", [(), ("--recover",), ("--plan",), ("--copies", "2", "--config", "default")])
def test_an_interruption_in_every_form_leaves_nothing(form: tuple[str, ...], tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/pids', 'a').write(f'{{os.getpid()}} ')\ntime.sleep(300)\n")
    seen = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "try", *form, "--no-save", "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    wait_for(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
    os.killpg(seen.pid, signal.SIGINT)
    _, err = seen.communicate(timeout=20)
    assert seen.returncode == 130, err
    assert "Traceback" not in err
    assert "error in gpuwatch" not in err
    assert not list(tmp_path.glob("gpuwatch-try-*"))
    for pid in (tmp_path / "pids").read_text().split():
        wait_until_ended(int(pid))


def test_a_stop_stops_the_program_too(tmp_path: Path) -> None:
    """Ctrl+Z: the program is in another process group than gpuwatch, which the terminal stops."""
    command = program(tmp_path, f"open('{tmp_path}/pid', 'w').write(str(os.getpid()))\n{FOREVER}")
    seen = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "try", *ONE[:-2], "400steps", "--no-save", "-q", "--", *command],
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,  # the kernel ignores a stop in a process group that nobody could continue (setpgid(2))
    )
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text()))
    seen.send_signal(signal.SIGTSTP)
    wait_for(lambda: {state(seen.pid), state(pid)} == {"T"})
    seen.send_signal(signal.SIGCONT)
    out, _ = seen.communicate(timeout=30)
    assert seen.returncode == 0
    assert out.startswith("default: ")


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
