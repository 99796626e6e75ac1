"""Who held what of a GPU, when: the arithmetic of memory causes over ledgers that are made up."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.core.model.run import (
    DeviceMapping,
    Devices,
    Framework,
    MemoryHolder,
    Oom,
    Run,
    RunProcess,
    Verdict,
    Worker,
)
from gpuwatch.core.model.run_memory import DeviceMemory, Holding, Memory
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.run_gpu_memory import DeviceMemoryTracker
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.memory.memory_holders import concurrent_holders, others_memory
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts, oom_facts
from gpuwatch.explain.diagnosis.memory.oom_verdict import OTHERS_UNKNOWN, UNKNOWN_HOLDER_TITLE, judge
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import GIB, MIB, ON_GPU, draft, machine, process

SIZES = st.integers(0, 30 * GIB)
MAYBE = st.none() | SIZES
DEVICE = "/device:GPU:0"
RESERVED, CONTEXT = 160 * MIB, 320 * MIB


def card(total: int, used: int, *held: tuple[int, int]) -> Snapshot:
    """One GPU, and what each process (by pid) holds of it."""
    rows = tuple(process(pid, amount) for pid, amount in held)
    snapshot = machine(gpus=1, processes=rows)
    readings = {
        "memory.total_bytes": total,
        "memory.used_bytes": used,
        "memory.reserved_bytes": RESERVED,
        "memory.free_bytes": total - RESERVED - used,
    }
    device = msgspec.structs.replace(snapshot.devices[0], readings=readings, compute_capability="8.6", simulated=True)
    return msgspec.structs.replace(snapshot, devices=(device,), simulated=True)


def of(total: int, *amounts: tuple[int, int]) -> Snapshot:
    return card(total, sum(amount for _, amount in amounts), *amounts)


# -- the ledger -----------------------------------------------------------------------------------

SAMPLES = st.lists(st.dictionaries(st.integers(1, 6), st.integers(1, 3 * GIB), max_size=6), min_size=1, max_size=6)


@given(SAMPLES, SAMPLES, st.sets(st.integers(1, 6), min_size=1))
def test_each_process_is_one_and_the_run_is_never_among_the_others(
    looks: list[dict[int, int]], samples: list[dict[int, int]], run: set[int]
) -> None:
    total = 24 * GIB
    strangers = {pid: held for pid, held in looks[0].items() if pid not in run}
    before = of(total, *strangers.items())
    ledger = DeviceMemoryTracker(before)
    for t, sample in enumerate(samples):
        ledger.take_snapshot(of(total, *sample.items()), {min(run)}, run, float(t))
    seen = [sample for sample in samples if run & set(sample)]
    entries = ledger.result(context=False)
    assert len(entries) == (1 if seen else 0)
    if not seen:
        return
    (entry,) = entries
    first = next(t for t, sample in enumerate(samples) if run & set(sample))
    outside = [sum(held for pid, held in sample.items() if pid not in run) for sample in samples[first:]]
    assert entry.others_before_bytes == sum(strangers.values())
    assert entry.others_start_bytes == outside[0]
    assert entry.others_peak_bytes == max(outside)
    assert entry.least_free_bytes == total - RESERVED - max(sum(sample.values()) for sample in samples[first:])
    for holding in entry.holders:
        moments = [t for t, sample in enumerate(samples) if holding.pid in sample]
        assert holding.own == (holding.pid in run and bool(moments))
        assert (holding.first_seconds, holding.last_seconds) == ((moments[0], moments[-1]) if moments else (None, None))
        amounts = [sample[holding.pid] for sample in samples if holding.pid in sample]
        assert holding.peak_bytes == max([*amounts, *([strangers[holding.pid]] if holding.pid in strangers else [])])
    alone = [sample[min(run)] for sample in samples if min(run) in sample]
    assert entry.process_bytes is None or entry.process_bytes in alone, "never the sum of two processes"


def test_what_nvml_lists_for_nobody_before_the_start_is_taken_to_stay() -> None:
    before = card(24 * GIB, 10 * GIB)
    entry = DeviceMemory(
        uuid="GPU-0", index=0, others_before_bytes=0, others_start_bytes=0, others_peak_bytes=GIB, least_free_bytes=0
    )
    held = others_memory(before.devices[0], entry)
    assert (held.before, held.start, held.peak, held.max_from_start) == (10 * GIB, 10 * GIB, 11 * GIB, 11 * GIB)


# -- causes ---------------------------------------------------------------------------------------

OOMS = st.builds(
    Oom,
    device=st.just("GPU:0"),
    allocator=st.just("GPU_0_bfc"),
    requested_bytes=MAYBE,
    limit_bytes=MAYBE,
    in_use_bytes=MAYBE,
    largest_free_bytes=MAYBE,
    pool_bytes=MAYBE,
)
AROUND = st.builds(
    OomFacts,
    total_bytes=MAYBE,
    others_bytes=MAYBE,
    others_peak_bytes=MAYBE,
    least_free_bytes=MAYBE,
    held_by_others=st.sampled_from([None, True, False]),
    overhead_bytes=st.integers(0, GIB),
    limit_set=st.booleans(),
    refusals=st.integers(0, 3),
)


@given(OOMS, AROUND)
def test_another_process_is_never_blamed_where_that_much_was_free(oom: Oom, around: OomFacts) -> None:
    told = judge(oom, around)
    if told.cause != "memory.other-process":
        return
    asked, limit = oom.requested_bytes, oom.limit_bytes
    assert around.held_by_others is not False
    if asked is not None and around.total_bytes is not None and around.others_bytes is not None:
        assert asked <= max(around.total_bytes, limit or 0), "an empty device would not have held it"
    refused = asked is not None and (limit is None or (oom.in_use_bytes or 0) + asked <= limit)
    if refused and around.least_free_bytes is not None:
        assert asked is not None
        assert around.least_free_bytes < asked


@example(asked=1, free=0, own=5_153_960_755, allowed=None, spare=1, used=None, others=[])
@given(
    asked=st.integers(1, 30 * GIB),
    free=SIZES,
    own=SIZES,
    allowed=MAYBE,
    spare=MAYBE,
    used=MAYBE,
    others=st.lists(st.integers(1, 20 * GIB), max_size=3),
)
def test_pytorchs_own_numbers(
    asked: int, free: int, own: int, allowed: int | None, spare: int | None, used: int | None, others: list[int]
) -> None:
    total = 24 * GIB
    oom = Oom(
        device="GPU:0",
        requested_bytes=asked,
        device_total_bytes=total,
        device_free_bytes=free,
        process_bytes=own,
        limit_bytes=allowed,
        unallocated_bytes=spare,
        in_use_bytes=used,
        others=tuple(MemoryHolder(pid=pid, held_bytes=held) for pid, held in enumerate(others, 1)),
    )
    cause = judge(oom, OomFacts()).cause
    if free >= max(asked, 20 * MIB):  # with less than that the driver refuses even 2 MiB
        assert cause != "memory.other-process"
    if asked <= 2 * MIB:
        assert cause != "memory.fragmented", "tensors up to 1 MiB have a pool of their own"
    reserved = used + spare if used is not None and spare is not None else own
    if allowed is not None and asked <= total and reserved + asked > allowed:
        assert cause == "memory.limit-too-small"


def test_more_in_use_than_the_device_has_is_no_fragmentation() -> None:
    """As Windows allows, which lends the host's memory; PyTorch 1.13 on 8 GiB."""
    told = (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity; {} GiB already"
        " allocated; 0 bytes free; {} GiB reserved in total by PyTorch)"
    )
    assert explain([told.format("10.16", "13.00")]).primary == "memory.model-too-large"
    assert explain([told.format("5.16", "7.80")]).primary == "memory.fragmented"


