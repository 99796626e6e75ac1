"""Documents for the tests of reports: one with everything, one with almost nothing, one hostile."""

from __future__ import annotations

import datetime
import math

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.gpu_time_usage import Usage, UsageDevice, UsageGap, UsageGroup
from gpuwatch.core.model.memory_profile import AllocationGroup, MemoryProfile
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.run import (
    DeviceMapping,
    Devices,
    Fallback,
    Framework,
    Oom,
    Outcome,
    Phases,
    Placement,
    PredictedMapping,
    Run,
    RunError,
    Setting,
    Throughput,
    Worker,
)
from gpuwatch.core.model.run_memory import DeviceMemory, Memory, MemoryPoint
from gpuwatch.core.model.snapshot import Device, Driver, Host, MappedDevice, Problem, Process, Snapshot
from gpuwatch.core.model.try_results import Answer, Experiment, Fit, Recovery, StepTime, Trial

GIB = 1 << 30
MIB = 1 << 20
UUID = "GPU-9f3c2a10-1111-2222-3333-444455556666"
STARTED = datetime.datetime(2026, 11, 20, 6, 30, tzinfo=datetime.UTC)

HOSTILE = (
    "<script>alert(1)</script>|`x`**b** [l](http://evil.example) \x1b[31mred\x1b[0m \u202ereversed \"'&\r\n@everyone"
)


def speed(step_seconds: float, spread: float = 0.02, device: str = "/device:GPU:0") -> Throughput:
    return Throughput(
        device=device,
        steps=100,
        warmup_steps=10,
        median_step_seconds=step_seconds,
        p10_step_seconds=step_seconds * (1 - spread / 2),
        p90_step_seconds=step_seconds * (1 + spread / 2),
        steps_per_second=1 / step_seconds,
    )


