"""The machines that tests and pictures draw are such as there could be."""

from __future__ import annotations

import pytest

from gpuwatch.core.model.snapshot import Snapshot
from tests.ui import machines


@pytest.mark.parametrize(
    "shot", [machines.pair(7), machines.many(8, 200, tick=9), machines.many(3, 2)], ids=["pair", "200", "few"]
)
def test_memory_adds_up(shot: Snapshot) -> None:
    for device in shot.devices:
        number = {name: device.number(f"memory.{name}_bytes") or 0 for name in ("total", "used", "free", "reserved")}
        assert abs(number["total"] - number["used"] - number["free"] - number["reserved"]) < 2
        held = sum(row.number("gpu_memory_bytes") or 0 for row in shot.processes if row.device_uuid == device.uuid)
        nobody = device.number("memory.unexplained_bytes") or 0
        assert abs(number["used"] - held - nobody) < 2**20, "what is used is somebody's, or unexplained"
