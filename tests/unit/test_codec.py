from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.json_codec import NotADocument, from_json, to_json
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Process
from tests.ui import machines


def test_a_run_survives_the_way_through_json() -> None:
    run = Run(
        config="growth",
        group="memory",
        workload="matmul",
        simulated=False,
        started_at=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        verdict="ok",
    )
    text = to_json(run)
    assert json.loads(text)["schema"] == "gpuwatch.run/1"
    assert json.loads(text)["started_at"] == "2026-01-02T03:04:05Z"
    assert from_json(text.encode()) == run
    both = Comparison(runs=(run, run), columns=("verdict",))
    assert from_json(to_json(both).encode()) == both


moments = st.datetimes(datetime.datetime(1971, 1, 1), datetime.datetime(2100, 1, 1)).map(
    lambda moment: moment.replace(tzinfo=datetime.UTC)
)
rows = st.lists(
    st.builds(
        machines.process,
        st.integers(0, 5),
        create_time=st.none() | st.floats(0, 5e9),
        missing=st.sampled_from([{}, {"run_seconds": machines.DENIED}]),
    ),
    max_size=4,
).map(tuple)


@settings(deadline=None)
@given(moments, rows, rows)
def test_run_times_are_in_documents_alone(
    taken: datetime.datetime, processes: tuple[Process, ...], bystanders: tuple[Process, ...]
) -> None:
    snapshot = machines.snapshot((), processes, taken_at=taken, bystanders=bystanders)
    diagnostic = Diagnostic(taken_at=taken, took_seconds=0.0, gpuwatch_version="1", simulated=False, snapshot=snapshot)
    for document in (snapshot, diagnostic):
        text = to_json(document)
        assert from_json(text.encode()) == document
        assert to_json(from_json(text.encode())) == text
        written = json.loads(text)
        written = written.get("snapshot", written)
        for entry, row in zip((*written["processes"], *written["bystanders"]), (*processes, *bystanders), strict=True):
            ran = None if row.create_time is None else max(taken.timestamp() - row.create_time, 0.0)
            assert entry["readings"].get("run_seconds") == ran
            assert "run_seconds" not in row.readings


def test_a_run_time_whose_start_is_not_in_the_document_is_kept() -> None:
    text = to_json(machines.snapshot((), (machines.denied_process(),)))
    old = json.loads(text)
    old["processes"][0]["readings"]["run_seconds"] = 12.5
    assert json.loads(to_json(from_json(json.dumps(old).encode()))) == old


@given(st.binary())
def test_other_bytes_are_refused_in_one_line(raw: bytes) -> None:
    with pytest.raises(NotADocument) as refused:
        from_json(raw)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_document_that_windows_wrote(encoding: str) -> None:
    both = Comparison(runs=(), columns=("verdict",))
    assert from_json(to_json(both).encode(encoding)) == both


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b" \n", "empty"),
        (b'{"schema": "gpuwatch.run/99"}', "newer gpuwatch"),
        (b'{"schema": "gpuwatch.cake/99"}', "Invalid value"),
    ],
)
def test_why_it_is_no_document(raw: bytes, says: str) -> None:
    with pytest.raises(NotADocument, match=says):
        from_json(raw)


def test_cause_ids_are_dotted_except_the_two_that_name_no_cause() -> None:
    assert [cause for cause in CAUSES if "." not in cause] == ["healthy", "unknown"]
