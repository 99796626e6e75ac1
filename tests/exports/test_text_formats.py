"""CSV, NDJSON, OpenMetrics and Parquet: the numbers of the recording; missing is empty, absent or null, never 0."""

from __future__ import annotations

import csv
import datetime
import io
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuwatch.core.model.json_codec import from_json, schema_of
from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.share.exports import csv_writer, ndjson_writer, openmetrics_writer, recording_tables
from gpuwatch.share.exports.exported_period import NUMERIC_METRICS, ExportedPeriod, select_period
from gpuwatch.share.metric_families import family_of
from tests.exports.recorded import SECRET, START
from tests.recording.recordings import later, recorded
from tests.ui.test_ui_mig import divided


@pytest.fixture
def period(file: Path) -> Any:
    with Recording(file) as recording:
        yield select_period(recording, None, None)


def rows_of(period: ExportedPeriod, name: str) -> list[dict[str, str]]:
    text = b"".join(csv_writer.write(period, recording_tables.table(name, period.step))).decode()
    assert SECRET not in text
    return list(csv.DictReader(io.StringIO(text)))


def shots(period: ExportedPeriod) -> list[Snapshot]:
    return [kept.snapshot for kept in period.samples()]


def seconds(text: str) -> float:
    assert text.endswith("Z")
    return datetime.datetime.fromisoformat(text).timestamp()


# CSV


def test_csv_has_the_readings_of_every_device(period: ExportedPeriod) -> None:
    rows = rows_of(period, "devices")
    expected = [(shot, device) for shot in shots(period) for device in shot.devices]
    assert len(rows) == len(expected) == 1000
    missing = 0
    for row, (shot, device) in zip(rows, expected, strict=True):
        assert seconds(row["time"]) == shot.taken_at.timestamp()
        assert (row["host"], row["gpu"], row["uuid"], row["state"]) == (
            "node07", str(device.index), device.uuid, device.state,
        )  # fmt: skip
        for spec in METRICS:
            value = device.readings.get(spec.id)
            missing += value is None
            assert row[spec.id] == ("" if value is None else str(value))
    assert missing
    assert {row["power.draw_watts"] for row in rows if row["state"] == "lost"} == {""}


def test_csv_of_processes(period: ExportedPeriod) -> None:
    rows = rows_of(period, "processes")
    assert len(rows) == sum(len(shot.processes) for shot in shots(period))
    first = shots(period)[0].processes[0]
    assert rows[0]["pid"] == str(first.pid)
    assert rows[0]["gpu_memory_bytes"] == str(first.readings["gpu_memory_bytes"])
    assert rows[0]["command"].startswith("python train.py --token ")


def test_csv_of_lives_events_and_findings(period: ExportedPeriod) -> None:
    lives = rows_of(period, "lives")
    assert len(lives) == 6
    assert sorted(float(row["held_seconds"]) for row in lives)[0] == pytest.approx(199, abs=0.1)
    events = rows_of(period, "events")
    assert [row["kind"] for row in events] == ["recording.began", "throttle.began", "recording.ended"]
    assert [row["gpu"] for row in events] == ["", "0", ""]
    (finding,) = rows_of(period, "findings")
    assert finding["cause"] == "throttle.thermal"
    assert finding["evidence"] == '91 °C, "hot"'


def test_csv_of_the_host(period: ExportedPeriod) -> None:
    rows = rows_of(period, "host")
    hosts = [shot.host for shot in shots(period)]
    assert [row["cpu_percent"] for row in rows] == [str(host.cpu_percent) for host in hosts]
    assert [row["load_1min"] for row in rows] == [str(host.load[0]) for host in hosts if host.load]
    assert rows[0]["swap_used_bytes"] == ("" if hosts[0].swap_used_bytes is None else str(hosts[0].swap_used_bytes))


def test_csv_of_means(file: Path) -> None:
    with Recording(file) as recording:
        rows = rows_of(select_period(recording, None, None, 60), "devices")
        points = recording.summaries(60, 0, 1e11, frozenset(["power.draw_watts"]))
    found = {
        (seconds(row["time"]), row["uuid"]): [
            row[f"power.draw_watts_{part}"] for part in ("min", "mean", "max", "samples")
        ]
        for row in rows
    }
    expected = {
        (begin, uuid): [str(value) for value in summary]
        for begin, row in points.items()
        for (uuid, _), summary in row.items()
    }
    assert expected == {key: values for key, values in found.items() if values[3]}


