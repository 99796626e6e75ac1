"""Programs that ``gpuwatch run`` watches: their ends, their children, their signals, and what is kept of them."""

from __future__ import annotations

import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.core.model.run import Outcome
from gpuwatch.experiment.probing.watch_program import Watch
from gpuwatch.explain.logs.log_facts import LogFacts
from tests.conftest import gpuwatch
from tests.diagnosis.cases import draft
from tests.probing.watched import read, started, watched, with_torch
from tests.terminal import family, wait_until_ended
from tests.waiting import wait_for

# A parent, a child in the background and a grandchild; each writes its number into a file.
_FAMILY = """
import os, subprocess, sys, time
folder, depth = sys.argv[1], int(sys.argv[2])
open(f"{folder}/{depth}", "w").write(str(os.getpid()))
if depth:
    subprocess.Popen([sys.executable, __file__, folder, str(depth - 1)], start_new_session=depth == 1)
time.sleep(float(sys.argv[3]) if len(sys.argv) > 3 else 60)
"""


@pytest.fixture
def descendants(tmp_path: Path) -> Path:
    script = tmp_path / "family.py"
    script.write_text(_FAMILY)
    return script


def pids(folder: Path) -> list[int]:
    """All three, once they are there."""
    paths = [folder / str(depth) for depth in range(3)]
    wait_for(lambda: all(path.exists() and path.read_text() for path in paths))
    return [int(path.read_text()) for path in paths]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()


# How it starts


@pytest.mark.parametrize(("name", "hint"), [("train.py", "python train.py"), ("train", "./train")])
def test_a_file_of_this_folder_is_no_command_and_the_hint_runs_it(
    name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text("print(1)\n")
    result = gpuwatch("run", name)
    assert result.code == 127
    assert f"to run the one in this folder, use {hint})" in result.err


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        (None, 127, "command not found"),
        ("folder", 126, "is a folder"),
        ("plain", 126, "is not executable (chmod +x "),
        ("script", 126, "is not executable (python "),
        ("interpreter", 127, "the interpreter in its first line does not exist"),
    ],
)
def test_a_program_that_cannot_start_has_the_exit_code_of_a_shell(
    make: str | None, code: int, says: str, tmp_path: Path
) -> None:
    path = tmp_path / ("train.py" if make == "script" else "train")
    if make == "folder":
        path.mkdir()
    elif make is not None:
        path.write_text("#!/nonexistent/python\n")
        path.chmod(stat.S_IRWXU if make == "interpreter" else stat.S_IRUSR)
    result = gpuwatch("run", "--", str(path))
    assert (result.code, result.out) == (code, "")
    assert result.err.count("\n") == 1
    assert says in result.err


def test_a_script_without_a_first_line_is_the_shells(tmp_path: Path) -> None:
    path = tmp_path / "script"
    path.write_text("echo $1; exit 4")
    path.chmod(stat.S_IRWXU)
    seen = watched("--", str(path), "argument")
    assert (seen.stdout, seen.returncode) == (b"argument\n", 4)


def test_it_finds_signals_and_descriptors_as_they_would_be_without_us() -> None:
    code = (
        "import os, signal\n"
        "ignored = [n for n in range(1, 32) if n not in (9, 19) and signal.getsignal(n) == signal.SIG_IGN]\n"
        "print(ignored, sorted(os.listdir('/proc/self/fd')), open('/proc/self/status').read().count('SigBlk:\\t0000'))"
    )
    command = [sys.executable, "-I", "-c", code]
    alone = subprocess.run(command, capture_output=True, check=True)
    assert watched("--", *command).stdout == alone.stdout


def test_a_closed_pipe_ends_it_as_without_us() -> None:
    seen = started("-q", "--", "sh", "-c", "yes >&2", stderr=subprocess.PIPE)
    assert seen.stderr is not None
    assert seen.stderr.readline() == b"y\n"
    seen.stderr.close()
    assert seen.wait(15) in (-signal.SIGPIPE, 128 + signal.SIGPIPE)


# How it ends


