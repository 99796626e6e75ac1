"""The readings of a GPU: every one in a group, whole at every width, and found by its words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.metrics import METRICS, Lane, MetricSpec, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.machine.history.energy import Energy
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.tables.filter_language import parse_words
from gpuwatch.ui.tables.gpu_fields import FIELDS
from gpuwatch.ui.tables.reading_groups import (
    GROUPS,
    ReadingRow,
    energy_rows,
    group_of,
    metrics_by_group,
    reading_table,
    row_lines,
)
from tests.ui import machines

DEVICE = machines.device(0, missing={"fan.speed_percent": machines.NOT_SUPPORTED, "power.draw_watts": machines.DENIED})


def test_every_metric_is_in_one_group() -> None:
    assert [group for group, _ in metrics_by_group()] == list(GROUPS)
    assert sorted(spec.id for _, specs in metrics_by_group() for spec in specs) == sorted(spec.id for spec in METRICS)
    assert all(specs for _, specs in metrics_by_group())
    ids = ("nvlink.crc_errors", "pcie.replays", "ecc.mode")
    assert {group_of(spec) for spec in METRICS if spec.id in ids} == {"Errors"}
    assert {group_of(spec) for spec in METRICS if spec.id.endswith("errors")} == {"Errors"}


@pytest.mark.parametrize(
    ("unit", "counter", "group"),
    [(Unit.COUNT, True, "Errors"), (Unit.WATT, False, "Power and heat"), (Unit.NAME, False, "Identity")],
)
def test_a_metric_of_a_new_kind_has_a_group_too(unit: Unit, counter: bool, group: str) -> None:
    assert group_of(MetricSpec("weather.rain", "Rain", "RAIN", unit, Lane.SLOW, counter=counter)) == group
    assert {group_of(MetricSpec("weather.rain", "Rain", "RAIN", unit, Lane.SLOW)) for unit in Unit} <= set(GROUPS)


def test_what_a_gpu_does_not_have_is_counted_and_what_failed_is_not_hidden() -> None:
    table, whole = reading_table(DEVICE), reading_table(DEVICE, unfolded=True)
    assert sum(count for _, count in table.folded) == whole.shown - table.shown > 0
    assert whole.shown == whole.total == len(METRICS)
    assert not whole.folded
    power = next(row for group, rows in table.groups for row in rows if row.title == "Power draw")
    assert (power.known, power.text) == (False, "– permission denied")
    assert not any(row.text == "– not supported" for _, rows in table.groups for row in rows)


def test_a_rate_that_is_not_read_all_the_time_says_when_it_is() -> None:
    unread = {f"pcie.{way}_bytes_per_second": Missing("no_sample") for way in ("rx", "tx")}
    device = machines.device(0, missing=unread)
    rows = {row.title: row.text for _, found in reading_table(device).groups for row in found}
    assert rows["PCIe receive (host to GPU)"] == "– only in snapshots"
    assert FIELDS["pcie"].text(device) == "5×16 ↓– ↑–", "its heading promises rates"


@given(
    st.lists(st.sampled_from(["ecc", "fan", "power", "-power", "NVLink", "errors", '"memory used"', "zzz"]), max_size=3)
)
def test_a_filter_finds_all_readings_with_its_words(words: list[str]) -> None:
    wanted = parse_words(" ".join(words))
    table = reading_table(DEVICE, wanted)
    found = {row.title for _, rows in table.groups for row in rows}
    if wanted is None:
        assert not words
        return
    assert not table.folded
    for group, rows in reading_table(DEVICE, unfolded=True).groups:
        for row in rows:
            matches = wanted(group) or wanted(group, row.title, row.short, row.text)
            assert (row.title in found) == matches
    assert table.shown == len(found) <= table.total


@given(
    st.sampled_from([spec.title for spec in METRICS]),
    st.text(st.sampled_from("ab +-温°–0"), min_size=1, max_size=60).map(lambda text: " ".join(text.split()) or "0"),
    st.integers(8, 200),
)
def test_a_label_is_whole_at_every_width(title: str, text: str, width: int) -> None:
    lines = ["".join(part for part, _ in line) for line in row_lines(ReadingRow(title, text), width)]
    assert all(width_of(line) <= width for line in lines)
    shown = "".join("".join(lines).split())
    assert "".join(title.split()) in shown
    assert shown.endswith("".join(text.split()))


def test_energy_says_what_it_is() -> None:
    gpu = Energy(7200.0, 60.0, estimated=True, mean_watts=120.0)
    machine = Energy(9000.0, 60.0, estimated=True, devices=1, unknown_devices=1, mean_watts=150.0)
    assert [(row.title, row.text) for row in energy_rows(gpu, machine, 2)] == [
        ("Energy since gpuwatch started", "2.0 Wh estimated"),
        ("Mean power", "120 W over 60 s estimated"),
        ("Energy since gpuwatch started, all 2 GPUs", "2.5 Wh estimated without 1 GPU"),
        ("Mean power, all 2 GPUs", "150 W over 60 s estimated without 1 GPU"),
    ]
    assert [(row.text, row.known) for row in energy_rows(None, None, 1)] == [("– no sample", False)] * 2
