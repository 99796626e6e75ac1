"""What README and the comparison with peers say that gpuwatch lacks: no feature that its command line has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpuwatch.cli.main import cli

ROOT = Path(__file__).parents[2]
FEATURES = {
    "exporter": r"^\| Prometheus exporter \| (.*?) \|",
    "replay": r"^\| Records to a file and replays it \| (.*?) \|",
    "pick": r"^\| Picking idle GPUs for a script \| (.*?) \|",
    "--hosts": r"^\| Many hosts \| (.*?) \|",
}
"""Command or option, and its row in a table."""


@pytest.mark.parametrize("page", ["README.md", "gpuwatch/docs/peers.md"])
def test_no_feature_that_exists_is_denied(page: str) -> None:
    text = (ROOT / page).read_text()
    has = set(cli.list_commands(None)) | {name for option in cli.params for name in option.opts}  # type: ignore[arg-type]
    rows = {name: re.search(row, text, re.MULTILINE) for name, row in FEATURES.items()}
    told = {name: row[1][0] == "Y" for name, row in rows.items() if row is not None}
    assert len(told) >= 3
    assert told == {name: name in has for name in told}
