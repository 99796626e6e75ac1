"""Text on narrow terminals: it fits, no word is divided, and what was left out is said."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gpuwatch.core.model.json_codec import Document
from gpuwatch.core.model.run import Fallback
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.share.reports.formats.fold_text import fold, paragraph, uuid_shortener
from gpuwatch.share.reports.formats.terminal_tables import table_lines
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.share.reports.report_elements import Table
from gpuwatch.share.reports.report_formats import render
from gpuwatch.share.reports.run_tables import fallback_table, with_shared_detail_as_note
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.reports import diagnostics
from tests.reports.documents import (
    UUID,
    bare_run,
    bare_snapshot,
    full_experiment,
    full_run,
    full_snapshot,
    full_usage,
    searched_experiment,
)
from tests.reports.test_comparison import timed

_OOM = """
2024-01-01 00:00:00.0: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1639] Created device \
/job:localhost/replica:0/task:0/device:GPU:0 with 256 MB memory:  -> device: 0, name: Fake RTX 0, \
pci bus id: 0000:01:00.0, compute capability: 8.6
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with \
shape[104857600] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc
"""
DOCUMENTS: dict[str, Document] = {
    "run": full_run(),
    "bare run": bare_run(),
    "snapshot": full_snapshot(),
    "bare snapshot": bare_snapshot(),
    "comparison": compare([full_run(), bare_run(), timed("growth")]),
    "diagnostic": diagnostics.died(),
    "experiment": full_experiment(),
    "usage": full_usage(),
    "usage by job": full_usage(by="job"),
    "searched experiment": searched_experiment(),
    "explanation": explain(_OOM.strip().splitlines()),
}
WIDTHS = [60, 80, 100, 140]
_LONG = 28


def _said_left_out(drawn: str) -> set[str]:
    told = " ".join(drawn.split())
    return {name for names in re.findall(r"Hidden for lack of width: (.*?);", told) for name in names.split(", ")}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_no_line_is_longer_than_the_terminal(document: Document, width: int) -> None:
    for line in render(document, "text", width=width).splitlines():
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_no_word_of_a_table_is_divided_and_what_is_left_out_is_named(document: Document, width: int) -> None:
    content = content_of(document)
    shorten = uuid_shortener(cell for table in content.tables for row in table.rows for cell in row)
    for table in content.tables:
        if not table.rows or table.lines or table.one_line:
            continue  # these cut, and mark it
        drawn = "\n".join(table_lines(table, width, shorten))
        missing = _said_left_out(drawn)
        shown = set(drawn.split())
        for row in table.rows:
            for column, cell in enumerate(row):
                if table.heads[column] in missing:
                    continue
                short = shorten(table.shorter.get(table.heads[column], str)(cell))
                for whole, word in zip(cell.split(), short.split(), strict=False):
                    assert len(word) > _LONG or {whole, word} & shown, (table.title, table.heads[column], word)


def test_uuids_are_long_enough_to_be_distinct() -> None:
    one, other = "GPU-71ae67ee-5fd0-1111-2222-333344445555", "GPU-71ae67ee-5fd1-1111-2222-333344445555"
    shorten = uuid_shortener([one, f"also {other}", one])
    assert (shorten(one), shorten(other)) == ("GPU-71ae67ee-5fd0…", "GPU-71ae67ee-5fd1…")
    assert uuid_shortener([one])(f"MIG of {one}.") == "MIG of GPU-71ae67ee…."
    assert uuid_shortener([one, one.upper().replace("GPU", "GPU")])("GPU-…-1") == "GPU-…-1"


def test_command_lines_begin_with_the_script_where_the_room_is_short() -> None:
    snapshot = full_snapshot()
    process = msgspec.structs.replace(
        snapshot.processes[0],
        command="/opt/environments/of/somebody/bin/python3.11 train_the_model.py",
        framework="tensorflow 2.21.0",
        user="somebody",
    )
    snapshot = msgspec.structs.replace(snapshot, processes=(process,))
    for width in (60, 80):
        drawn = render(snapshot, "text", width=width)
        assert "train_the_model.py" in drawn
        assert "/opt/environments" not in drawn
        assert {"Type", "Time"} <= _said_left_out(drawn)
    assert "tf 2.21" in render(snapshot, "text", width=80)
    assert "/opt/environments/of/somebody/bin/python3.11" in render(snapshot, "text", width=200)


def test_at_80_columns_a_gpu_keeps_one_line_with_its_reason_below() -> None:
    drawn = render(full_snapshot(), "text", width=80)
    (line,) = [line for line in drawn.splitlines() if "97 %" in line]
    assert "12.0 / 24.0 GiB" in line
    assert "    fallen off the bus" in drawn.splitlines()
    assert "    Why" in drawn.splitlines()  # the heading goes with its column


def test_a_table_too_wide_for_columns_becomes_lines_of_their_own() -> None:
    table = Table("Map", ("GPU", "Name", "Id"), (("0", "A_very_long_single_name", UUID),), ("GPU",))
    lines = list(table_lines(table, 40, uuid_shortener([UUID])))
    assert lines == ["  GPU 0", "    Name: A_very_long_single_name", f"    Id: {UUID[:12]}…"]


@given(st.text(alphabet="ab/-_.,= 漢", max_size=200), st.integers(2, 60))
def test_folding_loses_no_character(text: str, width: int) -> None:
    lines = fold(text, width)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(cell_len(line) <= width for line in lines)


def test_paths_are_divided_at_slashes_and_code_keeps_its_indent() -> None:
    assert fold("in /root/.cache/gpuwatch/sim/libcuda.so now", 22) == [
        "in /root/.cache/",
        "gpuwatch/sim/",
        "libcuda.so now",
    ]
    assert paragraph("  x = 1", 60, "    ", "      ") == ["      x = 1"]
    assert paragraph("one two three four five six", 24, most=1) == ["one two three four …"]


def test_one_sentence_of_all_rows_is_said_once() -> None:
    hidden = [
        Fallback(op=op, dtype="float32", requested="auto", actual="CPU:0", reason="visibility.hidden", detail="Hidden")
        for op in ("MatMul", "AddV2")
    ]
    table = with_shared_detail_as_note(fallback_table(hidden))
    assert table.heads == ("Op", "Type", "Requested", "Ran on", "Reason", "Count")
    assert [row[-1] for row in table.rows] == ["1", "1"]
    assert table.note == "Hidden."
    assert "Count" in table.right
    other = Fallback(op="Sub", requested="GPU:0", actual="CPU:0", reason="placement.no-kernel", detail="No kernel")
    mixed = fallback_table([*hidden, other])
    assert with_shared_detail_as_note(mixed) == mixed
