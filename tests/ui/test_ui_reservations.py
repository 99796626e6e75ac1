"""Who reserved a GPU is shown on its card, its line and its tab."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.snapshot import MigInstance, Reservation, Snapshot
from gpuwatch.ui.tables.device_notes import attention_mark, reserved_note
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import plain, press


def reserved(*, devices: int = 4, processes: bool = False, **changes: object) -> Snapshot:
    gpus = tuple(machines.device(index, busy=0) for index in range(devices))
    rows = (machines.process(0, gpu=0),) if processes else ()
    facts = {"uuid": machines.uuid(0), "pid": 4711, "user": "alice", "command": "python train.py", **changes}
    return machines.snapshot(gpus, rows, reservations=(Reservation(**facts),))


def test_words() -> None:
    shot = reserved()
    first, second = shot.devices[:2]
    assert reserved_note(first, shot) == "reserved by alice (4711)"
    assert reserved_note(second, shot) == reserved_note(first, None) == ""
    assert reserved_note(first, reserved(counts=False)) == "reserved by alice (4711), over the per-user limit"
    assert reserved_note(first, reserved(user=None)) == "reserved by pid 4711"
    assert reserved_note(first, reserved(user=None, pid=None)) == "reserved by somebody"
    assert reserved_note(first, reserved(user="al\x1bice")) == "reserved by al\\x1bice (4711)"
    part = MigInstance(
        id="1/0", index=0, uuid="MIG-1", gpu_instance=1, compute_instance=0, profile="1g.10gb", readings={}
    )
    divided = machines.device(0, mig_instances=(part,))
    shot = machines.snapshot((divided,), (), reservations=(Reservation(uuid="MIG-1", pid=5, user="bob"),))
    assert reserved_note(divided, shot) == "reserved MIG 1/0 by bob (5)"


def test_the_mark_of_a_line_leaves_room_for_what_is_wrong() -> None:
    device = machines.device(0)
    assert attention_mark(device, finding="", reserved=True) == ("R", "dim")
    assert attention_mark(device, finding="warning", reserved=True)[0] == "▲"


async def test_cards_and_the_gpu_tab(stage: Stage) -> None:
    async with stage.opened(reserved()) as pilot:
        assert plain(stage).count("reserved by alice (4711)") == 1
        await press(pilot, "2")
        assert "reserved by alice (4711)" in plain(stage)


@pytest.mark.parametrize(("processes", "words"), [(False, 1), (True, 0)])
async def test_lines(stage: Stage, processes: bool, words: int) -> None:
    async with stage.opened(reserved(devices=6, processes=processes), size=(110, 24)):
        drawn = plain(stage)
        assert drawn.count("reserved by alice") == words, "a program on it says more than who reserved it"
        (line,) = [one for one in drawn.splitlines() if one.lstrip(" ▸").startswith("0 ")]
        assert line.rstrip().endswith("R")
