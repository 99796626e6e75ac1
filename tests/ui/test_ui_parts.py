"""The pure parts: bars, trends, layout, filter, rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.reading import Missing
from gpuwatch.ui.drawing.braille_graph import braille, column_means, longest_time_span
from gpuwatch.ui.drawing.glyphs import to_ascii
from gpuwatch.ui.drawing.line_builder import bar
from gpuwatch.ui.drawing.overview_layout import MIN_HEIGHT, MIN_WIDTH, plan_layout
from gpuwatch.ui.drawing.text_width import align_left, align_right, cut_to_width, width_of
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, device_map_text, place_columns, short_framework
from gpuwatch.ui.tables.process_filter import parse_process_filter
from gpuwatch.ui.tables.process_table_rows import UnexplainedMemory, sorted_rows, table_rows
from tests.ui import machines


@pytest.mark.parametrize("width", [1, 7, 20])
@pytest.mark.parametrize("share", [None, -1.0, 0.0, 0.001, 0.3, 0.994, 1.0, 7.0])
def test_bar_has_its_width(width: int, share: float | None) -> None:
    filled, empty = bar(share, width)
    assert len(filled + empty) == width


def test_bar_shows_a_little_and_never_calls_almost_full_full() -> None:
    assert bar(0.0, 10)[0] == ""
    assert bar(0.0001, 10)[0] == "▎"
    assert to_ascii("▕" + "".join(bar(0.0001, 4)) + "▏") == "|-   |", "it is no second frame"
    assert bar(1.0, 10)[0] == "█" * 10
    assert bar(0.99, 10)[0] != "█" * 10


def test_trend_of_fifty_is_half_and_not_noise() -> None:
    """An axis that follows its window would draw 50 as the floor, or 49/51 as full swings."""
    assert set(braille((50.0,) * 20, low=0, high=100, rows=2)[0]) == {" "}
    flat = braille((49.0, 51.0) * 10, low=0, high=100)
    assert len(set(flat[0])) == 1


def test_trend_tells_zero_from_nothing() -> None:
    assert braille((0.0, 0.0, None, None), low=0, high=100) == ("⣀ ",)


def test_trend_is_on_a_grid_of_time_so_that_it_moves_and_does_not_shimmer() -> None:
    times = [float(t) for t in range(200)]
    values: list[float | None] = [float(t % 17) for t in range(200)]
    now = column_means(times, values, columns=40, span=120, until=180.0, interval=1.0)
    later = column_means(times, values, columns=40, span=120, until=183.0, interval=1.0)
    assert now[1:-1] == later[:-2]


def test_trend_keeps_gaps_and_bridges_jitter() -> None:
    times = [0.05, 1.02, 1.98, 3.01, 4.0, 9.0]
    values: list[float | None] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    drawn = column_means(times, values, columns=10, span=10, until=9.5, interval=1.0)
    assert drawn[0] == 1.0
    assert drawn[2] is not None
    assert drawn[6:9] == [None, None, None]
    assert drawn[9] == 6.0
    holes = column_means([0.0, 1.0, 2.0], [1.0, None, 3.0], columns=3, span=3, until=2.5, interval=1.0)
    assert holes == [1.0, None, 3.0]


@pytest.mark.parametrize(("before", "after"), [(5.0, 0.5), (0.5, 5.0), (1.0, 10.0), (10.0, 0.25), (2.0, 1.0)])
def test_another_interval_makes_no_holes(before: float, after: float) -> None:
    times = [number * before for number in range(round(120 / before))]
    times += [times[-1] + after * number for number in range(1, round(40 / after))]
    values = [float(50 + number % 7) for number in range(len(times))]
    drawn = column_means(times, values, columns=100, span=100, until=times[-1], interval=after)
    assert None not in drawn


@pytest.mark.parametrize("interval", [0.5, 1.0, 5.0])
def test_a_real_gap_stays_one_whatever_the_interval_is_now(interval: float) -> None:
    times = [float(number) for number in range(60)] + [72.0] + [84.0 + number for number in range(30)]
    values = [50.0 + number % 3 for number in range(len(times))]
    drawn = column_means(times, values, columns=100, span=100, until=113.0, interval=interval)
    if interval < 5:
        assert drawn[63 - 14 : 72 - 14] == [None] * 9
        assert drawn[75 - 14 : 84 - 14] == [None] * 9
    assert None in drawn[59 - 14 : 72 - 14]
    assert None not in drawn[: 59 - 14]
    assert None not in drawn[84 - 14 :]


def test_trend_aligns_a_metric_that_was_first_read_later() -> None:
    drawn = column_means([0.0, 1.0, 2.0, 3.0], [7.0, 8.0], columns=4, span=4, until=3.5, interval=1.0)
    assert drawn == [None, None, 7.0, 8.0]


def test_span_grows_with_width() -> None:
    spans = [longest_time_span(width, 1.0) for width in (8, 20, 60, 120)]
    assert spans == sorted(spans)
    assert spans[0] == 60


def test_layout_folds_graphs_first_then_cards() -> None:
    assert plan_layout(200, 60, 8).extra_graph_lines > 0
    assert plan_layout(120, 40, 8).gpus_as == "card"
    assert plan_layout(120, 40, 8).extra_graph_lines == 0
    assert plan_layout(80, 24, 8).gpus_as == "line"
    assert plan_layout(MIN_WIDTH - 1, 40, 1).gpus_as == "none"
    assert plan_layout(80, MIN_HEIGHT - 1, 1).gpus_as == "none"


@pytest.mark.parametrize("width", [60, 80, 100, 118, 120, 160, 248])
@pytest.mark.parametrize("gpus", [True, False])
def test_columns_fit_and_never_overlap(width: int, gpus: bool) -> None:
    placed = place_columns(width, gpus=gpus)
    end = 2
    for one in placed:
        assert one.start >= end
        end = one.start + one.width
    assert end == width
    assert placed[-1].column.id == "command"
    assert {"pid", "user", "cpu"} <= {one.column.id for one in placed}


def test_filter_never_takes_unknown_for_a_number() -> None:
    assert parse_process_filter("   ") is None
    hidden = machines.denied_process()
    below = parse_process_filter("cpu<50")
    assert below is not None
    assert not below(hidden, machines.NOON.timestamp())


def test_sort_is_stable_and_unknown_is_last_both_ways() -> None:
    known = [machines.process(n, gpu=n % 2, readings={"cpu_percent": 5.0}) for n in range(4)]
    hidden = machines.denied_process()
    for reverse in (True, False):
        rows = sorted_rows([hidden, *reversed(known)], COLUMN_BY_ID["cpu"], reverse=reverse)
        assert rows[-1] is hidden
        assert [row.key for row in rows[:-1]] == [p.key for p in (known[0], known[2], known[1], known[3])]


def test_unexplained_memory_is_a_row_only_when_notable() -> None:
    rows = [row for row in table_rows(machines.pair()) if isinstance(row, UnexplainedMemory)]
    assert [[device.index for device, _ in row.parts] for row in rows] == [[1]]
    both = machines.snapshot(
        tuple(machines.device(n, readings={"memory.unexplained_bytes": machines.GIB}) for n in range(2))
    )
    (row,) = table_rows(both)
    assert isinstance(row, UnexplainedMemory)
    assert (row.amount, "1.0 GiB on GPU 0, 1.0 GiB on GPU 1" in row.reason) == (2 * machines.GIB, True), (
        "one for the machine"
    )
    (row,) = table_rows(both, machines.uuid(1))
    assert isinstance(row, UnexplainedMemory)
    assert row.amount == machines.GIB
    quiet = machines.snapshot((machines.device(0, readings={"memory.unexplained_bytes": 5_000_000}),))
    assert table_rows(quiet) == []
    unknown = machines.snapshot(
        (machines.device(0, missing={"memory.unexplained_bytes": Missing("unknown", detail="no list")}),)
    )
    assert table_rows(unknown) == []


def test_short_texts() -> None:
    assert short_framework("tensorflow 2.21.0", 15) == "tensorflow 2.21"
    assert short_framework("tensorflow 2.21.0", 10) == "tf 2.21"
    assert short_framework("torch 2.11.0+cu130", 10) == "torch 2.11"
    assert short_framework(None, 10) == "–"
    eight = tuple(machines.MappedDevice(ordinal=n, uuid=machines.uuid(n), index=n) for n in range(8))
    assert device_map_text(eight, "torch 2.11.0", 10) == "0-7→0-7"
    swapped = tuple(machines.MappedDevice(ordinal=n, uuid=machines.uuid(1 - n), index=1 - n) for n in range(2))
    assert device_map_text(swapped, "tensorflow 2.21.0", 10) == "0→1 1→0"
    sixteen = tuple(machines.MappedDevice(ordinal=n, uuid=machines.uuid(n), index=n) for n in range(16))
    turned = tuple(machines.MappedDevice(ordinal=n, uuid=machines.uuid(15 - n), index=15 - n) for n in range(16))
    assert [device_map_text(sixteen, "torch 2.11.0", width) for width in (10, 7)] == ["0-15→0-15", "16 GPUs"]
    assert [device_map_text(turned, "torch 2.11.0", width) for width in (10, 7)] == ["16 mapped", "16 GPUs"]


@pytest.mark.parametrize("text", ["plain", "漢字カナ混じり", "e\u0301\u0301 x", ""])
@pytest.mark.parametrize("width", [0, 1, 2, 5, 12])
def test_cells_are_exact(text: str, width: int) -> None:
    assert width_of(align_left(text, width)) == width
    assert width_of(align_right(text, width)) == width
    assert width_of(cut_to_width(text, width)) <= width


@pytest.mark.thorough
@given(
    st.lists(st.booleans(), min_size=200, max_size=260),
    st.sampled_from([1.0, 0.5, 2.0]),
    st.floats(0, 0.02),
    st.integers(20, 160),
)
def test_a_steady_value_is_drawn_as_any_other(missed: list[bool], interval: float, drift: float, columns: int) -> None:
    # At most two samples in a row are missing, now and then.
    times = [1e9 + n * (interval + drift) for n, gone in enumerate(missed) if not (gone and n % 50 in (3, 4, 5))]
    options = {"columns": columns, "span": 120.0, "until": times[-1], "interval": interval}
    steady = column_means(times, [7.0] * len(times), **options)  # type: ignore[arg-type]
    slow = column_means(times, [7.0 + (n % 2) * 1e-9 for n in range(len(times))], **options)  # type: ignore[arg-type]
    assert [value is None for value in steady] == [value is None for value in slow]
