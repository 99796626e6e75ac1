"""Processes as a tree, on screen and as a pure function."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.snapshot import Ancestor, Process, Snapshot
from gpuwatch.ui.screens.process import ProcessScreen
from gpuwatch.ui.screens.signal_sheet import SignalSheet
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID
from gpuwatch.ui.tables.process_filter import parse_process_filter
from gpuwatch.ui.tables.process_table_rows import filtered_rows, sorted_rows, table_rows, tree_branches
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press

GIB = machines.GIB


def ancestor(pid: int, command: str, user: str = "alice") -> Ancestor:
    return Ancestor(pid=pid, create_time=1_778_000_000.0 + pid, user=user, command=command, name=command.split()[0])


def row(pid: int, held: float, gpu: int = 0, command: str = "python worker.py", **changes: object) -> Process:
    readings = {"gpu_memory_bytes": int(held * GIB)}
    return machines.process(1, gpu=gpu, pid=pid, create_time=float(pid), command=command, readings=readings, **changes)


def family(tick: int = 0) -> Snapshot:
    """bash 10 > torchrun 20 > workers 31 and 32 (on both GPUs) > 40; jupyter 60 alone; an orphan 50."""
    rows = (
        row(31, 1.0),
        row(32, 30.0),
        row(32, 20.0, gpu=1),
        row(40, 2.0, command="nvcc"),
        row(60, 10.0, command="python kernel.py", user="carol"),
        row(50, 5.0, command="orphan"),
    )
    return machines.snapshot(
        (machines.device(0), machines.device(1, readings={"memory.unexplained_bytes": 3 * GIB})),
        rows,
        tick=tick,
        parents={31: 20, 32: 20, 20: 10, 10: 5, 40: 32, 60: 55, 55: 5},
        ancestors=(
            ancestor(5, "tmux"),
            ancestor(10, "bash -l"),
            ancestor(20, "torchrun train.py --token verysecret"),
            ancestor(55, "jupyter-lab", "carol"),
        ),
    )


def drawn(snapshot: Snapshot, column: str = "memory", wanted: str = "", *, reverse: bool = True) -> list[str]:
    rows = sorted_rows(
        filtered_rows(table_rows(snapshot), parse_process_filter(wanted), 0.0), COLUMN_BY_ID[column], reverse=reverse
    )
    return [
        f"{branch.lead}{branch.row.pid if isinstance(branch.row, Process) else 'unexplained'}"
        + ("" if branch.requested else " (joins)")
        for branch in tree_branches(rows, snapshot)
    ]


def test_children_stand_below_those_who_started_them() -> None:
    assert drawn(family()) == [
        "5 (joins)",
        "├─ 20 (joins)",
        "│  ├─ 32",
        "│  │  │  32",
        "│  │  └─ 40",
        "│  └─ 31",
        "└─ 55 (joins)",
        "   └─ 60",
        "50",
        "unexplained",
    ]


def test_the_order_is_that_of_the_column_within_each_branch() -> None:
    assert drawn(family(), "pid", reverse=False) == [
        "5 (joins)",
        "├─ 20 (joins)",
        "│  ├─ 31",
        "│  └─ 32",
        "│     │  32",
        "│     └─ 40",
        "└─ 55 (joins)",
        "   └─ 60",
        "50",
        "unexplained",
    ]


def test_a_filter_leaves_what_joins_those_that_match() -> None:
    assert drawn(family(), wanted="cmd:nvcc") == ["32 (joins)", "└─ 40"]
    assert drawn(family(), wanted="user:carol") == ["55 (joins)", "└─ 60"]
    assert drawn(family(), wanted="pid:31") == ["20 (joins)", "└─ 31"]


def test_without_parents_it_is_a_list() -> None:
    shot = machines.many(2, 6)
    assert drawn(shot) == [str(one.pid) for one in sorted_rows(table_rows(shot), COLUMN_BY_ID["memory"], reverse=True)]  # type: ignore[union-attr]


@given(st.dictionaries(st.integers(2, 30), st.integers(2, 30)), st.sets(st.integers(2, 30), max_size=12))
def test_every_row_once_whatever_the_parents(parents: dict[int, int], pids: set[int]) -> None:
    """Circles among them, parents of which nothing is known, gaps."""
    rows = tuple(row(pid, 1.0) for pid in sorted(pids))
    known = tuple(ancestor(pid, "sh") for pid in range(2, 20) if pid not in pids)
    shot = machines.snapshot((machines.device(0),), rows, parents=parents, ancestors=known)
    made = tree_branches(rows, shot)
    asked = [branch.row.key for branch in made if branch.requested]
    circular = {pid for pid in pids if _in_circle(pid, parents)}
    assert sorted(key[1] for key in asked if key[1] not in circular) == sorted(pids - circular)
    assert len(asked) == len(set(asked))


def _in_circle(pid: int, parents: dict[int, int]) -> bool:
    seen: set[int] = set()
    at: int | None = pid
    while at is not None and at not in seen:
        seen.add(at)
        at = parents.get(at)
    return at is not None


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_table_draws_it_with_sort_filter_and_cursor(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(family(), size=size) as pilot:
        table = stage.app.overview.processes
        await pilot.press("down", "down", "down")
        chosen = table.item_under_cursor
        await press(pilot, "t")
        assert "├─ " in table.plain
        assert "└─ " in table.plain
        assert table.item_under_cursor is chosen, "the cursor stays with its process"
        assert table.counts == (6, 6)
        assert "verysecret" not in table.plain
        lines = [line for line in table.plain.splitlines() if "torchrun" in line]
        assert len(lines) == 1
        assert " – " in lines[0]
        await stage.show(pilot, family(1))
        assert "├─ " in table.plain
        await press(pilot, "slash", *"nvcc", "enter")
        assert table.counts == (1, 6)
        assert [one.pid for one in table.items if isinstance(one, Process)] == [32, 40]
        await press(pilot, "escape", "t")
        assert "├─ " not in table.plain


async def test_a_launcher_can_be_looked_at_tagged_and_signalled(stage: Stage) -> None:
    async with stage.opened(family()) as pilot:
        await pilot.press("t", "home", "down")
        table = stage.app.overview.processes
        assert isinstance(table.item_under_cursor, Process)
        assert table.item_under_cursor.pid == 20
        await pilot.press("space")
        await stage.show(pilot, family(1))
        assert [one.pid for one in table.tagged] == [20], "a new sample keeps the tag"
        await press(pilot, "K")
        assert isinstance(stage.app.screen, SignalSheet)
        assert "torchrun train.py --token •••" in stage.app.screen.pane.plain
        await press(pilot, "escape", "up", "enter")
        screen = stage.screen(ProcessScreen)
        assert "20  alice" in screen.identity.plain
        assert "uses no GPU" in screen.facts.plain
        assert "no longer" not in screen.identity.plain


async def test_hostile_commands_in_a_tree(stage: Stage) -> None:
    shot = machines.hostile()
    evil = shot.processes[0].command or ""
    pids = [one.pid for one in shot.processes]
    async with stage.app.run_test(size=(120, 40)) as pilot:
        parents = dict.fromkeys(pids, 7)
        await stage.show(
            pilot, machines.snapshot(shot.devices, shot.processes, parents=parents, ancestors=(ancestor(7, evil),))
        )
        await press(pilot, "t")
        text = stage.app.overview.processes.plain
        assert not set(text) & set("\x1b\x07\t\r\u202e\u202c")
        assert len(text.splitlines()) == stage.app.overview.processes.size.height
        assert "\\x1b[2J" in text