def test_an_exit_code_is_no_cause(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    assert watched("-o", str(out), "--", "sh", "-c", "exit 7").returncode == 7
    run = read(out)
    assert (run["verdict"], run["verdict_reason"]) == ("error", "It exited with code 7.")
    assert (run["primary"], run["findings"]) == (None, [])


@pytest.mark.parametrize(("code", "told"), [(0, True), (None, False)])
def test_a_program_that_runs_yet_or_was_killed_may_not_have_got_beyond_its_imports(
    code: int | None, told: bool
) -> None:
    """TensorFlow's first lines come while it is imported, which may take ten seconds."""
    seen = SimpleNamespace(
        _builder=SimpleNamespace(log=LogFacts(frameworks=["tensorflow"])),
        _backlog=SimpleNamespace(skipped_bytes=0),
        _options=SimpleNamespace(read_log=True),
        _processes=SimpleNamespace(pids_without_last_report=lambda: (), any_has_reported=False),
    )
    run = draft("run", outcome=Outcome(exit_code=code, ended=code is not None))
    assert bool(list(Watch._problems(seen, run))) == told  # type: ignore[arg-type]


def test_a_program_without_a_framework_is_told_so(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    assert watched("-o", str(out), "--", "true").returncode == 0
    run = read(out)
    assert run["verdict"] == "ok"
    assert "TensorFlow, PyTorch nor JAX" in run["verdict_reason"]


@pytest.mark.parametrize(("handler_code", "code"), [(None, -signal.SIGINT), (0, 0), (1, 1)])
def test_an_interruption_is_no_error(handler_code: int | None, code: int, tmp_path: Path) -> None:
    """Some programs catch it: Lightning's Trainer exits with 1."""
    out = tmp_path / "run.json"
    handle = "" if handler_code is None else f"signal.signal(signal.SIGINT, lambda *_: sys.exit({handler_code})); "
    program = f"import signal, sys, time; {handle}print('ready', flush=True); time.sleep(60)"
    seen = started(
        *("-q", "-o", str(out), "--", sys.executable, "-c", program),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert seen.stdout is not None
    assert seen.stdout.readline() == b"ready\n"
    os.killpg(seen.pid, signal.SIGINT)  # as a terminal does at Ctrl+C
    seen.communicate(timeout=15)
    assert seen.returncode == code
    run = read(out)
    if code == 0:
        assert run["verdict"] == "ok"
        assert re.search(r" It was sent SIGINT after [\d.]+ m?s, and ended by itself\.$", run["verdict_reason"])
    else:
        assert run["verdict"] == "interrupted"
        assert run["verdict_reason"].startswith("It was interrupted (SIGINT")
    assert [found for found in run["findings"] if found["severity"] != "info"] == []


def test_a_signal_that_ends_a_program_at_once_is_in_its_reason(tmp_path: Path) -> None:
    """The program has ended before it is known whether it got the signal that came to gpuwatch."""
    out = tmp_path / "run.json"
    program = "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); print(flush=True); "
    command = ["-q", "-o", str(out), "--", sys.executable, "-c", f"{program}time.sleep(60)"]
    seen = started(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    assert seen.stdout is not None
    assert seen.stdout.readline() == b"\n"
    time.sleep(0.5)
    os.kill(seen.pid, signal.SIGTERM)  # as timeout(1) does
    os.killpg(seen.pid, signal.SIGTERM)
    seen.communicate(timeout=15)
    assert seen.returncode == 0
    assert re.search(r" It was sent SIGTERM after [\d.]+ m?s, and ended by itself\.$", read(out)["verdict_reason"])


_INTERRUPTED_STEPS = """
import collections, os, signal, sys, time, torch
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
torch.hold(1 << 20)
# As PyTorch's snapshot of its allocator may: it imports modules that define named tuples.
torch.cuda.memory_stats = lambda number: collections.namedtuple("Stats", "num_ooms")(0)._asdict()

def forward():
    print(os.getpid(), flush=True)
    time.sleep(60)

forward()
"""


_INTERRUPTED = r"It was interrupted \(SIGINT, Ctrl\+C\) after .*, in train.py, line 10 \(forward\)"


@pytest.mark.parametrize(
    ("number", "to_program", "code", "reason"),
    [
        (signal.SIGINT, False, -signal.SIGINT, _INTERRUPTED),
        (signal.SIGINT, True, -signal.SIGINT, _INTERRUPTED),
        (signal.SIGTERM, False, 3, "It was ended by SIGTERM, which gpuwatch passed on, after "),
    ],
)
def test_an_interrupted_pytorch_program_ends_as_it_would_by_itself(
    number: signal.Signals, to_program: bool, code: int, reason: str, tmp_path: Path
) -> None:
    out, script = tmp_path / "run.json", tmp_path / "train.py"
    script.write_text(_INTERRUPTED_STEPS)
    for options in ([], ["-q", "-o", str(out)]):
        command = [str(Path(sys.executable).resolve()), str(script)]  # started, not forked: its end is Python's own
        keywords: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": with_torch(tmp_path)}
        seen = started(*options, "--", *command, **keywords) if options else subprocess.Popen(command, **keywords)
        assert seen.stdout is not None
        pid = int(seen.stdout.readline())
        time.sleep(0.2)
        os.kill(pid if to_program else seen.pid, number)
        seen.communicate(timeout=15)
        assert seen.returncode == code
    run = read(out)
    assert (run["verdict"], run["errors"], run["primary"]) == ("interrupted", [], None)
    assert re.match(reason, run["verdict_reason"])
    assert [found["id"] for found in run["findings"] if found["id"] in ("unknown", "program.error")] == []


@pytest.mark.parametrize("before", ["import torch", "import json", "import socket"])
def test_a_keyboard_interrupt_that_no_signal_raised_is_the_programs_own(tmp_path: Path, before: str) -> None:
    out, script = tmp_path / "run.json", tmp_path / "train.py"
    script.write_text(f"{before}\nraise KeyboardInterrupt\n")
    assert watched("-o", str(out), "--", sys.executable, str(script), env=with_torch(tmp_path)).returncode < 0
    run = read(out)
    assert (run["verdict"], [error["type"] for error in run["errors"]]) == ("error", ["KeyboardInterrupt"])
    assert "which its own code raised" in run["verdict_reason"]


def test_an_interrupted_program_without_a_framework_raised_nothing_itself(tmp_path: Path) -> None:
    out, script = tmp_path / "run.json", tmp_path / "train.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhile True:\n    pass\n")
    assert watched("-o", str(out), "--", sys.executable, str(script)).returncode == -signal.SIGINT
    run = read(out)
    assert (run["verdict"], run["errors"]) == ("interrupted", [])


@pytest.mark.parametrize(
    "number",
    [
        *(signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGXCPU, signal.SIGALRM),
        *(signal.SIGPROF, signal.SIGRTMIN, signal.SIGRTMAX - 1),
    ],
)
@pytest.mark.parametrize("everybody", [False, True])
def test_a_signal_reaches_it_once(number: int, everybody: bool, tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: print('got it', flush=True))\n"
        "print('ready', flush=True)\n"
        "end = time.monotonic() + 1.5\n"
        "while time.monotonic() < end: time.sleep(0.05)\n"
    )
    seen = started("-q", "--", sys.executable, "-c", program, stdout=subprocess.PIPE, start_new_session=True)
    assert seen.stdout is not None
    assert seen.stdout.readline() == b"ready\n"
    if everybody:
        os.killpg(seen.pid, number)
    else:
        os.kill(seen.pid, number)
    rest = seen.stdout.read()
    assert seen.wait(15) == 0
    assert rest == b"got it\n"


def test_a_repeated_signal_that_gpuwatch_reads_late_reaches_it_twice() -> None:
    """As a second Ctrl+C, which most programs take for "now"."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: print(time.monotonic(), flush=True))\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    command = ("-q", "--", sys.executable, "-c", program)
    seen = started(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert seen.stdout is not None
    assert seen.stdout.readline() == b"ready\n"
    (guard,) = (pid for pid in family(seen.pid) if b"guard_process" in Path(f"/proc/{pid}/cmdline").read_bytes())
    os.kill(guard, signal.SIGSTOP)  # gpuwatch waits for its answer, as on a busy machine
    os.kill(seen.pid, signal.SIGINT)
    time.sleep(0.3)
    os.kill(seen.pid, signal.SIGINT)
    time.sleep(0.5)
    os.kill(guard, signal.SIGCONT)
    first, second = float(seen.stdout.readline()), float(seen.stdout.readline())
    assert second - first > 0.02  # together they would be one
    assert seen.communicate(b"\n", timeout=15)[0] == b""
    assert seen.returncode == 0


def test_a_signal_to_all_reaches_it_once_though_its_guard_is_late() -> None:
    """On a busy machine the guard runs long after the program has its signal."""
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGUSR1, lambda *_: print('got it', flush=True))\n"
        "print(os.getppid(), flush=True)\n"
        "sys.stdin.readline()\n"
    )
    command = ("-q", "--", sys.executable, "-c", program)
    seen = started(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert seen.stdout is not None
    guard = int(seen.stdout.readline())
    os.kill(guard, signal.SIGSTOP)
    os.killpg(seen.pid, signal.SIGUSR1)
    assert seen.stdout.readline() == b"got it\n"
    time.sleep(0.5)  # gpuwatch asks the guard after 0.1 s, and decides by itself after 2 s
    os.kill(guard, signal.SIGCONT)
    time.sleep(0.5)  # a second signal would come within this
    rest, _ = seen.communicate(b"\n", timeout=15)
    assert (seen.returncode, rest) == (0, b"")


def test_an_interruption_ends_a_shell_and_what_it_waits_for(tmp_path: Path) -> None:
    """bash waits for its child before it acts on an interruption, and goes on if that did not get it."""
    child = f"{sys.executable} -c 'import time; print(\"ready\", flush=True); time.sleep(60)'"
    seen = started(
        *("-q", "--no-save", "--", "bash", "-c", f"{child}; echo went on; sleep 60"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=tmp_path,
    )
    assert seen.stdout is not None
    assert seen.stdout.readline() == b"ready\n"
    members = family(seen.pid)
    os.kill(seen.pid, signal.SIGINT)  # to gpuwatch alone, as kill(1) and supervisors do
    rest, _ = seen.communicate(timeout=15)
    assert (seen.returncode, rest) == (-signal.SIGINT, b"")
    for pid in members:
        wait_until_ended(pid)


# What is left


def test_nothing_runs_on_when_gpuwatch_is_killed(descendants: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    seen = started("-o", str(out), "--", sys.executable, str(descendants), str(tmp_path), "2")
    all_of_them = [*pids(tmp_path), *family(seen.pid)]
    wait_for(out.exists)
    seen.kill()
    seen.wait()
    for pid in all_of_them:
        wait_until_ended(pid)
    run = read(out)
    assert run["verdict"] == "interrupted"
    assert run["verdict_reason"].startswith("It was still running after ")


def test_nothing_runs_on_when_the_program_is_killed(descendants: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    seen = started("-q", "-o", str(out), "--", sys.executable, str(descendants), str(tmp_path), "2")
    *others, program = pids(tmp_path)
    os.kill(program, signal.SIGKILL)
    assert seen.wait(15) == -signal.SIGKILL
    for pid in others:
        wait_until_ended(pid)
    run = read(out)
    assert (run["verdict"], run["outcome"]["signal"], run["left_behind"]) == ("error", 9, 2)
    assert run["verdict_reason"].startswith("It was killed by SIGKILL after ")


def test_what_a_program_leaves_behind_on_purpose_goes_on(tmp_path: Path) -> None:
    out, done = tmp_path / "run.json", tmp_path / "done"
    command = f"(sleep 3; echo late >&2; echo $? > {done}) & echo early >&2; exit 5"
    seen = started("-q", "-o", str(out), "--", "sh", "-c", command, stderr=subprocess.PIPE)
    assert seen.wait(15) == 5
    assert not done.exists()
    assert seen.stderr is not None
    assert seen.stderr.read() == b"early\nlate\n"
    assert wait_for(lambda: done.exists() and done.read_text()) == "0\n"
    run = read(out)
    assert run["left_behind"] >= 1
    assert any("left behind" in problem for problem in run["problems"])


# Its output


def test_the_order_of_stdout_and_stderr_in_one_file_stays(tmp_path: Path) -> None:
    code = "import os\nfor n in range(2000): os.write(1 + n % 2, b'%d\\n' % n)"
    path = tmp_path / "both"
    with path.open("wb") as file:
        done = started("-q", "--", sys.executable, "-c", code, stdout=file, stderr=subprocess.STDOUT)
        assert done.wait(30) == 0
    assert path.read_text().split() == [str(n) for n in range(2000)]


def test_a_flood_is_passed_on_whole_and_is_not_waited_for(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    code = (
        "import os\nline = b'epoch 1: it goes well, the loss is 0.123\\n' * 1000\n"
        "for n in range(2500): os.write(2, line[:40960])\n"
        "os.write(2, b'\\nValueError: the end\\n')"
    )
    seen = watched("-o", str(out), "--", sys.executable, "-c", code, timeout=60)
    assert len(seen.stderr) == 2500 * 40960 + len("\nValueError: the end\n")
    run = read(out)
    assert run["log_tail"][-1] == "ValueError: the end"
    assert max(len(line) for line in run["log_tail"]) < 2100


def test_without_the_log_stderr_is_the_programs_own_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "err"
    with path.open("wb") as file:
        done = started("-q", "--no-log", "--", "sh", "-c", "readlink /proc/$$/fd/2 >&2", stderr=file)
        assert done.wait(15) == 0
    assert path.read_text().strip() == str(path)


def test_a_closed_stderr_is_no_trouble() -> None:
    command = f"{sys.executable} -m gpuwatch run -q -- sh -c 'echo fine' 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"fine\n", 0)


# Its processes

_WORKER = """
import sys, time
import torch
torch.hold(int(sys.argv[1]) << 20)
time.sleep(0.3)
if sys.argv[2:] == ["oom"]:
    torch.refuse()
"""


def test_every_process_has_its_own_line(tmp_path: Path) -> None:
    script, out = tmp_path / "worker.py", tmp_path / "run.json"
    script.write_text(_WORKER)
    python = f"{sys.executable} {script}"
    command = f"CUDA_VISIBLE_DEVICES=1 {python} 100 oom & CUDA_VISIBLE_DEVICES=0 {python} 200 & wait"
    seen = watched("-o", str(out), "--", "bash", "-c", command, env=with_torch(tmp_path))
    assert b"OutOfMemoryError" in seen.stderr
    processes = {process["command"].split()[1]: process for process in read(out)["processes"]}
    first, second = processes["100"], processes["200"]
    assert (first["ooms"], second["ooms"]) == (1, 0)
    assert [error["type"] for error in first["errors"]] == ["OutOfMemoryError"]
    assert second["errors"] == []
    assert second["allocators"] == {"cuda:0": 200 << 20}
    assert first["environment"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert first["device_map"][0]["uuid"] == "GPU-00000000-0000-0000-0000-000000000000"
    assert first["pid"] != second["pid"]


@pytest.mark.parametrize("options", [["-m", "steps.run"], ["-Bmsteps.run"]])
def test_a_module_whose_package_imports_a_framework_has_its_name(options: list[str], tmp_path: Path) -> None:
    """Python has not put it into ``sys.argv`` by then."""
    package, out = tmp_path / "steps", tmp_path / "run.json"
    package.mkdir()
    (package / "__init__.py").write_text("import time, torch\ntime.sleep(1)")
    (package / "run.py").write_text("")
    seen = watched("-o", str(out), "--", sys.executable, *options, "--x", cwd=tmp_path, env=with_torch(tmp_path))
    assert seen.returncode == 0, seen.stderr
    assert [process["command"] for process in read(out)["processes"]] == ["steps.run --x"]


def test_an_exception_about_memory_is_the_processs_own(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    code = "import torch; raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 24.00 GiB total)')"
    watched("-o", str(out), "--", sys.executable, "-c", code, env=with_torch(tmp_path))
    run = read(out)
    assert [process["ooms"] for process in run["processes"]] == [1]
    assert run["verdict"] == "oom"


_POOL = """
import multiprocessing, os, sys, time
if sys.argv[1] == "fork":
    import torch  # and not started: children may do so

def work(number):
    import torch
    torch.hold((number + 1) << 20)
    time.sleep(1.2)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(number,)) for number in range(3)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    sys.exit(max(worker.exitcode for worker in workers))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_are_watched(method: str, tmp_path: Path) -> None:
    script, out = tmp_path / "pool.py", tmp_path / "run.json"
    script.write_text(_POOL)
    command = [sys.executable, str(script), method]
    alone = subprocess.run(command, capture_output=True, check=True, env=with_torch(tmp_path))
    seen = watched("-o", str(out), "--", *command, env=with_torch(tmp_path))
    assert (seen.stdout, seen.stderr, seen.returncode) == (alone.stdout, alone.stderr, 0)
    peaks = sorted(p["allocators"]["cuda:0"] >> 20 for p in read(out)["processes"] if p["allocators"])
    assert peaks == [1, 2, 3]


def test_a_plain_fork_is_left_alone(tmp_path: Path) -> None:
    code = (
        "import os, sys, time, torch\ntorch.hold(1 << 20)\ntime.sleep(0.6)\n"
        "pid = os.fork()\nos.write(1, b'child ' if pid == 0 else b'parent ')\n"
        "if pid: os.waitpid(pid, 0)"
    )
    out = tmp_path / "run.json"
    seen = watched("-o", str(out), "--", sys.executable, "-W", "error", "-c", code, env=with_torch(tmp_path))
    assert sorted(seen.stdout.split()) == [b"child", b"parent"], seen.stderr
    assert len(read(out)["processes"]) == 1


def test_an_exception_is_told_and_its_traceback_has_no_frame_of_ours(tmp_path: Path) -> None:
    script, out = tmp_path / "broken.py", tmp_path / "run.json"
    script.write_text("import torch\n\ndef train():\n    raise ValueError('seen')\n\ntrain()\n")
    command = [sys.executable, str(script)]
    alone = subprocess.run(command, capture_output=True, check=False, env=with_torch(tmp_path))
    seen = watched("-o", str(out), "--", *command, env=with_torch(tmp_path))
    assert seen.stderr == alone.stderr
    run = read(out)
    assert run["verdict_reason"].endswith("in ValueError: seen.")


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ("", True),
        ("import subprocess; subprocess.run(['true'])", False),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'", False),
    ],
    ids=["for this process", "for a child", "back again"],
)
def test_gpus_that_are_hidden_once_the_devices_are_there(tmp_path: Path, then: str, told: bool) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    script.write_text(f"import os, torch\ntorch.hold(1)\nos.environ['CUDA_VISIBLE_DEVICES'] = '1'\n{then}\n")
    environment = {**with_torch(tmp_path), "CUDA_VISIBLE_DEVICES": "0,1"}
    watched("-o", str(out), "--", sys.executable, str(script), env=environment)
    run = read(out)
    late = [one for one in run["findings"] if one["id"] == "config.too-late"]
    assert bool(late) is told
    assert all("at train.py:3; too late" in one["evidence"][0] for one in late)
    assert run["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(
    ("before", "then", "told"),
    [
        ("", "", True),
        ("", "import subprocess; subprocess.run(['true'])", False),
        ("false", "os.environ[NAME] = 'false'", False),
    ],
    ids=["for this process", "for a child", "back again"],
)
def test_growth_that_is_set_in_the_environment_once_tensorflow_has_its_devices(
    before: str, then: str, told: bool, tmp_path: Path
) -> None:
    script, out = tmp_path / "train.py", tmp_path / "run.json"
    context = "types.SimpleNamespace(_context=types.SimpleNamespace(_initialized=True))"
    script.write_text(
        "import os, sys, torch, types\nNAME = 'TF_FORCE_GPU_ALLOW_GROWTH'\ntorch.hold(1)\n"
        f"sys.modules['tensorflow.python.eager.context'] = {context}\nos.environ[NAME] = 'true'\n{then}\n"
    )
    environment = {**with_torch(tmp_path), **({"TF_FORCE_GPU_ALLOW_GROWTH": before} if before else {})}
    watched("-o", str(out), "--", sys.executable, str(script), env=environment)
    late = [one for one in read(out)["findings"] if one["id"] == "config.too-late"]
    assert bool(late) is told
    assert all("at train.py:5; too late" in one["evidence"][0] for one in late)