@pytest.mark.parametrize(
    ("own", "cause"), [(666, "memory.other-process"), (1500, "memory.other-process"), (3400, "memory.model-too-large")]
)
def test_a_few_mib_left_on_a_full_device_are_no_room(own: int, cause: str) -> None:
    """The driver reports 6 MiB free and refuses 2: who holds the rest is the cause, not PyTorch's blocks."""
    oom = Oom(
        device="GPU:0",
        requested_bytes=2 * MIB,
        device_total_bytes=3881 * MIB,
        device_free_bytes=6 * MIB,
        process_bytes=own * MIB,
        in_use_bytes=(own - 11) * MIB,
        unallocated_bytes=11 * MIB,
    )
    judged = judge(oom, OomFacts())
    assert judged.cause == cause
    assert "2.0 MiB ≤ 6.0 MiB free" in " ".join(judged.lines)


@pytest.mark.parametrize(("pool", "cause"), [(194, "memory.fragmented"), (190, "unknown")])
def test_what_a_growing_pool_may_still_get_decides_whether_the_driver_was_asked(pool: int, cause: str) -> None:
    """64 MiB, of a limit of 256 MiB: 62 MiB more would be too few, so that TensorFlow did not ask for them."""
    oom = Oom(
        device="GPU:0",
        allocator="GPU_0_bfc",
        requested_bytes=64 * MIB,
        limit_bytes=256 * MIB,
        in_use_bytes=160 * MIB,
        largest_free_bytes=32 * MIB,
        pool_bytes=pool * MIB,
    )
    known = OomFacts(
        total_bytes=24 * GIB, others_bytes=0, held_by_others=False, limit_set=True, least_free_bytes=23 * GIB
    )
    judged = judge(oom, known)
    assert judged.cause == cause
    assert any("> 62.0 MiB that the" in line for line in judged.lines) == (pool == 194)


