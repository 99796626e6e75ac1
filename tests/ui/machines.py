"""Machines built in code: the snapshots that the tests of the dashboard and its demo draw."""

from __future__ import annotations

import datetime
import math
from typing import Any

from msgspec import structs

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, Driver, Host, MappedDevice, Problem, Process, Snapshot

GIB = 1024**3
_TOTAL = 139.8 * GIB
"""Bytes of each GPU."""
NOON = datetime.datetime(2026, 5, 11, 12, 4, 31, tzinfo=datetime.UTC)
NOT_SUPPORTED = Missing("not_supported", code=3, detail="nvmlDeviceGetFanSpeed: Not Supported")
DENIED = Missing("permission_denied", code=4, detail="nvmlDeviceGetProcessUtilization: Insufficient Permissions")


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-9f3c-4b1d-8a55-{index:012x}"


def device(index: int = 0, *, tick: int = 0, busy: float | None = None, **changes: Any) -> Device:
    """A GPU whose load follows ``tick``; ``busy`` in percent fixes it."""
    wave = 50 + 45 * math.sin(tick / 9 + index * 1.7) + 5 * math.sin(tick * 2.3 + index)
    gpu = max(0.0, min(100.0, wave)) if busy is None else busy
    total = _TOTAL
    used = (0.15 + 0.7 * ((index * 37) % 100) / 100) * total * (1 + 0.1 * math.sin(tick / 40 + index))
    readings: dict[str, Any] = {
        "utilization.gpu_percent": round(gpu),
        "utilization.memory_percent": round(gpu * 0.6),
        "memory.total_bytes": int(total),
        "memory.used_bytes": int(used),
        "memory.reserved_bytes": int(0.6 * GIB),
        "memory.unexplained_bytes": 0,
        "temperature.gpu_celsius": round(34 + gpu * 0.28),
        "power.draw_watts": round(95 + gpu * 5.4, 1),
        "power.limit_watts": 700.0,
        "clocks.sm_mhz": 345 if gpu < 1 else 1980,
        "clocks.sm_max_mhz": 1980,
        "clocks.memory_mhz": 3201,
        "clocks.event_reasons": "idle" if gpu < 1 else "none",
        "performance.state": "P0",
        "pcie.generation": 5,
        "pcie.width": 16,
        "pcie.tx_bytes_per_second": gpu * 3e6,
        "pcie.rx_bytes_per_second": gpu * 12e6,
        "nvlink.tx_bytes_per_second": gpu * 1.1e9,
        "nvlink.rx_bytes_per_second": gpu * 1.3e9,
        "temperature.memory_celsius": round(38 + gpu * 0.3),
        "ecc.mode": "enabled",
        "ecc.corrected": 0,
        "ecc.uncorrected": 0,
        "events.power_percent": round(gpu / 20, 1),
        "events.thermal_percent": 0.0,
        "energy_joules": 4.1e8,
    }
    given = changes.pop("readings", {})
    readings.update(given)
    if "memory.free_bytes" not in given:  # NVML's used memory leaves out what the driver reserves
        taken = readings["memory.used_bytes"] + readings["memory.reserved_bytes"]
        readings["memory.free_bytes"] = max(readings["memory.total_bytes"] - taken, 0)
    missing: dict[str, Missing] = {"fan.speed_percent": NOT_SUPPORTED}
    missing.update(changes.pop("missing", {}))
    for name in missing:
        readings.pop(name, None)
    facts: dict[str, Any] = {
        "index": index,
        "uuid": uuid(index),
        "name": "NVIDIA H200",
        "pci_bus_id": f"0000:{0x1A + index:02x}:00.0",
        "compute_capability": "9.0",
    }
    facts.update(changes)
    return Device(readings=readings, missing=missing, **facts)


_USERS = ("alice", "bob", "carol", "maximilian.mustermann", "dave")
_COMMANDS = (
    "python train.py --bs 64 --model resnet50",
    "python finetune.py --lora",
    "/opt/conda/bin/python -m torch.distributed.run --nproc-per-node 8 pretrain.py --config configs/7b.yaml",
    "tritonserver --model-repository=/models",
    "jupyter-lab --no-browser",
)


