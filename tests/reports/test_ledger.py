"""Memory owner within owner, expectations, and processes beside each other."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.core.model.run_memory import Memory
from gpuwatch.share.reports.report_formats import FORMATS
from gpuwatch.share.reports.run_memory_tables import (
    expectation_note,
    expected_text,
    memory_table,
    profiles_table,
)
from gpuwatch.share.reports.run_tables import results_table, slowdown_text, workers_table
from tests.reports.documents import GIB, bare_run, full_run, speed

ROWS = {(row[0], row[1]): row[2] for row in memory_table(full_run()).rows}


@pytest.mark.parametrize(
    ("owner", "what", "amount"),
    [
        ("GPU 1", "total", "24.0 GiB"),
        ("↳ Driver", "reserved, not counted as used", "258 MiB"),
        ("↳ All owners", "used at the peak", "15.0 GiB"),
        ("↳ ↳ Other processes", "at the peak", "300 MiB"),
        ("↳ ↳ Unexplained", "owned by no listed process", "724 MiB"),
        ("↳ ↳ This process", "at the peak", "14.0 GiB"),
        ("↳ ↳ ↳ Allocator of GPU:0", "limit", "21.0 GiB"),
        ("↳ ↳ ↳ ↳ Allocator of GPU:0", "peak in use", "6.0 GiB"),
    ],
)
def test_each_owner_lies_within_the_one_above(owner: str, what: str, amount: str) -> None:
    assert ROWS[owner, what] == amount


def test_the_owners_at_the_peak_are_parts_of_what_was_used_then() -> None:
    rows = memory_table(full_run()).rows
    first = next(index for index, row in enumerate(rows) if row[0].startswith("↳ ↳"))
    assert rows[first - 1][:2] == ("↳ All owners", "used at the peak")


def test_the_cuda_context_is_listed_only_if_known() -> None:
    assert not any("context" in owner for owner, _ in ROWS)


def test_a_context_of_unknown_size_says_why() -> None:
    run = full_run(workers=())
    entry = run.memory.devices[0]
    name = next(mapping.framework_device for mapping in run.device_map if mapping.uuid == entry.uuid)
    peak = {"peak_bytes": GIB, "peak_seconds": 0.0, "pool_bytes": GIB}
    profile = MemoryProfile(tool="torch", device=name, allocator="pytorch", **peak)  # type: ignore[arg-type]
    unseen = msgspec.structs.replace(entry, process_bytes=None, context_bytes=None)
    run = msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, devices=(unseen,)))
    for problems, reason in (
        ((), "NVML does not report what the process holds"),
        (("NVML's peak: no sample was taken while it ran",), "no sample was taken while it ran"),
    ):
        shown = msgspec.structs.replace(run, problems=problems, memory_profiles=(profile,))
        context = next(row for row in memory_table(shown).rows if "CUDA context" in row[0])
        assert context[-1] == f"not known: {reason}"


def test_every_row_names_its_source() -> None:
    assert {row[3] for row in memory_table(full_run()).rows} == {"NVML", "framework"}


def test_a_run_without_samples_of_devices_keeps_what_it_has() -> None:
    run = full_run(memory=Memory(allocator_peak_bytes=GIB, device_total_bytes=2 * GIB))
    assert [row[:3] for row in memory_table(run).rows] == [
        ("Device", "total", "2.0 GiB"),
        ("↳ ↳ ↳ Allocator", "peak in use", "1.0 GiB"),
    ]
    assert memory_table(bare_run()).rows == ()


def test_the_expected_amount_is_beside_the_granted_one() -> None:
    assert expected_text(full_run(), "/job:localhost/replica:0/task:0/device:GPU:0") == "21.0 GiB ± 400 MiB"
    assert expected_text(full_run(), "GPU:1") == "–"
    assert expectation_note(full_run()) == "Expected: free 23000 MiB − reserve 1536."
    assert expectation_note(bare_run()) == ""


def test_processes_show_their_slow_down() -> None:
    first, second = workers_table(full_run(simulated=False)).rows
    assert first[:3] == ("fraction 0.4", "first (4712)", "ok")
    assert first[7] == "× 2.00"
    assert second[2] == "oom"
    assert second[7] == "–"
    assert second[8] == "Dst tensor is not initialized"
    assert slowdown_text(msgspec.structs.replace(full_run().workers[0], alone=None), simulated=False) == "–"


def test_a_slowdown_within_noise_is_not_shown() -> None:
    worker = full_run().workers[0]
    wide = msgspec.structs.replace(speed(0.004), p90_step_seconds=0.0046)
    for simulated, alone in ((True, worker.alone), (False, wide), (False, worker.throughput)):
        assert slowdown_text(msgspec.structs.replace(worker, alone=alone), simulated=simulated) == "–"
    table = workers_table(full_run())
    assert table.rows[0][7] == "–"
    assert "on this computer's CPU" in table.note


def test_results_are_named_with_their_units() -> None:
    assert results_table(full_run()).rows == (("Largest batch", "4096"), ("Needed", "3.0 GiB"))


@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_every_format_for_people_shows_them(name: str) -> None:
    drawn = next(entry for entry in FORMATS if entry.name == name).render(full_run(simulated=False))
    for word in ("Unexplained", "724 MiB", "Expected", "second", "× 2.00", "4096", "Largest batch"):
        assert word in drawn


def recorded(pool: int | None, **more: object) -> MemoryProfile:
    fields = {"tool": "torch", "device": "cuda:1", "allocator": "pytorch", "peak_bytes": 2 * GIB, "peak_seconds": 0.0}
    return MemoryProfile(**{**fields, "pool_bytes": pool, **more})  # type: ignore[arg-type]


def test_of_a_file_what_it_does_not_tell_is_said() -> None:
    rows = profiles_table([recorded(3 * GIB)]).rows
    assert [(row[0], row[2]) for row in rows] == [
        ("cuda:1", "not known"),
        ("↳ Other processes", "not known"),
        ("↳ Unexplained", "not known"),
        ("↳ This process", "not known"),
        ("↳ ↳ CUDA context and libraries", "not known"),
        ("↳ ↳ Allocator pytorch", "3.0 GiB"),
        ("↳ ↳ ↳ Tensors", "2.0 GiB"),
        ("↳ ↳ ↳ Free in the allocator", "1.0 GiB"),
    ]
    assert {row[3] for row in rows} == {"PyTorch", "not known from this file"}
    (pool,) = (row for row in profiles_table([recorded(None, limit_bytes=9 * GIB)]).rows if "Allocator" in row[0])
    assert pool[2:] == ("not known", "not known from this file, at most 9.0 GiB")


@pytest.mark.parametrize("device", ["TFRT_CPU_0", "host"])
def test_of_host_memory_no_driver_knows_an_owner(device: str) -> None:
    assert profiles_table([recorded(None, device=device)]).rows == ()


@pytest.mark.parametrize(("pool", "context"), [(3 * GIB, "11.0 GiB"), (None, "not known"), (99 * GIB, "not known")])
def test_of_a_run_the_context_is_what_nvml_counts_beyond_the_allocator(pool: int | None, context: str) -> None:
    table = memory_table(full_run(memory_profiles=(recorded(pool, device="GPU:0"),)))
    rows = {row[0]: row for row in table.rows}
    assert table.title == "Memory by owner"
    assert rows["↳ ↳ This process"][2] == "14.0 GiB"
    assert rows["↳ ↳ ↳ CUDA context and libraries"][2] == context
    assert rows["↳ ↳ ↳ ↳ Tensors"][2] == "2.0 GiB"
    assert "↳ ↳ ↳ Allocator of GPU:0" not in rows
