"""Options and settings of the dashboard, on the command line and on a real terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.cli import dashboard
from gpuwatch.cli.main import cli
from gpuwatch.sim.simulated_machine import SimMachine
from tests.cli.test_terminal import assert_restored
from tests.conftest import gpuwatch
from tests.every import every
from tests.terminal import Terminal


@every(
    [
        (["--columns", "gpu,pdi"], "--columns has the unknown column “pdi”; did you mean pid?"),
        (["--columns", ","], "--columns is empty"),
        (["--gpu-fields", "tempratur"], "did you mean temperature?"),
        (["--sort", "memroy"], "--sort is “memroy”, not a known column; did you mean memory?"),
        (["--filter", "mem>lots"], "--filter is invalid: mem is compared with a number such as 2GiB, not “lots”"),
        (["--filter", "usr:alice"], "did you mean user?"),
        (["--theme", "gpuwach"], "--theme is “gpuwach”, not a known theme; did you mean gpuwatch?"),
        (["--theme", "drak"], "--theme is “drak”, not a known theme; did you mean textual-dark?"),
        (["--tab", "procces"], "did you mean process?"),
        (["--interval", "0"], "0 is not in the range"),
        (["--colums", "pid"], "--columns"),
        (["--config-file", "/"], "directory"),
        (["smapshot"], "no such command: 'smapshot'; did you mean snapshot?"),
        (["snapshot", "--jsno"], "--json"),
        (["probe", "--config", "grwoth"], "unknown configuration 'grwoth'; did you mean growth?"),
        (["completion", "tcsh"], "'bash', 'zsh', 'fish'"),
    ]
)
def test_an_unknown_name_suggests_the_closest_one(arguments: list[str], says: str) -> None:
    result = gpuwatch(*arguments)
    assert result.code == 2, result.err
    assert result.out == ""
    assert result.err.count("\n") == 1, result.err
    assert says in result.err


def test_help_documents_the_file_and_its_variable() -> None:
    result = gpuwatch("--help")
    said = " ".join(result.out.split())
    for wanted in ("--config-file", "GPUWATCH_CONFIG_FILE", "settings.toml", "--ascii", "--columns", "completion"):
        assert wanted in said


def shown(terminal: Terminal, text: str, seconds: float = 20) -> bool:
    """Waits until something was on screen."""
    return terminal.drain(seconds, lambda output: text in plain(output)) is not None


def plain(output: bytes | bytearray) -> str:
    """What was written, without the sequences that place and colour it."""
    return re.sub(
        r"\x1b(\[[0-?]*[ -/]*[@-~]|[PX^_\]].*?(\x1b\\|\x07)|[=>()][0-9A-Za-z]?)", "", output.decode("utf-8", "replace")
    )


def start(machine: SimMachine, *arguments: str, columns: int = 120, rows: int = 40, **environment: str) -> Terminal:
    return Terminal(
        [sys.executable, "-m", "gpuwatch", *arguments],
        machine.environment({**os.environ, **environment}),
        columns,
        rows,
    )


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--ascii"], {}),
        ([], {"PYTHONIOENCODING": "ascii"}),
        ([], {"PYTHONIOENCODING": "iso8859-1"}),
    ],
    ids=["asked", "ascii-locale", "latin-1-locale"],
)
def test_not_one_byte_beyond_ascii_on_a_terminal(
    sim_machine: Callable[[str], SimMachine], arguments: list[str], environment: dict[str, str]
) -> None:
    terminal = start(sim_machine("2x24GiB"), *arguments, **environment)
    assert shown(terminal, "q quit", 20), bytes(terminal.output)[-2000:]
    for key in "123456?":
        terminal.keys(key)
        terminal.drain(0.6)
    terminal.keys("\x1b")
    terminal.drain(0.3)
    terminal.keys("q")
    code = terminal.close()
    assert code == 0, plain(terminal.output)[-2000:]
    assert_restored(terminal)
    assert terminal.output.isascii(), [chr(byte) for byte in terminal.output if byte > 127][:20]


def test_the_command_line_overrides_the_file(sim_machine: Callable[[str], SimMachine], tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('ascii = true\ninterval = 5\n[processes]\ncolumns = ["pid", "command"]\n')
    terminal = start(
        sim_machine("1x24GiB"), "--config-file", str(path), "--no-ascii", "--columns", "user,command", "--read-only"
    )
    assert shown(terminal, "USER", 20)
    terminal.drain(0.5)
    terminal.keys("q")
    assert terminal.close() == 0
    text = plain(terminal.output)
    assert "USER" in text
    assert "GPU-MEM" not in text
    assert "╭─ 0 ·" in text
    assert "read-only" in text
    assert "5s" in text
    assert path.read_text().startswith("ascii = true"), "looking changes nothing"


def test_broken_settings_file_is_reported_on_screen_and_after_exit(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    content = 'interval = 5\ntheme = "gpuwatch\n[processes]\ncolumns = ["pid", "command"]\n'
    path.write_text(content)
    terminal = start(sim_machine("1x24GiB"), GPUWATCH_CONFIG_FILE=str(path))
    wanted = "settings.toml: line 2: unterminated string"
    assert shown(terminal, wanted), bytes(terminal.output)[-2000:]
    terminal.keys("w")
    assert shown(terminal, "it is not overwritten", 5)
    terminal.keys("\x1b")
    terminal.drain(0.5)
    terminal.keys("q")
    assert terminal.close() == 0
    assert_restored(terminal)
    after = terminal.output[terminal.output.rfind(b"\x1b[?1049l") :]
    assert f"gpuwatch: {wanted}".encode() in after
    assert "GPU-MEM" not in plain(terminal.output), "the rest of the file is used"
    assert path.read_text() == content


def test_saved_from_the_terminal(sim_machine: Callable[[str], SimMachine], tmp_path: Path) -> None:
    path = tmp_path / "folder" / "settings.toml"
    terminal = start(sim_machine("1x24GiB"), "--config-file", str(path), "--theme", "gpuwatch-light", "--sort", "pid")
    assert shown(terminal, "q quit", 20)
    terminal.keys("w")
    assert shown(terminal, "saved, w again undoes it: ", 5)
    terminal.keys("q")
    assert terminal.close() == 0
    saved = [line.split(" # ")[0].rstrip() for line in path.read_text().splitlines()[1:]]
    # What is at its default stands there as a comment.
    assert [line for line in saved if line and not line.startswith(("#", "["))] == [
        'theme = "gpuwatch-light"',
        'sort = "pid"',
    ]
    assert any(line.startswith("# interval = ") for line in saved)


def test_a_tiny_terminal_shows_the_size_it_needs(sim_machine: Callable[[str], SimMachine]) -> None:
    terminal = start(sim_machine("1x24GiB"), columns=20, rows=5)
    assert shown(terminal, "needs 60×12")
    terminal.keys("q")
    assert terminal.close() == 0
    assert_restored(terminal)


def test_gpm_is_a_setting_that_the_command_line_wins_over(tmp_path: Path) -> None:
    from gpuwatch.cli.dashboard_options import loaded_preferences

    path = tmp_path / "settings.toml"
    path.write_text("gpm = true\n")
    assert [loaded_preferences(path, {"gpm": given}).preferences.gpm for given in (None, False, True)] == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("said", "arguments", "wanted"),
    [
        ("", [], (False, True)),
        ("gpm = true", [], (True, True)),
        ("gpm = true", ["--no-gpm"], (False, True)),
        ("", ["--gpm"], (True, True)),
        ("own-collector = true", [], (False, False)),
        ("", ["--own-collector"], (False, False)),
    ],
)
def test_the_collector_does_as_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, arguments: list[str], wanted: tuple[bool, bool]
) -> None:
    class Asked(Exception):
        pass

    def feed(interval: float, *, gpm: bool, first: object, share: bool) -> None:
        raise Asked(gpm, share)

    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(dashboard, "LiveFeed", feed)
    path = tmp_path / "settings.toml"
    path.write_text(f"{said}\n")
    with pytest.raises(Asked) as asked:
        cli.main(["--config-file", str(path), *arguments], standalone_mode=False)
    assert asked.value.args == wanted


def test_an_unknown_key_is_reported_on_screen_and_after_exit(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("noone = 1\nnobody = 2\n")
    terminal = start(sim_machine("1x24GiB"), GPUWATCH_CONFIG_FILE=str(path))
    assert shown(terminal, "unknown keys noone, nobody"), bytes(terminal.output)[-2000:]
    terminal.keys("q")
    assert terminal.close() == 0
    after = terminal.output[terminal.output.rfind(b"\x1b[?1049l") :]
    assert after.count(b"gpuwatch: ") == after.count(b"unknown keys noone, nobody") == 1
