"""Totals by user."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.ui.tables.owner_totals import totals
from gpuwatch.ui.widgets.owner_table import OwnerTable
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press, settle

GIB = machines.GIB


def row(user: str | None, pid: int, gpu: int, held: float | None, cpu: float | None = 50.0) -> Process:
    lacks = {"gpu_memory_bytes": held, "cpu_percent": cpu}
    readings = {name: value for name, value in lacks.items() if value is not None} | {"host_memory_bytes": GIB}
    if held is not None:
        readings["gpu_memory_bytes"] = int(held * GIB)
    missing = {name: machines.DENIED for name, value in lacks.items() if value is None}
    return machines.process(0, gpu=gpu, pid=pid, create_time=float(pid), user=user, readings=readings, missing=missing)


def crowd(tick: int = 0) -> Snapshot:
    rows = (
        row("alice", 10, 0, 8.0),
        row("alice", 10, 1, 4.0),
        row("alice", 11, 1, 1.0, cpu=25.0),
        row("bob", 20, 0, 20.0),
        row("bob", 21, 1, None),
        row("bobby", 30, 1, 2.0, cpu=None),
        row(None, 40, 0, 0.5),
    )
    lost = machines.device(1, readings={"memory.unexplained_bytes": 3 * GIB})
    return machines.snapshot((machines.device(0), lost), rows, tick=tick)


def test_sums_by_user() -> None:
    bob, alice, bobby, nobody = totals(crowd().processes)
    assert [one.name for one in (bob, alice, bobby, nobody)] == ["bob", "alice", "bobby", None]
    assert (alice.processes, alice.memory.value, alice.cpu.value) == (2, 13 * GIB, 75.0)
    assert alice.host_memory.value == 2 * GIB, "a process on two GPUs has its memory once"
    assert {gpu: held.value for gpu, held in alice.by_gpu.items()} == {0: 8 * GIB, 1: 5 * GIB}
    assert bob.memory.missing
    assert bob.memory.shown(str) == f"≥{20.0 * GIB}"
    assert bob.by_gpu[1].shown(lambda value: "–" if value is None else "?") == "–", "unknown is no zero"
    assert bobby.cpu.value is None


def table(stage: Stage) -> OwnerTable:
    users = stage.app.overview.users
    assert users is not None
    return users


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_table_and_back(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(crowd(), size=size) as pilot:
        await press(pilot, "u")
        overview = stage.app.overview
        assert not overview.processes.region.height
        assert table(stage).region.height
        lines = {line.strip("│ ▶┃").split()[0]: line for line in table(stage).plain.splitlines() if line.strip("│ ▶┃")}
        assert "13.0 GiB" in lines["alice"]
        assert "8.0 GiB" in lines["alice"]
        assert "5.0 GiB" in lines["alice"]
        assert "75" in lines["alice"]
        assert "≥20.0 GiB" in lines["bob"]
        assert "–" in lines["bobby"]
        assert "3.0 GiB" in lines["unexplained"]
        assert all(len(line) <= size[0] for line in table(stage).plain.splitlines())
        assert "all processes" in overview.keys.plain
        await press(pilot, "down", "enter")
        assert overview.processes.region.height
        assert stage.app.overview.users is None
        assert {one.user for one in overview.processes.items if isinstance(one, Process)} == {"alice"}
        assert "only user:alice; Esc shows all processes" in overview.keys.plain
        assert size[0] > 80 or "(Esc)" in overview.keys.plain, "the message does not hide the filter"
        await press(pilot, "u")
        assert "bob" not in table(stage).plain, "the filter holds for the totals too"
        await press(pilot, "escape")
        assert overview.focused_pane == "processes"


async def test_the_cursor_stays_with_its_user_and_names_are_exact(stage: Stage) -> None:
    async with stage.opened(crowd()) as pilot:
        await pilot.press("u", "down", "down")
        chosen = table(stage).item_under_cursor
        assert chosen is not None
        assert chosen.name == "bobby"
        more = row("bobby", 31, 0, 60.0)
        shot = crowd(1)
        await stage.show(pilot, machines.snapshot(shot.devices, (*shot.processes, more), tick=1))
        chosen = table(stage).item_under_cursor
        assert chosen is not None
        assert chosen.name == "bobby"
        await press(pilot, "down", "enter")
        rows = stage.app.overview.processes.items
        assert {one.pid for one in rows if isinstance(one, Process)} == {20, 21}, "bob, not bobby"


async def test_nobody_cannot_be_picked_and_a_tiny_terminal_hides_it(stage: Stage) -> None:
    async with stage.opened(crowd()) as pilot:
        await press(pilot, "u", "end", "enter")
        assert "cannot be filtered" in stage.app.overview.keys.plain
        await pilot.resize_terminal(20, 5)
        await settle(pilot)
        assert [w.id for w in stage.app.overview.children if w.display and w.region.height] == ["too-small"]


@pytest.mark.parametrize("gpus", [1, 8, 16])
async def test_every_gpu_of_a_user_is_named_if_columns_do_not_fit(stage: Stage, gpus: int) -> None:
    async with stage.app.run_test(size=(80, 24)) as pilot:
        rows = tuple(row("alice", 10 + gpu, gpu, gpu + 1.0) for gpu in range(min(gpus, 4)))
        await stage.show(pilot, machines.snapshot(tuple(machines.device(gpu) for gpu in range(gpus)), rows))
        await press(pilot, "u")
        for gpu in range(min(gpus, 4)):
            assert f"{gpu + 1}.0" in table(stage).plain


async def test_without_gpus_there_are_totals_too(stage: Stage) -> None:
    async with stage.opened(machines.no_driver()) as pilot:
        await press(pilot, "u")
        assert "alice" in table(stage).plain
        assert "GPU-MEM" not in table(stage).plain


async def test_hostile_names_of_users(stage: Stage) -> None:
    async with stage.opened(machines.hostile()) as pilot:
        await press(pilot, "u")
        text = table(stage).plain
        assert not set(text) & set("\x1b\x07\t\r\u202e\u202c")
        assert "[bold red]" in text
        await press(pilot, "enter")
        assert not set(stage.app.overview.processes.plain) & set("\x1b\x07\t\r\u202e\u202c")


async def test_shares_by_gpu_are_in_words_if_there_is_room(stage: Stage) -> None:
    async with stage.app.run_test(size=(90, 24)) as pilot:
        rows = (row("alice", 10, 0, 14.4), row("alice", 11, 5, 44.8))
        await stage.show(pilot, machines.snapshot(tuple(machines.device(gpu) for gpu in range(8)), rows))
        await press(pilot, "u")
        assert "14.4 GiB  GPU 5: 44.8 GiB" in table(stage).plain


@pytest.mark.parametrize("gpus", [8, 16])
async def test_many_gpus_on_a_small_terminal_are_never_cut(stage: Stage, gpus: int) -> None:
    rows = tuple(row("alice", 10 + n, n, 92.0 + 5 * n) for n in range(gpus))
    async with stage.opened(
        machines.snapshot(tuple(machines.device(n) for n in range(gpus)), rows), size=(80, 24)
    ) as pilot:
        await press(pilot, "u")
        text = next(line for line in table(stage).plain.splitlines() if "alice" in line)
        assert "…" not in text
        for n in range(8) if gpus == 8 else (15, 14):
            assert f"{92 + 5 * n}" in text
        if gpus == 16:
            assert "15:167G +" in text, "those with most are told, and how many more there are"


async def test_little_memory_of_a_user_is_not_none(stage: Stage) -> None:
    async with stage.opened(
        machines.snapshot((machines.device(0),), (row("alice", 10, 0, 2 / 1024), row("bob", 11, 0, 0)))
    ) as pilot:
        await press(pilot, "u")
        lines = {name: line for line in table(stage).plain.splitlines() for name in ("alice", "bob") if name in line}
        assert "<0.1 GiB" in lines["alice"]
        assert "0.0 GiB" in lines["bob"]


@pytest.mark.parametrize("word", ["bobby", "BOBBY"])
async def test_a_typed_name_finds_its_user_and_runs_no_keys(stage: Stage, word: str) -> None:
    async with stage.opened(crowd(), size=(80, 24)) as pilot:
        await pilot.press("u", *word)  # in one burst: the list is only about to open
        await settle(pilot)
        chosen = table(stage).item_under_cursor
        assert chosen is not None
        assert chosen.name == "bobby"
        assert "type a name" in stage.app.overview.keys.plain
        await press(pilot, "enter")
        assert {one.user for one in stage.app.overview.processes.items if isinstance(one, Process)} == {"bobby"}


async def test_letters_that_no_name_has_run_no_keys(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    run = stage.app.run_action

    async def noted(action: str, *rest: Any, **more: Any) -> bool:
        did = await run(action, *rest, **more)
        ran.extend([action] if did else [])
        return did

    monkeypatch.setattr(stage.app, "run_action", noted)
    async with stage.opened(crowd(), size=(80, 24)) as pilot:
        await press(pilot, "u")
        ran.clear()
        await press(pilot, *"zywrqKPSLIdfnst")
        assert ran == []
        assert stage.app.overview.users is not None
        assert "begins with" in stage.app.overview.keys.plain
