"""Shell completion, asked by the shells themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.cli.completion import SHELLS
from gpuwatch.experiment.probing.probe_scripts import GROUPS, find_probes, names_and_titles
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID
from tests.conftest import gpuwatch
from tests.terminal import Terminal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a ``gpuwatch`` on its PATH and two files to complete."""
    program = tmp_path / "bin" / "gpuwatch"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m gpuwatch "$@"\n')
    program.chmod(0o755)
    (tmp_path / "train.log").touch()
    (tmp_path / "run.json").touch()
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{home / 'bin'}:/usr/bin:/bin", "HOME": str(home), "LC_ALL": "C.UTF-8"}


def script(shell: str) -> str:
    result = gpuwatch("completion", shell)
    assert result.code == 0, result.err
    assert result.err == ""
    return result.out


CASES = [
    ("gpuwatch sn", {"snapshot"}),
    ("gpuwatch probe --config gro", {"grow-to-limit", "growth", "growth-and-limit", "growth-env"}),
    ("gpuwatch probe --group ", set(GROUPS)),
    ("gpuwatch probe --workload l", {"lstm"}),
    ("gpuwatch probe --memory", {"--memory-limit"}),
    ("gpuwatch --columns m", {"mig", "memory", "mbw"}),
    ("gpuwatch --columns gpu,pid,mem", {"gpu,pid,memory"}),
    ("gpuwatch --gpu-fields temperature,po", {"temperature,power"}),
    ("gpuwatch --sort c", {"container", "cpu", "command"}),
    ("gpuwatch --tab p", {"process", "probes"}),
    ("gpuwatch --theme gpuwatch-", {"gpuwatch-light", "gpuwatch-contrast", "gpuwatch-color-blind", "gpuwatch-16"}),
    ("gpuwatch --sim 2", {"2x24GiB"}),
    ("gpuwatch --filter u", {"user:"}),
    ("gpuwatch --filter c", {"cmd:"}),
    ("gpuwatch --filter j", {"job:"}),
    ("gpuwatch --filter d", set()),
    ("gpuwatch cause memory.f", {"memory.fragmented"}),
    ("gpuwatch completion ", set(SHELLS)),
    ("gpuwatch schema sn", {"snapshot"}),
]


def test_names_are_those_of_the_headers() -> None:
    assert sorted(names_and_titles()) == sorted(find_probes())
    assert all(names_and_titles().values())


def test_cases_name_what_there_is() -> None:
    assert {"mig", "memory", "mbw"} == {name for name in COLUMN_BY_ID if name.startswith("m")}


def by_bash(line: str, home: Path) -> set[str]:
    """What bash would offer at the end of ``line``."""
    words = line.split(" ")
    (home / "completion.bash").write_text(script("bash"))
    code = (
        f"source {home}/completion.bash; COMP_WORDS=({' '.join(repr(word) for word in words)}); "
        f"COMP_CWORD={len(words) - 1}; COMP_LINE={line!r}; "
        '_gpuwatch_completion gpuwatch; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", code], capture_output=True, text=True, env=environment(home), cwd=home, check=False
    )
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_bash(line: str, offered: set[str], home: Path) -> None:
    assert by_bash(line, home) == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(("line", "offered"), CASES)
def test_fish(line: str, offered: set[str], home: Path) -> None:
    (home / "gpuwatch.fish").write_text(script("fish"))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {home}/gpuwatch.fish; complete -C {line!r}"],
        capture_output=True,
        text=True,
        env=environment(home),
        cwd=home,
        check=False,
    )
    assert {row.split("\t")[0] for row in done.stdout.splitlines()} == offered, done.stderr


def on_terminal(command: list[str], typed: str, home: Path, setup: str, done: Callable[[str], bool]) -> str:
    """What a shell shows after ``typed`` and up to two Tabs, without the sequences of the terminal, once ``done``."""

    def shown() -> str:
        return re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|[=>])", "", terminal.output[begin:].decode("utf-8", "replace"))

    terminal = Terminal(command, environment(home), 120, 40)
    try:
        terminal.keys(f"cd {home}; {setup}; PS1=; echo rea''dy\n")
        assert terminal.drain(20, lambda output: b"ready" in output) is not None, bytes(terminal.output)
        begin = len(terminal.output)
        terminal.keys(typed + "\t")
        if terminal.drain(2.0, lambda _: done(shown())) is None:
            terminal.keys("\t")
            terminal.drain(10.0, lambda _: done(shown()))
        return shown()
    finally:
        terminal.keys("\x03\x15exit\n")
        terminal.close(3)


SHELLS_ON_A_TERMINAL = [
    pytest.param(
        ["bash", "--norc", "--noprofile"],
        "source <(gpuwatch completion bash)",
        id="bash",
        marks=pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash"),
    ),
    pytest.param(
        ["zsh", "-f"],
        "autoload -U compinit && compinit -u -D; source <(gpuwatch completion zsh)",
        id="zsh",
        marks=pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh"),
    ),
]


@pytest.mark.parametrize(("command", "setup"), SHELLS_ON_A_TERMINAL)
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("gpuwatch snap", ["snapshot"]),
        ("gpuwatch probe --config frag", ["fragmentation"]),
        ("gpuwatch probe --config growth", ["growth-env", "growth-and-limit"]),
        ("gpuwatch --columns gpu,thr", ["gpu,threads"]),
        ("gpuwatch explain tr", ["train.log"]),
        ("gpuwatch report ru", ["run.json"]),
    ],
)
def test_a_tab_on_a_terminal(command: list[str], setup: str, typed: str, wanted: list[str], home: Path) -> None:
    last = typed.rpartition(" ")[2]

    def offered(shown: str) -> bool:
        # What was typed is only completed: the rest of the word follows it.
        return all(word in shown or last + word.removeprefix(last) in shown.replace(" ", "") for word in wanted)

    shown = on_terminal(command, typed, home, setup, offered)
    assert offered(shown), shown


def test_completion_imports_no_framework_and_no_screen(home: Path) -> None:
    code = (
        "import sys; from gpuwatch.cli.main import cli\n"
        "try:\n    cli.main(prog_name='gpuwatch')\nexcept SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    for line in ("gpuwatch probe --config g", "gpuwatch --columns m", "gpuwatch sn", "gpuwatch report "):
        words = line.split(" ")
        asked = {"_GPUWATCH_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **asked}, check=True
        )
        assert done.stdout
        loaded = set(done.stderr.split())
        assert "click" in loaded
        assert not loaded & {"textual", "tensorflow", "torch", "numpy", "tomlkit"}, line