@pytest.mark.parametrize(
    "program", ["print(1)", "import subprocess\nsubprocess.run(['sh', '-c', 'kill -9 $$'])", "raise ValueError"]
)
def test_files_of_the_program_with_names_of_the_standard_library_are_left_alone(tmp_path: Path, program: str) -> None:
    """They hide modules from whatever gpuwatch runs inside: the program's folder is first on its path."""
    loads = "import sys, subprocess, traceback; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True).stdout.split()
    used = {name.partition(".")[0] for name in loaded} | {"subprocess", "msvcrt"}  # which subprocess looks for
    for name in sys.stdlib_module_names - used:
        if not name.startswith("_"):
            (tmp_path / f"{name}.py").write_text(f"import sys; sys.stderr.write('{name}.py was loaded\\n')\n")
    (tmp_path / "train.py").write_text(program)
    seen = watched("-q", "--", sys.executable, str(tmp_path / "train.py"))
    assert b"was loaded" not in seen.stderr


def test_a_limit_of_the_address_space_is_told_where_memory_ran_out_below_it(tmp_path: Path) -> None:
    code = "import torch; raise MemoryError('Unable to allocate 64.0 GiB for an array with shape (8,)')"
    for limit in (None, 1 << 34):
        out = tmp_path / f"{limit}.json"
        limited = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n" if limit else ""
        watched("-o", str(out), "--", sys.executable, "-c", limited + code, env=with_torch(tmp_path))
        run = read(out)
        assert run["results"].get("address_limit_bytes") == limit
        assert ("ulimit -v" in run["verdict_reason"]) == (limit is not None)
        assert run["verdict"] == "oom"