@pytest.mark.parametrize(("used", "cause"), [(3, "unknown"), (70, "memory.model-too-large")])
def test_an_allocators_own_report_does_not_tell_who_else_was_on_the_gpu(used: int, cause: str) -> None:
    """PyTorch's snapshot and CuPy's message have no size of the device."""
    told = judge(Oom(allocator="pytorch", requested_bytes=784 * MIB, in_use_bytes=used * GIB), OomFacts())
    assert told.cause == cause
    assert told.title == UNKNOWN_HOLDER_TITLE if cause == "unknown" else OTHERS_UNKNOWN in told.lines


def granted(mib: int, device: str = DEVICE) -> DeviceMapping:
    return DeviceMapping(framework_device=device, uuid="GPU-0", physical_index=0, granted_bytes=mib * MIB)


def ran(*mapped: DeviceMapping, **fields: object) -> Run:
    values: dict[str, object] = {
        "framework": Framework(name="tensorflow", version="2.21.0", gpu_build=True),
        "devices": Devices(logical=(DEVICE,)),
        "device_map": mapped,
        "placements": (ON_GPU,),
        "simulated": True,
        "simulation": "driver",
    }
    return draft(**{"config": "default", **values, **fields})  # type: ignore[arg-type]


def seen(before: Snapshot, *samples: Snapshot, own: int = 100, run: tuple[int, ...] = (100,)) -> Memory:
    ledger = DeviceMemoryTracker(before)
    for t, sample in enumerate(samples):
        ledger.take_snapshot(sample, {own}, run, float(t))
    return Memory(devices=ledger.result(context=True))


def test_a_grant_that_others_cut_is_told_with_who_held_it() -> None:
    before = of(5 * GIB, (7, 3620 * MIB))
    run = ran(granted(795), memory=seen(before, of(5 * GIB, (7, 3620 * MIB), (100, 1116 * MIB))))
    done = complete(run, LogFacts(), before)
    (found,) = [entry for entry in done.findings if entry.severity == "warning"]
    assert (done.primary, found.id, found.certainty) == ("memory.other-process", "memory.other-process", "fact")
    assert "pid 7" in found.title
    assert "795 MiB" in found.title


def test_who_came_meanwhile_is_named_and_who_left_is_not() -> None:
    before = of(24 * GIB, (7, 600 * MIB), (8, 500 * MIB))
    met = of(24 * GIB, (8, 500 * MIB), (9, 20 * GIB), (100, 1116 * MIB))
    run = ran(granted(795), memory=seen(before, of(24 * GIB, (7, 600 * MIB), (8, 500 * MIB)), met))
    found = complete(run, LogFacts(), before).findings[0]
    assert found.title.startswith("2 other processes held 20.5")
    assert [line.split(" held ")[0] for line in found.evidence[1:]] == ["process 9", "process 8 of alice"]
    assert found.action.startswith("End process 9, 8")


def test_a_tenant_that_left_before_the_start_is_no_riddle() -> None:
    before = of(5 * GIB, (7, 3620 * MIB))
    alone = 5 * 1024 - 160 - 320 - 1536
    run = ran(granted(alone), memory=seen(before, of(5 * GIB, (100, (alone + 320) * MIB))))
    done = complete(run, LogFacts(), before)
    told = {entry.id: entry.severity for entry in done.findings}
    assert "unknown" not in told
    assert told["memory.other-process"] == "info"
    assert any("7 held 3.5 GiB and exited" in line for entry in done.findings for line in entry.evidence)


_REFUSED = (
    "2026-11-20 10:00:00.000000: I external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:1193] failed to allocate"
    " {gib}GiB ({bytes} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
)