def process(number: int = 0, *, gpu: int | None = 0, tick: int = 0, **changes: Any) -> Process:
    """One process of a machine; every third is TensorFlow, the next PyTorch."""
    kind = number % 3
    framework = ("tensorflow 2.21.0", "torch 2.11.0+cu130", None)[kind]
    load = abs(math.sin(tick / 7 + number)) * 100
    readings: dict[str, Any] = {
        "gpu_memory_bytes": int((0.4 + (number * 7919 % 31)) * GIB),
        "sm_percent": round(load),
        "memory_percent": round(load * 0.6),
        "cpu_percent": round(load * 1.3, 1),
        "host_memory_bytes": int((0.2 + number % 9) * GIB),
    }
    readings.update(changes.pop("readings", {}))
    missing = changes.pop("missing", {})
    for name in missing:
        readings.pop(name, None)
    facts: dict[str, Any] = {
        "pid": 2210 + number * 37,
        "create_time": NOON.timestamp() - 847 - number * 3611,
        "user": _USERS[number % len(_USERS)],
        "command": _COMMANDS[number % len(_COMMANDS)],
        "type": "C",
        "device_uuid": uuid(gpu) if gpu is not None else None,
        "device_index": gpu,
        "framework": framework,
        "device_map": (MappedDevice(ordinal=0, uuid=uuid(gpu), index=gpu),) if gpu is not None and framework else (),
    }
    facts.update(changes)
    return Process(readings=readings, missing=missing, **facts)


def denied_process(gpu: int = 0) -> Process:
    """Somebody else's Xorg: memory is all that is known."""
    absent = dict.fromkeys(("cpu_percent", "host_memory_bytes", "run_seconds"), DENIED)
    return process(
        1,
        gpu=gpu,
        pid=1999,
        create_time=None,
        user=None,
        framework=None,
        device_map=(),
        command=None,
        name="Xorg",
        type="G",
        note="permission denied",
        readings={"gpu_memory_bytes": int(0.6 * GIB), "sm_percent": 0, "memory_percent": 0},
        missing=absent,
    )


HELD = Finding(
    id="idle.memory-held",
    severity="warning",
    certainty="fact",
    title="alice's train.py (48121) holds 130.4 GiB and has been idle for 14 min",
    evidence=("GPU 1: 130.4 GiB of 139.8 GiB used by pid 48121", "SM 0 % since 11:50:12"),
    action="TensorFlow's default takes all memory: set TF_FORCE_GPU_ALLOW_GROWTH=true",
    device_uuid=uuid(1),
    pid=48121,
    since=NOON - datetime.timedelta(minutes=14),
)


def snapshot(
    devices: tuple[Device, ...] = (),
    processes: tuple[Process, ...] = (),
    *,
    tick: int = 0,
    **changes: Any,
) -> Snapshot:
    """A machine at ``NOON`` plus ``tick`` seconds."""
    facts: dict[str, Any] = {
        "taken_at": NOON + datetime.timedelta(seconds=tick),
        "took_seconds": 0.004,
        "simulated": False,
        "driver": Driver(version="580.159.03", cuda_version="13.0", nvml_version="13.580.159"),
        "devices": devices,
        "processes": processes,
        "host": Host(
            hostname="node07",
            cpu_percent=31.0 + 20 * math.sin(tick / 5),
            cpu_count=64,
            memory_used_bytes=int(42.1 * GIB),
            memory_total_bytes=128 * GIB,
            load=(7.1, 6.8, 5.9),
        ),
    }
    facts.update(changes)
    return Snapshot(**facts)


def pair(tick: int = 0) -> Snapshot:
    """The machine of the sketches: one GPU at work, one held and idle."""
    idle = device(
        1,
        tick=tick,
        busy=0,
        readings={"memory.used_bytes": int(131.2 * GIB), "memory.unexplained_bytes": int(0.8 * GIB)},
    )
    work = device(0, tick=tick, busy=97 - tick % 3, readings={"memory.used_bytes": int(32.5 * GIB)})
    alice = process(
        0,
        gpu=1,
        pid=48121,
        readings={"gpu_memory_bytes": int(130.4 * GIB), "sm_percent": 0, "memory_percent": 0, "cpu_percent": 1.2},
    )
    bob = process(
        1,
        gpu=0,
        pid=51877,
        readings={"gpu_memory_bytes": int(31.9 * GIB), "sm_percent": 96, "memory_percent": 61, "cpu_percent": 102.0},
    )
    return snapshot((work, idle), (alice, bob, denied_process()), tick=tick, findings=(HELD,))