# NDJSON


@pytest.mark.parametrize("step", [0, 60])
def test_every_line_is_a_document_of_its_schema(file: Path, step: int) -> None:
    with Recording(file) as recording:
        lines = b"".join(ndjson_writer.write(select_period(recording, None, None, step))).splitlines()
    checks = {
        name: jsonschema.Draft202012Validator(schema_of(name)) for name in ("snapshot", "event", "finding", "means")
    }
    kinds = Counter[str]()
    for place, line in enumerate(lines):
        document = json.loads(line)
        name = document["schema"].removeprefix("gpuwatch.").removesuffix("/1")
        kinds[name] += 1
        if place % 50 == 0 or name != "snapshot":
            checks[name].validate(document)
    devices = {"snapshot": 500} if not step else {"means": kinds["means"]}
    assert kinds == {"event": 3, "finding": 1, **devices}
    assert step == 0 or kinds["means"] > 10
    assert SECRET.encode() not in b"".join(lines)


def test_ndjson_is_in_the_order_of_time_and_reads_back(period: ExportedPeriod) -> None:
    lines = b"".join(ndjson_writer.write(period)).splitlines()
    documents = [json.loads(line) for line in lines]
    times = [one.get("taken_at") or one.get("at") or one["since"] for one in documents]
    moments = [datetime.datetime.fromisoformat(one) for one in times]
    assert moments == sorted(moments)
    read = [from_json(line) for line, one in zip(lines, documents, strict=True) if "taken_at" in one]
    for before, after in zip(shots(period), read, strict=True):
        assert isinstance(after, Snapshot)
        assert after.devices == before.devices
        assert after.processes == before.processes


# OpenMetrics


def openmetrics(period: ExportedPeriod) -> str:
    return b"".join(openmetrics_writer.write(period)).decode()


def test_names_have_units() -> None:
    names = {spec.id: family_of(spec) for spec in NUMERIC_METRICS}
    assert len({one.name for one in names.values()}) == len(names)
    assert names["memory.used_bytes"].name == "gpuwatch_gpu_memory_used_bytes"
    assert names["utilization.gpu_percent"][:3] == ("gpuwatch_gpu_utilization_ratio", "gauge", "ratio")
    assert names["clocks.sm_mhz"].name == "gpuwatch_gpu_clocks_sm_hertz"
    assert names["energy_joules"].sample_name == "gpuwatch_gpu_energy_joules_total"
    assert not [one.name for one in names.values() if "percent" in one.name or "mhz" in one.name]


