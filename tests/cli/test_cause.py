"""``gpuwatch cause`` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.explain.diagnosis.reference.cause_pages import page
from tests.forked import run_gpuwatch
from tests.terminal import Terminal


def gpuwatch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_gpuwatch("cause", *arguments, text=True)


def test_in_a_pipe_a_page_is_markdown() -> None:
    done = gpuwatch("memory.fragmented")
    assert (done.returncode, done.stdout, done.stderr) == (0, page("memory.fragmented"), "")


def test_without_an_id_all_are_listed_in_one_line_each() -> None:
    done = gpuwatch()
    assert done.returncode == 0
    for cause, title in CAUSES.items():
        assert any(line.split()[:1] == [cause] and line.endswith(title) for line in done.stdout.splitlines())


def test_an_unknown_id_is_one_line_and_code_2() -> None:
    done = gpuwatch("zzzz")
    assert (done.returncode, done.stdout) == (2, "")
    assert "gpuwatch cause lists them all" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_json_of_a_page_and_of_the_list() -> None:
    one = json.loads(gpuwatch("pcie.degraded", "--json").stdout)
    assert (one["schema"], one["id"], one["markdown"]) == ("gpuwatch.cause/1", "pcie.degraded", page("pcie.degraded"))
    every = json.loads(gpuwatch("--json").stdout)
    assert [entry["id"] for entry in every["causes"]] == list(CAUSES)


def test_on_a_terminal_the_page_is_formatted() -> None:
    terminal = Terminal([sys.executable, "-m", "gpuwatch", "cause", "throttle.power"], os.environ, columns=80, rows=24)
    terminal.drain(20, until=lambda seen: b"field" in seen or b"nvmlDeviceGetPowerManagementLimit" in seen)
    code = terminal.close()
    text = terminal.output.decode("utf-8", "replace")
    assert "What it is" in text
    assert "## " not in text
    assert "\x1b[" in text
    assert code in (0, None)
