"""Memory that grows until none is left is told as such; a training that takes and gives back is not."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Oom, Run
from gpuwatch.core.model.run_memory import MemoryPoint
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_growth import steady_growth
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts
from gpuwatch.explain.diagnosis.memory.oom_verdict import judge
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.share.reports.run_tables import oom_table
from tests.reports.documents import full_run

GIB = 1 << 30
MIB = 1 << 20
replace = msgspec.structs.replace
OOM = Oom(
    device="GPU:0",
    requested_bytes=GIB,
    limit_bytes=7_822_209_184,
    in_use_bytes=7 * GIB + 512,
    largest_free_bytes=306_015_744,
    alike_blocks=7,
)
TRACE = """Traceback (most recent call last):
  File "/home/u/big.py", line 5, in <module>
    keep.append(tf.random.normal((256,1024,1024)))
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/opt/v/lib/python3.11/site-packages/tensorflow/python/framework/ops.py", line 6027, in raise_it
    raise core._status_to_exception(e) from None
tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[256,1024,1024]
"""


def points(amounts: list[float]) -> tuple[MemoryPoint, ...]:
    return tuple(MemoryPoint(t=float(at), allocator_bytes=int(amount * GIB)) for at, amount in enumerate(amounts))


def staircase() -> list[float]:
    """A tensor more every four seconds, and another for a moment in between."""
    return [level + extra for level in range(1, 8) for extra in (0, 1 if level < 7 else 0, 0, 0)]


def watched(amounts: list[float], *ooms: Oom, group: str = "run") -> Run:
    run = full_run(config="run", group=group, verdict="oom", ooms=ooms or (OOM,), findings=(), fallbacks=(), workers=())
    mapped = tuple(
        DeviceMapping(framework_device=f"/device:GPU:{n}", cuda_ordinal=n, granted_bytes=7459 * MIB) for n in (0, 1)
    )
    memory = replace(
        run.memory,
        timeline=points(amounts),
        allocators={"/device:GPU:0": 7 * GIB, "/device:GPU:1": 0},
        devices=(),
        device_total_bytes=8 * GIB - 300 * MIB,
        nvml_before_bytes=0,
    )
    return replace(run, memory=memory, device_map=mapped, settings={}, environment={})


def found(run: Run | None, log: LogFacts | None = None) -> Finding:
    log = log if log is not None else parse(TRACE)
    return next(f for f in diagnose(Evidence(run=run, log=log)) if f.id.startswith("memory."))


def test_the_staircase_is_told_with_its_numbers() -> None:
    told = steady_growth(points(staircase()))
    assert told is not None
    assert (told.first_bytes, told.last_bytes, told.rises) == (GIB, 7 * GIB, 6)
    assert told.seconds == 24.0


@pytest.mark.parametrize(
    "amounts",
    [
        [5.0] * 40,
        [1.0, 3.0, 5.0, 7.0] + [7.0] * 40,  # a model, then its training
        [2.0, 6.0, 2.0, 6.0] * 10 + [2.0, 7.0],  # a step takes and gives back
        [1.0] * 30 + [7.0],  # one large batch
        [float(level) for level in range(8)][1:3],
        [],
    ],
    ids=["flat", "built and trained", "saw", "one jump", "short", "nothing"],
)
def test_what_does_not_grow_is_not_told_as_growing(amounts: list[float]) -> None:
    assert steady_growth(points(amounts)) is None


def test_a_program_that_keeps_tensors_is_told_to_stop_before_its_batch_is_blamed() -> None:
    told = found(watched(staircase()))
    assert told.id == "memory.growing"
    assert told.certainty == "likely", "nobody said it: it is inferred from the curve"
    assert told.action.index("Stop keeping tensors") < told.action.index("batch")
    first, second, *rest = told.evidence
    assert first.startswith("the minimum in use on GPU:0")
    assert "in 6 rises over 24 s" in first
    assert "/home/u/big.py, line 5: keep" in second
    assert any("GPU:1 (7.3 GiB granted" in line for line in rest)
    assert any(line.startswith("7 blocks of the same size") for line in rest)


@pytest.mark.parametrize("peak", [1280, 69 * 1024, 900_000])
def test_a_gpu_with_small_tensors_is_not_called_unused(peak: int) -> None:
    run = watched(staircase())
    allocators = {**run.memory.allocators, "/device:GPU:1": peak}
    told = found(replace(run, memory=replace(run.memory, allocators=allocators)))
    (line,) = (line for line in told.evidence if "GPU:1" in line)
    assert f"at most {size(peak)} in use" in line
    assert "not used" not in line


def test_without_a_rise_the_batch_is_blamed_as_a_fact() -> None:
    told = found(watched([7.0] * 30, replace(OOM, alike_blocks=None)))
    assert told.certainty == "fact"
    assert told.action.startswith("Make the batch ")
    assert not any("rose from" in line for line in told.evidence)


@pytest.mark.parametrize(("steps", "told"), [(58, True), (None, False), (30, False)])
def test_a_fast_gpu_is_full_before_samples_show_growth(steps: int | None, told: bool) -> None:
    """Then as many equal blocks as steps tell it."""
    full = replace(
        OOM,
        requested_bytes=8 * MIB,
        limit_bytes=512 * MIB,
        in_use_bytes=511 * MIB,
        alike_blocks=60,
        largest_free_bytes=0,
    )
    run = watched([0.1, 0.5], full)
    assert run.throughput is not None
    run = replace(run, throughput=replace(run.throughput, steps=steps) if steps else None)
    assert (found(run).id == "memory.growing") == told
    assert any("were in use already" in line and "after 58 steps" in line for line in found(run).evidence) == told


XLA_OOM = """
W0000 00:00:1795716589.625116 10941 bfc_allocator.cc:311] Allocator (GPU_0_bfc) ran out of memory trying to allocate\
 1.02GiB with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be\
 performance gains if more memory were available.
