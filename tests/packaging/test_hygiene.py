"""No path of a machine and no unfinished place in what is shipped."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_modules_say_what_they_are() -> None:
    for path in (ROOT / "gpuwatch").rglob("*.py"):
        assert path.read_text().lstrip().startswith('"""'), path


def test_nothing_is_left_open() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for folder in ("gpuwatch", "probes"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not unfinished.search(path.read_text()), path
