"""A dashboard of another host touches no process of this one, although pids are alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def looked_around(where: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.session.other_host", where],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_nothing_below_proc_of_another_process_is_opened() -> None:
    details, signal, touched = looked_around("other")
    assert details == "node07 is another host, known only by its snapshots"
    assert signal == f"no signals: {details}"
    assert touched == "touched:"


def test_of_this_machine_the_same_dashboard_reads_the_process() -> None:
    details, signal, touched = looked_around("here")
    assert details == "read"
    assert signal == "asked"
    assert "open" in touched, "the hook sees it"
