from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.codec import DOCUMENTS, PRINTED, NotADocument, from_json, schema_of, to_json
from gpuwatch.model.findings import CAUSES
from gpuwatch.model.run import Comparison, Run


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
    both = Comparison(runs=(run, run), columns=("verdict",), best={})
    assert from_json(to_json(both).encode()) == both


@given(st.binary())
def test_other_bytes_are_refused_in_one_line(raw: bytes) -> None:
    with pytest.raises(NotADocument) as refused:
        from_json(raw)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_document_that_windows_wrote(encoding: str) -> None:
    both = Comparison(runs=(), columns=("verdict",), best={})
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


@pytest.mark.parametrize("name", DOCUMENTS | PRINTED)
def test_every_document_has_a_schema(name: str) -> None:
    assert json.dumps(schema_of(name))


def test_cause_ids_are_dotted_except_the_two_that_name_no_cause() -> None:
    assert [cause for cause in CAUSES if "." not in cause] == ["healthy", "unknown"]
