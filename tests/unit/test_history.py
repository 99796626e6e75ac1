from __future__ import annotations

import datetime

from gpuwatch.history.ring import History
from gpuwatch.model.reading import Value
from gpuwatch.model.snapshot import Device, Host, Snapshot


def taken(*devices: tuple[str, dict[str, Value]]) -> Snapshot:
    return Snapshot(
        taken_at=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        took_seconds=0.0,
        simulated=False,
        driver=None,
        devices=tuple(
            Device(index=i, uuid=uuid, name="x", pci_bus_id="", readings=readings, missing={})
            for i, (uuid, readings) in enumerate(devices)
        ),
        processes=(),
        host=Host(hostname="h", cpu_percent=None, cpu_count=1, memory_used_bytes=None, memory_total_bytes=None),
    )


def test_a_missing_sample_is_a_gap_and_not_a_zero() -> None:
    history = History(capacity=3)
    history.add(taken(("GPU-a", {"utilization.gpu_percent": 10})))
    history.add(taken(("GPU-a", {})))
    history.add(taken())
    assert list(history.series("GPU-a", "utilization.gpu_percent")) == [10.0, None, None]
    history.add(taken(("GPU-a", {"utilization.gpu_percent": 0})))
    assert list(history.series("GPU-a", "utilization.gpu_percent")) == [None, None, 0.0]


def test_names_are_not_numbers_and_unknown_series_are_empty() -> None:
    history = History()
    history.add(taken(("GPU-a", {"performance.state": "P0"})))
    assert list(history.series("GPU-a", "performance.state")) == []
    assert list(history.series("GPU-b", "memory.used_bytes")) == []