@given(parts=st.lists(st.integers(1, 24), min_size=1, max_size=3), held=st.integers(0, 23), total=st.integers(2, 24))
def test_who_is_to_blame_for_a_refusal_follows_from_the_sum(parts: list[int], held: int, total: int) -> None:
    held = min(held, total - 1)
    tenant = ((7, held * GIB),) if held else ()
    before = of(total * GIB, *tenant)
    mapped = [granted(gib * 1024, f"/device:GPU:{index}") for index, gib in enumerate(parts)]
    run = ran(*mapped, memory=seen(before, of(total * GIB, *tenant, (100, GIB // 2))))
    log = parse(_REFUSED.format(gib=parts[0], bytes=parts[0] * GIB))
    found = [
        entry
        for entry in diagnose(Evidence(snapshot=before, run=run, log=log))
        if entry.id in ("memory.other-process", "config.inconsistent", "unknown")
    ]
    overhead = (run.memory.devices[0].context_bytes or 0) + RESERVED
    alone = sum(parts) * GIB + overhead
    if alone > total * GIB:
        expected = "config.inconsistent"
    elif held and alone + held * GIB > total * GIB:
        expected = "memory.other-process"
    else:
        expected = "unknown"
    assert [entry.id for entry in found] == [expected]


@pytest.mark.parametrize(("others", "ended"), [(0, "ok"), (600, "ok"), (600, "timeout"), (0, "error")])
def test_the_first_of_two_processes_is_what_the_second_ran_into(others: int, ended: Verdict) -> None:
    """On a card of 2 GiB, where TensorFlow's reserve is small: 255 MiB are what the first one left.

    It held them, however it ended later: on a busy machine it is killed at its deadline.
    """
    tenant = ((7, others * MIB),) if others else ()
    before = of(2 * GIB, *tenant)
    first = (1729 - others) * MIB
    memory = seen(before, of(2 * GIB, *tenant, (101, first), (102, 255 * MIB)), run=(100, 101, 102))
    workers = (
        Worker(name="first", setting="default", pid=101, verdict=ended, granted_bytes=first),
        Worker(name="second", setting="default", pid=102, verdict="oom", granted_bytes=255 * MIB),
        Worker(name="first", setting="growth", pid=103, granted_bytes=first),
    )
    oom = Oom(
        device="GPU:0",
        allocator="PluggableDevice_0_bfc",
        requested_bytes=19 * MIB,
        limit_bytes=255 * MIB,
        in_use_bytes=255 * MIB,
        largest_free_bytes=0,
        expected=True,
    )
    run = ran(granted(1729 - others), config="contention", workers=workers, ooms=(oom,), memory=memory, verdict="oom")
    done = complete(run, LogFacts(), before)
    (judged,) = done.ooms
    assert judged.verdict == "memory.other-process"
    assert [(mate.pid, mate.held_bytes) for mate in concurrent_holders(Evidence(run=done), oom)] == [(101, first)]
    found = next(entry for entry in done.findings if entry.id == "memory.other-process")
    assert found.title.startswith("The first process of this")
    assert (found.severity, done.memory.devices[0].process_bytes) == ("info", None)


@pytest.mark.parametrize(
    ("left_first", "on_other", "cause"),
    [
        (False, False, "memory.other-process"),
        # Nothing of it was there any more, or it was on another GPU.
        (True, False, "memory.limit-too-small"),
        (False, True, "memory.limit-too-small"),
    ],
)
def test_another_process_of_a_users_program_is_what_the_second_ran_into(
    left_first: bool, on_other: bool, cause: str
) -> None:
    total, first, limit = 24 * GIB, 20 * GIB, 3001 * MIB
    before = machine(gpus=2)
    here, other = before.devices[0].uuid, before.devices[1].uuid

    def held(pid: int, amount: int, since: float, until: float) -> Holding:
        return Holding(pid=pid, own=True, peak_bytes=amount, first_seconds=since, last_seconds=until)

    tenant, second = held(101, first, 1.0, 4.0 if left_first else 30.0), held(102, limit, 5.0, 20.0)
    on_first = DeviceMemory(
        uuid=here,
        index=0,
        total_bytes=total,
        others_before_bytes=0,
        others_start_bytes=0,
        others_peak_bytes=0,
        holders=(second,) if on_other else (tenant, second),
    )
    on_second = DeviceMemory(uuid=other, index=1, holders=(tenant,) if on_other else ())
    mapped = DeviceMapping(framework_device=DEVICE, uuid=here, physical_index=0, granted_bytes=limit)
    run = ran(
        mapped,
        group="run",
        processes=(RunProcess(pid=101), RunProcess(pid=102, ooms=1, device_map=(mapped,))),
        ooms=(
            Oom(
                device="GPU:0",
                allocator="GPU_0_bfc",
                requested_bytes=19 * MIB,
                limit_bytes=limit,
                in_use_bytes=limit,
                largest_free_bytes=0,
            ),
        ),
        memory=Memory(devices=(on_first, on_second), device_total_bytes=total),
        verdict="oom",
    )
    (found,) = [one for one in diagnose(Evidence(run=run, snapshot=before)) if one.id.startswith("memory.")]
    assert found.id == cause
    if cause == "memory.other-process":
        assert found.title.startswith("Process 101 of this run")
        assert any("process 101 of this run held" in line for line in found.evidence)
        assert "Give each process its share" in found.action


def test_what_one_process_of_the_run_was_seen_to_hold_is_not_cut() -> None:
    """It left no room for a CUDA context of the other."""
    total, first = 24 * 1024, 24 * 1024 - 160
    before = of(total * MIB)
    workers = (
        Worker(name="first", setting="default", pid=101, granted_bytes=first * MIB),
        Worker(name="second", setting="default", pid=102, verdict="oom"),
    )
    memory = seen(before, of(total * MIB, (101, first * MIB)), run=(100, 101, 102))
    run = ran(config="occupied", workers=workers, ooms=(Oom(device="GPU:0"),), memory=memory, verdict="oom")
    around = oom_facts(Evidence(run=run, snapshot=before), run.ooms[0])
    assert around.overhead_bytes > 0
    assert (around.others_bytes, around.others_peak_bytes) == (first * MIB, first * MIB)


_HELD_BY_OTHERS = re.compile(r"others held ([\d.]+) ([MG]iB)|\+ ([\d.]+) ([MG]iB) held by others")


@given(
    tenant=st.integers(0, 5 * 1024),
    firsts=st.lists(st.tuples(st.integers(1, 3 * 1024), st.integers(200, 2 * 1024)), min_size=2, max_size=4),
    limits_known=st.booleans(),
    ended=st.sampled_from(["ok", "timeout"]),
)
def test_rounds_beside_a_tenant_never_add_up_to_more_than_the_device(
    tenant: int, firsts: list[tuple[int, int]], limits_known: bool, ended: Verdict
) -> None:
    """Rounds follow one another: what others held in them, beside the program's own, is at most the whole card."""
    total, overhead = 8 * 1024, 480
    tenant = min(tenant, total - overhead - max(first + second for first, second in firsts))
    other = ((7, tenant * MIB),) if tenant > 0 else ()
    before = of(total * MIB, *other)
    samples, workers, ooms = [], [], []
    for number, (first, second) in enumerate(firsts):
        pids = (101 + 2 * number, 102 + 2 * number)
        samples.append(of(total * MIB, *other, (pids[0], first * MIB), (pids[1], second * MIB)))
        setting = f"fraction 0.{number}"
        workers.append(Worker(name="first", setting=setting, pid=pids[0], verdict=ended, granted_bytes=first * MIB))
        workers.append(Worker(name="second", setting=setting, pid=pids[1], verdict="oom", granted_bytes=second * MIB))
        limit = second * MIB if limits_known else (total - overhead) * MIB
        ooms.append(
            Oom(
                device="GPU:0",
                requested_bytes=19 * MIB,
                limit_bytes=limit,
                in_use_bytes=second * MIB,
                pool_bytes=second * MIB,
            )
        )
    pids = tuple(worker.pid or 0 for worker in workers)
    memory = seen(before, *samples, own=100, run=(100, *pids))
    run = ran(
        granted(1000), config="contention", workers=tuple(workers), ooms=tuple(ooms), memory=memory, verdict="oom"
    )
    done = complete(run, LogFacts(), before)
    for oom in done.ooms:
        mates = concurrent_holders(Evidence(run=done, snapshot=before), oom)
        assert len({worker.setting for worker in workers for mate in mates if worker.pid == mate.pid}) == 1
        around = oom_facts(Evidence(run=done, snapshot=before), oom)
        assert around.others_max_bytes is not None
        assert around.others_max_bytes + (oom.in_use_bytes or 0) <= total * MIB
    for line in (line for entry in done.findings for line in entry.evidence):
        for number, unit, last, last_unit in _HELD_BY_OTHERS.findall(line):
            held = float(number or last) * (1024 if (unit or last_unit) == "GiB" else 1)
            assert held <= total, line
    found = [entry for entry in done.findings if entry.id == "memory.other-process"]
    if tenant > 1024:
        assert all(("process 7 " in entry.title) == entry.title.startswith("The first") for entry in found)
        assert all("process 7" in entry.action for entry in found)
