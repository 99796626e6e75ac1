"""Charts: parts that add up, phases, values for pointers and keys; what is folded and what sorts."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.run import Phases, Run, Worker
from gpuwatch.core.model.run_memory import DeviceMemory, Holding, Memory
from gpuwatch.core.model.try_results import Largest, Trial
from gpuwatch.share.reports.comparison_report import comparison_table
from gpuwatch.share.reports.report_elements import BarChart
from gpuwatch.share.reports.report_formats import render
from gpuwatch.share.reports.run_memory_tables import memory_bar_chart
from gpuwatch.share.reports.runs_side_by_side import compare
from gpuwatch.share.reports.try_report import trials_content
from tests.reports import diagnostics
from tests.reports.documents import GIB, MIB, UUID, bare_run, experiment, full_run, step_seconds, tried
from tests.reports.test_comparison import timed
from tests.ui.machines import pair

HELD = DeviceMemory(
    uuid=UUID,
    index=1,
    total_bytes=24 * GIB,
    used_bytes=15 * GIB,
    process_bytes=12 * GIB,
    others_bytes=2 * GIB,
    unexplained_bytes=GIB,
    driver_reserved_bytes=512 * MIB,
    context_bytes=320 * MIB,
)


def bars(held: DeviceMemory, **changes: Any) -> BarChart | None:
    run = full_run(workers=())
    return memory_bar_chart(
        msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, devices=(held,)), **changes)
    )


def test_the_parts_of_a_device_are_its_whole_memory() -> None:
    drawn = bars(HELD)
    assert drawn is not None
    device, process, allocator = drawn.rows
    assert [(part.name, part.amount) for part in device.parts] == [
        ("reserved by the driver", 512 * MIB),
        ("other processes", 2 * GIB),
        ("owned by no listed process", GIB),
        ("this process", 12 * GIB),
        ("free", 9 * GIB - 512 * MIB),
    ]
    assert sum(part.amount for part in device.parts) == drawn.top == 24 * GIB
    assert [(part.name, part.amount) for part in process.parts] == [
        ("CUDA context", 320 * MIB),
        ("allocators and the rest", 12 * GIB - 320 * MIB),
    ]
    # The framework's number is a bar of its own: its peak is of another moment and another source.
    assert [(part.amount, allocator.tick) for part in allocator.parts] == [(6 * GIB, 21464 * MIB)]


def test_what_is_not_known_is_no_part() -> None:
    unknown = msgspec.structs.replace(HELD, process_bytes=None, context_bytes=None, driver_reserved_bytes=None)
    drawn = bars(unknown)
    assert drawn is not None
    assert [part.name for part in drawn.rows[0].parts] == [
        "other processes",
        "owned by no listed process",
        "used, owner unknown",
    ]
    assert bars(msgspec.structs.replace(HELD, total_bytes=None)) is None
    assert memory_bar_chart(bare_run()) is None


def test_parts_that_exceed_the_whole_are_not_drawn() -> None:
    drawn = bars(msgspec.structs.replace(HELD, used_bytes=14 * GIB))
    assert drawn is not None
    assert [row.label for row in drawn.rows] == ["↳ this process", "↳ ↳ allocator of GPU:0"]


def test_processes_of_one_run_are_not_stacked_with_their_peaks() -> None:
    workers = (Worker(name="first", pid=11), Worker(name="second", pid=12))
    holders = tuple(Holding(pid=pid, own=True, peak_bytes=11 * GIB) for pid in (11, 12))
    drawn = bars(msgspec.structs.replace(HELD, process_bytes=None, holders=holders), workers=workers)
    assert drawn is not None
    (device,) = drawn.rows
    assert ("processes of this run", 12 * GIB) in [(part.name, part.amount) for part in device.parts]


def with_phases(**ended_at: float) -> Run:
    phases = Phases(import_seconds=2.0, device_init_seconds=0.3, first_step_seconds=0.4, ended_at=ended_at)
    return full_run(phases=phases)


def test_phases_are_marked_where_they_ended() -> None:
    drawn = render(with_phases(**{"import": 2.5, "device_init": 3.0, "first_step": 3.5, "steps": 5.0}), "html")
    assert "Phases: import: 0.50 to 2.50 s, took 2.00 s; device initialization: 2.70 to 3.00 s" in drawn
    assert "steps: 3.50 to 5.00 s" in drawn
    assert drawn.count('class="phase-end"') == 4


@pytest.mark.parametrize("ended_at", [{}, {"import": -1.0}, {"import": 0.1}, {"steps": 1e9}])
def test_phases_whose_end_was_not_seen_are_not_drawn(ended_at: dict[str, float]) -> None:
    assert "phase-end" not in render(with_phases(**ended_at), "html").partition("</style>")[2]


def test_values_of_the_timeline_have_titles() -> None:
    drawn = render(full_run(), "html")
    titles = re.findall(r'class="at"[^>]*><title>([^<]+)</title>', drawn)
    assert titles[0] == "0.0 s: device 512 MiB"
    assert titles[30].startswith("3.0 s: device ")
    assert "by the framework 6.0 GiB" in titles[30]


def test_comparisons_can_be_sorted_and_single_rows_cannot() -> None:
    assert 'class="dense sortable"' in render(compare([timed("a"), timed("b")]), "html")
    assert "dense sortable" not in render(compare([timed("a")]), "html")


def test_speed_and_memory_are_beside_each_other_where_speeds_may_be_compared() -> None:
    def titles(*runs: Run) -> list[str]:
        return [chart.title for chart in comparison_table(compare(runs), "Comparison").charts]

    memory = "GPU memory held on the busiest device"
    assert titles(timed("a"), timed("b")) == ["Steps per second", memory]
    simulated = {"simulated": True, "simulation": "driver"}
    assert titles(timed("a", **simulated), timed("b", **simulated)) == [memory]
    assert titles(timed("a"), timed("b", workload="conv")) == [memory]


@pytest.mark.parametrize(
    "document", [compare([full_run(), full_run(config="b")]), diagnostics.died()], ids=["comparison", "diagnostic"]
)
def test_no_two_landmarks_have_one_name(document: Any) -> None:
    drawn = render(document, "html")
    names = re.findall(r'<(?:section|nav|aside)[^>]* aria-label="([^"]+)"', drawn)
    assert len(names) == len(set(names))
    assert 'role="region"' not in drawn


def test_on_paper_one_failed_run_is_opened() -> None:
    def opened(*runs: Run) -> list[str]:
        return re.findall(r'<details class="part" id="([^"]+)" data-print>', render(compare(runs), "html"))

    assert opened(timed("a"), timed("b")) == []
    assert opened(timed("a"), timed("b", verdict="error"), timed("c", verdict="timeout")) == ["part-2"]


def test_a_run_without_devices_has_no_bars() -> None:
    assert memory_bar_chart(full_run(memory=Memory(allocator_peak_bytes=GIB))) is None


def test_values_are_compared_by_what_the_allocator_handed_out() -> None:
    """NVML reports the same of each: TensorFlow takes all memory at its start."""

    def of(batch: int, peak: int | None) -> Trial:
        run = full_run(group="run", verdict="ok", verdict_reason="", findings=(), primary=None)
        memory = msgspec.structs.replace(run.memory, allocator_peak_bytes=peak)
        return tried("default", values={"BATCH": str(batch)}, run=msgspec.structs.replace(run, memory=memory))

    found = Largest(name="BATCH", value=64, asked="default", confirmed=True, monotonic=True)
    content = trials_content(experiment(of(32, 2 * GIB), of(64, 3 * GIB), of(16, None), largest=found))
    (table,) = [table for table in content.tables if table.title == "Values tried"]
    column = table.heads.index("ALLOCATOR")
    assert [row[column] for row in table.rows] == ["–", "2.0 GiB", "3.0 GiB"]
    assert isinstance(table.charts[0], BarChart)
    assert table.charts[0].title == "Peak in use by the framework's allocator"
    assert [(row.label, row.parts[0].amount) for row in table.charts[0].rows] == [
        ("BATCH=32", 2 * GIB),
        ("BATCH=64", 3 * GIB),
    ]
    settings = trials_content(experiment(tried("default"), tried("growth")))
    assert all("ALLOCATOR" not in table.heads for table in settings.tables)


def test_the_table_of_try_says_why_a_step_has_no_time() -> None:
    run = full_run(config="default", group="run", verdict="ok", findings=(), primary=None, simulated=False)
    for step_time, told in ((None, True), (step_seconds(0.002), False)):
        trial = tried("default", run=run, steps=4, step_time=step_time)
        (table,) = [one for one in trials_content(experiment(trial)).tables if one.title == "Settings compared"]
        assert ("fewer than 6 timed steps" in table.note) is told


def test_a_gpu_of_whose_memory_no_part_is_known_has_an_empty_bar() -> None:
    shot = pair(0)
    keep = ("memory.total_bytes", "memory.used_bytes")
    devices = tuple(
        msgspec.structs.replace(one, readings={name: one.readings[name] for name in keep}) for one in shot.devices
    )
    bare = msgspec.structs.replace(shot, devices=devices, processes=())
    drawn = render(msgspec.structs.replace(diagnostics.died(), snapshot=bare), "html")
    assert f'aria-label="GPU {devices[0].index}: ' in drawn
