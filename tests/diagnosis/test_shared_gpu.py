"""Processes of one program on one GPU, of which a later one gets what is left."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Oom, Run, RunProcess
from gpuwatch.core.model.run_memory import DeviceMemory, Holding, Memory
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.share.reports.run_tables import device_map_table
from tests.diagnosis.cases import GIB, MIB, draft


def shared(second: int, *, first: int = 22 * GIB, since: float = 8.0, ooms: tuple[Oom, ...] = ()) -> Run:
    """A process that holds ``first`` bytes from 2 s to 12 s, and one that was granted ``second`` at ``since``."""
    processes, holders = [], []
    for pid, granted, began in ((10, first, 2.0), (20, second, since)):
        mapping = DeviceMapping(framework_device="/device:GPU:0", cuda_ordinal=0, uuid="GPU-0", granted_bytes=granted)
        processes.append(RunProcess(pid=pid, command="train.py", device_map=(mapping,)))
        holders.append(
            Holding(pid=pid, own=True, peak_bytes=granted, first_seconds=began, last_seconds=began + 10.0),
        )
    memory = Memory(devices=(DeviceMemory(uuid="GPU-0", index=0, total_bytes=24 * GIB, holders=tuple(holders)),))
    return draft(group="run", processes=tuple(processes), memory=memory, ooms=ooms)


def told(run: Run) -> list[Finding]:
    return [one for one in diagnose(Evidence(run=run)) if "processes of the program share" in one.title]


def test_the_second_training_gets_what_the_first_left() -> None:
    (found,) = told(shared(991 * MIB))
    assert (found.id, found.certainty, found.device_uuid) == ("memory.other-process", "fact", "GPU-0")
    assert "20 was granted 991 MiB" in found.title
    assert "from 8.0 s to 18.0 s" in found.evidence[1]


def at_once(**second: object) -> Run:
    """Two that start at once: each is granted the whole, one gets it."""
    run = shared(22 * GIB, since=2.1)
    (first, other), (gpu,) = run.processes, run.memory.devices
    held = (replace(gpu.holders[0], peak_bytes=1479 * MIB), gpu.holders[1])
    first = replace(first, **{"allocators": {"/device:GPU:0": 12 * MIB}, **second})
    return replace(run, processes=(first, other), memory=replace(run.memory, devices=(replace(gpu, holders=held),)))


def test_of_two_that_start_at_once_one_gets_the_rest() -> None:
    (found,) = told(at_once())
    assert "10 was granted 1.4 GiB" in found.title
    assert not told(at_once(allocators={})), "it has only started the GPU"
    assert not told(at_once(environment={"TF_FORCE_GPU_ALLOW_GROWTH": "true"}))


@pytest.mark.parametrize("held", [322 * MIB, 330 * MIB, 991 * MIB])
def test_what_a_later_process_holds_is_not_called_its_grant(held: int) -> None:
    """With memory growth set in the program it holds less than it was granted."""
    run = shared(991 * MIB)
    (first, second), (gpu,) = run.processes, run.memory.devices
    second = replace(second, allocators={"/device:GPU:0": 5 * MIB})
    gpu = replace(gpu, holders=(gpu.holders[0], replace(gpu.holders[1], peak_bytes=held)))
    run = replace(run, processes=(first, second), memory=replace(run.memory, devices=(gpu,)))
    (found,) = told(run)
    assert "20 was granted 991 MiB" in found.title
    assert "first of all for process 10" in found.action


@pytest.mark.parametrize("held", [322 * MIB, 700 * MIB])
def test_of_two_that_start_at_once_one_may_need_little(held: int) -> None:
    run = at_once()
    (gpu,) = run.memory.devices
    gpu = replace(gpu, holders=(replace(gpu.holders[0], peak_bytes=held), gpu.holders[1]))
    assert not told(replace(run, memory=replace(run.memory, devices=(gpu,))))


@pytest.mark.parametrize(
    "run",
    [
        shared(991 * MIB, since=12.5),  # one after the other
        shared(1024 * MIB),  # a limit of its own
        shared(4 * GIB + MIB, first=6 * GIB),  # both have limits
        shared(4 * GIB),  # more than is left: with memory growth, a limit is no grant
        shared(991 * MIB, ooms=(Oom(),)),  # told as that
    ],
)
def test_processes_that_share_on_purpose_or_not_at_all(run: Run) -> None:
    assert not told(run)


def test_the_device_map_has_every_process() -> None:
    run = shared(991 * MIB)
    table = device_map_table(run.device_map, run)
    assert table.heads[0] == "Process"
    assert [(row[0], row[-1]) for row in table.rows] == [("10", "22.0 GiB"), ("20", "991 MiB")]
    assert device_map_table(run.processes[0].device_map).heads[0] == "Framework"