W0000 00:00:1795716589.632560 10941 op_kernel.cc:1858] OP_REQUIRES failed at xla_ops.cc:602 : RESOURCE_EXHAUSTED:\
 Out of memory while trying to allocate 1.02GiB. [tf-allocator-allocation-error='']
"""


def test_a_compiled_function_that_runs_out_meets_the_limit_of_tensorflows_allocator() -> None:
    """XLA's failure has no dump: its request is in GiB, its allocator in the line before, its limit in the map."""
    run = full_run(config="run", group="run", verdict="error", ooms=(), findings=(), fallbacks=(), workers=())
    mapped = (DeviceMapping(framework_device="/device:GPU:0", cuda_ordinal=0, granted_bytes=600 * MIB),)
    done = complete(replace(run, device_map=mapped, settings={}), parse(XLA_OOM), None)
    (oom,) = done.ooms
    assert (oom.device, oom.allocator, oom.limit_bytes) == ("GPU:0", "GPU_0_bfc", 600 * MIB)
    assert oom.requested_bytes == pytest.approx(1.02 * GIB, rel=0.001)
    assert done.verdict == "oom"
    assert "unknown" not in [one.id for one in done.findings]


def test_a_log_alone_tells_the_line_and_asks_whether_memory_grows() -> None:
    log = parse(TRACE)
    log.ooms = [OOM]
    told = found(None, log)
    assert any("/home/u/big.py, line 5" in line for line in told.evidence)
    assert told.action.startswith("If memory grows with every")


def test_a_probe_that_fills_the_memory_on_purpose_is_not_told_to_stop() -> None:
    told = found(watched(staircase(), replace(OOM, expected=True), group="memory"))
    assert told.severity == "info"
    assert "Stop keeping" not in told.action
    assert not any("requested at" in line for line in told.evidence)


def test_the_used_gpu_and_one_of_unknown_use_are_not_called_unused() -> None:
    run = watched(staircase())
    run = replace(run, memory=replace(run.memory, allocators={"/device:GPU:0": 7 * GIB}))
    assert not any("not used by" in line for line in found(run).evidence)


SIZES = st.integers(min_value=1, max_value=200 * GIB)


@given(SIZES, SIZES, SIZES, SIZES)
def test_the_largest_free_block_is_never_more_than_what_is_free(asked: int, limit: int, used: int, block: int) -> None:
    """Totals of a log are rounded, blocks are exact: they must not contradict each other in a report."""
    oom = Oom(device="GPU:0", requested_bytes=asked, limit_bytes=limit, in_use_bytes=used, largest_free_bytes=block)
    assert oom.free_bytes is not None
    assert oom.free_bytes >= block
    assert oom.rounded == (block > limit - used)
    judgement = judge(oom, OomFacts())
    if oom.rounded:
        assert "GiB free" not in judgement.lines[-1].partition(" = ")[2], "a rounded difference is no equation"
    (row,) = oom_table((oom,)).rows
    assert row[5].startswith("~") == oom.rounded


