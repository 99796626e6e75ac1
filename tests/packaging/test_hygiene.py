"""No path of a machine and no unfinished place in what is shipped."""

from __future__ import annotations

import re
from pathlib import Path

from tests.packaging.documented_lines import PAGES

ROOT = Path(__file__).resolve().parents[2]


def test_modules_say_what_they_are() -> None:
    for path in (ROOT / "gpuwatch").rglob("*.py"):
        assert path.read_text().lstrip().startswith('"""'), path


def test_nothing_is_left_open() -> None:
    unfinished = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for folder in ("gpuwatch", "probes"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not unfinished.search(path.read_text()), path


def test_lines_of_the_pages_have_at_most_120_columns() -> None:
    """Rows of tables and what programs print may be longer."""
    long = []
    for page in PAGES:
        in_code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            in_code ^= line.startswith("```")
            if len(line) > 120 and not in_code and not line.startswith(("|", "!")):
                long.append(f"{page.name}:{number}")
    assert long == []
