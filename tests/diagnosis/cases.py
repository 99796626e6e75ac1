"""Evidence for tests: machines, logs and draft runs in their smallest form."""

from __future__ import annotations

import datetime

from gpuwatch.core.model.run import Devices, Outcome, Placement, Run, RunError, Setting
from gpuwatch.core.model.snapshot import Device, Driver, Host, Problem, Process, Snapshot
from gpuwatch.explain.logs.log_facts import LogFacts
from tests.logs.logs import facts

GIB = 1 << 30
MIB = 1 << 20
NOW = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
ON_CPU = Placement(op="MatMul", dtype="float32", actual=CPU)
ON_GPU = Placement(op="MatMul", dtype="float32", actual=GPU)


def machine(
    *,
    gpus: int = 2,
    driver: bool = True,
    used: int = 500 * MIB,
    busy: float = 0.0,
    problems: tuple[Problem, ...] = (),
    processes: tuple[Process, ...] = (),
) -> Snapshot:
    devices = tuple(
        Device(
            index=index,
            uuid=f"GPU-{index}",
            name="Card",
            pci_bus_id=f"0000:{index + 1:02x}:00.0",
            readings={
                "memory.total_bytes": 24 * GIB,
                "memory.used_bytes": used,
                "utilization.gpu_percent": busy,
            },
            missing={},
        )
        for index in range(gpus)
    )
    if not driver and not problems:
        problems = (Problem(source="nvml", reason="driver.missing", detail="libnvidia-ml.so.1 cannot be loaded"),)
    return Snapshot(
        taken_at=NOW,
        took_seconds=0.0,
        simulated=False,
        driver=Driver(version="580.1", cuda_version="13.0", nvml_version="13") if driver else None,
        devices=devices if driver else (),
        processes=processes,
        host=Host(hostname="h", cpu_percent=0.0, cpu_count=1, memory_used_bytes=1, memory_total_bytes=2),
        problems=problems,
    )


NO_DRIVER = machine(driver=False)


def process(pid: int, gpu_memory: int, device: str = "GPU-0") -> Process:
    return Process(
        pid=pid,
        create_time=1.0,
        user="alice",
        command="python train.py",
        name="python",
        type="C",
        device_uuid=device,
        framework="tensorflow 2.21.0",
        readings={"gpu_memory_bytes": gpu_memory},
    )


def draft(config: str = "growth", **fields: object) -> Run:
    """A probe's run as the runner leaves it."""
    values: dict[str, object] = {
        "config": config,
        "group": "memory",
        "workload": "matmul",
        "simulated": False,
        "started_at": NOW,
        "verdict": "ok",
        "outcome": Outcome(exit_code=0, ended=True),
        "devices": Devices(logical=("/device:CPU:0",)),
        "placements": (ON_CPU,),
    }
    values.update(fields)
    return Run(**values)  # type: ignore[arg-type]


def on_gpus(config: str, **fields: object) -> Run:
    """The same where the framework got both GPUs."""
    values: dict[str, object] = {
        "devices": Devices(logical=("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")),
        "placements": (ON_GPU,),
    }
    values.update(fields)
    return draft(config, **values)


def hides(value: str) -> dict[str, object]:
    """What a probe that sets CUDA_VISIBLE_DEVICES itself leaves in its run."""
    return {
        "settings": {"CUDA_VISIBLE_DEVICES": Setting(asked=value, effective=value)},
        "environment": {"CUDA_VISIBLE_DEVICES": value},
    }


def expected(kind: str, message: str) -> tuple[RunError, ...]:
    return (RunError(type=kind, message=message, expected=True),)


def log(name: str) -> LogFacts:
    return facts(name)