def test_what_the_dump_lists_is_added_up_where_its_totals_are_rounded() -> None:
    lines = [
        "Allocator (PluggableDevice_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)",
        "  Size: 291.84MiB | Requested Size: 1.00GiB | in_use: 0 | bin_num: 20, prev:   Size: 1.00GiB",
        "Next region of size 7822209024",
        "Free  at 7f78e1c29200 of size 306015744 next 18446744073709551615",
        "2 Chunks of size 256 totalling 512B",
        "7 Chunks of size 1073741824 totalling 7.00GiB",
        "Sum Total of in-use chunks: 7.00GiB",
        "Total size in pool: 7.28GiB memory_limit_: 7.28GiB available size: 160B",
    ]
    start = "I0000 00:00:1795169836.394155   22916 bfc_allocator.cc:1049] "
    (oom,) = parse("\n".join(start + line for line in lines)).ooms
    assert (oom.in_use_bytes, oom.limit_bytes) == (7 * GIB + 512, 7_822_209_184)
    assert oom.largest_free_bytes == 306_015_744
    assert oom.alike_blocks == 7
    assert not oom.rounded


def test_a_total_that_the_parts_contradict_wins() -> None:
    start = "I0000 00:00:1795169836.394155   22916 bfc_allocator.cc:1049] "
    lines = [
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)",
        "1 Chunks of size 256 totalling 256B",
        "Sum Total of in-use chunks: 7.00GiB",  # lines of the dump were lost
    ]
    (oom,) = parse("\n".join(start + line for line in lines)).ooms
    assert oom.in_use_bytes == 7 * GIB


@pytest.mark.parametrize(
    ("count", "each", "title", "certainty", "listed"),
    [
        (
            93,
            64 * MIB,
            "93 equal tensors of 64.0 MiB fill the GPU: a list that grows, or a model of equal layers",
            "likely",
            True,
        ),
        (8, 512 * MIB, "", "fact", True),  # as many as a model's layers
        (2, 2 * GIB, "", "fact", False),
        (40, 64 * MIB, "", "fact", False),  # less than half of the memory
    ],
    ids=["list", "layers", "two", "part"],
)
def test_many_equal_blocks_are_told_whatever_was_asked_last(
    count: int, each: int, title: str, certainty: str, listed: bool
) -> None:
    log = parse(TRACE)
    log.ooms = [
        Oom(
            device="GPU:0",
            requested_bytes=10240,
            limit_bytes=6 * GIB,
            in_use_bytes=6 * GIB,
            largest_free_bytes=0,
            equal_blocks=count,
            equal_block_bytes=each,
        )
    ]
    told = found(None, log)
    assert told.id == "memory.model-too-large"
    assert told.certainty == certainty
    assert (told.title == title) == bool(title)
    assert any(line.startswith(f"{count} blocks of one size") for line in told.evidence) == listed
    assert ("If memory grows" in told.action) == listed


@pytest.mark.parametrize(("alike", "cause"), [(97, "memory.growing"), (12, "memory.limit-too-small")])
def test_equal_tensors_that_fill_the_programs_own_limit_are_no_reason_to_raise_it(alike: int, cause: str) -> None:
    oom = Oom(
        device="GPU:0",
        requested_bytes=4 * MIB,
        limit_bytes=400 * MIB,
        in_use_bytes=398 * MIB,
        largest_free_bytes=2 * MIB,
        alike_blocks=alike,
    )
    facts = OomFacts(total_bytes=24 * GIB, others_bytes=0, held_by_others=False, limit_set=True)
    told = judge(oom, facts)
    assert (told.cause, told.certain) == (cause, cause != "memory.growing")
    assert judge(replace(oom, verdict=cause), facts) == told
    assert (f"{alike} equal tensors of 4.0 MiB" in told.title) == (not told.certain)


def test_amounts_that_round_alike_are_told_by_their_difference() -> None:
    oom = Oom(
        device="GPU:0",
        requested_bytes=10240,
        limit_bytes=6 * GIB,
        in_use_bytes=6 * GIB,
        largest_free_bytes=0,
    )
    told = judge(oom, OomFacts(total_bytes=24 * GIB, others_bytes=0, held_by_others=False, limit_set=True))
    assert told.cause == "memory.limit-too-small"
    assert re.findall(r"[\d.]+ [KG]iB", told.lines[-1])[:2] == ["10.0 KiB", "6.0 GiB"]
