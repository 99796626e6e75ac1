"""``gpuwatch diff`` of two snapshots of PyTorch's memory: what grew."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

from tests.conftest import gpuwatch
from tests.traces.hostile import PROFILE
from tests.traces.test_torch_snapshot import MAIN, entry, native

MIB = 1 << 20


def snapshot(path: Path, kept: int) -> Path:
    """Weights, and a list of losses that grows with each step."""
    trace = [entry("alloc", 1, 0, 8 * MIB, *native("empty"), ("/x/torch/nn/modules/linear.py", 1, "__init__"), MAIN)]
    trace += [entry("alloc", 2, MIB << (n + 6), 4 * MIB, ("/home/u/train.py", 9, "step")) for n in range(kept)]
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}))
    return path


def test_what_grew_is_told_by_line(tmp_path: Path) -> None:
    first, second = snapshot(tmp_path / "a.pickle", 1), snapshot(tmp_path / "b.pickle", 5)
    done = gpuwatch("diff", str(first), str(second))
    assert (done.code, done.err) == (3, "")
    assert "What grew" in done.out
    assert "train.py:9 in step grew the" in done.out
    assert "+16.0 MiB  4.0 MiB ×1  20.0 MiB ×5  created  train.py:9 in step" in done.out
    assert "weights" not in done.out
    assert "in use when taken" in done.out
    assert "only recordings" not in done.out
    (change,) = json.loads(gpuwatch("diff", "--json", str(first), str(second)).out)["holders"]
    assert (change["held_bytes"], change["counts"]) == ([4 * MIB, 20 * MIB], [1, 5])
    assert gpuwatch("diff", str(second), str(first)).out.count("-16.0 MiB") == 1
    assert gpuwatch("diff", str(first), str(first)).code == 0


def test_what_cannot_be_compared_is_one_line(tmp_path: Path) -> None:
    first = snapshot(tmp_path / "a.pickle", 1)
    other = tmp_path / "profile.pb"
    other.write_bytes(PROFILE)
    document = tmp_path / "run.json"
    document.write_text("{}")
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(first.read_bytes()[:-9])
    for path in (document, broken, tmp_path / "missing.pickle"):
        done = gpuwatch("diff", str(first), str(path))
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert gpuwatch("diff", str(first), str(other)).code == 3
