"""Every command line of README and the docs is accepted, and runs on simulated GPUs, in a home of its own.

Those of README run a real TensorFlow program. In the docs the program is an empty one, but with ``-m long``, which also
runs the lines of the cause pages and those that try settings.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

import click
import msgspec
import pytest

from gpuwatch.cli.main import cli
from tests.conftest import copy_builds
from tests.every import every
from tests.forked import gpuwatch_forked, run_gpuwatch
from tests.packaging.documented_lines import ROOT, SHAPE, Line, calls, filled, lines, on_simulated_gpus
from tests.reports.documents import bare_run, full_run
from tests.terminal import Terminal
from tests.traces.hostile import SNAPSHOT

LINES = list(lines())
_SIMULATED = {
    name
    for name in cli.list_commands(None)  # type: ignore[arg-type]
    if name != "sim" and any("--sim" in option.opts for option in cli.get_command(None, name).params)  # type: ignore[arg-type,union-attr]
}
_UNTIL_STOPPED = ("record", "exporter", "mcp")
_FRAMEWORK = ("probe", "doctor", "try", "report")
_LOG = "2026-05-01 12:00:00.000000: I tensorflow/core/platform/cpu_feature_guard.cc:182] This TensorFlow binary is up\n"
_PROGRAM = """
import tensorflow as tf
w = tf.Variable(tf.ones((64, 64)))
for _ in range(40):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.matmul(w, w))
    w.assign_sub(tape.gradient(loss, w))