def full_run(**changes: object) -> Run:
    points = tuple(
        MemoryPoint(
            t=i * 0.1,
            device_used_bytes=int((0.5 + min(i, 12) * 1.1 + 0.2 * math.sin(i)) * GIB),
            process_bytes=int(min(i, 12) * 1.1 * GIB) if i > 1 else None,
            allocator_bytes=int(min(i, 20) * 0.3 * GIB) if i > 4 else None,
            gpu_percent=float(min(i * 5, 97)),
        )
        for i in range(60)
    )
    fields: dict[str, object] = {
        "config": "soft-missing",
        "title": "A missing device, soft placement",
        "group": "placement",
        "workload": "matmul",
        "simulated": True,
        "simulation": "plugin",
        "started_at": STARTED,
        "fresh": False,
        "pid": 4711,
        "host": "node07",
        "settings": {
            "soft placement": Setting(asked=True, effective=True),
            "device": Setting(asked="/GPU:7", note="does not exist"),
        },
        "environment": {
            "CUDA_VISIBLE_DEVICES": "0,1",
            "HF_TOKEN": "hf_verysecret",
            "AWS_SECRET_ACCESS_KEY": "abcd1234secret",
            "HTTPS_PROXY": "http://joe:hunter2@proxy.example:3128",
        },
        "framework": Framework(
            name="tensorflow",
            version="2.21.0",
            gpu_build=True,
            interpreter="/opt/venv/bin/python",
            python_version="3.11.9",
        ),
        "devices": Devices(physical=("GPU:0",), visible=("GPU:0",), logical=("/device:CPU:0", "/device:GPU:0")),
        "device_map": (
            DeviceMapping(
                framework_device="/device:GPU:0",
                cuda_ordinal=0,
                physical_index=1,
                uuid=UUID,
                pci_bus_id="0000:02:00.0",
                name="NVIDIA RTX 4090",
                compute_capability="8.9",
                granted_bytes=21464 * MIB,
            ),
        ),
        "predicted": (
            PredictedMapping(
                framework_device="/device:GPU:0",
                uuid=UUID,
                physical_index=1,
                cuda_ordinal=0,
                granted_bytes=21500 * MIB,
                tolerance_bytes=400 * MIB,
                how="free 23000 MiB − reserve 1536",
            ),
        ),
        "workers": (
            Worker(
                name="first",
                setting="fraction 0.4",
                pid=4712,
                granted_bytes=9830 * MIB,
                throughput=speed(0.004),
                alone=speed(0.002),
            ),
            Worker(name="second", setting="default", pid=4713, verdict="oom", detail="Dst tensor is not initialized"),
        ),
        "results": {"largest_batch": 4096, "needed_bytes": 3 * GIB},
        "placements": (
            Placement(op="MatMul", dtype="float32", requested="/GPU:7", actual="/device:GPU:0", count=400),
            Placement(op="Identity", dtype="int32", actual="/device:CPU:0", count=100),
        ),
        "fallbacks": (
            Fallback(
                op="MatMul",
                dtype="float32",
                requested="GPU:7",
                actual="GPU:0",
                reason="placement.device-missing",
                detail="the framework has GPU:0 only",
                count=400,
            ),
        ),
        "ooms": (
            Oom(
                device="GPU:0",
                allocator="GPU_0_bfc",
                requested_bytes=400 * MIB,
                limit_bytes=256 * MIB,
                in_use_bytes=1536,
                largest_free_bytes=255 * MIB,
                verdict="memory.request-too-large",
                expected=True,
            ),
        ),
        "memory": Memory(
            allocator_peak_bytes=6 * GIB,
            allocator_limit_bytes=21464 * MIB,
            nvml_peak_bytes=14 * GIB,
            nvml_device_peak_bytes=15 * GIB,
            nvml_before_bytes=GIB // 2,
            device_total_bytes=24 * GIB,
            device_uuid=UUID,
            devices=(
                DeviceMemory(
                    uuid=UUID,
                    index=1,
                    total_bytes=24 * GIB,
                    before_bytes=GIB // 2,
                    used_bytes=15 * GIB,
                    process_bytes=14 * GIB,
                    others_bytes=300 * MIB,
                    unexplained_bytes=724 * MIB,
                    driver_reserved_bytes=258 * MIB,
                ),
            ),
            allocators={"/device:GPU:0": 6 * GIB},
            timeline=points,
        ),
        "throughput": Throughput(
            device="/device:GPU:0",
            steps=840,
            warmup_steps=60,
            median_step_seconds=0.00243,
            p10_step_seconds=0.0024,
            p90_step_seconds=0.00247,
            steps_per_second=411.5,
            examples_per_second=13168.0,
            flops_per_second=8.8e11,
            bytes_per_second=2.5e9,
            compile_seconds=0.8,
        ),
        "phases": Phases(import_seconds=3.21, device_init_seconds=0.31, first_step_seconds=0.42, total_seconds=5.1),
        "errors": (RunError(type="InvalidArgumentError", message="Could not satisfy device", expected=True),),
        "missing_libraries": ("libcudnn.so.9",),
        "outcome": Outcome(exit_code=0, ended=True),
        "verdict": "fallback",
        "verdict_reason": "MatMul ran on GPU:0 instead of GPU:7: the device does not exist.",
        "findings": (
            Finding(
                id="placement.device-missing",
                severity="warning",
                certainty="fact",
                title="The requested device does not exist",
                evidence=("MatMul asked for GPU:7, ran on GPU:0", "the framework has GPU:0 only"),
                action="Ask for a device that exists.",
            ),
            Finding(id="idle.memory-held", severity="info", certainty="likely", title="Much held, little used"),
        ),
        "primary": "placement.device-missing",
        "driver_version": "580.159",
        "gpus": ("0 NVIDIA RTX 4090 GPU-aaaa", f"1 NVIDIA RTX 4090 {UUID}"),
        "problems": ("process utilisation: not permitted",),
        "log_tail": (
            "I0000 00:00:1795151658.078346 7750 gpu_device.cc:2043] Created device",
            "login https://joe:hunter2@host/x",
        ),
    }
    fields.update(changes)
    return Run(**fields)  # type: ignore[arg-type]


def bare_run() -> Run:
    return Run(
        config="growth", group="memory", workload="matmul", simulated=False, started_at=STARTED, verdict="timeout"
    )