# What is kept


def test_the_run_is_kept_unless_told_not_to(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    watched("--no-save", "--", "true", env=environment)
    assert list(tmp_path.rglob("*.json")) == []
    watched("--", "true", env=environment)
    (kept,) = tmp_path.rglob("*.json")
    assert read(kept)["title"] == "true"


def test_a_run_that_is_killed_at_its_start_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    seen = started("-q", "-o", str(out), "--", "sleep", "60", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    wait_for(out.exists)
    seen.kill()
    seen.wait()
    run = read(out)
    assert run["phases"]["total_seconds"] < 2.5, "it waited with the first writing"
    assert run["verdict"] == "interrupted"
    (kept,) = (tmp_path / "gpuwatch").rglob("*.json")
    assert read(kept)["title"] == "sleep 60"


def test_a_young_run_is_written_every_second(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    seen = started("-q", "-o", str(out), "--", "sleep", "60")
    wait_for(out.exists)
    times = [read(out)["phases"]["total_seconds"]]
    while len(times) < 4:
        wait_for(lambda: read(out)["phases"]["total_seconds"] > times[-1])
        times.append(read(out)["phases"]["total_seconds"])
    seen.kill()
    seen.wait()
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert all(gap >= 0.9 for gap in gaps), "it costs no more than it need"
    assert min(gaps) < 2.5


def test_a_folder_that_cannot_be_written_is_said_and_the_program_runs(tmp_path: Path) -> None:
    blocked = tmp_path / "state"
    blocked.write_text("a file")
    seen = watched("--", "sh", "-c", "exit 3", env={**os.environ, "XDG_STATE_HOME": str(blocked)})
    assert seen.returncode == 3
    assert seen.stderr.startswith(b"gpuwatch: cannot save the run in ")
    assert seen.stderr.count(b"\n") == 1


def test_a_long_run_is_written_again_and_again(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    seen = started("-q", "-o", str(out), "--", "sleep", "30")
    wait_for(out.exists)
    first = read(out)["phases"]["total_seconds"]
    wait_for(lambda: read(out)["phases"]["total_seconds"] > first)
    seen.terminate()
    assert seen.wait(10) == -signal.SIGTERM
    run = read(out)
    assert run["verdict"] == "interrupted"
    assert "SIGTERM" in run["verdict_reason"]


def test_gpuwatch_needs_no_processor_while_the_program_is_silent() -> None:
    seen = started("-q", "--no-save", "--", "sleep", "6")
    time.sleep(2.5)  # it has started
    mine = f"/proc/{seen.pid}/stat"
    before = sum(map(int, Path(mine).read_text().split()[13:15]))
    time.sleep(2)  # in which it may use next to no CPU
    after = sum(map(int, Path(mine).read_text().split()[13:15]))
    seen.terminate()
    seen.wait(10)
    assert (after - before) / os.sysconf("SC_CLK_TCK") < 0.2
