"""Runs side by side: columns that appear, best and worst among equals, differences explained."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Framework, Oom, Placement, PredictedMapping, Run, Setting
from gpuwatch.core.model.run_memory import Memory
from gpuwatch.share.reports.comparison_report import comparison_content
from gpuwatch.share.reports.report_formats import render
from gpuwatch.share.reports.runs_side_by_side import COLUMNS, compare, run_labels, start_times
from tests.reports.documents import GIB, MIB, STARTED, bare_run, full_run, speed

FLOAT = (Placement(op="MatMul", dtype="float32", actual="/device:GPU:0"),)


def timed(config: str, step: float = 0.002, *, held: int = 10 * GIB, spread: float = 0.02, **changes: Any) -> Run:
    fields: dict[str, Any] = {
        "verdict": "ok",
        "verdict_reason": "",
        "throughput": speed(step, spread),
        "workload_parameters": {"size": 512, "seconds": 1},
        "placements": FLOAT,
        "fallbacks": (),
        "findings": (),
        "primary": None,
        "settings": {},
        "predicted": None,
        "log_tail": (),
        # The speeds of simulated GPUs are compared with nobody's.
        "simulated": False,
        "simulation": None,
    }
    run = full_run(config=config, **{**fields, **changes})
    return msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, nvml_peak_bytes=held))


@pytest.mark.parametrize(
    ("column", "changes"),
    [
        ("framework", {"framework": Framework(name="tensorflow", version="2.16.2")}),
        ("host", {"host": "node08"}),
        ("gpus", {"gpus": ("0 NVIDIA H200 GPU-1",)}),
        ("driver", {"driver_version": "550.1"}),
        ("workload", {"workload_parameters": {"size": 1024}}),
        ("workload", {"workload": "mlp"}),
    ],
)
def test_a_column_appears_only_where_the_runs_differ_in_it(column: str, changes: dict[str, Any]) -> None:
    assert compare([timed("a"), timed("b")]).columns == tuple(name for name, _, _ in COLUMNS)
    columns = compare([timed("a"), timed("b", **changes)]).columns
    assert column in columns
    assert columns[0] == "config"


def test_best_and_worst_of_comparable_runs_are_marked_in_every_format_for_people() -> None:
    document = compare([timed("slow", 0.004, held=20 * GIB), timed("middle", 0.003), timed("fast", 0.002, held=GIB)])
    assert document.best_run == {"steps_per_second": 2, "seen_by_nvml": 2}
    assert document.worst_run == {"steps_per_second": 0, "seen_by_nvml": 0}
    for name in ("text", "markdown", "html"):
        drawn = render(document, name, width=200)
        assert "★ 500" in drawn
        assert "▽ 250" in drawn


@pytest.mark.parametrize(
    "changes",
    [
        {"workload_parameters": {"size": 64}},
        {"workload": "mlp"},
        {"placements": (Placement(op="MatMul", dtype="float16", actual="/device:GPU:0"),)},
        {"simulated": True, "simulation": "plugin"},
        {"throughput": msgspec.structs.replace(speed(0.0001), execution="in a TF1 session")},
        {"throughput": speed(0.0001, device="/device:CPU:0")},
        {"verdict": "oom"},
    ],
)
def test_a_run_of_other_work_or_another_kind_of_device_is_never_best(changes: dict[str, Any]) -> None:
    fields = {"throughput": speed(0.0001), **changes}
    document = compare([timed("a", 0.004), timed("b", 0.003), timed("odd", **fields)])
    assert document.comparable == (0, 1)
    assert document.best_run["steps_per_second"] == 1
    assert any("not with odd" in note for note in document.notes)
    assert "°" in render(document, "text", width=220)


def test_real_gpus_of_two_machines_are_compared() -> None:
    real = {"simulated": False, "simulation": None}
    document = compare([timed("limit", 0.004, **real), timed("limit", 0.002, host="b", gpus=("0 X GPU-2",), **real)])
    assert document.comparable == (0, 1)
    # One configuration twice: the mark stands at one of the two.
    assert document.best_run["steps_per_second"] == 1
    assert render(document, "text", width=220).count("★ 500") == 1
    assert "★ 250" not in render(document, "text", width=220)


def test_noisy_speeds_are_flagged() -> None:
    document = compare([timed("calm"), timed("wild", spread=0.3)])
    assert any("uncertain" in note and "wild" in note and "calm" not in note for note in document.notes)
    assert "▲" in render(document, "text", width=220)
    assert "▲" not in render(compare([timed("calm"), timed("calm too")]), "text", width=220)


def test_the_median_of_many_steps_is_compared_however_much_single_ones_vary() -> None:
    """On an H200, blocks of steps of 0.37 ms spread by 11 %, the medians of equal runs by 1.5 %."""

    def measured(name: str, step_seconds: float) -> Any:
        interval = {"median_low_seconds": 0.99 * step_seconds, "median_high_seconds": 1.01 * step_seconds}
        return timed(name, throughput=msgspec.structs.replace(speed(step_seconds, spread=0.3), **interval))

    default, async_allocator, slow = measured("default", 370e-6), measured("async", 380e-6), measured("slow", 740e-6)
    document = compare([default, async_allocator, slow])
    assert not any("unreliable" in note for note in document.notes)
    alike, half = document.differences
    assert "same speed within noise" in alike.text.lower()
    assert "times as" in half.text


def test_a_difference_names_setting_effect_and_cause() -> None:
    held = Finding(id="idle.memory-held", severity="info", certainty="fact", title="Much was taken, little used")
    default = timed("default", 0.002, held=22 * GIB, findings=(held,))
    mapping = msgspec.structs.replace(default.device_map[0], granted_bytes=1024 * MIB)
    limit = timed(
        "limit",
        0.004,
        held=GIB,
        settings={"memory_limit": Setting(asked=1024)},
        device_map=(mapping,),
        predicted=(
            PredictedMapping(
                framework_device="/device:GPU:0",
                uuid="u",
                physical_index=0,
                cuda_ordinal=0,
                granted_bytes=1024 * MIB,
                how="memory_limit 1024 MB",
            ),
        ),
    )
    (told,) = compare([default, limit]).differences
    assert (told.run, told.against, told.causes) == (1, 0, ("idle.memory-held",))
    assert told.text == (
        "limit against default: requests memory_limit 1024 MiB."
        " Granted 1.0 GiB instead of 21.0 GiB (memory_limit 1024 MB); NVML saw 1.0 GiB instead of 22.0 GiB;"
        " it takes 2.00 times as long (250 ±3 against 500 ±5 steps/s)."
        " default has idle.memory-held: Much was taken, little used."
    )


def test_runs_are_compared_with_default_or_their_neighbour() -> None:
    def pairs(*names: str) -> list[tuple[int, int]]:
        return [(entry.run, entry.against) for entry in compare([timed(name) for name in names]).differences]

    assert pairs("growth", "default", "limit") == [(0, 1), (2, 1)]
    assert pairs("growth", "limit", "fraction") == [(1, 0), (2, 1)]
    assert pairs("limit", "growth", "limit", "growth") == [(2, 0), (3, 1)]
    assert pairs("limit") == []


def test_two_versions_of_the_framework_are_distinct() -> None:
    old = Framework(name="tensorflow", version="2.16.2")
    line = "2026-11-20 07:00:00.1: I external/local_xla/gpu_device.cc:19{}] Created device {} with 1 MB memory"
    first = timed("limit", 0.002, log_tail=(line.format(1, "GPU:0"),))
    again = timed("limit", 0.003, framework=old, log_tail=(line.format(2, "GPU:0"), line.format(3, "of old")))
    (told,) = compare([first, again]).differences
    assert "against (tensorflow 2.21.0)" in told.text
    assert "it takes 1.50 times as long" in told.text
    assert "that the other lacks" in told.text
    assert "Created device of old" in told.text
    (same,) = compare([first, msgspec.structs.replace(first, framework=old)]).differences
    assert "same speed within noise" in same.text
    assert "log has" not in same.text


def test_a_crash_against_a_success_says_why() -> None:
    crashed = timed("limit", verdict="oom", verdict_reason="One request is larger than the limit.", throughput=None)
    (told,) = compare([timed("default"), crashed]).differences
    assert "Verdict oom instead of ok (" in told.text
    assert "speed" not in told.text


@pytest.mark.parametrize(
    ("changes", "bad"),
    [
        ({}, False),
        ({"verdict": "skipped"}, False),
        ({"verdict": "timeout"}, True),
        ({"verdict": "oom", "ooms": (Oom(expected=True),)}, False),
        ({"verdict": "oom", "ooms": (Oom(expected=True), Oom())}, True),
        ({"verdict": "oom", "ooms": ()}, True),
    ],
)
def test_an_expected_end_is_not_a_failure(changes: dict[str, Any], bad: bool) -> None:
    drawn = render(compare([timed("a", **changes)]), "text", width=200)
    assert ("1 of 1 failed" in drawn) == bad


@pytest.mark.parametrize(("severity", "sign"), [("error", "✖"), ("warning", "▲"), ("info", "●")])
def test_a_pass_has_the_sign_of_its_worst_finding_alone_and_beside_others(severity: Any, sign: str) -> None:
    worst = Finding(id="config.inconsistent", severity=severity, certainty="fact", title="Settings conflict")
    note = Finding(id="healthy", severity="info", certainty="fact", title="well")
    run = timed("a", findings=(note, worst))
    assert f"{sign}\u00a0ok" in render(compare([run, timed("b", 0.004)]), "text", width=200)
    assert render(run, "text", width=200).splitlines()[1].startswith(f"{sign} ok"), "the report on this run"


def test_runs_of_one_configuration_are_numbered() -> None:
    later = full_run(started_at=STARTED + datetime.timedelta(seconds=90))
    document = compare([full_run(), later, bare_run()])
    assert run_labels(document.runs) == ("soft-missing #1", "soft-missing #2", "growth")
    assert "started" in document.columns
    for name in ("text", "markdown", "html"):
        drawn = render(document, name, width=140).replace("\\", "").replace("<wbr>", "")
        for part in ("soft-missing #1", "soft-missing #2", "06:30:00", "06:31:30"):
            assert part in drawn
    real = [msgspec.structs.replace(run, simulated=False) for run in (full_run(), later)]
    drawn = render(compare(real), "html")
    assert 'aria-label="soft-missing #2: 412' in drawn, "charts tell them apart, too"
    alone = compare([full_run(), bare_run()])
    assert "started" not in alone.columns
    assert run_labels(alone.runs) == ("soft-missing", "growth")


def test_times_of_several_days_have_their_dates() -> None:
    later = full_run(started_at=STARTED + datetime.timedelta(days=1))
    assert start_times([full_run(), later]) == ("2026-11-20 06:30", "2026-11-21 06:30")


def test_what_a_variable_did_is_no_second_request() -> None:
    visible = {
        "CUDA_VISIBLE_DEVICES": Setting(asked="-1", effective="-1"),
        "GPUs left": Setting(asked="by CUDA_VISIBLE_DEVICES", effective=0),
    }
    (difference,) = compare([timed("default"), timed("cpu-only", settings=visible)]).differences
    assert difference.text.startswith("cpu-only against default: ")


def test_one_run_alone_is_not_called_several() -> None:
    other = timed("other", workload="conv 64")
    notes = " ".join(compare([timed("default"), other]).notes)
    assert "1 runs" not in notes
    assert "The speed of default (matmul" in notes


# -- speeds and noise -----------------------------------------------------------------------------

SPEEDS = st.builds(
    lambda step, below, above: msgspec.structs.replace(
        speed(step), p10_step_seconds=step * (1 - below), p90_step_seconds=step * (1 + above)
    ),
    st.sampled_from([0.002, 0.00201, 0.0022, 0.003, 0.004]),
    st.sampled_from([0.0, 0.01, 0.04, 0.2]),
    st.sampled_from([0.0, 0.01, 0.04, 0.2]),
)


@given(st.lists(SPEEDS, min_size=2, max_size=5), st.booleans())
def test_a_comparison_never_claims_what_its_spreads_do_not_show(speeds: list[Any], simulated: bool) -> None:
    where = {"simulated": True, "simulation": "plugin"} if simulated else {}
    runs = [timed(f"run-{index}", throughput=entry, **where) for index, entry in enumerate(speeds)]
    document = compare([*runs, timed("other work", workload="mlp", **where)])
    assert any("compared" in note for note in document.notes) == (not simulated)

    def proven(one: int, other: int) -> bool:
        pair = [speeds[one], speeds[other]]
        calm = all(entry.p90_step_seconds - entry.p10_step_seconds <= 0.1 * entry.median_step_seconds for entry in pair)
        fast, slow = sorted(pair, key=lambda entry: entry.median_step_seconds)
        clear = slow.median_step_seconds > 1.1 * fast.median_step_seconds
        return calm and clear and not simulated and fast.p90_step_seconds < slow.p10_step_seconds

    for marks in (document.best_run, document.worst_run):
        marked = marks.get("steps_per_second")
        if marked is not None:
            assert all(proven(marked, index) for index in range(len(runs)) if index != marked)
    for told in document.differences:
        if len(runs) in (told.run, told.against):
            continue
        claimed = "times as" in told.text
        assert claimed == proven(told.run, told.against)
        if not claimed:
            assert "same speed within noise" in told.text.lower() or "speeds not compared" in told.text.lower()


def test_differences_besides_the_setting_are_named() -> None:
    eager = msgspec.structs.replace(speed(0.002), execution="eagerly")
    session = msgspec.structs.replace(speed(0.001), execution="in a TF1 session")
    old = Framework(name="tensorflow", version="2.16.2")
    default = timed("default", throughput=eager)
    in_session, other_version = compare(
        [default, timed("fraction", throughput=session), timed("limit", 0.004, framework=old)]
    ).differences
    assert "peeds not comparable (in a TF1 session, not eagerly)" in in_session.text
    assert "times as" not in in_session.text
    assert "instead of tensorflow 2.21.0" in other_version.text
    assert compare([default, timed("fraction", throughput=session)]).best_run == {}


def test_what_a_probe_only_noted_is_not_asked_for() -> None:
    noted = {"GPUs left": Setting(asked=None, effective=0, note="by CUDA_VISIBLE_DEVICES")}
    drawn = render(compare([timed("default"), timed("cpu-only", settings=noted)]), "text", width=220)
    assert "GPUs left" not in drawn.partition("Differences")[0]


def test_a_comparison_says_why_a_run_was_skipped() -> None:
    reason = "the simulated driver lacks the runtime of CUDA 11: it has CUDA 12 and 13"
    runs = [
        msgspec.structs.replace(bare_run(), config=name, verdict="skipped", verdict_reason=reason)
        for name in ("torch-map", "torch-oom")
    ]
    assert render(compare(runs), "text", width=220).count(reason) >= 2


@pytest.mark.parametrize(
    ("verdicts", "state", "shown"),
    [
        (("ok", "ok"), "ok", "all completed"),
        (("ok", "skipped"), "ok", "1 of 2 skipped"),
        (("skipped", "skipped"), "skipped", "2 of 2 skipped"),
        (("ok", "interrupted"), "warning", "1 of 2 interrupted"),
        (("error", "skipped"), "error", "1 of 2 failed"),
    ],
)
def test_what_was_skipped_or_interrupted_has_not_completed(verdicts: tuple[str, ...], state: str, shown: str) -> None:
    content = comparison_content(compare([timed(name, verdict=name) for name in verdicts]))
    assert (content.state, content.verdict) == (state, shown)


def test_what_is_unknown_of_a_run_does_not_differ() -> None:
    told = " ".join(" ".join(one.changed) for one in compare([full_run(), bare_run()]).differences)
    assert "–" not in told
    other = msgspec.structs.replace(full_run(), config="other", host="node08", driver_version=None)
    told = " ".join(" ".join(one.changed) for one in compare([full_run(), other]).differences)
    assert "node08 instead of node07" in told
    assert "driver" not in told


def test_a_probe_that_did_no_work_has_no_peak_to_compare() -> None:
    """NVML may have seen it while CUDA made its context."""
    working = full_run(config="default")
    started = msgspec.structs.replace(
        working, config="hard-missing", throughput=None, workers=(), memory=Memory(nvml_peak_bytes=14 * MIB)
    )
    found = compare([working, started])
    cell = next(value for name, _, value in COLUMNS if name == "seen_by_nvml")
    assert (cell(started), cell(msgspec.structs.replace(started, workload="program"))) == ("–", "14.0 MiB")
    assert "seen_by_nvml" not in found.best_run
    assert not any("computes" in text for difference in found.differences for text in difference.changed)
    assert not any("NVML saw" in text for difference in found.differences for text in difference.effects)