def hostile_run() -> Run:
    return full_run(
        config=HOSTILE,
        title=HOSTILE,
        workload=HOSTILE,
        host=HOSTILE,
        verdict_reason=HOSTILE,
        settings={HOSTILE: Setting(asked=HOSTILE, effective=[HOSTILE, {"a": HOSTILE}], note=HOSTILE)},
        environment={"EVIL": HOSTILE, HOSTILE: "x"},
        errors=(RunError(type=HOSTILE, message=HOSTILE),),
        placements=(Placement(op=HOSTILE, requested=HOSTILE, actual=HOSTILE),),
        fallbacks=(Fallback(op=HOSTILE, requested=HOSTILE, actual=HOSTILE, reason=HOSTILE, detail=HOSTILE),),
        ooms=(Oom(device=HOSTILE, allocator=HOSTILE, verdict=HOSTILE),),
        device_map=(DeviceMapping(framework_device=HOSTILE, name=HOSTILE, uuid=HOSTILE, pci_bus_id=HOSTILE),),
        workers=(Worker(name=HOSTILE, setting=HOSTILE, detail=HOSTILE),),
        results={HOSTILE: [HOSTILE, {HOSTILE: HOSTILE}]},
        predicted=(
            PredictedMapping(framework_device=HOSTILE, uuid=HOSTILE, physical_index=0, cuda_ordinal=0, how=HOSTILE),
        ),
        findings=(
            Finding(
                id="unknown", severity="error", certainty="fact", title=HOSTILE, evidence=(HOSTILE,), action=HOSTILE
            ),
        ),
        gpus=(HOSTILE,),
        problems=(HOSTILE,),
        log_tail=(HOSTILE, "```", "</pre></details><script>"),
        driver_version=HOSTILE,
    )


def full_snapshot() -> Snapshot:
    return Snapshot(
        taken_at=STARTED,
        took_seconds=0.02,
        simulated=True,
        driver=Driver(version="580.159", cuda_version="13.0", nvml_version="13.580"),
        devices=(
            Device(
                index=0,
                uuid=UUID,
                name="NVIDIA RTX 4090",
                pci_bus_id="0000:01:00.0",
                compute_capability="8.9",
                simulated=True,
                readings={
                    "utilization.gpu_percent": 97,
                    "memory.used_bytes": 12 * GIB,
                    "memory.total_bytes": 24 * GIB,
                    "power.draw_watts": 311.4,
                    "power.limit_watts": 450.0,
                    "clocks.sm_mhz": 2520,
                },
                missing={"temperature.gpu_celsius": Missing("not_supported")},
            ),
            Device(
                index=1,
                uuid="GPU-lost",
                name="NVIDIA RTX 4090",
                pci_bus_id="0000:02:00.0",
                state="lost",
                state_detail="fallen off the bus",
                readings={},
                missing={},
            ),
        ),
        processes=(
            Process(
                pid=4711,
                create_time=STARTED.timestamp() - 3671.0,
                user="alice",
                command="python train.py --api-key=sk-verysecret \x1b[2J",
                type="C",
                device_uuid=UUID,
                device_index=0,
                framework="tensorflow 2.21.0",
                device_map=(MappedDevice(ordinal=0, uuid=UUID, index=0),),
                readings={"gpu_memory_bytes": 11 * GIB, "sm_percent": 96},
            ),
            Process(
                pid=9, create_time=None, user=None, command=None, type="G", device_uuid=None, note="denied", readings={}
            ),
        ),
        host=Host(
            hostname="node07",
            cpu_percent=31.0,
            cpu_count=32,
            memory_used_bytes=42 * GIB,
            memory_total_bytes=128 * GIB,
            load=(7.1, 6.8, 5.9),
        ),
        problems=(Problem(source="nvml", reason="permission_denied", detail="no accounting", hint="ask root"),),
    )


def bare_snapshot() -> Snapshot:
    return Snapshot(
        taken_at=STARTED,
        took_seconds=0.0,
        simulated=False,
        driver=None,
        devices=(),
        processes=(),
        host=Host(hostname=None, cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None),
        problems=(
            Problem(source="nvml", reason="driver.missing", detail="libnvidia-ml.so.1 is not there", hint="install"),
        ),
    )


def step_seconds(median: float, share: float = 0.01) -> StepTime:
    return StepTime(
        median_seconds=median, low_seconds=median * (1 - share), high_seconds=median * (1 + share), timed=200
    )


