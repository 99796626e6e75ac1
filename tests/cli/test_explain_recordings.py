"""``gpuwatch explain`` recognizes recordings of other tools by their content, whatever their name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import gpuwatch
from tests.forked import run_gpuwatch
from tests.traces.hostile import PROFILE, SNAPSHOT, handmade

DIAGNOSTIC = b'{"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": []}]}}'
RECORDINGS = {"TensorFlow profile": (PROFILE, 0), "PyTorch snapshot": (SNAPSHOT, 3), "DCGM diagnostic": (DIAGNOSTIC, 0)}
BROKEN = {
    "profile": PROFILE[:-3],
    "snapshot": SNAPSHOT[:-3],
    "code": handmade()["reduce"],
    "list": handmade()["itself"],
}


@pytest.mark.parametrize("kind", RECORDINGS)
def test_a_recording_is_explained(kind: str, tmp_path: Path) -> None:
    content, code = RECORDINGS[kind]
    path = tmp_path / "recording.txt"
    path.write_bytes(content)
    done = gpuwatch("explain", str(path))
    assert (done.code, done.err) == (code, "")
    assert done.out.startswith("recording.txt\n")
    assert kind in done.out.splitlines()[1]
    document = json.loads(gpuwatch("explain", "--json", str(path)).out)
    assert (document["kind"], document["lines"]) == (kind, 0)
    for suffix in ("html", "md", "csv", "txt"):
        output = tmp_path / f"report.{suffix}"
        assert gpuwatch("explain", str(path), "-o", str(output)).code == code
        assert output.stat().st_size > 60


@pytest.mark.parametrize("name", BROKEN)
def test_a_recording_that_cannot_be_read_is_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / "recording"
    path.write_bytes(BROKEN[name])
    done = gpuwatch("explain", str(path))
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert done.err.startswith(f"gpuwatch: cannot read {path}, a ")


def test_a_recording_on_stdin_must_be_named() -> None:
    for content in (PROFILE, SNAPSHOT):
        done = run_gpuwatch("explain", "-", input=content)
        assert done.returncode == 2
        assert b"name the file" in done.stderr
