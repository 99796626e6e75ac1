"""How a run's end, its times and its charts are shown: red is a failure, a part is within its whole."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Oom, Phases, RunError, RunProcess, Worker
from gpuwatch.core.model.run_memory import DeviceMemory, Holding, MemoryPoint
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.share.gather_diagnostic import _why_none
from gpuwatch.share.reports import bar_charts, memory_over_time
from gpuwatch.share.reports.comparison_report import comparison_content
from gpuwatch.share.reports.report_formats import render
from gpuwatch.share.reports.run_memory_tables import memory_table
from gpuwatch.share.reports.run_report import run_content
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.reports.documents import GIB, MIB, full_run

SHOWN = {"config": "contention", "verdict": "oom", "ooms": (Oom(expected=True),), "findings": (), "errors": ()}
FAILED = Finding(id="memory.other-process", severity="error", certainty="fact", title="Others held it")


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        (SHOWN, "info"),
        ({**SHOWN, "ooms": (Oom(expected=True), Oom())}, "error"),
        ({**SHOWN, "findings": (FAILED,)}, "error"),
        ({"verdict": "error"}, "error"),
    ],
)
def test_an_expected_failure_is_not_red(changes: dict[str, Any], state: str) -> None:
    run = full_run(**changes)
    content = run_content(run)
    assert content.state == state
    assert ("as expected" in content.verdict) == (state == "info")
    assert ("✖" in render(compare([run]), "text", width=200)) == (state == "error")


def test_a_process_that_was_interrupted_ended_in_no_exception() -> None:
    errors = (
        RunError(type="KeyboardInterrupt", message="", by_signal=True),
        RunError(type="KeyboardInterrupt", message=""),
        RunError(type="ValueError", message="shapes"),
    )
    processes = tuple(RunProcess(pid=pid, errors=(error,)) for pid, error in enumerate(errors, 7))
    for verdict, told in (("interrupted", "interrupted"), ("error", "KeyboardInterrupt")):
        run = full_run(processes=processes, verdict=verdict)
        table = next(table for table in run_content(run).tables if table.title == "Processes")
        ends = [row[table.heads.index("Ended in")] for row in table.rows]
        assert ends == ["interrupted", told, "ValueError"]


def test_no_phase_is_longer_than_the_whole() -> None:
    phases = Phases(import_seconds=5.0, device_init_seconds=0.2, first_step_seconds=0.1, total_seconds=0.9)
    table = next(table for table in run_content(full_run(phases=phases)).tables if table.title == "Time")
    assert [row[0] for row in table.rows] == ["Device initialization", "First step", "Total"]
    assert "import: 5.00 s, before this" in table.note
    fresh = msgspec.structs.replace(phases, total_seconds=6.0)
    table = next(table for table in run_content(full_run(phases=fresh)).tables if table.title == "Time")
    assert len(table.rows) == 4
    assert table.note == ""


def test_an_unchanging_timeline_is_not_drawn() -> None:
    run = full_run()
    idle = tuple(MemoryPoint(t=t / 10, device_used_bytes=300 * MIB, process_bytes=0) for t in range(9))
    empty = full_run(memory=msgspec.structs.replace(run.memory, timeline=idle))
    assert memory_over_time.memory_changed(run)
    assert not memory_over_time.memory_changed(empty)
    assert 'class="chart"' in render(run, "html")
    assert 'class="chart"' not in render(empty, "html").partition("Throughput")[0]
    none = [("a", full_run(memory=msgspec.structs.replace(run.memory, nvml_peak_bytes=0)))] * 2
    assert bar_charts.held_memory_chart(none) is None


def test_what_was_not_gathered_is_listed() -> None:
    assert (
        _why_none(0, "gpuwatch probe", some_unread=False)
        == "this user has not saved any; to create one: gpuwatch probe"
    )
    assert "none of the saved ones (3)" in _why_none(3, "gpuwatch probe", some_unread=False)
    assert "could be read" in _why_none(0, "gpuwatch probe", some_unread=True)


def test_a_comparison_names_machine_gpus_driver_version_and_date() -> None:
    subtitle = comparison_content(compare([full_run(), full_run(config="default")])).subtitle
    run = full_run()
    for part in (run.host, "RTX 4090", f"driver {run.driver_version}", "tensorflow 2.21.0", "2026-11-20"):
        assert part
        assert part in subtitle


def test_several_processes_have_a_line_each() -> None:
    workers = (
        Worker(name="first", setting="default", pid=11, granted_bytes=2 * GIB, nvml_bytes=2 * GIB),
        Worker(name="second", setting="default", pid=12, verdict="oom", granted_bytes=GIB, nvml_bytes=GIB),
        Worker(name="first", setting="growth", pid=13, nvml_bytes=GIB),
        Worker(name="second", setting="growth", pid=14, nvml_bytes=GIB),
    )
    held = DeviceMemory(
        uuid="GPU-1",
        index=0,
        total_bytes=4 * GIB,
        used_bytes=3 * GIB,
        holders=tuple(Holding(pid=worker.pid or 0, own=True, peak_bytes=worker.nvml_bytes) for worker in workers),
    )
    run = full_run(**{**SHOWN, "workers": workers, "verdict_reason": "", "settings": {}})
    run = msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, devices=(held,)))
    rows = {row[0]: row[2] for row in memory_table(run).rows}
    assert rows["↳ ↳ Process first (11), default"] == "2.0 GiB"
    assert rows["↳ ↳ Process second (12), default"] == "1.0 GiB"
    assert not any("This process" in owner or "Allocator" in owner for owner in rows)
    story = dict(run_content(run).facts)
    assert story["asked"] == "one after another: default, growth"
    assert story["seen by NVML"].startswith("the largest process")
    told = complete(run, LogFacts(), None).verdict_reason
    assert told == (
        "With default the second process ran out of memory alongside the first, which held 2.0 GiB;"
        " with growth both succeeded (expected)."
    )
