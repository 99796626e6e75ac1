"""The page that compares gpuwatch with its peers names what the program has, and denies nothing of it."""

from __future__ import annotations

import re
from pathlib import Path

from gpuwatch.cli.main import cli
from gpuwatch.core.model.metrics import METRICS
from tests.every import every

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "gpuwatch" / "docs" / "peers.md").read_text(encoding="utf-8")
FEATURES = {
    "exporter": r"^\| Prometheus exporter \| (.*?) \|",
    "replay": r"^\| Recording and replay to a file \| (.*?) \|",
    "pick": r"^\| Picking idle GPUs for a script \| (.*?) \|",
    "--hosts": r"^\| Many hosts \| (.*?) \|",
}
"""Command or option, and its row in a table."""
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| |")]
_METRICS = {metric.id for metric in METRICS}


def _own_column(row: str) -> str:
    return row.split("|")[2].strip()


def test_every_row_has_a_verdict_for_each_program() -> None:
    assert len(ROWS) > 60
    for row in ROWS:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 7, row
        assert cells[0], row
        for verdict in cells[1:]:
            assert re.match(r"[Y~–]( |$)", verdict), f"{verdict!r} in {row}"


def test_no_feature_is_listed_twice() -> None:
    features = [row.split("|")[1].strip() for row in ROWS]
    assert len(features) == len(set(features))


def test_every_note_is_explained() -> None:
    used = {mark for row in ROWS for mark in re.findall(r"[¹²³]", row)}
    explained = set(re.findall(r"(?m)^([¹²³]) ", PAGE))
    assert used == explained


@every(sorted({name for row in ROWS for name in re.findall(r"`([^`]+)`", _own_column(row))}))
def test_what_is_named_exists(named: str) -> None:
    if named.startswith("gpuwatch "):
        command, *options = named.split()[1:]
        found = cli.get_command(None, command)  # type: ignore[arg-type]
        assert found is not None, named
        known = {option for parameter in found.params for option in parameter.opts}
        assert set(options) <= known, named
    elif named.startswith("--"):
        assert named in {option for parameter in cli.params for option in parameter.opts}, named
    elif ":" in named:
        assert named.split(":")[0] == "gpu"  # a filter
    else:
        assert named in _METRICS, named


def test_no_feature_that_exists_is_denied() -> None:
    has = set(cli.list_commands(None)) | {name for option in cli.params for name in option.opts}  # type: ignore[arg-type]
    rows = {name: re.search(row, PAGE, re.MULTILINE) for name, row in FEATURES.items()}
    assert {name: row is not None and row[1][0] == "Y" for name, row in rows.items()} == {n: n in has for n in rows}