"""
_GPUWATCH = f"""#!{sys.executable}
import os, sys
from tests.packaging.documented_lines import on_simulated_gpus
given = on_simulated_gpus(sys.argv[1:], os.environ["SIMULATED"].split())
os.execv(sys.executable, [sys.executable, "-m", "gpuwatch", *given])
"""
_SHELL = "|&;<>$~*=\n\\"
_SECONDS = 900
_OTHERS = "#!/bin/sh\n[ -t 0 ] || cat >/dev/null\n"
"""What stands for sudo, jq, mail and the like."""
_HERE = {
    ".venv/bin/": "",
    "/mnt/results/": "",
    "03:10": "12:05",
    "02:00": "12:05",
    "13:35": "12:05",
    "14:05": "12:06",
    "20 min": "1 min",
    "~/venv/bin/": "",
    "--seconds 120": "--seconds 2",
}
"""Folders and times of the pages, and those of the files here."""
_SSH = '#!/bin/sh\n[ "$1" = -T ] && exit 0\ncat "$SNAPSHOT"\n'


def _named(line: Line) -> str:
    return f"{line.page.rpartition('/')[2]}: {line.text[:60]}"


def _page(line: Line) -> bool:
    return "causes/" not in line.page


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the pages name."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "train.py").write_text("print('step 1')\n")
    (folder / "train.log").write_text(_LOG)
    (folder / "snapshot.pickle").write_bytes(SNAPSHOT)
    (folder / "run.json").write_bytes(msgspec.json.encode(full_run()))
    (folder / "other.json").write_bytes(msgspec.json.encode(bare_run()))
    (folder / "state" / "gpuwatch" / "recordings").mkdir(parents=True, mode=0o700)
    programs = dict.fromkeys(("sudo", "jq", "mail", "claude", "kubectl", "promtool", "nvitop"), _OTHERS)
    (folder / "bin").mkdir()
    for name, text in {**programs, "gpuwatch": _GPUWATCH, "ssh": _SSH}.items():
        path = folder / "bin" / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(autouse=True)
def _files(builds: tuple[Path, Path], home: Path) -> None:
    """As they were made: a recorder that goes on with a recording deletes what is old, and ``clean`` the libraries."""
    if not any((home / "cache").rglob("*.so*")):
        copy_builds(builds, home / "cache")
    for name in ("night.gpuwatch", "node07.gpuwatch", "state/gpuwatch/recordings/here.gpuwatch"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / "fixtures" / "recording-3.gpuwatch", home / name)


@pytest.fixture(scope="module")
def environment(home: Path) -> Mapping[str, str]:
    (home / "run").mkdir(mode=0o700)
    return {
        **os.environ,
        "PATH": f"{home / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "PYTHONPATH": str(ROOT),
        "SIMULATED": " ".join(_SIMULATED),
        "SNAPSHOT": str(home / "snapshot.json"),
    }


def _accept(line: Line) -> None:
    for arguments in calls(line.text):
        group, context = cli, None
        while True:
            context = group.make_context(group.name, list(arguments), parent=context)
            if not isinstance(group, click.Group) or not (rest := [*context._protected_args, *context.args]):
                break
            _, group, arguments = group.resolve_command(context, rest)  # type: ignore[assignment]


def _complete(line: Line) -> bool:
    """Not only the name of a command that wants more."""
    try:
        _accept(line)
    except click.MissingParameter:
        return line.whole
    except (click.UsageError, click.exceptions.Exit):
        pass  # a file of the page, which is not in this folder
    return line.whole or "..." not in line.text


def test_every_line_is_accepted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)

    @every(LINES)
    def accepted(line: Line) -> None:
        if _complete(line):
            _accept(line)

    accepted()


_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")


def _marks(line: Line) -> list[pytest.MarkDecorator]:
    return [mark for mark, asked in ((pytest.mark.long, _long(line)), (_TORCH, " torch-" in line.text)) if asked]


def _needs_framework(line: Line) -> bool:
    return any(
        arguments and arguments[0] in _FRAMEWORK and not {"--plan", "--list"} & set(arguments)
        for arguments in calls(line.text)
    )


def _long(line: Line) -> bool:
    return _needs_framework(line) or not _page(line) or any(call[:1] == ["capture"] for call in calls(line.text))


def _of_readme() -> set[tuple[str, ...]]:
    texts = [line.text for line in LINES if line.page == "README.md"]
    return {tuple(arguments) for text in texts for arguments in calls(text) if arguments[0] in (*_FRAMEWORK, "run")}


def _to_run() -> Iterator[Line]:
    """Each once, whatever pages it is on; some of README run a real program, see below."""
    once = {str(calls(line.text)): line for line in sorted(LINES, key=lambda line: line.whole) if _complete(line)}
    yield from (line for line in once.values() if not {*map(tuple, calls(line.text))} & _of_readme())


@pytest.mark.parametrize("line", [pytest.param(line, marks=_marks(line)) for line in _to_run()], ids=_named)
def test_every_line_of_the_docs_runs(line: Line, home: Path, environment: Mapping[str, str]) -> None:
    (home / "train.py").write_text(_PROGRAM if _needs_framework(line) else "print('step 1')\n")
    (arguments,) = {tuple(arguments) for arguments in calls(line.text)}
    text = filled(line.text)
    for written, here in _HERE.items():
        text = text.replace(written, here)
    if not arguments or arguments[0] == "replay" or arguments[0].startswith("-"):
        _dashboard(text, home, environment)
        return
    if arguments[:1] == ("pick",) and "--hosts" in arguments:
        with (home / "snapshot.json").open("w") as file:
            subprocess.run(["gpuwatch", "snapshot", "--json"], stdout=file, env=environment, check=True)
    if arguments[:1] == ("capture",):
        (home / "night.gpuwatch").unlink()
    if arguments[:2] == ("sim", "fault"):
        text = f"gpuwatch sim -- sleep 9 & sleep 1; {text}\ngpuwatch sim fault clear; kill $!"
    if "--on" in arguments:
        text = text.replace(arguments[arguments.index("--on") + 1], "local:2")
    stop = arguments[0] in _UNTIL_STOPPED and not {"--print-unit", "info", "check", "cut"} & set(arguments)
    stop |= arguments[0] == "snapshot" and "--every" in arguments
    if text.startswith("gpuwatch ") and not stop and not set(text) & set(_SHELL):
        words = on_simulated_gpus(shlex.split(text, comments=True)[1:], _SIMULATED)
        done = run_gpuwatch(*words, cwd=home, env=environment, text=True, timeout=_SECONDS)
        if not line.whole and ("no command to run" in done.stderr or "nothing to run" in done.stderr):
            return  # the page only names the command
        _judge(text, done.returncode, done.stdout, done.stderr)
    else:
        _command(text, home, environment, stop=stop)


def _command(text: str, home: Path, environment: Mapping[str, str], *, stop: bool) -> None:
    bash = subprocess.Popen(
        ["bash", "-o", "pipefail", "-ec", text],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if stop and " mcp" not in text:
        assert bash.stdout is not None
        assert bash.stderr is not None
        select.select([bash.stdout, bash.stderr], [], [])
        os.killpg(bash.pid, signal.SIGINT)
    out, err = bash.communicate(timeout=_SECONDS)
    _judge(text, bash.returncode, out, err)


def _judge(text: str, code: int, out: str, err: str) -> None:
    assert code in (0, *_expected(text)), out + err
    assert "Traceback" not in err or " -c " in text  # the program's own
    assert "no such option" not in err


def _expected(text: str) -> tuple[int, ...]:
    """Exit codes that are an answer, too: a difference, a finding, Ctrl+C."""
    codes = (3, 4) if any(f" {name}" in text for name in ("diff", "doctor", "probe", "explain")) else ()
    return (*codes, 130, -signal.SIGINT) if "--every" in text else (*codes, 1) if "undefined" in text else codes


def _dashboard(text: str, home: Path, environment: Mapping[str, str]) -> None:
    if "--hosts" in text or "--prometheus" in text:
        return  # tests/fleet has the servers
    terminal = Terminal(["bash", "-c", f"cd {shlex.quote(str(home))}; exec {text}"], environment, 100, 30)
    assert terminal.drain(20, until=lambda shown: b"node07" in shown or b"Simulated" in shown), bytes(terminal.output)
    terminal.keys("q")
    assert terminal.close() == 0


_ALWAYS = ("probe --config default --config growth --sim 2x24GiB",)
"""What ``.ci/run`` runs on TensorFlow: the other lines of README have such tests of their own."""


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(line, id=" ".join(line), marks=() if " ".join(line) in _ALWAYS else pytest.mark.long)
        for line in sorted(_of_readme())
    ],
)
def test_readme_runs_on_tensorflow(
    arguments: tuple[str, ...], home: Path, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "train.py").write_text(_PROGRAM)
    monkeypatch.chdir(home)
    words = [sys.executable if word == "python" else word for word in arguments]
    words[1:1] = [] if {"--sim", "--list"} & set(words) else ["--sim", SHAPE]
    if " ".join(arguments) in _ALWAYS:  # TensorFlow fills a table of 1/32 of each pool: 3 GiB in all on such cards
        words = ["2x4GiB" if word == SHAPE else word for word in words]
    done = gpuwatch_forked(*words, environment=environment, timeout=280)
    assert done.code in (0, 3), (words, done)
    assert "Traceback" not in done.err
    written = (home / "diag.html").read_text() if "-o" in words else ""
    assert "simulated" in f"{done.out}{done.err}{written}".lower() or "--list" in words, words
