"""The sentence above a comparison: numbers where the runs allow them, no claim where they do not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Framework, Oom
from gpuwatch.share.reports.comparison_conclusion import conclusion
from gpuwatch.share.reports.report_formats import render
from gpuwatch.share.reports.runs_side_by_side import compare
from tests.reports.documents import GIB, MIB, speed
from tests.reports.test_comparison import SPEEDS, timed

SIMULATED = {"simulated": True, "simulation": "driver"}
CUDA = {"verdict": "error", "primary": "cuda.libraries-missing"}
REFUSED = {"verdict": "oom", "primary": "memory.limit-too-small", "ooms": (Oom(),)}


def shown(*runs: Any) -> str:
    return conclusion(compare(runs))


def test_less_memory_at_the_same_speed() -> None:
    told = shown(timed("default", held=22 * GIB), timed("growth", held=326 * MIB))
    assert "326 MiB instead of 22.0 GiB" in told
    assert told.endswith("at the same speed within noise")


def test_with_more_runs_the_one_measured_against_is_named() -> None:
    runs = [timed("limit", held=GIB), timed("fraction", held=23 * GIB), timed("default", held=22 * GIB)]
    assert "1.0 GiB instead of 22.0 GiB (default)" in shown(*runs)
    runs.append(timed("growth", held=GIB + MIB))
    assert shown(*runs).startswith("limit and growth: ")


def test_less_memory_and_faster() -> None:
    told = shown(timed("default", 0.004, held=22 * GIB), timed("growth", 0.002, held=326 * MIB))
    assert told == "growth: 500 instead of 250 steps/s, in 326 MiB instead of 22.0 GiB"


def test_what_less_memory_costs_is_named() -> None:
    default, growth = timed("default", 0.004, held=22 * GIB), timed("growth", 0.005, held=326 * MIB)
    assert shown(default, growth).endswith("but slower: 200 instead of 250 steps/s")
    told = shown(default, growth, timed("xla", 0.002, held=22 * GIB))
    assert told.endswith("250 steps/s; fastest is xla: 500 steps/s")


def test_a_negative_amount_of_memory_is_no_winner() -> None:
    """No run holds it, but a document from elsewhere may say so."""
    told = shown(timed("default", held=22 * GIB), timed("growth", held=326 * MIB), timed("broken", held=-5))
    assert "326 MiB instead of 22.0 GiB" in told


def test_faster_in_the_same_memory() -> None:
    told = shown(timed("default", 0.004), timed("xla", 0.002))
    assert told == "xla: 500 instead of 250 steps/s, in the same memory (10.0 GiB)"


def test_runs_that_cannot_be_told_apart() -> None:
    told = shown(timed("default"), timed("growth"))
    assert "the same memory (10.0 GiB)" in told
    assert "within noise" in told
    assert "uncertain by more than 5 %" in shown(timed("default"), timed("growth", 0.001, spread=0.4))
    told = shown(timed("default", spread=0.4), timed("growth", 0.001, held=GIB))
    assert "10.0 GiB; speeds cannot be told apart" in told


def test_no_word_of_speed_on_simulated_gpus() -> None:
    default = timed("default", 0.004, held=22 * GIB, **SIMULATED)
    growth = timed("growth", 0.002, held=326 * MIB, **SIMULATED)
    assert shown(default, growth).endswith("326 MiB instead of 22.0 GiB")
    assert "(22.0 GiB); no speeds to compare" in shown(default, timed("x", held=22 * GIB, **SIMULATED))
    assert shown(growth).startswith("growth: 326 MiB of GPU memory;")


def test_all_failed() -> None:
    told = shown(timed("a", **REFUSED), timed("b", **REFUSED), timed("c", **CUDA))
    assert told.startswith("All 3 runs failed: a and b (out of memory: ")
    assert "; c (CUDA " in told
    late = timed("d", verdict="timeout")
    assert shown(timed("a", **REFUSED), timed("c", **CUDA), late).endswith("; 1 more")
    assert shown(timed("a", verdict="timeout")) == "a failed (stopped at the deadline)"
    reason = {"verdict": "error", "verdict_reason": "Exit code 3.", "errors": ()}
    assert shown(timed("a", **reason)) == "a failed (exit code 3)"


def test_some_failed() -> None:
    told = shown(timed("default", held=22 * GIB), timed("growth", held=GIB), timed("limit", **REFUSED))
    assert "1.0 GiB instead of 22.0 GiB" in told
    assert "; limit failed (out of memory: " in told
    told = shown(timed("default"), timed("limit", **CUDA))
    assert told.startswith("default: 500 ±5 steps/s, 10.0 GiB")
    assert "; limit failed (CUDA " in told


def test_a_headline_has_two_lines_at_most_whatever_failed() -> None:
    names = ["contention", "mixed-growth", "session-no-kernel", "visible-invalid-first", "limit", "largest-batch"]
    kinds = (REFUSED, CUDA, {"verdict": "timeout"})
    failing = [timed(name, **kinds[number % 3]) for number, name in enumerate(names)]
    told = shown(timed("default", held=22 * GIB), timed("growth", held=GIB), *failing)
    assert told.endswith("visible-invalid-first and 2 more failed")
    assert len(told) <= 2 * 100


def test_ends_that_are_no_failures() -> None:
    expected = {"verdict": "oom", "ooms": (Oom(expected=True),)}
    assert shown(timed("oom", **expected)) == "oom ran out of memory, as expected"
    assert shown(timed("a", verdict="skipped"), timed("b", verdict="skipped")) == "a and b were skipped"
    assert shown(timed("a", verdict="interrupted")) == "a was interrupted"


def test_one_run() -> None:
    assert shown(timed("default")).endswith("; nothing to compare it with")
    assert shown() == "No runs to compare"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"throughput": speed(0.1, device="/device:CPU:0")},
            "Speeds not comparable: measured on GPU (default) and CPU (other)",
        ),
        (
            {"workload": "conv"},
            "Not comparable: default computed matmul 512 float32, other computed conv 512 float32",
        ),
        (
            {"throughput": None},
            "default: 500 ±5 steps/s, 10.0 GiB of GPU memory; not compared: no speed of other",
        ),
    ],
)
def test_runs_that_are_not_comparable(changes: dict[str, Any], told: str) -> None:
    assert shown(timed("default"), timed("other", **changes)) == told


def test_runs_without_a_speed_have_their_memory() -> None:
    told = shown(timed("a", throughput=None), timed("b", throughput=None, held=GIB))
    assert told.startswith("a held 10.0 GiB, b held 1.0 GiB;")


def test_runs_of_one_configuration_are_named_by_what_differs() -> None:
    old = Framework(name="tensorflow", version="2.16.2")
    assert shown(timed("limit"), timed("limit", 0.004, framework=old)).startswith("limit (tensorflow 2.21.0): 500 ")
    assert shown(timed("limit"), timed("limit", 0.004)).startswith("limit #1: 500 ")


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
def test_it_is_the_headline_of_every_format_for_people(name: str) -> None:
    document = compare([timed("default", held=22 * GIB), timed("growth", held=326 * MIB)])
    drawn = render(document, name, width=120)
    assert conclusion(document) in drawn
    at = drawn.index(conclusion(document))
    for part in ("2 runs compared", "node07", "tensorflow 2.21.0", "2026-11-20"):
        assert drawn.index(part) > at


@given(SPEEDS, SPEEDS)
def test_a_speed_is_claimed_only_beyond_noise(one: Any, other: Any) -> None:
    for where in ({}, SIMULATED):
        runs = [timed("a", throughput=one, **where), timed("b", throughput=other, **where)]
        steady = all(t.p90_step_seconds - t.p10_step_seconds <= 0.1 * t.median_step_seconds for t in (one, other))
        apart = one.p90_step_seconds < other.p10_step_seconds or other.p90_step_seconds < one.p10_step_seconds
        fast, slow = sorted(t.median_step_seconds for t in (one, other))
        assert ("steps/s" in shown(*runs)) == (steady and apart and slow > 1.1 * fast and not where)


def test_documents_of_versions_without_the_group_are_concluded_too() -> None:
    document = compare([timed("default", held=22 * GIB), timed("growth", held=326 * MIB)])
    assert conclusion(msgspec.structs.replace(document, comparable=())) == conclusion(document)


def on_nodes(count: int, *runs: Any) -> list[Any]:
    return [msgspec.structs.replace(run, node=f"n{number}") for number in range(1, count + 1) for run in runs]


def test_a_setting_that_every_node_ran_is_named_once() -> None:
    pair = [timed("default", held=22 * GIB, **SIMULATED), timed("growth", held=326 * MIB, **SIMULATED)]
    told = "growth: the same work in 326 MiB instead of 22.0 GiB (default)"
    assert shown(*on_nodes(64, *pair)) == told
    # Where a node differs, it is named.
    runs = on_nodes(3, *pair)
    runs[2] = msgspec.structs.replace(runs[2], verdict="error")
    here = told.replace("default", "default on n1, n3")
    assert shown(*runs).startswith(f"{here}; default on n2 failed")
    runs = on_nodes(64, *pair)
    runs[1:100:2] = [msgspec.structs.replace(run, verdict="error") for run in runs[1:100:2]]
    assert "; growth on 50 of 64 nodes failed" in shown(*runs)


def test_one_setting_on_all_nodes() -> None:
    told = shown(*on_nodes(8, timed("growth", **SIMULATED)))
    assert told.startswith("growth on all 8 nodes: ")
    told = shown(*on_nodes(8, timed("growth", verdict="skipped")))
    assert told == "growth on all 8 nodes was skipped"


def test_findings_that_every_node_has_name_the_setting_once() -> None:
    found = Finding(id="idle.memory-held", severity="info", certainty="likely", title="Idle", action="Hide it.")
    pair = [timed("default", findings=(found,), **SIMULATED), timed("growth", **SIMULATED)]
    text = render(compare(on_nodes(12, *pair)), "markdown")
    (row,) = [line for line in text.splitlines() if "idle.memory-held" in line and line.startswith("|")]
    assert row.split("|")[1].strip() == "default"


def test_of_programs_only_the_command_is_known_to_be_the_same() -> None:
    def of(command: str, held: int) -> Any:
        return timed("run", held=held, title=command, workload="program", workload_parameters={})

    same = shown(of("python a.py", 22 * GIB), of("python a.py", 326 * MIB))
    assert same.startswith("run #2: the same command in ")
    other = compare([of("python a.py", 22 * GIB), of("python b.py --wide", 326 * MIB)])
    assert conclusion(other).endswith("run #2 ran python b.py --wide")
    text = " ".join(render(other, "text").split())
    assert "python b.py --wide instead of python a.py" in text
    assert "(a different command)" in text
    assert not other.best_run
