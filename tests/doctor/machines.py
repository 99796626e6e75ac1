"""Facts of made-up machines for the truth tables: a healthy one, and what a test changes of it."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

from gpuwatch.core.model.doctor import (
    Check,
    DeviceFile,
    DeviceTest,
    Distribution,
    Doctor,
    DriverAnswer,
    FrameworkFacts,
    Library,
    LoadedLibrary,
    PciCard,
    System,
)
from gpuwatch.core.model.run import DeviceMapping, Devices, Framework, Run
from gpuwatch.core.model.snapshot import Device, Driver, Host, Problem, Process, Snapshot
from gpuwatch.explain.diagnosis.doctor.check import Facts
from gpuwatch.explain.diagnosis.doctor.doctor_document import build_document
from gpuwatch.explain.logs.log_facts import LogFacts

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
GIB = 1 << 30
replace = msgspec.structs.replace

HOST = Host(hostname="box", cpu_percent=None, cpu_count=8, memory_used_bytes=None, memory_total_bytes=None)
DRIVER = Driver(version="570.86.10", cuda_version="12.8", nvml_version="12.570")
SYSTEM = System(
    kernel="6.8.0",
    kernel_module="570.86.10",
    modules=frozenset({"nvidia", "nvidia_uvm"}),
    device_files=tuple(
        DeviceFile(path=f"/dev/{name}", usable=True, mode="crw-rw-rw- root root")
        for name in ("nvidia-uvm", "nvidia0", "nvidia1", "nvidiactl")
    ),
    cards=(PciCard(bus_id="0000:01:00.0", driver="nvidia"), PciCard(bus_id="0000:02:00.0", driver="nvidia")),
)
ANSWER = DriverAnswer(
    libcuda=LoadedLibrary(name="libcuda.so.1", path="/lib/libcuda.so.570.86.10", version="570.86.10"),
    nvml=LoadedLibrary(name="libnvidia-ml.so.1", path="/lib/libnvidia-ml.so.570.86.10", version="570.86.10"),
    nvml_code=0,
    nvml_driver="570.86.10",
    cuinit_code=0,
    cuinit_seconds=0.05,
    cuda_driver=12080,
    cuda_devices=2,
)
BUILD = {
    "cuda_version": "12.5.1",
    "cudnn_version": "9",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}
TENSORFLOW = Framework(name="tensorflow", version="2.21.0", gpu_build=True, python_version="3.11.7", build=BUILD)
LOOK = FrameworkFacts(
    name="tensorflow",
    interpreter="/venv/bin/python",
    gpu_build=True,
    distributions=(
        Distribution(name="tensorflow", version="2.21.0"),
        Distribution(name="numpy", version="2.0"),
        Distribution(name="nvidia-cudnn-cu12", version="9.3.0.75"),
    ),
    libraries=(Library(name="libcudnn.so.9", state="loaded", path="/w/libcudnn.so.9", origin="wheel", opened=True),),
    tests=(DeviceTest(device="GPU:0", ran_on="GPU:0", seconds=0.2, correct=True),),
    import_seconds=2.0,
)


def gpu(
    index: int, *, name: str = "NVIDIA A100", capability: str = "8.0", state: str = "ok", **readings: Any
) -> Device:
    values = {
        "memory.total_bytes": 80 * GIB,
        "memory.free_bytes": 79 * GIB,
        "mode.compute": "default",
        "mode.persistence": "enabled",
        "mig.mode": "disabled",
        **{key.replace("__", "."): value for key, value in readings.items()},
    }
    return Device(
        index=index,
        uuid=f"GPU-{index}{index}{index}",
        name=name,
        pci_bus_id=f"0000:0{index + 1}:00.0",
        compute_capability=capability,
        state=state,
        readings=values,
        missing={},
    )


def snapshot(
    *devices: Device,
    driver: Driver | None = DRIVER,
    problems: tuple[Problem, ...] = (),
    processes: tuple[Process, ...] = (),
) -> Snapshot:
    return Snapshot(
        taken_at=NOW,
        took_seconds=0.1,
        simulated=False,
        driver=driver,
        devices=devices or ((gpu(0), gpu(1)) if driver is not None else ()),
        processes=processes,
        host=HOST,
        problems=problems,
    )


def run(*, gpus: int = 2, framework: Framework | None = TENSORFLOW, **fields: Any) -> Run:
    names = tuple(f"/device:GPU:{index}" for index in range(gpus))
    return Run(
        config="doctor",
        group="placement",
        workload="matmul",
        simulated=False,
        started_at=NOW,
        framework=framework,
        devices=Devices(logical=("/device:CPU:0", *names)),
        device_map=tuple(
            DeviceMapping(framework_device=name, cuda_ordinal=at, uuid=f"GPU-{at}{at}{at}")
            for at, name in enumerate(names)
        ),
        verdict="ok",
        **fields,
    )


def machine(**changes: Any) -> Facts:
    """The healthy machine, changed."""
    fields: dict[str, Any] = {
        "system": SYSTEM,
        "driver": ANSWER,
        "snapshot": snapshot(),
        "environment": {},
        "installation": LOOK,
        "run": run(),
        "log": LogFacts(line_count=20),
    }
    return Facts(**{**fields, **changes})


def bare(**changes: Any) -> Facts:
    """A machine without any driver, on which no framework was looked at."""
    error = "{0}: cannot open shared object file: No such file or directory".format
    fields: dict[str, Any] = {
        "system": System(kernel="6.8.0", modules=frozenset(), cards=()),
        "driver": DriverAnswer(
            libcuda=LoadedLibrary(name="libcuda.so.1", error=error("libcuda.so.1")),
            nvml=LoadedLibrary(name="libnvidia-ml.so.1", error=error("libnvidia-ml.so.1")),
        ),
        "snapshot": snapshot(
            driver=None,
            problems=(Problem(source="nvml", reason="driver.missing", detail="libnvidia-ml.so.1 is missing"),),
        ),
        "installation": None,
    }
    return Facts(**{**fields, **changes})


def examined(facts: Facts) -> Doctor:
    return build_document(facts, NOW, 1.0)


def checks(facts: Facts) -> dict[str, Check]:
    return {check.id: check for check in examined(facts).checks}
