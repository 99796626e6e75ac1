"""Slurm jobs, pods and containers: a column where somebody has one, totals by it, and its field in the filter."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.ui.drawing.text_width import width_of
from gpuwatch.ui.tables.owner_totals import NO_JOB, job_of, totals
from gpuwatch.ui.tables.process_columns import job_text
from gpuwatch.ui.tables.process_filter import parse_process_filter
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press

JOBS = ("slurm job 4711", "slurm job 4711", "pod train-0", None)


def crowd(jobs: tuple[str | None, ...] = JOBS) -> Snapshot:
    rows = tuple(
        msgspec.structs.replace(
            machines.process(n, gpu=n % 2, readings={"gpu_memory_bytes": (n + 1) * machines.GIB}), container=job
        )
        for n, job in enumerate(jobs)
    )
    return machines.snapshot((machines.device(0), machines.device(1)), rows)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_column_is_there_only_where_somebody_has_a_job(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(crowd((None, None)), size=size) as pilot:
        table = stage.app.overview.processes
        assert "container" not in table.columns_on_screen
        await stage.show(pilot, crowd())
        assert "container" in table.columns_on_screen
        assert "JOB" in table.plain
        assert "job 4711" in table.plain
        assert "train-0" in table.plain


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_u_goes_from_users_to_jobs_to_processes(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.opened(crowd(), size=size) as pilot:
        overview = stage.app.overview
        await press(pilot, "u")
        assert overview.users is not None
        assert "USER" in overview.users.plain
        assert "by job" in overview.keys.plain
        await press(pilot, "u")
        assert "JOB" in overview.users.plain
        lines = [line for line in overview.users.plain.splitlines() if "job 4711" in line]
        assert len(lines) == 1
        assert "3.0 GiB" in lines[0]
        assert "no job" in overview.users.plain
        assert "all processes" in overview.keys.plain
        assert overview.users.item_under_cursor is not None
        while overview.users.item_under_cursor.name != "slurm job 4711":
            await pilot.press("down")
        await press(pilot, "enter")
        assert {row.container for row in overview.processes.items if isinstance(row, Process)} == {"slurm job 4711"}
        assert overview.processes.filter is not None
        assert overview.processes.filter.text == 'job:"slurm job 4711"'
        assert overview.focused_pane == "processes"


async def test_without_jobs_u_goes_back_at_once_and_esc_always_does(stage: Stage) -> None:
    async with stage.opened(crowd((None, None))) as pilot:
        overview = stage.app.overview
        await press(pilot, "u", "u")
        assert overview.users is None
        await stage.show(pilot, crowd())
        await press(pilot, "u", "u", "escape")
        assert overview.users is None
        assert overview.processes.has_focus


@given(st.lists(st.sampled_from(JOBS), max_size=8))
def test_totals_by_job_are_those_of_its_processes(jobs: list[str | None]) -> None:
    rows = crowd(tuple(jobs)).processes
    found = totals(rows, job_of)
    assert {one.name for one in found} == {job or NO_JOB for job in jobs}
    for one in found:
        mine = [row for row in rows if (row.container or NO_JOB) == one.name]
        assert one.processes == len(mine)
        assert one.memory.value == sum(row.number("gpu_memory_bytes") or 0 for row in mine)
        if one.name != NO_JOB:
            for word in (f'job:"{one.name}"', f'container:"{one.name}"'):
                wanted = parse_process_filter(word)
                assert wanted is not None
                assert [row for row in rows if wanted(row, 0.0)] == mine


@given(
    st.sampled_from(("slurm job 4711", "pod train-0", "container 4f1d4f1d4f1d", "pod 4f1d4f1d4f1d")),
    st.integers(10, 30),
)
def test_a_job_keeps_its_number_where_there_is_no_room_for_its_kind(job: str, width: int) -> None:
    text = job_text(job, width)
    assert job.endswith(text)
    assert text.endswith(job.rpartition(" ")[2])
    assert width_of(text) <= width or " " not in text
