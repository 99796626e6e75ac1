"""Documents that somebody else wrote: whatever is in them, they are shown or refused in one line."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from gpuwatch.core import input_size_limits
from gpuwatch.core.model.json_codec import MAX_TEXT_CHARS, MAX_VALUES, NotADocument, from_json, to_json
from gpuwatch.core.model.machine_diff import Diff, FactChange, Side
from gpuwatch.core.model.run import Setting
from gpuwatch.share.reports.report_formats import FORMATS, render
from tests.every import every
from tests.reports.documents import bare_run
from tests.reports.fuzz import EVIL, HIDDEN, examined, made_up

SEEDS = range(14)


def test_made_up_documents_of_every_kind() -> None:
    """Some of those of :mod:`tests.reports.fuzz`; by hand there are thousands."""
    assert sum(examined(made_up(seed)) for seed in SEEDS) > len(SEEDS) / 2


def evil_diff() -> Diff:
    here, there = (Side(name=n, kind="doctor", host=n, begin=None, end=None, samples=1) for n in ("here", EVIL))
    facts = (
        FactChange(part=EVIL, name=EVIL, values=("-5", EVIL)),
        FactChange(part="GPUs", name="-1", values=("-3.5e4", "−")),
    )
    return Diff(sides=(here, there), simulated=False, differs=True, facts=facts)


@pytest.mark.parametrize("name", [entry.name for entry in FORMATS])
def test_headings_from_outside_are_harmless(name: str) -> None:
    drawn = render(evil_diff(), name)
    assert not HIDDEN.search(drawn)
    assert "cmd|" in drawn.replace("\\|", "|"), "it is shown all the same"


def test_no_cell_of_csv_is_a_formula_and_negative_numbers_stay_numbers() -> None:
    heads, first, second = csv.reader(io.StringIO(render(evil_diff(), "csv")))
    assert heads[4].startswith("'=cmd")
    assert (first[3], first[4][:5]) == ("-5", "'=cmd")
    assert second == ["fact", "GPUs", "-1", "-3.5e4", "−"]


def changed(document: msgspec.Struct, **changes: object) -> bytes:
    return msgspec.json.encode(msgspec.to_builtins(document) | changes)


def nested(depth: int) -> bytes:
    raw = to_json(msgspec.structs.replace(bare_run(), results={"deep": "HERE"}))
    return raw.replace('"HERE"', "[" * depth + "]" * depth).encode()


@every(
    [
        (nested(input_size_limits.DOCUMENT.depth), f"nested more than {input_size_limits.DOCUMENT.depth} deep"),
        (nested(900), f"nested more than {input_size_limits.DOCUMENT.depth} deep"),
        (nested(100_000), f"nested more than {input_size_limits.DOCUMENT.depth} deep"),
        # Python 3.14 has room for so many.
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested more than|missing required field `schema`"),
        (b'{"x":' + b"[" * 100_000, "nested more than|truncated"),
        (changed(bare_run(), log_tail=["x" * (MAX_TEXT_CHARS + 1)]), "a string of more than 1,048,576 characters"),
        (changed(bare_run(), results={"a": [0] * MAX_VALUES}), "more than 2,000,000 values"),
        (b'{"schema": "gpuwatch.run/' + b"9" * 5000 + b'"}', "newer gpuwatch"),
        (b'{"schema": "gpuwatch.run/1\\u001b[31m"}', r"gpuwatch.run/1\\x1b\[31m"),
        (changed(bare_run(), started_at="0001-01-01T00:00:00+14:00"), "is not a time with a zone"),
        (changed(bare_run(), started_at="2026-01-01T00:00:00"), "is not a time with a zone"),
        (changed(bare_run(), phases={"total_seconds": 1e308}), "total_seconds is 1e.308: not a valid time span"),
        (changed(bare_run(), pid=10**400), "more than 64 bits"),
        (changed(bare_run(), results={"a": 10**400}), "more than 64 bits"),
        (b'{"schema":"gpuwatch.comparison/1","runs":[],"columns":[],"comparable":[0]}', "refers to run 0"),
        (
            b'{"schema":"gpuwatch.comparison/1","runs":[],"columns":[],"worst_run":{"a":-1}}',
            "refers to run -1",
        ),
    ]
)
def test_a_value_beyond_a_limit_is_rejected_by_name(raw: bytes, says: str) -> None:
    with pytest.raises(NotADocument, match=says) as refused:
        from_json(raw)
    assert str(refused.value).isprintable()


def test_depth_that_settings_have_is_read() -> None:
    run = msgspec.structs.replace(bare_run(), settings={"a": Setting(asked=[[[[[[["x"]]]]]]])})
    assert from_json(to_json(run).encode()) == run


def test_words_of_a_schema_are_never_taken_for_a_name() -> None:
    """A host that is called ok: its verdicts stay, or the document could not be read any more; so do sentences, in
    which a common word is seldom a name.
    """
    run = msgspec.structs.replace(bare_run(), host="ok", verdict="ok", verdict_reason="ok is a host")
    told = render(run, "json", redact=True)
    again = from_json(told.encode())
    assert (again.verdict, again.host, again.verdict_reason) == ("ok", "host-1", "ok is a host")  # type: ignore[union-attr]
