"""The man pages say what the commands say."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.manpages import FOLDER, pages


@pytest.mark.filterwarnings("ignore:.*make_default_short_help:DeprecationWarning")
def test_man_pages_are_those_of_the_commands() -> None:
    assert {path.name: path.read_text() for path in FOLDER.glob("*.1")} == pages(), "python -m tests.manpages"


@pytest.mark.skipif(shutil.which("man") is None, reason="there is no man(1)")
def test_man_prints_each_page_without_a_warning() -> None:
    for path in FOLDER.glob("*.1"):
        printed = subprocess.run(
            ["man", "--warnings", str(path)], capture_output=True, text=True, check=True, env={"MANWIDTH": "90"}
        )
        assert not printed.stderr, printed.stderr
        assert "NAME" in printed.stdout
        assert "OPTIONS" in printed.stdout