def tried(asked: str, **changes: object) -> Trial:
    """A run of 200 steps in the first round."""
    given: dict[str, object] = {
        "round": 1,
        "run": full_run(config=asked, group="run", verdict="ok", verdict_reason="", findings=(), primary=None),
        "applied": True,
        "counted": "batches of Keras",
        "steps": 200,
        "step_time": step_seconds(0.002),
        "ended_by": "SIGINT",
        "covered": "200 steps",
    }
    return Trial(asked=asked, **(given | changes))  # type: ignore[arg-type]


def experiment(*trials: Trial, **changes: object) -> Experiment:
    given: dict[str, object] = {
        "command": "python train.py",
        "started_at": STARTED,
        "took_seconds": 61.0,
        "rule": "after 200 steps",
        "rounds": 1,
        "trials": trials,
        "answer": Answer(
            sentence="growth: the same speed (±1 %) in 326 MiB instead of 22.2 GiB",
            best="growth",
            code=(
                'gpus = tf.config.list_physical_devices("GPU")',
                "for gpu in gpus:",
                "    set_memory_growth(gpu, True)",
            ),
        ),
    }
    return Experiment(**(given | changes))  # type: ignore[arg-type]


def recorded(asked: str, groups: dict[str, int], largest: str = "dense/kernel", **changes: object) -> Trial:
    """A run with the recorder of memory on, which saw these groups at the peak."""
    peak = sum(groups.values())
    group = max(groups, key=lambda name: groups[name])
    holder = AllocationGroup(
        op=largest,
        group=group,  # type: ignore[arg-type]
        shape="[64,512]",
        allocated_bytes=groups[group],
        requested_bytes=groups[group],
    )
    profile = MemoryProfile(
        tool="tensorflow",
        device="GPU:0",
        allocator="GPU_0_bfc",
        peak_bytes=peak,
        peak_seconds=1.0,
        live_bytes=peak,
        holders=(holder,),
        groups=groups,
    )
    run = full_run(
        config=asked, group="run", verdict="ok", findings=(), primary=None, memory_profiles=(profile,), simulated=False
    )
    return tried(asked, run=run, recorded=True, step_time=step_seconds(0.1), **changes)


def full_experiment() -> Experiment:
    failed = full_run(config="limit=1GiB", group="run", verdict="oom", verdict_reason="It ran out of memory.")
    return experiment(
        tried("default"),
        tried("growth", effective={"memory growth": True}),
        tried("limit=1GiB", run=failed, step_time=None, steps=3, ended_by="the program", output="/tmp/x/01-limit.log"),
        tried("mixed-float16", changes_results=True, step_time=step_seconds(0.001)),
        tried("grow-to-limit", applied=False, overridden="train.py:12"),
        recorded("default", {"weights": 8 * MIB, "activations": 20 * MIB}),
        recorded("mixed-float16", {"weights": 8 * MIB, "activations": 10 * MIB, "inputs": 1 * MIB}),
        Trial(asked="xla", not_tried="simulated GPUs have no XLA"),
        notes=("2 of 3 rounds: another would take 40 s, more than is left of --budget 10 min.",),
    )


def searched_experiment() -> Experiment:
    """After an out-of-memory failure, with cards that were asked about, and copies at once."""
    failed = full_run(config="default", group="run", verdict="oom", verdict_reason="It ran out of memory.")
    return experiment(
        tried(
            "default", run=failed, step_time=None, steps=20, ended_by="the program", covered="20 steps, then it failed"
        ),
        tried("growth"),
        tried("growth", copy=1),
        tried("growth", copy=2, step_time=step_seconds(0.005)),
        fits=(
            Fit(card="16GiB", bytes=16 * GIB, fits=False, tried=False),
            Fit(card="24GiB", bytes=24 * GIB, fits=True, tried=True),
            Fit(card="80GiB", bytes=80 * GIB, fits=None, tried=False),
        ),
        needed_bytes=(22 * GIB, 23 * GIB),
        recover=(
            Recovery(name="growth", passed=3, runs=3, verified=True),
            Recovery(name="async-allocator", passed=1, runs=2, reason="out of memory"),
            Recovery(name="mixed-float16", reason="one tensor requests 30.0 GiB, and the card has 24.0 GiB"),
        ),
    )


