"""The driver's accounting mode: read where it is on, never switched on, each ended process once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from msgspec.structs import replace

from gpuwatch.core.model.snapshot import AccountedProcess, Snapshot
from gpuwatch.machine.history.process_usage import ProcessLives
from gpuwatch.machine.history.sample_events import ProcessEvents
from gpuwatch.machine.recording.gpu_time_and_energy import GpuTimeMeter
from gpuwatch.machine.sources.device_source import GpuProcess
from gpuwatch.machine.sources.nvidia.nvml_devices import NvmlDevice
from gpuwatch.machine.sources.nvidia.processes import Accounting
from tests.ui import machines
from tests.ui.machines import GIB, NOON

NOT_AVAILABLE = 0xFFFFFFFF
BEGAN = int(NOON.timestamp())


class FakeLibrary:
    """NVML with a list of processes by pid, as the driver keeps it: the last one of a pid."""

    NVMLError = pynvml.NVMLError
    NVML_ERROR_FUNCTION_NOT_FOUND = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND

    def __init__(self) -> None:
        self.on = True
        self.kept: dict[int, SimpleNamespace] = {}
        self.asked: list[int] = []

    def put(self, pid: int, began: float, seconds: float, *, running: bool = False, **changes: Any) -> None:
        facts = {"gpuUtilization": 45, "memoryUtilization": 20, "maxMemoryUsage": 3 * GIB}
        self.kept[pid] = SimpleNamespace(
            startTime=int((BEGAN + began) * 1e6), time=0 if running else int(seconds * 1e3), isRunning=int(running),
            **(facts | changes),
        )  # fmt: skip

    def nvmlDeviceGetAccountingMode(self, handle: object) -> int:
        return int(self.on)

    def nvmlDeviceGetAccountingPids(self, handle: object) -> list[int]:
        return list(self.kept)

    def nvmlDeviceGetAccountingStats(self, handle: object, pid: int) -> SimpleNamespace:
        self.asked.append(pid)
        if pid not in self.kept:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.kept[pid]


@pytest.fixture
def lib() -> FakeLibrary:
    return FakeLibrary()


def device(*pids: int) -> NvmlDevice:
    return NvmlDevice(
        index=0, uuid=machines.uuid(0), name="GPU", pci_bus_id="", handle=object(),
        listed_processes=[GpuProcess(pid, "C", GIB) for pid in pids],
    )  # fmt: skip


def ends(one: NvmlDevice) -> list[tuple[int, float]]:
    return [(entry.pid, entry.used_seconds) for entry in one.accounted]


def test_it_is_only_read_where_it_is_on(lib: FakeLibrary) -> None:
    lib.on = False
    lib.put(7, 0, 5)
    one, accounting = device(), Accounting(lib)
    accounting.update(one)
    accounting.update(one)
    assert (one.accounted, lib.asked) == ((), [])


def test_a_driver_without_it_is_not_asked_again(lib: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: object) -> int:
        lib.asked.append(0)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(lib, "nvmlDeviceGetAccountingMode", refuse)
    one, accounting = device(), Accounting(lib)
    accounting.update(one)
    accounting.update(one)
    assert (one.accounted, lib.asked) == ((), [0])


def test_each_process_that_ends_is_told_once(lib: FakeLibrary) -> None:
    lib.put(1, -900, 60)  # over before we began
    lib.put(2, -30, 0, running=True)
    one, accounting = device(2), Accounting(lib)
    accounting.update(one)
    assert (one.accounted, lib.asked) == ((), []), "a long list costs nothing"
    lib.put(2, -30, 40)
    one.listed_processes = []
    accounting.note_exited(one, {2})
    assert ends(one) == [(2, 40.0)]
    lib.put(3, 12, 0.4)  # between two samples
    accounting.update(one)
    accounting.update(one)
    assert ends(one) == [(2, 40.0), (3, 0.4)]
    assert (one.accounted[0].gpu_percent, one.accounted[0].peak_bytes) == (45, 3 * GIB)
    assert one.accounted[0].started_at == BEGAN - 30


def test_a_pid_that_is_used_again_is_another_process(lib: FakeLibrary) -> None:
    one, accounting = device(), Accounting(lib)
    accounting.update(one)
    lib.put(5, 1, 2)
    accounting.update(one)
    lib.put(5, 10, 0, running=True)
    one.listed_processes = [GpuProcess(5, "C", GIB)]
    accounting.update(one)
    assert ends(one) == [(5, 2.0)], "it runs: nothing is known of it"
    lib.put(5, 10, 20)
    one.listed_processes = []
    accounting.note_exited(one, {5})
    assert ends(one) == [(5, 2.0), (5, 20.0)]


def test_what_the_driver_does_not_know_is_not_a_number(lib: FakeLibrary) -> None:
    one, accounting = device(), Accounting(lib)
    accounting.update(one)
    lib.put(5, 1, 2, gpuUtilization=NOT_AVAILABLE, memoryUtilization=NOT_AVAILABLE, maxMemoryUsage=None)
    accounting.update(one)
    (entry,) = one.accounted
    assert (entry.gpu_percent, entry.memory_percent, entry.peak_bytes) == (None, None, None)
    lib.kept.clear()  # the buffer was cleared, or written over
    accounting.note_exited(one, {8})
    accounting.update(one)
    assert ends(one) == [(5, 2.0)]


def shots() -> list[Snapshot]:
    """A process in two samples, gone in the third; another one between the second and the third."""
    at = NOON.timestamp()
    row = machines.process(0, gpu=0, pid=100, create_time=at - 50)
    gpu = machines.device(0)
    ended = AccountedProcess(
        pid=100, started_at=at - 49, used_seconds=52.0, gpu_percent=61, memory_percent=10, peak_bytes=9 * GIB
    )
    short = AccountedProcess(
        pid=222, started_at=at + 1.2, used_seconds=0.5, gpu_percent=30, memory_percent=1, peak_bytes=GIB
    )
    base = replace(machines.many(1, 0), devices=(gpu,))
    return [
        replace(base, taken_at=NOON, processes=(row,)),
        replace(base, taken_at=NOON.replace(second=32), processes=(row,)),
        replace(
            base, taken_at=NOON.replace(second=33), processes=(), devices=(replace(gpu, accounted=(ended, short)),)
        ),
        replace(
            base, taken_at=NOON.replace(second=34), processes=(), devices=(replace(gpu, accounted=(ended, short)),)
        ),
    ]


def test_it_is_told_at_the_exit() -> None:
    events = ProcessEvents()
    told = [event.text for shot in shots() for event in events.observe(shot, shot.taken_at.timestamp())[0]]
    (exited,) = [text for text in told if "exited" in text]
    assert "GPU avg 61 % over its life" in exited
    (between,) = [text for text in told if "between samples" in text]
    assert (
        between
        == "GPU 0: process 222 used it for 0.5 s between samples, according to the driver's accounting, peak 1.0 GiB"
    )


def test_it_is_kept_with_the_life_and_with_the_hours() -> None:
    lives, meter = ProcessLives(lambda key: None, 15.0), GpuTimeMeter(1.0)
    for shot in shots():
        lives.add(shot)
        meter.add(shot)
    (life,) = lives.take_changed(0.0)
    assert life.accounted is not None
    assert (life.accounted.pid, life.accounted.gpu_percent) == (100, 61)
    (hour,) = meter.pop_hours().values()
    (gpu,) = hour.devices
    assert (gpu.unsampled_processes, gpu.unsampled_seconds) == (1, 0.5)