@pytest.fixture(scope="module")
def families(file: Path) -> dict[str, Any]:
    """The families of the recording, as Prometheus's own parser reads them."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    with Recording(file) as recording:
        text = openmetrics(select_period(recording, None, None))
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


def test_prometheus_reads_it(period: ExportedPeriod, families: dict[str, Any]) -> None:
    used = families["gpuwatch_gpu_memory_used_bytes"]
    assert (used.type, used.unit) == ("gauge", "bytes")
    expected = {
        (device.uuid, round(shot.taken_at.timestamp(), 3)): device.readings["memory.used_bytes"]
        for shot in shots(period)
        for device in shot.devices
        if "memory.used_bytes" in device.readings
    }
    assert {(one.labels["uuid"], float(one.timestamp)): one.value for one in used.samples} == expected
    assert {frozenset(one.labels) for one in used.samples} == {frozenset(("uuid", "gpu", "host"))}
    load = families["gpuwatch_gpu_utilization_ratio"]
    first = shots(period)[0].devices[0]
    assert load.samples[0].value == pytest.approx(first.readings["utilization.gpu_percent"] / 100)
    assert families["gpuwatch_gpu_energy_joules"].type == "counter"
    info = families["gpuwatch_gpu"].samples
    assert {(one.labels["gpu"], one.labels["name"]) for one in info} == {("0", first.name), ("1", first.name)}
    assert len(info) > 2 * 6, "or it could be joined with the last minutes only"
    states = [(float(one.timestamp) - START, one.value) for one in families["gpuwatch_finding"].samples]
    assert states[0] == (50, 1)
    assert states[-1] == (pytest.approx(149.5, abs=0.1), 0)
    assert max(after[0] - before[0] for before, after in pairwise(states)) <= 60


def test_prometheus_reads_processes(period: ExportedPeriod, families: dict[str, Any]) -> None:
    held = families["gpuwatch_process_gpu_memory_bytes"].samples
    expected = {
        (row.device_uuid, str(row.pid), row.user, round(shot.taken_at.timestamp(), 3)): row.readings["gpu_memory_bytes"]
        for shot in shots(period)
        for row in shot.processes
    }
    assert {
        (one.labels["uuid"], one.labels["pid"], one.labels["user"], float(one.timestamp)): one.value for one in held
    } == expected
    share = families["gpuwatch_process_sm_ratio"].samples
    assert share
    assert all(0 <= one.value <= 1 for one in share)
    info = families["gpuwatch_process"].samples
    assert {one.labels["pid"] for one in info} == {str(row.pid) for shot in shots(period) for row in shot.processes}
    assert "command" not in info[0].labels
    times = [float(one.timestamp) for one in info if one.labels["pid"] == info[0].labels["pid"]]
    assert times == sorted(times)
    assert 60 <= min(after - before for before, after in pairwise(times)) < 62


def test_prometheus_reads_mig_instances(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    now = divided()
    file = recorded(tmp_path / "mig.gpuwatch", [later(now, float(second)) for second in range(3)])
    with Recording(file) as recording:
        text = openmetrics(select_period(recording, None, None))
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    used = families["gpuwatch_mig_memory_used_bytes"].samples
    expected = {
        (device.uuid, one.id): one.readings["memory.used_bytes"]
        for device in now.devices
        for one in device.mig_instances
        if "memory.used_bytes" in one.readings
    }
    assert len(used) == 3 * len(expected)
    assert {(one.labels["uuid"], one.labels["mig_instance"]): one.value for one in used} == expected
    assert "mig" not in families["gpuwatch_gpu"].samples[0].labels, "it may change; instances tell"
    info = families["gpuwatch_mig"].samples
    assert {one.labels["mig_uuid"] for one in info} == {
        one.uuid for device in now.devices for one in device.mig_instances
    }
    assert {one.labels.get("mig_instance") for one in families["gpuwatch_process_gpu_memory_bytes"].samples} == {
        row.mig_instance for row in now.processes
    }


def test_openmetrics_has_each_family_once(period: ExportedPeriod) -> None:
    text = openmetrics(period)
    assert text.endswith("\n# EOF\n")
    heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    assert "nan" not in text.lower().replace("maximilian.mustermann", "")


# Parquet


def tables(file: Path, folder: Path) -> Path:
    parquet = pytest.importorskip("gpuwatch.share.exports.parquet_writer", exc_type=ImportError)
    for name in recording_tables.TABLE_NAMES:
        with Recording(file) as recording:
            pieces = parquet.write(select_period(recording, None, None), recording_tables.table(name, 0))
            (folder / f"{name}.parquet").write_bytes(b"".join(pieces))
    return folder


def test_parquet_has_types_units_and_nulls(file: Path, tmp_path: Path, period: ExportedPeriod) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    read = pq.read_table(tables(file, tmp_path) / "devices.parquet")
    assert str(read.schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert str(read.schema.field("power.draw_watts").type) == "double"
    assert str(read.schema.field("performance.state").type) == "string"
    assert read.schema.field("power.draw_watts").metadata == {b"unit": b"W"}
    expected = [device.readings.get("power.draw_watts") for shot in shots(period) for device in shot.devices]
    assert read.column("power.draw_watts").to_pylist() == expected
    assert None in expected
    assert [at.timestamp() for at in read.column("time").to_pylist()] == [
        kept.at for kept in period.samples() for _ in kept.snapshot.devices
    ]


def test_the_queries_of_the_page(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tables(file, tmp_path))
    page = Path(csv_writer.__file__).parents[2] / "docs" / "export.md"
    blocks = [part.split("```")[0] for part in page.read_text().split("```sql\n")[1:]]
    queries = [query for block in blocks for query in block.split(";") if query.strip()]
    assert len(queries) >= 4
    for query in queries:
        assert duckdb.sql(query).fetchall(), query