def hostile_experiment() -> Experiment:
    trial = tried(HOSTILE, run=hostile_run(), values={HOSTILE: HOSTILE}, effective={HOSTILE: HOSTILE}, output=HOSTILE)
    return experiment(
        trial,
        Trial(asked=HOSTILE, not_tried=HOSTILE),
        command=HOSTILE,
        answer=Answer(sentence=HOSTILE, best=HOSTILE, code=(HOSTILE, "  " + HOSTILE)),
        recover=(Recovery(name=HOSTILE, reason=HOSTILE),),
        fits=(Fit(card=HOSTILE, bytes=1, fits=None, tried=False),),
        notes=(HOSTILE,),
    )


def used(**changes: object) -> UsageGroup:
    """What one user has used."""
    facts: dict[str, object] = {
        "user": "alice", "container": "slurm job 4711", "command": "train.py", "framework": "torch 2.11.0",
        "pid": 4711, "gpus": (0, 1), "processes": 1, "gpu_hours_held": 24.0, "gpu_hours_used": 19.2,
        "process_hours": 30.0, "process_hours_shared": 3.0, "gpu_hours_unknown": 0.0, "sm_percent_mean": 64.0,
        "sm_percent_max": 100, "memory_peak_bytes": 40 * GIB, "energy_joules": 3.1e7, "energy_gpu_hours": 20.0,
    }  # fmt: skip
    return UsageGroup(**(facts | changes))  # type: ignore[arg-type]


def full_usage(**changes: object) -> Usage:
    """A day of two GPUs."""
    unknown: dict[str, object] = {
        "gpu_hours_used": None, "sm_percent_mean": None, "sm_percent_max": None, "gpu_hours_unknown": 12.0,
        "process_hours_shared": 0.0, "energy_joules": None, "energy_gpu_hours": 0.0, "memory_peak_bytes": None,
    }  # fmt: skip
    facts: dict[str, object] = {
        "source": "node07.gpuwatch", "host": "node07", "simulated": False, "gpuwatch_version": "1.0", "by": "user",
        "begin": STARTED - datetime.timedelta(days=1), "end": STARTED, "hours": 24.0, "hours_recorded": 22.5,
        "gaps": (UsageGap(begin=STARTED - datetime.timedelta(hours=3), end=STARTED - datetime.timedelta(hours=1.5)),),
        "total": used(user=None, gpu_hours_held=36.0, gpu_hours_unknown=12.0, process_hours=42.0),
        "groups": (
            used(),
            used(user="bob", gpu_hours_held=11.9, gpu_hours_used=0.01, sm_percent_mean=0.1, sm_percent_max=3),
            used(user=None, unreadable=True, pid=None, command=None, framework=None, gpu_hours_held=0.1, **unknown),
        ),
        "devices": (
            UsageDevice(
                index=0, uuid=UUID, name="NVIDIA RTX 4090", hours_recorded=22.5, hours_held=20.0, hours_used=15.0,
                hours_held_idle=2.0, hours_held_unknown=0.0, hours_free=2.5, energy_joules=2e7, energy_free_joules=1e6,
            ),
            UsageDevice(
                index=1, uuid="GPU-lost", name="NVIDIA RTX 4090", hours_recorded=22.5, hours_held=16.0,
                hours_used=None, hours_held_idle=0.0, hours_held_unknown=16.0, hours_free=6.5, energy_joules=None,
                energy_free_joules=None,
            ),
        ),
        "graphics_processes": 1,
        "notes": (
            "2026-11-20 05:00:00: the clock was set back by 60 min; time that was recorded twice is counted twice",
        ),
    }  # fmt: skip
    return Usage(**(facts | changes))  # type: ignore[arg-type]


def hostile_usage() -> Usage:
    """Names that try to steer the reader's terminal or browser."""
    group = used(user=HOSTILE, container=HOSTILE, command=HOSTILE, framework=HOSTILE)
    return full_usage(source=HOSTILE, host=HOSTILE, groups=(group, group), notes=(HOSTILE,))


def empty_usage() -> Usage:
    """A recording of a machine without GPUs."""
    none = used(
        user=None, gpus=(), processes=0, gpu_hours_held=0.0, gpu_hours_used=None, process_hours=0.0,
        process_hours_shared=0.0, sm_percent_mean=None, sm_percent_max=None, memory_peak_bytes=None,
        energy_joules=None, energy_gpu_hours=0.0,
    )  # fmt: skip
    return full_usage(groups=(), devices=(), gaps=(), notes=(), total=none)
