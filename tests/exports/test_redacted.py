"""``gpuwatch export --redact``: nobody is named in any format, and what belongs together still does."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.json_codec import to_json
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.share.exports.export_formats import FORMATS
from gpuwatch.share.exports.recording_tables import TABLE_NAMES
from tests.conftest import gpuwatch
from tests.exports.recorded import SECRET
from tests.exports.test_perfetto import RUN


def private(file: Path) -> set[str]:
    """Users, host, UUIDs and scripts of the recording."""
    found = {"node07", SECRET}
    with Recording(file) as recording:
        for kept in recording.snapshots():
            for device in kept.snapshot.devices:
                found.add(device.uuid.removeprefix("GPU-"))
            found |= {row.user for row in kept.snapshot.processes if row.user not in (None, "root")}
            found |= {
                word for row in kept.snapshot.processes for word in (row.command or "").split() if word.endswith(".py")
            }
    assert len(found) > 5
    return found


@pytest.mark.parametrize(
    ("name", "every"), [*((one.name, "sample") for one in FORMATS), ("csv", "1min"), ("ndjson", "1min")]
)
def test_nobody_is_named(file: Path, tmp_path: Path, name: str, every: str) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    run = replace(RUN, host="node07", title="python /home/alice/secret_model.py", group="run")
    (tmp_path / "run.json").write_text(to_json(run))
    runs = ["--run", str(tmp_path / "run.json")] if name == "perfetto" else []
    # Parquet has the tables of CSV.
    tables = TABLE_NAMES if (name, every) == ("csv", "sample") else ("",)
    for table in tables:
        texts = []
        for redact in ([], ["--redact"]):
            out = tmp_path / f"{table}{len(redact)}.x"
            more = ["--table", table] if table else []
            done = gpuwatch(
                "export", str(file), "--format", name, "--every", every, "-o", str(out), *more, *redact, *runs
            )
            assert done.code == 0, done.err
            texts.append(out.read_bytes())
        plain, redacted = texts
        named = [word for word in (*private(file), "alice", "secret_model") if word.encode() in redacted]
        assert not named, (table, named)
        assert b"node07" in plain
        if name != "parquet":  # compressed
            assert b"host-1" in redacted
        if name not in ("parquet", "perfetto"):
            assert plain.count(b"\n") == redacted.count(b"\n")


def test_what_belongs_together_still_does(file: Path, tmp_path: Path) -> None:
    rows: dict[str, list[dict[str, str]]] = {}
    for table in ("devices", "processes", "findings", "lives"):
        out = tmp_path / f"{table}.csv"
        assert gpuwatch("export", str(file), "--table", table, "--redact", "-o", str(out)).code == 0
        with out.open() as opened:
            rows[table] = list(csv.DictReader(opened))
    uuids = {(row["gpu"], row["uuid"]) for row in rows["devices"]}
    assert len(uuids) == 2
    assert {(row["gpu"], row["uuid"]) for row in rows["processes"]} == uuids
    assert {row["uuid"] for row in rows["findings"]} <= {uuid for _, uuid in uuids}
    assert {row["user"] for row in rows["lives"]} == {row["user"] for row in rows["processes"]}
    with Recording(file) as recording:
        power = [kept.snapshot.devices[0].readings.get("power.draw_watts") for kept in recording.snapshots()]
    assert [row["power.draw_watts"] for row in rows["devices"] if row["gpu"] == "0"] == [
        "" if one is None else str(one) for one in power
    ]


def test_lines_are_still_documents(file: Path) -> None:
    done = gpuwatch("export", str(file), "--format", "ndjson", "--redact", "--until", "@1778501200")
    kinds = {json.loads(line)["schema"] for line in done.out.splitlines()}
    assert "gpuwatch.snapshot/1" in kinds
