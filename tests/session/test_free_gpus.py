"""Which GPUs ``gpuwatch pick`` takes, and why it refuses the others."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.pick_result import Pick
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, MigInstance, Snapshot
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.session.free_gpus import Requirements, idle_devices, pick_gpus, refusal_reasons, why_impossible
from gpuwatch.session.snapshots import findings_of
from tests.ui import machines
from tests.ui.machines import GIB, uuid

EMPTY: dict[str, Any] = {"memory.used_bytes": 0, "memory.reserved_bytes": 0}


def gpu(index: int, *, used: float = 0.0, busy: float = 0.0, **changes: Any) -> Device:
    """A GPU of 24 GiB."""
    readings = {"memory.total_bytes": 24 * GIB, "memory.used_bytes": int(used * GIB), "memory.reserved_bytes": 0}
    readings.update(changes.pop("readings", {}))
    return machines.device(index, busy=busy, readings=readings, **changes)


def machine(*devices: Device, on: tuple[int, ...] = (), **changes: Any) -> Snapshot:
    """``on``: GPUs with a process each."""
    rows = tuple(
        machines.process(number, gpu=where, readings={"gpu_memory_bytes": 3 * GIB}) for number, where in enumerate(on)
    )
    return machines.snapshot(devices, changes.pop("processes", rows), **changes)


def chosen(picked: Pick) -> list[int]:
    return [one.index for one in picked.chosen]


def refusals(picked: Pick) -> dict[int, str]:
    return {one.index: one.reason for one in picked.refused}


def test_free_ones_come_first_then_the_least_used() -> None:
    here = machine(gpu(0, used=3), gpu(1, used=0.1), gpu(2), gpu(3, busy=80), on=(0,))
    assert chosen(pick_gpus(here, Requirements(4), {}, {})) == [2, 1, 3, 0]
    two = pick_gpus(here, Requirements(2), {}, {})
    assert (chosen(two), two.spare, two.refused) == ([2, 1], 2, ())


def test_free_memory() -> None:
    here = machine(gpu(0, used=20), gpu(1, used=3), gpu(2, missing={"memory.free_bytes": Missing("unknown")}), on=(0,))
    picked = pick_gpus(here, Requirements(1, 20 * GIB), {}, {})
    assert chosen(picked) == [1]
    assert refusals(picked) == {
        0: "4.0 GiB of 24.0 GiB free, held by alice's train.py (2210) 3.0 GiB",
        2: "its free memory could not be read",
    }
    none = pick_gpus(here, Requirements(2, 20 * GIB), {}, {})
    assert (none.chosen, none.spare) == ((), 1)
    assert refusal_reasons(none).startswith("GPU 0: 4.0 GiB of 24.0")


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (gpu(0, used=2), "2.0 GiB used by no listed process"),
        (gpu(0, busy=55), "55 % utilization by no listed process"),
        (gpu(0, missing={"utilization.gpu_percent": Missing("unknown")}), "its utilization could not be read"),
        (gpu(0, missing={"memory.used_bytes": Missing("unknown")}), "its used memory could not be read"),
        (gpu(0, used=0.4, busy=3), ""),
    ],
)
def test_idle_is_what_nobody_uses_even_unseen(device: Device, reason: str) -> None:
    picked = pick_gpus(machine(device), Requirements(1, idle=True), {}, {})
    assert refusals(picked) == ({0: reason} if reason else {})
    assert chosen(pick_gpus(machine(device), Requirements(1), {}, {})) == [0], "only --idle asks for that"


def test_a_desktop_is_no_work() -> None:
    here = machine(gpu(0), processes=(machines.denied_process(0),))
    assert chosen(pick_gpus(here, Requirements(1, idle=True), {}, {})) == [0]


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (gpu(0, state="lost", state_detail="GPU is lost"), "GPU is lost"),
        (gpu(0, readings={"mode.compute": "prohibited"}), "its compute mode prohibits programs"),
        (
            gpu(0, readings={"mode.compute": "exclusive-process"}),
            "its compute mode is exclusive, and alice's train.py (2210) 3.0 GiB is on it",
        ),
        (gpu(0, readings={"mig.mode": "enabled"}), "MIG is on, but it has no instances"),
    ],
)
def test_gpus_that_no_program_can_use(device: Device, reason: str) -> None:
    picked = pick_gpus(machine(device, on=(0,)), Requirements(1), {}, {})
    assert refusals(picked) == {0: reason}


def test_errors_and_reservations() -> None:
    error = Finding(id="xid", severity="error", certainty="fact", title="Xid 79 on GPU 0", device_uuid=uuid(0))
    here = machine(gpu(0), gpu(1), gpu(2))
    picked = pick_gpus(here, Requirements(1), {}, {uuid(1): "pid 7 (bob, python)"}, [error])
    assert chosen(picked) == [2]
    assert refusals(picked) == {0: "Xid 79 on GPU 0", 1: "reserved by pid 7 (bob, python)"}


def test_a_gpu_that_needs_a_reset_gets_no_work() -> None:
    here = machine(gpu(0, readings={"ecc.uncorrected": 2}), gpu(1), gpu(2, readings={"remapped_rows.pending": "yes"}))
    found = findings_of(here)
    assert [finding.severity for finding in found] == ["warning", "warning"]
    picked = pick_gpus(here, Requirements(1), {}, {}, found)
    assert (chosen(picked), picked.spare) == ([1], 0)
    assert refusals(picked) == {
        0: "uncorrected ECC errors: 2 since the last reset",
        2: "bad memory rows will be remapped at the next reset",
    }
    assert [free for _, _, free in idle_devices(here, {}, found)] == [False, True, False]
    harmless = machine(gpu(0, readings={"nvlink.crc_errors": 5, "nvlink.recoveries": 1}))
    assert chosen(pick_gpus(harmless, Requirements(1), {}, {}, findings_of(harmless))) == [0]


def test_a_fault_that_is_over_refuses_nothing() -> None:
    over = Finding(
        id="hardware.fault", severity="error", certainty="fact", title="x", device_uuid=uuid(0), until=utc_datetime(9)
    )
    assert [free for _, _, free in idle_devices(machine(gpu(0)), {}, [over])] == [True]


def test_visible_devices_limit_the_choice() -> None:
    here = machine(gpu(0), gpu(1, used=3), gpu(2))
    for listed in ("1", uuid(1), f"1,{uuid(2)}"):
        assert chosen(pick_gpus(here, Requirements(1), {"CUDA_VISIBLE_DEVICES": listed}, {})) == [1], listed
    with pytest.raises(UsageError, match="hides all"):
        pick_gpus(here, Requirements(1), {"CUDA_VISIBLE_DEVICES": ""}, {})
    other = machine(gpu(0), gpu(1, name="NVIDIA A2"))
    with pytest.raises(UsageError, match="fastest first"):
        pick_gpus(other, Requirements(1), {"CUDA_VISIBLE_DEVICES": "1"}, {})
    ordered = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert chosen(pick_gpus(other, Requirements(1), ordered, {})) == [1]


def instance(number: int, free: float, name: str | None = None) -> MigInstance:
    readings = {"memory.total_bytes": 10 * GIB, "memory.free_bytes": int(free * GIB), "memory.used_bytes": 0}
    return MigInstance(
        id=f"{number}/0",
        index=number,
        uuid=name or f"MIG-{number:08x}-0000-0000-0000-000000000000",
        gpu_instance=number,
        compute_instance=0,
        profile="1g.10gb",
        readings=readings,
    )


def test_mig_instances() -> None:
    divided = gpu(0, readings={"mig.mode": "enabled"}, mig_instances=(instance(1, 2), instance(2, 9)))
    here = machine(divided, gpu(1, used=23))
    [one] = pick_gpus(here, Requirements(1, 8 * GIB), {}, {}).chosen
    assert (one.uuid, one.mig_instance, one.index) == ("MIG-00000002-0000-0000-0000-000000000000", "2/0", 0)
    limited = {"CUDA_VISIBLE_DEVICES": "MIG-00000001-0000-0000-0000-000000000000"}
    assert pick_gpus(here, Requirements(1), limited, {}).chosen[0].mig_instance == "1/0"
    two = pick_gpus(here, Requirements(2), {}, {})
    assert {one.mig_instance: one.reason for one in two.refused} == {
        "1/0": "CUDA gives a program only one MIG instance",
        "2/0": "CUDA gives a program only one MIG instance",
    }
    assert why_impossible(here, Requirements(2)) == "this machine has 1 GPU without MIG, not 2"


def test_what_no_waiting_helps() -> None:
    here = machine(gpu(0, used=23), gpu(1, used=23))
    assert why_impossible(here, Requirements(2, 20 * GIB)) == ""
    assert why_impossible(here, Requirements(3)) == "this machine has 2 GPUs, not 3"
    assert why_impossible(here, Requirements(1, 25 * GIB)) == "no GPU here has 25.0 GiB; the largest has 24.0 GiB"
    unknown = machine(gpu(0, missing={"memory.total_bytes": Missing("unknown")}))
    assert why_impossible(unknown, Requirements(1, 25 * GIB)) == ""
