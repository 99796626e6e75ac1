"""What ``--help`` prints: summaries that fit their line, and examples of commands and options that exist."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from gpuwatch.cli.command_classes import LazyGroup
from gpuwatch.cli.main import cli
from tests.every import every


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")


COMMANDS = {"gpuwatch": cli, **dict(commands(cli, "gpuwatch"))}


def page(path: str) -> list[str]:
    command = COMMANDS[path]
    return command.get_help(click.Context(command, info_name=path, terminal_width=80)).splitlines()


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if isinstance(command, click.Group)])
def test_no_summary_is_cut(path: str) -> None:
    assert not [line for line in page(path) if line.endswith("...") and not line.startswith("Usage")]


@every(COMMANDS)
def test_examples_name_commands_and_options_that_exist(path: str) -> None:
    for line in page(path):
        if not line.startswith("  gpuwatch ") and not line.startswith("    gpuwatch "):
            continue
        words = shlex.split(line.strip().partition("  ")[0].partition("|")[0].partition(">")[0])
        words = words[: words.index("--")] if "--" in words else words
        name = next(name for size in (4, 3, 2, 1) if (name := " ".join(words[:size])) in COMMANDS)
        known = {option for parameter in COMMANDS[name].params for option in parameter.opts}
        assert {word for word in words if word.startswith("-") and not word[1:2].isdigit()} <= known, line


@pytest.mark.parametrize("path", [path for path, command in COMMANDS.items() if isinstance(command, LazyGroup)])
def test_lists_have_the_commands_own_summaries(path: str) -> None:
    group = COMMANDS[path]
    assert isinstance(group, LazyGroup)
    for name, lazy in group.lazy.items():
        assert not lazy.section or lazy.summary == COMMANDS[f"{path} {name}"].get_short_help_str(100)


def test_the_help_begins_with_the_commands_and_imports_none_of_them() -> None:
    lines = page("gpuwatch")
    assert lines.index("Look:") < lines.index("Try:") < lines.index("Keep:") < lines.index("Share:")
    assert lines.index("Share:") < lines.index("Options:")
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpuwatch", "--help"], capture_output=True, text=True, check=True
    ).stderr
    assert "gpuwatch.cli.main" in loaded
    for module in (
        "gpuwatch.cli.probe",
        "gpuwatch.explain.diagnosis",
        "gpuwatch.share.reports.formats",
        "gpuwatch.experiment.probing",
    ):
        assert module not in loaded


@pytest.mark.parametrize("path", [f"gpuwatch {name}" for name in ("try", "probe", "pick", "replay", "run")])
def test_options_stand_under_headings_and_none_is_lost(path: str) -> None:
    lines = page(path)
    shown = {word.rstrip(",") for line in lines if line.startswith("  -") for word in line.split()}
    options = [param for param in COMMANDS[path].params if isinstance(param, click.Option) and not param.hidden]
    assert all(set(option.opts) <= shown for option in options)
    assert "Options:" in lines
    assert ("Simulated GPUs:" in lines) == (len(options) > 14 and path != "gpuwatch replay")
