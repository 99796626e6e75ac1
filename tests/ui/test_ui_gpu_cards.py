"""Cards and lines of GPUs: fixed places, whole words at every width, layouts, and ranks of load."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.throttling import thermal_title_and_action
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.metric_history import History
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.glyphs import to_ascii
from gpuwatch.ui.drawing.overview_layout import LAYOUT_CHOICES, MANY_GPUS, OverviewLayout, field_rows, plan_layout
from gpuwatch.ui.drawing.styled_lines import Line, Span, wrap_line
from gpuwatch.ui.drawing.text_width import drop_last_clauses
from gpuwatch.ui.panes.gpu_card import card_fields, fields_that_fit, memory_holders_line
from gpuwatch.ui.panes.gpu_grid import gpu_lines
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import default_path, load_settings, parse_settings
from gpuwatch.ui.tables.gpu_fields import (
    DEFAULT_FIELDS,
    FIELDS,
    GRAPHS,
    OPTIONAL_FIELDS,
    available_fields,
    card_spans,
    line_spans,
)
from gpuwatch.ui.tables.gpu_loads import FULL, HIGH, NORMAL, Thresholds, load_level
from tests.diagnosis.test_every_cause import CASES
from tests.every import every
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import until

NO_NVLINK = {"nvlink.rx_bytes_per_second": machines.NOT_SUPPORTED, "nvlink.tx_bytes_per_second": machines.NOT_SUPPORTED}
LARGEST: dict[str, Any] = {
    "power.draw_watts": 1187.0,
    "power.limit_watts": 1200.0,
    "temperature.gpu_celsius": 104,
    "temperature.memory_celsius": 110,
    "clocks.sm_mhz": 3105,
    "clocks.sm_max_mhz": 3135,
    "clocks.memory_mhz": 10501,
    "nvlink.rx_bytes_per_second": 898.7e9,
    "nvlink.tx_bytes_per_second": 899.9e9,
    "ecc.uncorrected": 98765,
    "ecc.corrected": 98765,
    "events.board_limit_percent": 100.0,
    "energy_joules": 9.9e10,
    "fan.speed_percent": 100,
    "performance.state": "P12",
    "utilization.encoder_percent": 100,
    "utilization.decoder_percent": 100,
    "utilization.memory_percent": 100,
}
SMALLEST: dict[str, Any] = dict.fromkeys(LARGEST, 0) | {"performance.state": "P0", "power.limit_watts": 70.0}


def complete(index: int = 0, readings: dict[str, Any] | None = None) -> Device:
    """A GPU that reports every field."""
    device = machines.device(index)
    return structs.replace(device, readings={**device.readings, **(readings or {})}, missing={})


STRICT = Thresholds(utilization=(90.0,), memory=(90.0, 97.0), power=(95.0, 105.0))
STRICT_PREFERENCES = Preferences(**{f"{load}_thresholds": limits for load, limits in STRICT._asdict().items()})


def view_of(*devices: Device) -> View:
    snapshot = machines.snapshot(devices)
    history = History()
    history.add(snapshot)
    at = snapshot.taken_at.timestamp()
    return View(snapshot=snapshot, history=history, status=FeedStatus("ok", 0.0), now=at, interval=1.0, graph_end=at)


def planned_for(view: View, width: int, height: int, chosen: Preferences, **planned: Any) -> OverviewLayout:
    cells = [(field.id, field.card_cells) for field in card_fields(chosen.gpu_fields)]
    return plan_layout(width, height, len(view.devices), fields=cells, graphs=chosen.graphs, **planned)


def drawn(view: View, width: int, height: int, chosen: Preferences, **planned: Any) -> list[Line]:
    return gpu_lines(view, planned_for(view, width, height, chosen, **planned), width, chosen)


def plain(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line.spans) for line in lines]


# Places


@every([field for field in OPTIONAL_FIELDS if field.card_cells])
def test_a_field_is_as_wide_with_the_largest_value_as_with_the_smallest(field: Any) -> None:
    for readings in (LARGEST, SMALLEST):
        spans = card_spans(field, complete(readings=readings))
        text = "".join(part for part, _ in spans)
        assert len(text) == field.card_cells
        assert text.startswith(field.label)
        value = field.card(complete(readings=readings)) if field.card else field.unit
        assert value in text, "no digit and no word is cut"
    unread = machines.device(missing={field.metric: Missing("no_sample")})
    assert sum(len(part) for part, _ in card_spans(field, unread)) == field.card_cells


@pytest.mark.thorough
@pytest.mark.parametrize(("gpus", "height"), [(1, 40), (2, 60), (8, 80)])
def test_no_label_is_cut_and_no_value_leaves_its_place(gpus: int, height: int) -> None:
    chosen = Preferences(gpu_fields=tuple(FIELDS))
    usual, small, large = (
        view_of(*(complete(n, *readings) for n in range(gpus))) for readings in ((), (SMALLEST,), (LARGEST,))
    )
    for width in range(60, 251):
        wanted = planned_for(usual, width, height, chosen)
        if wanted.gpus_as != "card":
            continue
        low, high = (drawn(view, width, height, chosen) for view in (small, large))
        inner = (width // wanted.columns) - 4
        shown = fields_that_fit(inner, wanted, chosen)
        labels = [FIELDS[name].label for name in shown if FIELDS[name].label]
        assert labels
        for label in labels:
            pattern = rf"(?<=[ │]){label}(?=[ ▴▲▼])"
            before, after = (
                [[match.start() for match in re.finditer(pattern, line)] for line in plain(lines)]
                for lines in (low, high)
            )
            assert any(before), f"{label} at {width}"
            assert before == after, f"{label} at {width}"
        assert "…" not in "".join(plain(low) + plain(high))


def test_cards_of_one_machine_have_the_same_places_also_without_some_fields() -> None:
    plenty, consumer = machines.device(0), machines.device(1, missing=NO_NVLINK)
    view = view_of(plenty, consumer)
    fields = available_fields(DEFAULT_FIELDS, view.devices)
    assert "nvlink" in fields
    assert "fan" not in fields, "no card has one"
    lines = plain(drawn(view, 200, 60, Preferences(gpu_fields=fields)))
    left, right = (["".join(line[a:b]) for line in lines] for a, b in ((0, 100), (100, 200)))
    for label in ("PWR", "TEMP", "MTEMP", "ECC", "THROTTLED", "ENERGY"):
        first, second = (
            [(y, line.find(f"{label} ")) for y, line in enumerate(part) if f"{label} " in line]
            for part in (left, right)
        )
        assert first == second != []
    assert any("NVLink" in line for line in left)
    assert not any("NVLink" in line for line in right), "what a card does not have is left out"
    assert "nvlink" not in available_fields(DEFAULT_FIELDS, [consumer])


@pytest.mark.parametrize("throttled", [False, True])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (160, 45), (200, 60)])
def test_no_value_stands_alone_in_a_line_that_the_graphs_lose(width: int, height: int, throttled: bool) -> None:
    names = [name for name in DEFAULT_FIELDS if name not in ("memory-temperature", "nvlink", "ecc")]  # a desktop card
    chosen = [name for name in names if throttled or name != "throttled"]
    for gpus in (1, 2, 4, 8, 16):
        fields = [(field.id, field.card_cells) for field in card_fields(chosen)]
        wanted = plan_layout(width, height, gpus, fields=fields)
        if wanted.gpus_as != "card":
            continue
        inner = width // wanted.columns - 4
        drawn = card_fields(chosen, Preferences().graphs[: wanted.graphs])
        rows = field_rows(tuple(field.card_cells for field in drawn), inner)
        assert len(rows[-1]) > 1 or len(rows) < 3, f"{gpus} GPUs: one value alone in a line"


async def test_a_field_that_was_awaited_and_does_not_exist_goes_away(stage: Stage) -> None:
    async with stage.app.run_test(size=(200, 60)) as pilot:
        stage.push(machines.snapshot((machines.device(missing=dict.fromkeys(NO_NVLINK, Missing("no_sample"))),)))
        await until(pilot, lambda: "NVLink" in stage.app.overview.gpus.plain)
        stage.push(machines.snapshot((machines.device(missing=NO_NVLINK),), tick=1))
        await until(pilot, lambda: "NVLink" not in stage.app.overview.gpus.plain)
        stage.push(machines.snapshot((machines.device(),), tick=2))
        await until(pilot, lambda: "NVLink" in stage.app.overview.gpus.plain)
        stage.push(machines.snapshot((machines.device(missing=dict.fromkeys(NO_NVLINK, Missing("timeout"))),), tick=3))
        # What was read keeps its place.
        await until(pilot, lambda: re.search(r"NVLink +↓ +– ↑ +–", stage.app.overview.gpus.plain))


@every(
    [
        ({}, "ECC no errors"),
        ({"ecc.corrected": 12}, "ECC 12 corrected"),
        ({"ecc.corrected": 12, "ecc.uncorrected": 3}, "ECC▲3 uncorrected"),
        ({"ecc.mode": "disabled"}, "ECC off"),
        ({"events.power_percent": 0.0}, "THROTTLED   0 %"),
        ({"events.power_percent": 0.2}, "THROTTLED  <1 % power cap"),
        ({"events.power_percent": 31.0, "events.thermal_percent": 64.0}, "THROTTLED  64 % thermal"),
        ({"energy_joules": 3.6e6}, "TOTAL ENERGY 1.00 kWh"),
        ({"energy_joules": 900.0}, "TOTAL ENERGY 0.2 Wh"),
        ({"nvlink.rx_bytes_per_second": 2e6}, "NVLink ↓  <0.1"),
        ({"pcie.rx_bytes_per_second": 3e6}, "PCIe 5×16 ↓ <0.1"),
        ({"pcie.rx_bytes_per_second": 3e6, "activity.pcie_rx_bytes_per_second": 1.34e9}, "PCIe 5×16 ↓  1.3"),
    ]
)
def test_what_a_field_says(readings: dict[str, Any], text: str) -> None:
    lines = drawn(view_of(machines.device(busy=50, readings=readings)), 120, 40, Preferences())
    assert any(text in line for line in plain(lines))


# Layouts


def test_lines_leave_most_rows_to_processes() -> None:
    rows = {layout: 40 - 4 - plan_layout(120, 40, 8, choice=layout).gpu_height for layout in LAYOUT_CHOICES}
    assert rows["lines"] >= 26
    assert rows["cards"] < rows["lines"]
    assert (
        plan_layout(200, 60, 2, choice="graphs").extra_graph_lines
        > plan_layout(200, 60, 2, processes=40).extra_graph_lines
    )
    assert plan_layout(200, 60, 2, choice="cards").extra_graph_lines == 0
    assert plan_layout(60, 15, 8, choice="graphs").gpus_as == "line", "no room for cards"


def test_many_gpus_are_lines_unless_cards_were_chosen() -> None:
    for size in ((120, 40), (200, 60), (250, 80)):
        assert plan_layout(*size, MANY_GPUS).gpus_as == "line"
    assert plan_layout(250, 80, MANY_GPUS, choice="cards").gpus_as == "card"
    assert plan_layout(250, 80, MANY_GPUS - 1).gpus_as == "card"


async def test_the_layout_is_kept_by_w_and_the_next_start(make_stage: Callable[..., Stage]) -> None:
    def drawn_as(stage: Stage) -> str:
        wanted = stage.app.overview._overview_layout
        return wanted.gpus_as if wanted is not None else ""

    stage = make_stage()
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.many(8, 5))
        overview = stage.app.overview
        await until(pilot, lambda: drawn_as(stage) == "card")
        await pilot.press("L")
        await until(pilot, lambda: drawn_as(stage) == "line" and "layout: lines" in overview.keys.plain)
        assert overview._overview_layout is not None
        height = overview._overview_layout.gpu_height
        await until(pilot, lambda: overview.gpus.size.height == height)
        await pilot.press("w")
        await until(pilot, lambda: default_path().exists())
        assert tomllib.loads(default_path().read_text())["gpus"] == {"layout": "lines"}
        await pilot.press("L", "L")
        await until(pilot, lambda: "layout: graphs (w saves it)" in overview.keys.plain)
        await pilot.press("L")
        await until(pilot, lambda: stage.app.preferences.layout == "automatic")
    again = make_stage(settings=load_settings(default_path()))
    async with again.app.run_test(size=(120, 40)) as pilot:
        again.push(machines.many(8, 5))
        await until(pilot, lambda: drawn_as(again) == "line")


async def test_without_a_gpu_the_layout_is_only_named(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.snapshot())
        await pilot.press("L")
        await until(pilot, lambda: "layout: lines (w saves it)" in stage.app.overview.keys.plain)


async def test_graphs_are_chosen_in_a_sheet(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.past(machines.pair, 10)
        gpus = stage.app.overview.gpus
        await until(pilot, lambda: len(gpus.plain.splitlines()) > 2)
        gpus.focus()
        await until(pilot, lambda: gpus.has_focus)
        await pilot.press("C")
        await until(pilot, lambda: stage.app.screen is not stage.app.overview)
        await pilot.press("space", "down", "space")
        await until(pilot, lambda: gpus.plain.splitlines()[1].startswith("│ PWR "))
        assert stage.app.preferences.graphs == tuple(GRAPHS)[2:]
        lines = gpus.plain.splitlines()[2:]
        assert any(re.search(r"│ GPU  \d\d % +MEM +\d+\.\d/139\.8 GiB", line) for line in lines), "as numbers"
        await pilot.press("delete", "escape")
        await until(pilot, lambda: re.match(r"│ GPU  \d\d % .* MEM ", gpus.plain.splitlines()[1]))
        lines = gpus.plain.splitlines()[2:]
        assert not any("GPU " in line or "PWR " in line for line in lines[5:7]), "a number is there once"
        stage.app.set_preferences(graphs=("power",))
        await until(pilot, lambda: gpus.plain.splitlines()[1].startswith("│ PWR "))


# Ranks of load


def device_at(**readings: Any) -> Device:
    return machines.device(busy=0, readings={name.replace("__", "."): value for name, value in readings.items()})


@every(
    [
        ("utilization", device_at(utilization__gpu_percent=89), NORMAL),
        ("utilization", device_at(utilization__gpu_percent=90), HIGH),
        ("memory", device_at(memory__used_bytes=1, memory__total_bytes=100), NORMAL),
        ("memory", device_at(memory__used_bytes=93, memory__total_bytes=100), HIGH),
        ("memory", device_at(memory__used_bytes=98, memory__total_bytes=100), FULL),
        ("power", device_at(power__draw_watts=300, power__limit_watts=700), NORMAL),
        ("power", device_at(power__draw_watts=300, power__limit_watts=300), HIGH),
        ("temperature", device_at(temperature__gpu_celsius=84), NORMAL),
        ("temperature", device_at(temperature__gpu_celsius=85), HIGH),
        ("temperature", device_at(temperature__gpu_celsius=85, temperature__slowdown_celsius=100), NORMAL),
        ("temperature", device_at(temperature__gpu_celsius=85, temperature__slowdown_celsius=93), HIGH),
        ("temperature", device_at(temperature__gpu_celsius=92, temperature__slowdown_celsius=93), FULL),
        (
            "temperature",
            device_at(
                temperature__gpu_celsius=85, temperature__margin_celsius=2, temperature__slowdown_margin_celsius=0
            ),
            HIGH,
        ),
        (
            "temperature",
            device_at(
                temperature__gpu_celsius=40, temperature__margin_celsius=0, temperature__slowdown_margin_celsius=40
            ),
            NORMAL,
        ),
        ("clock", device_at(utilization__gpu_percent=97, clocks__sm_mhz=1980), NORMAL),
        ("clock", device_at(utilization__gpu_percent=97, clocks__sm_mhz=1100), HIGH),
        ("clock", device_at(utilization__gpu_percent=97, clocks__sm_mhz=345), FULL),
        ("clock", device_at(utilization__gpu_percent=3, clocks__sm_mhz=345), NORMAL),
        ("power", machines.device(missing={"power.limit_watts": machines.DENIED}), NORMAL),
    ]
)
def test_a_load_is_ranked_by_the_limits_of_the_card(load_: Any, device: Device, level: int) -> None:
    assert load_level(load_, device, STRICT) == level


def styles(lines: list[Line]) -> set[str]:
    return {style for line in lines for _, style in line.spans}


def test_thresholds_come_from_the_settings_file() -> None:
    found, problems, _ = parse_settings("[thresholds]\nutilization = [10, 20]\nmemory = []\nclock = [50]\n")
    assert not problems
    assert found.thresholds == Thresholds()._replace(utilization=(10.0, 20.0), memory=(), clock=(50.0,))
    device = machines.device(busy=25, readings={"memory.used_bytes": machines._TOTAL * 0.93})
    for size in ((120, 40), (60, 12)):
        usual = drawn(view_of(device), *size, STRICT_PREFERENCES)
        chosen = drawn(view_of(device), *size, found)
        assert "high" in styles(usual)
        assert "full" not in styles(usual)
        assert "full" in styles(chosen)
        assert "high" not in styles(chosen), "memory never ranks high"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('"80"', "thresholds.memory is “80”, not a list of percentages"),
        ("[true]", "not a list of percentages"),
        ("[90, 80]", "thresholds.memory is not in rising order"),
        ("[1, 2, 3]", "has 3 percentages: give at most two"),
        ("[-1]", "not a list of percentages"),
    ],
)
def test_wrong_thresholds_are_reported(value: str, message: str) -> None:
    found, problems, _ = parse_settings(f"[thresholds]\nmemory = {value}\n")
    assert message in problems[0]
    assert found == Preferences()


@pytest.mark.parametrize("spell", [str, to_ascii], ids=["unicode", "ascii"])
def test_colour_is_never_the_only_sign(spell: Callable[[str], str]) -> None:
    calm = machines.device(busy=60, readings={"temperature.gpu_celsius": 50})
    choice = STRICT_PREFERENCES
    for readings in (
        {"temperature.gpu_celsius": 91},
        {"clocks.sm_mhz": 600},
        {"power.draw_watts": 699.0},
        {"utilization.gpu_percent": 96},
        {"memory.used_bytes": machines._TOTAL * 0.93},
        {"ecc.uncorrected": 2},
    ):
        loaded = machines.device(busy=60, readings={"temperature.gpu_celsius": 50, **readings})
        before, after = (spell("\n".join(plain(drawn(view_of(one), 120, 40, choice)))) for one in (calm, loaded))
        signs = [spell(sign) for sign in "▴▲▼"]
        assert sum(map(after.count, signs)) > sum(map(before.count, signs)), readings


def test_a_mark_in_a_line_stands_in_a_blank_before_the_number() -> None:
    def text(spans: list[Span]) -> str:
        return "".join(part for part, _ in spans)

    hot = machines.device(readings={"temperature.gpu_celsius": 91})
    assert text(line_spans(FIELDS["temperature"], hot)) == " ▲91°C"
    slow = machines.device(busy=97, readings={"clocks.sm_mhz": 600})
    assert text(line_spans(FIELDS["clock"], slow)) == " ▼600MHz"


# Whole sentences


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (80, "uncorrected ECC errors: 3 new (likely), 4 in total"),
        (49, "uncorrected ECC errors: 3 new (likely)"),
        (37, "uncorrected ECC errors: 3 new"),
        (25, "uncorrected ECC errors"),
        (10, "uncorrect…"),
    ],
)
def test_a_sentence_loses_its_last_clauses_first(width: int, text: str) -> None:
    assert drop_last_clauses("uncorrected ECC errors: 3 new (likely), 4 in total", width) == text


def whole_parts(text: str) -> set[str]:
    """What a sentence is shortened to without a sign that it was cut."""
    return {short for width in range(1, len(text)) if not (short := drop_last_clauses(text, width)).endswith("…")}


def test_a_list_is_shown_whole_or_not_at_all() -> None:
    """One or two of the things that it may be are not what it is."""
    cool = "GPU 1 throttled (thermal) while its core is cool"
    assert whole_parts(f"{cool}: its memory, its voltage regulators or a sensor") == {cool, "GPU 1 throttled (thermal)"}
    assert whole_parts("lost: the cable, the slot, and the card") == {"lost"}
    assert whole_parts("GPUs 0, 1, 5 lost, at once") == {"GPUs 0, 1, 5 lost"}
    assert whole_parts("held by (alice, bob) in all") == set()
    assert whole_parts("TensorFlow refused GPU 0, and with it its GPUs") == {"TensorFlow refused GPU 0"}


@every(CASES)
def test_no_title_of_a_finding_is_cut_within_a_list(cause: str) -> None:
    titles = {entry.title for entry in CASES[cause]()} | {thermal_title_and_action(machines.device(), 40.0)[0]}
    for title in titles | {CAUSES[cause]}:
        for short in whole_parts(title):
            rest, same = title.removeprefix(short).partition(": ")[0], short.rpartition(": ")[2]
            assert short.count("(") == short.count(")")
            assert not (rest.startswith(",") and re.search(r" n?or ", rest)), (title, short)
            assert not (rest.startswith(",") and "," in same and re.search(r" and ", rest)), (title, short)


async def test_what_is_wrong_is_a_whole_sentence() -> None:
    hot = structs.replace(machines.HELD, title="GPU 1 throttled (thermal) while its core is cool", certainty="likely")
    stage = Stage()
    async with stage.app.run_test(size=(60, 15)) as pilot:
        stage.push(machines.snapshot((machines.device(0), machines.device(1)), findings=(hot,)))
        answer = stage.app.overview.summary
        for width in range(60, 250, 10):
            await pilot.resize_terminal(width, 15)
            whole = "GPU 1 throttled (thermal)" + " while its core is cool" * (width >= 80)
            await until(pilot, lambda: answer.size.width == width and f"▲ Wrong: {whole}" in answer.plain)  # noqa: B023
            assert "…" not in answer.plain.partition("→")[0]
            assert "[f]" in answer.plain


def test_the_frame_of_a_card_names_the_finding_and_leaves_out_the_link_before_it_cuts_it() -> None:
    title = "GPU 0 uncorrected ECC errors: 3 new, 3 in total"
    view = replace(
        view_of(machines.device(0)),
        errors_and_warnings=(structs.replace(machines.HELD, title=title, device_uuid=machines.uuid(0)),),
    )
    for width in range(60, 120):
        text = plain(drawn(view, width, 40, Preferences()))[-1]
        assert "▲ uncorrected ECC errors" in text
        assert "…" not in text


async def test_sorting_shows_the_first_rows_and_the_cursor(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.many(2, 60))
        table = stage.app.overview.processes
        await until(pilot, lambda: table.item_under_cursor is not None)
        await pilot.press("end")
        await until(pilot, lambda: table.top > 0)
        table.sort_by("pid")
        await until(pilot, lambda: table.top == 0 and "▶" in table.plain)
        assert table.cursor < table.room
        await pilot.press("home", "down")
        chosen = table.item_under_cursor
        table.sort_by("pid", reverse=table.sort_reverse)
        assert table.item_under_cursor == chosen, "a process among the first rows keeps the cursor"


@pytest.mark.parametrize("width", [60, 70, 80, 100, 120, 160])
def test_a_line_marks_how_full_the_memory_is_and_is_not_cut(width: int) -> None:
    total = 139.8 * 2**30
    devices = [
        machines.device(n, busy=60, readings={"memory.used_bytes": int(share * total)})
        for n, share in enumerate((0.5, 0.93, 0.99))
    ]
    view = view_of(*devices)
    lines = plain(gpu_lines(view, plan_layout(width, 24, 3, choice="lines"), width, STRICT_PREFERENCES))
    for line, sign in zip((line for line in lines if "/139.8G" in line), " ▴▲", strict=True):
        assert "…" not in line
        assert line[line.index("/139.8G") + 7] == sign


@every(range(40, 56))
def test_a_wrapped_line_keeps_the_gap_before_its_last_words(width: int) -> None:
    line: list[Span] = [
        ("▲ ", "warning"),
        ("thermal (hardware): now, for at least 5 min", "text"),
        ("  hw-thermal", "faint"),
    ]
    drawn = ["".join(text for text, _ in part) for part in wrap_line(line, width)]
    assert "minhw" not in "".join(drawn)
    assert " ".join(" ".join(drawn).split()) == "▲ thermal (hardware): now, for at least 5 min hw-thermal"


def test_long_values_break_at_separators_and_commands_not_at_hyphens() -> None:
    def folded(text: str, width: int) -> list[str]:
        return ["".join(part for part, _ in line).strip() for line in wrap_line([(text, "text")], width)]

    setting = "expandable_segments:True,max_split_size_mb:128"
    assert folded(setting, 30) == ["expandable_segments:True,", "max_split_size_mb:128"]
    assert folded("drain the node, then reset the GPU (nvidia-smi -r)", 44)[1] == "(nvidia-smi -r)"
    assert folded("x" * 50, 20) == ["x" * 20, "x" * 20, "x" * 10]


def test_a_card_says_that_its_free_memory_is_the_hosts() -> None:
    own = machines.device(0)
    unified = structs.replace(own, unified_memory=True)
    seen = ["".join(text for text, _ in memory_holders_line(one, view_of(one), 100).spans) for one in (own, unified)]
    assert [line.endswith(end) for line, end in zip(seen, (" free", " free on the host"), strict=True)] == [True, True]