def many(gpus: int, processes: int = 40, *, tick: int = 0, **changes: Any) -> Snapshot:
    """``gpus`` busy GPUs."""
    rows = [process(n, gpu=n % gpus, tick=tick) for n in range(processes)]
    devices = []
    for index in range(gpus):
        here = rows[index::gpus]
        held = sum(row.readings["gpu_memory_bytes"] for row in here)  # type: ignore[misc]
        # Many on one GPU have less each; all of them take more and less in turn.
        share = min(1.0, 0.85 * _TOTAL / held if held else 1.0) * (1 + 0.01 * math.sin(tick / 3 + index))
        amounts = [int(row.readings["gpu_memory_bytes"] * share) for row in here]  # type: ignore[operator]
        rows[index::gpus] = [
            structs.replace(row, readings=row.readings | {"gpu_memory_bytes": amount})
            for row, amount in zip(here, amounts, strict=True)
        ]
        devices.append(device(index, tick=tick, readings={"memory.used_bytes": sum(amounts)}))
    return snapshot(tuple(devices), tuple(rows), tick=tick, **changes)


def lively(tick: int = 0) -> Snapshot:
    """People come and go, a GPU gets hot, another is lost for a while, memory fills."""
    hot = (
        {"clocks.event_reasons": "sw-thermal", "temperature.gpu_celsius": 88, "clocks.sm_mhz": 1410}
        if 40 <= tick < 100
        else {}
    )
    used = int(min(60 + tick * 0.3, 137) * GIB)
    first = device(0, tick=tick, busy=80, readings={"memory.used_bytes": used, **hot})
    second = device(1, tick=tick, busy=0, readings={"memory.used_bytes": int(3 * GIB)})
    if 150 <= tick < 180:
        second = device(1, busy=0, state="lost", state_detail="XID 79")
    rows = tuple(process(n, gpu=n % 2, tick=tick) for n in range(4) if (tick + n * 70) % 300 > 60 or n == 0)
    return snapshot((first, second), rows, tick=tick)


def no_driver(tick: int = 0) -> Snapshot:
    """A laptop without an NVIDIA driver."""
    return snapshot(
        (),
        tuple(
            process(
                n,
                gpu=None,
                tick=tick,
                type="H",
                readings={"sm_percent": 0},
                missing={"gpu_memory_bytes": NOT_SUPPORTED},
            )
            for n in range(12)
        ),
        tick=tick,
        driver=None,
        problems=(
            Problem(
                source="nvml",
                reason="driver.missing",
                detail="No NVIDIA driver: libnvidia-ml.so.1 could not be loaded.",
                hint="Install the NVIDIA driver, or start the container with --gpus all.",
            ),
        ),
    )


def simulated(tick: int = 0) -> Snapshot:
    """Two simulated GPUs."""
    return snapshot(
        tuple(device(n, tick=tick, simulated=True, name="gpuwatch simulated GPU") for n in range(2)),
        tuple(process(n, gpu=n % 2, tick=tick) for n in range(4)),
        tick=tick,
        simulated=True,
    )


def broken(tick: int = 0) -> Snapshot:
    """A lost GPU, one that hides most readings, and one that is too hot."""
    lost_why = Missing("device_lost", code=15, detail="nvmlDeviceGetUtilizationRates: GPU is lost")
    gone = device(1, state="lost", state_detail="GPU has fallen off the bus (XID 79)")
    gone = device(
        1,
        state="lost",
        state_detail="GPU has fallen off the bus (XID 79)",
        missing=dict.fromkeys(gone.readings, lost_why),
    )
    shy = device(
        2,
        name="NVIDIA GeForce GT 1030",
        busy=12,
        missing=dict.fromkeys(
            ("utilization.gpu_percent", "utilization.memory_percent", "power.draw_watts", "power.limit_watts"),
            NOT_SUPPORTED,
        ),
    )
    hot = device(
        0, busy=99, readings={"temperature.gpu_celsius": 91, "clocks.event_reasons": "sw-power-cap+hw-thermal"}
    )
    return snapshot((hot, gone, shy), (process(0, gpu=0, tick=tick), denied_process(2)), tick=tick)


def hostile(tick: int = 0) -> Snapshot:
    """Names that would move the cursor, paint, or turn the line round if they were believed."""
    names = (
        "\x1b[2J\x1b[31mroot\x1b[0m",
        "[bold red]not bold[/bold red] [@click=app.quit]press[/]",
        "right\u202etfel\u202c to left",
        "tab\tnew\nline\rreturn\x07",
        "漢字カナ混じり 한국어 python",
        "broken \udce9 surrogate",
        "e\u0301\u0301\u0301 combining",
    )
    return snapshot(
        (device(0, tick=tick, name="NVIDIA [red]H200[/red]\x1b[31m"),),
        tuple(process(n, gpu=0, pid=100 + n, user=names[n % 3][:12], command=name) for n, name in enumerate(names)),
        tick=tick,
    )
