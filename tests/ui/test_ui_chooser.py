"""The column chooser, by keys and by mouse; and saving what was chosen, from the app."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model.reading import Missing
from gpuwatch.ui.panes.gpu_line import fit_columns
from gpuwatch.ui.screens.choice_sheets import ChoiceSheet
from gpuwatch.ui.screens.save_preferences import BrokenFile
from gpuwatch.ui.screens.sheet_bases import SheetPane
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings, default_path, load_settings
from gpuwatch.ui.tables.gpu_fields import DEFAULT_FIELDS, FIELDS, OPTIONAL_FIELDS, card_spans, line_spans
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, COLUMNS, DEFAULT_COLUMNS, place_columns, why_unavailable
from gpuwatch.ui.widgets.process_table import ProcessTable
from tests.every import every
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press, settle


def head(stage: Stage) -> list[str]:
    table = stage.app.overview.processes
    line = table.plain.splitlines()[1 if table.framed else 0]
    return line.replace("│", " ").replace("↓", " ").replace("↑", " ").split()


def test_every_column_says_what_it_is() -> None:
    for column in COLUMNS:
        assert column.help, column.id
        assert column.title.strip() == column.title
    for field in OPTIONAL_FIELDS:
        assert field.help
        assert field.line_cells == 0 or len(field.title) < field.line_cells or field.id == "memory-clock", field.id


async def test_columns_are_switched_moved_and_reset_and_seen_at_once(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=10, size=(200, 60)) as pilot:
        before = head(stage)
        assert before[:4] == ["GPU", "PID", "USER", "TYPE"]
        await press(pilot, "c")
        assert isinstance(stage.app.screen, ChoiceSheet)
        await pilot.press("down", "down", "space")  # USER off
        assert "USER" not in head(stage)
        assert stage.app.preferences.columns == tuple(c for c in DEFAULT_COLUMNS if c != "user")
        await pilot.press("space")  # and on again, where it was
        assert stage.app.preferences.columns == DEFAULT_COLUMNS
        await pilot.press("shift+down", "shift+down", "right_square_bracket")
        assert stage.app.preferences.columns.index("user") == DEFAULT_COLUMNS.index("user") + 3
        await pilot.press("shift+up")
        assert stage.app.preferences.columns.index("user") == DEFAULT_COLUMNS.index("user") + 2
        assert head(stage) != before
        await pilot.press("delete")
        assert head(stage) == before
        await pilot.press("escape")
        assert stage.app.screen is stage.app.overview


async def test_neighbours_are_hidden_one_after_the_other(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=3) as pilot:
        shown = stage.app.preferences.columns
        await pilot.press("c", "down", "space", "down", "space", "down", "space")
        assert stage.app.preferences.columns == (shown[0], *shown[4:])
        await pilot.press("space", "up", "space", "up", "space")
        assert stage.app.preferences.columns == shown, "what is switched on again is where it was"
        await pilot.press("space", "up", "shift+down")
        assert stage.app.preferences.columns == (shown[2], shown[0], *shown[3:]), "among those that are on"
        await press(pilot, "escape", "c")
        lines = stage.app.screen.query_one("#sheet").plain.splitlines()
        assert shown[1] in lines[len(shown) - 1].lower(), "when it is opened again, what is off is below"


async def test_the_last_column_stays(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=3) as pilot:
        stage.app.set_preferences(columns=("pid",))
        await pilot.press("c", "space")
        assert stage.app.preferences.columns == ("pid",)
        assert "PID" in head(stage)


async def test_a_click_switches_and_one_beside_closes(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=3) as pilot:
        await press(pilot, "c")
        sheet = stage.app.screen.query_one("#sheet")
        await pilot.click("#sheet", offset=(8, 3))  # the border is in it: the third line
        assert "user" not in stage.app.preferences.columns
        assert sheet is not None
        await pilot.click(offset=(1, 1))
        assert not isinstance(stage.app.screen, ChoiceSheet)


async def test_what_nobody_can_supply_is_hidden_by_itself_and_listed_with_its_reason(stage: Stage) -> None:
    why = Missing("not_supported", code=3, detail="nvmlDeviceGetProcessUtilization: Not Supported")
    rows = tuple(machines.process(n, missing={"sm_percent": why, "memory_percent": why}, readings={}) for n in range(3))
    async with stage.opened(machines.snapshot((machines.device(0),), rows)) as pilot:
        assert "SM%" not in head(stage)
        assert "MBW%" not in head(stage)
        assert "GPU-MEM" in head(stage)
        await press(pilot, "c", *["down"] * list(DEFAULT_COLUMNS).index("sm"))
        text = stage.app.screen.query_one("#sheet").plain
        assert "SM%: not supported: nvml" in text
        assert "hidden" in text
        await pilot.press("escape")
        # Once a process has a value the column is there, and stays.
        await stage.show(pilot, machines.snapshot((machines.device(0),), (*rows, machines.process(7)), tick=1))
        assert "SM%" in head(stage)
        await stage.show(pilot, machines.snapshot((machines.device(0),), rows, tick=2))
        assert "SM%" in head(stage)


def test_reasons() -> None:
    one = machines.snapshot((machines.device(0),), (machines.process(0),))
    assert "MIG instance" in why_unavailable(COLUMN_BY_ID["mig"], one)
    assert why_unavailable(COLUMN_BY_ID["sm"], one) == ""
    inside = machines.snapshot((machines.device(0),), (machines.process(0, mig_instance="1g.10gb"),))
    assert why_unavailable(COLUMN_BY_ID["mig"], inside) == ""
    assert why_unavailable(COLUMN_BY_ID["memory"], machines.snapshot()) == "there is no GPU here"
    waiting = Missing("no_sample", detail="needs two samples")
    soon = machines.snapshot((machines.device(0),), (machines.process(0, missing={"sm_percent": waiting}),))
    assert why_unavailable(COLUMN_BY_ID["sm"], soon) == "", "it may come"


@pytest.mark.parametrize("width", [60, 80, 117, 118, 200])
@pytest.mark.parametrize(
    "chosen",
    [
        ("command", "pid"),
        ("pid", "memory"),
        ("command",),
        ("memory", "command", "cpu", "user"),
        tuple(COLUMN_BY_ID),
        tuple(reversed(COLUMN_BY_ID)),
        ("no-such",),
    ],
)
def test_any_choice_of_columns_fits(width: int, chosen: tuple[str, ...]) -> None:
    placed = place_columns(width, chosen)
    end = 2
    for one in placed:
        assert one.start >= end
        assert one.width >= 1
        end = one.start + one.width + 1
    assert end - 1 <= width
    assert [p.column.id for p in placed] == [c for c in chosen if c in {p.column.id for p in placed}] or placed
    if "command" in chosen:
        assert end - 1 == width


async def test_unexplained_memory_says_its_reason_with_any_columns(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=3):
        for columns in (("pid", "memory"), ("command", "memory", "gpu"), ("memory", "pid", "gpu"), ("cpu",)):
            stage.app.set_preferences(columns=columns)
            line = next(line for line in stage.app.overview.processes.plain.splitlines() if "not owned by" in line)
            if "memory" in columns:
                assert "0.8" in line


async def test_facts_of_gpus_are_chosen_too(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=10) as pilot:
        gpus = stage.app.overview.gpus
        assert "ECC no errors" in gpus.plain
        gpus.focus()
        await settle(pilot)
        await press(pilot, "c")
        assert isinstance(stage.app.screen, ChoiceSheet)
        at = DEFAULT_FIELDS.index("ecc")
        await pilot.press(*["down"] * at, "space")
        assert "ECC no errors" not in gpus.plain
        assert "TEMP" in gpus.plain
        await pilot.press("delete")
        assert "ECC no errors" in gpus.plain


def test_a_field_that_no_gpu_has_is_not_drawn() -> None:
    device = machines.device(0)
    for field in OPTIONAL_FIELDS:
        if field.line_cells:
            spans = line_spans(field, device)
            assert sum(len(text) for text, _ in spans) == field.line_cells, field.id
        if field.card_cells:
            assert sum(len(text) for text, _ in card_spans(field, device)) == field.card_cells, field.id


def test_no_number_of_a_line_is_cut() -> None:
    """The largest that there are: 1.2 kW, GDDR at 10.5 GHz, PCIe 6 at full speed."""
    device = machines.device(
        0,
        busy=100,
        readings={
            "power.draw_watts": 1187.0,
            "power.limit_watts": 1200.0,
            "clocks.sm_mhz": 3105,
            "clocks.memory_mhz": 10501,
            "temperature.gpu_celsius": 104,
            "temperature.memory_celsius": 110,
            "pcie.generation": 6,
            "pcie.tx_bytes_per_second": 121.4e9,
            "pcie.rx_bytes_per_second": 118.2e9,
        },
        missing={"fan.speed_percent": Missing("not_supported")},
    )
    shown = {
        field.id: "".join(text for text, _ in line_spans(field, device)).strip()
        for field in OPTIONAL_FIELDS
        if field.line_cells
    }
    assert shown["power"] == "1187/1200W"
    assert shown["memory-clock"] == "10501MHz"
    assert shown["pcie"] == "6×16 ↓118.2 ↑121.4"
    assert shown["temperature"] == "104°C"
    assert shown["fan"] == "–"


@every(range(40, 260, 7))
def test_lines_of_gpus_fit_with_any_fields(width: int) -> None:
    devices = tuple(machines.device(n) for n in range(16))
    for chosen in (DEFAULT_FIELDS, tuple(FIELDS), ("fan",), ("trend",), ()):
        at = fit_columns(width, devices, chosen)
        frames = 4 if at.gpu_bar > 1 else 0
        fixed = 2 + at.index + 1 + 6 + 6 + frames + 2
        used = fixed + at.name + at.gpu_bar + at.memory_bar + at.total + sum(f.line_cells for f in at.fields)
        assert used + (at.trend + 1 if at.trend else 0) <= width


# Saving


def saved(path: Path) -> dict[str, Any]:
    """What a file says; tables in which all is commented out are left out."""
    found = tomllib.loads(path.read_text())
    return {key: value for key, value in found.items() if value != {}}


async def test_w_saves_what_is_on_screen_and_the_next_start_shows_it(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage()
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        stage.app.theme = "gpuwatch-contrast"
        stage.app.set_preferences(columns=("pid", "cpu", "command"))
        stage.app.overview.processes.sort_by("pid")
        await press(pilot, "t", "slash", *"torch", "enter", "minus", "w")
        assert "saved, w again undoes it: " in stage.app.overview.keys.plain
    assert saved(default_path()) == {
        "theme": "gpuwatch-contrast",
        "interval": 2.0,
        "processes": {"columns": ["pid", "cpu", "command"], "sort": "pid", "tree": True, "filter": "torch"},
    }
    again = make_stage(settings=load_settings(default_path()))
    async with again.app.run_test(size=(120, 40)) as pilot:
        again.past(machines.pair, 5)
        await settle(pilot)
        assert again.app.theme == "gpuwatch-contrast"
        assert head(again) == ["PID", "CPU%", "COMMAND"]
        table = again.app.overview.processes
        assert (table.sort_column, table.sort_reverse) == ("pid", True)
        assert table.counts[0] == 1
        assert table.as_tree


@pytest.mark.parametrize("before", ["# mine\n", None])
async def test_w_again_undoes_what_was_saved(stage: Stage, before: str | None) -> None:
    path = default_path()
    if before is not None:
        path.write_text(before)
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        await press(pilot, "6", "t", "minus", "w")
        assert saved(path) == {"interval": 2.0}, "not the tab that happens to be open"
        await press(pilot, "w")
        assert "undone: " in stage.app.tab.keys.plain
        assert (path.read_text() if path.exists() else None) == before
        await pilot.press("w")
        path.write_text("# changed since\n")
        await press(pilot, "w")
        assert "saved, w again undoes it: " in stage.app.tab.keys.plain
    assert path.read_text().startswith("# changed since")
    assert saved(path) == {"interval": 2.0}


async def test_the_saved_tab_is_the_first_that_is_seen(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(settings=LoadedSettings(default_path(), Preferences(tab="events", read_only=True)))
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        assert stage.app.tab.TAB == "events"
        assert stage.app.session.read_only
        await press(pilot, "w")
    assert saved(default_path()) == {"tab": "events", "read-only": True}


async def test_a_broken_file_is_reported_and_never_written(make_stage: Callable[..., Stage]) -> None:
    path = default_path()
    path.write_text('theme = "gpuwatch-light"\ntab = 3\n')
    stage = make_stage(settings=load_settings(path))
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        assert "settings.toml: tab is 3" in stage.app.overview.keys.plain
        assert stage.app.theme == "gpuwatch-light", "the rest works"
        await press(pilot, "w")
        sheet = stage.screen(BrokenFile)
        assert "tab is 3" in sheet.pane.plain
        await press(pilot, "escape", "w")
        await press(pilot, "enter")
        assert path.read_text() == 'theme = "gpuwatch-light"\ntab = 3\n'
        other = path.with_name("settings-1.toml")
        assert saved(other) == {"theme": "gpuwatch-light"}
        # Once it is put right, w saves to it, without a restart.
        path.write_text("# fine\n")
        await press(pilot, "w")
    assert saved(path) == {"theme": "gpuwatch-light"}


async def test_an_unwritable_path_is_reported(make_stage: Callable[..., Stage], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    stage = make_stage(settings=LoadedSettings(tmp_path / "file" / "settings.toml", Preferences(interval=5)))
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        await press(pilot, "w")
        assert "cannot save to" in stage.app.overview.keys.plain


async def test_an_invalid_saved_filter_is_reported_and_kept(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        await pilot.press("slash", *"torch")
        table = stage.app.overview.processes
        assert table.counts[0] == 1
        await press(pilot, "space", *"mem>l")
        bar = stage.app.overview.filter_bar
        assert bar is not None
        assert "2GiB, not “l”" in bar._note.plain
        assert table.counts[0] == 1, "the other words are used"
        await pilot.press("enter")
        assert stage.app.overview.filter_bar is bar, "Enter does not keep what means nothing"
        await pilot.press("backspace", *"1GiB")
        assert "of" in bar._note.plain
        await pilot.press("enter")
        assert stage.app.overview.filter_bar is None
        assert table.filter is not None
        assert table.filter.text == "torch mem>1GiB"


async def test_the_table_of_the_gpu_tab_has_the_same_columns(stage: Stage) -> None:
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        await press(pilot, "2")
        table = stage.app.tab.query_one(ProcessTable)
        table.focus()
        await settle(pilot)
        assert "USER" in table.plain
        await pilot.press("c", "down", "down", "space", "escape")
        assert "USER" not in table.plain
        await press(pilot, "1")
        assert "USER" not in head(stage)


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (250, 80)])
async def test_the_chooser_can_be_walked_at_any_size(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(past=machines.pair, seconds=5, size=size) as pilot:
        await press(pilot, "c")
        sheet = stage.app.screen.query_one("#sheet", SheetPane)
        for column in COLUMNS:
            lines = sheet.plain.splitlines()
            assert len(lines) <= sheet.size.height
            marked = [line for line in lines if line.startswith("▶")]
            assert len(marked) == 1
            chooser = stage.screen(ChoiceSheet)
            assert f"] {chooser.choices[chooser.pane.cursor or 0].title} " in marked[0]
            assert column is not None
            await pilot.press("down")
        await pilot.press("end", "pageup", "home", "g", "G")
        assert sheet.plain.count("▶") == 1


async def test_an_unknown_key_is_reported_and_kept_by_saving(make_stage: Callable[..., Stage]) -> None:
    path = default_path()
    path.write_text("tree = true # of another version\n")
    stage = make_stage(settings=load_settings(path))
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        assert "ignored unknown key tree" in stage.app.overview.keys.plain
        stage.app.theme = "gpuwatch-light"
        await press(pilot, "w")
    assert saved(path) == {"tree": True, "theme": "gpuwatch-light"}
    assert "tree = true # of another version\n" in path.read_text()
