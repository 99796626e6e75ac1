"""Every cause id is found by a rule, in its smallest case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.program_behavior import RetracedFunction
from gpuwatch.core.model.run import DeviceMapping, Fallback, Framework, Oom, Outcome, RunProcess
from gpuwatch.core.model.snapshot import Driver
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.logs.log_parser import parse
from tests.diagnosis.cases import GIB, MIB, NO_DRIVER, draft, machine, on_gpus, process
from tests.diagnosis.test_conditions import CAPPED, HOT, SLOW_LINK, training
from tests.diagnosis.test_waiting import stalled
from tests.diagnosis.watching import gpu, program, sample, seconds, watched
from tests.every import every

WHEEL = Framework(
    name="tensorflow",
    version="2.21.0",
    gpu_build=True,
    build={"cuda_version": "12.5.1", "cuda_compute_capabilities": ["sm_60", "compute_90"]},
)
PRE = "2026-11-20 10:00:00.000000: E "


def said(line: str, **fields: object) -> Sequence[Finding]:
    """A log of one line."""
    return diagnose(Evidence(log=parse(PRE + line), **fields))  # type: ignore[arg-type]


def oom(asked: int, limit: int, used: int, block: int | None, **fields: object) -> Sequence[Finding]:
    failure = Oom(
        device="GPU:0",
        requested_bytes=asked * MIB,
        limit_bytes=limit * MIB,
        in_use_bytes=used * MIB,
        largest_free_bytes=None if block is None else block * MIB,
    )
    return diagnose(Evidence(run=on_gpus("x", verdict="oom", ooms=(failure,), **fields)))


def limited() -> Sequence[Finding]:
    from gpuwatch.core.model.run import Setting
    from gpuwatch.core.model.run_memory import Memory

    return oom(
        400,
        256,
        0,
        256,
        settings={"memory_limit": Setting(asked=256)},
        memory=Memory(device_total_bytes=24 * GIB),
    )


def old_driver() -> Sequence[Finding]:
    snapshot = msgspec.structs.replace(
        machine(), driver=Driver(version="470.1", cuda_version="11.4", nvml_version="11")
    )
    return diagnose(Evidence(snapshot=snapshot, run=draft(framework=WHEEL)))


def other_card() -> Sequence[Finding]:
    snapshot = machine(gpus=1)
    card = msgspec.structs.replace(snapshot.devices[0], compute_capability="3.5")
    return diagnose(Evidence(snapshot=msgspec.structs.replace(snapshot, devices=(card,)), run=draft(framework=WHEEL)))


def renumbered() -> Sequence[Finding]:
    """Of one of two processes, and not the leading one."""
    first, moved = (
        DeviceMapping(framework_device="GPU:0", physical_index=number, uuid=f"GPU-{number}") for number in (0, 1)
    )
    both = (RunProcess(pid=7, device_map=(first,)), RunProcess(pid=8, device_map=(moved,)))
    found = diagnose(Evidence(snapshot=machine(), run=on_gpus("x", device_map=(first,), processes=both)))
    assert [one.evidence for one in found if one.id == "visibility.renumbered"] == [
        ("GPU:0 of process 8 is physical GPU 1 (GPU-1)",)
    ]
    return diagnose(Evidence(snapshot=machine(), run=on_gpus("x", device_map=(moved,))))


def filling(second: int) -> dict[str, Any]:
    return sample(second, [gpu(busy=90, used=12 + second * 0.02)], [program(held=12 + second * 0.02, sm=90)])


def elsewhere() -> Sequence[Finding]:
    hidden = msgspec.structs.replace(process(7001, GIB), note="in another PID namespace, or exited", create_time=None)
    return diagnose(Evidence(snapshot=machine(processes=(hidden,))))


CASES: dict[str, Callable[[], Sequence[Finding]]] = {
    "memory.model-too-large": lambda: oom(100, 256, 200, 56),
    "memory.request-too-large": lambda: oom(400, 256, 0, 256),
    "memory.fragmented": lambda: oom(64, 256, 110, 28),
    "memory.other-process": lambda: (
        watched(
            seconds(60, lambda s: sample(s, [gpu(used=6, readings={"memory.unexplained_bytes": 5 * GIB})]))
        ).findings
    ),
    "memory.context-failed": lambda: said(
        "x.cc:1] RuntimeError: Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    ),
    "memory.masked": lambda: said("cuda_dnn.cc:1] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR"),
    "memory.limit-too-small": limited,
    "placement.device-missing": lambda: said(
        "x.cc:1] Could not satisfy device specification '/job:localhost/replica:0/task:0/device:GPU:2'."
    ),
    "placement.no-kernel": lambda: said("x.cc:1] No OpKernel was registered to support Op 'X'"),
    "placement.together": lambda: diagnose(
        Evidence(
            run=on_gpus(
                "run",
                fallbacks=(
                    Fallback(op="AssignAddVariableOp", requested="GPU:0", actual="CPU:0", reason="placement.together"),
                ),
            )
        )
    ),
    "config.too-late": lambda: said("RuntimeError: Physical devices cannot be modified after being initialized"),
    "config.inconsistent": lambda: said("ValueError: Memory growth cannot differ between GPU devices"),
    "api.removed": lambda: said("AttributeError: module 'tensorflow' has no attribute 'Session'"),
    "distribution.devices-missing": lambda: said(
        "WARNING:tensorflow:Some requested devices in `tf.distribute.Strategy` are not visible to TensorFlow: x"
    ),
    "visibility.hidden": lambda: diagnose(
        Evidence(snapshot=machine(), run=draft(environment={"CUDA_VISIBLE_DEVICES": "-1"}))
    ),
    "visibility.bad-ordinal": lambda: diagnose(
        Evidence(snapshot=machine(), run=draft(environment={"CUDA_VISIBLE_DEVICES": "7,0"}))
    ),
    "visibility.renumbered": renumbered,
    "visibility.misspelt": lambda: diagnose(Evidence(environment={"CUDA_VISIBLE_DIVICES": "0"})),
    "driver.missing": lambda: diagnose(Evidence(snapshot=NO_DRIVER)),
    "driver.mismatch": lambda: said("nvml: Failed to initialize NVML: Driver/library version mismatch"),
    "driver.too-old": old_driver,
    "driver.bad-state": lambda: said("RuntimeError: CUDA unknown error - this may be due to an incorrectly set up x"),
    "container.lost-devices": lambda: said("Failed to initialize NVML: Unknown Error"),
    "container.pid-namespace": elsewhere,
    "cuda.libraries-missing": lambda: said(
        "gpu_device.cc:1] Cannot dlopen some GPU libraries. Skipping registering GPU devices...", snapshot=machine()
    ),
    "cuda.version-mismatch": lambda: said(
        "cuda_dnn.cc:1] Loaded runtime CuDNN library: 8.0.5 but source was compiled with: 8.1.0."
    ),
    "build.cpu-only": lambda: said("AssertionError: Torch not compiled with CUDA enabled"),
    "build.gpu-unsupported": other_card,
    "mode.exclusive": lambda: said("RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"),
    "mig.misuse": lambda: diagnose(Evidence(environment={"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"})),
    "hardware.fault": lambda: said("x.cc:1] failed to query event: CUDA_ERROR_ECC_UNCORRECTABLE"),
    "throttle.thermal": lambda: watched(seconds(30, lambda s: sample(s, [gpu(readings=HOT)]))).findings,
    "throttle.power": lambda: watched(seconds(60, lambda s: sample(s, [gpu(busy=97, readings=CAPPED)]))).findings,
    "pcie.degraded": lambda: watched(seconds(60, lambda s: sample(s, [gpu(busy=90, readings=SLOW_LINK)]))).findings,
    "idle.memory-held": lambda: diagnose(Evidence(snapshot=machine(processes=(process(7, 20 * GIB),)))),
    "input.bound": lambda: watched(seconds(360, training)).findings,
    "function.retraced": lambda: diagnose(
        Evidence(run=draft(retraced=(RetracedFunction(name="f", place="x.py:1", traces=20, calls=20, made=20),)))
    ),
    "memory.growing": lambda: watched(seconds(300, filling)).findings,
    "function.constant": lambda: diagnose(
        Evidence(run=draft(results={"large_constants": [["f", "x.py:1", "int8", "(9,)", 1 << 25, 1]]}))
    ),
    "function.eager": lambda: diagnose(
        Evidence(run=draft(results={"eager_functions": {"train_step": {"eager": 8, "graph": 0}}}))
    ),
    "program.forked": lambda: diagnose(Evidence(run=draft(results={"forks_after_start": 2}))),
    "program.error": lambda: diagnose(Evidence(log=parse("NameError: name 'x' is not defined"))),
    "program.stalled": lambda: diagnose(Evidence(run=stalled())),
    "simulation.limit": lambda: diagnose(
        Evidence(
            run=on_gpus(
                "run",
                fallbacks=(
                    Fallback(op="Qr", requested="GPU:0", actual="CPU:0", reason="simulation.limit", detail="x"),
                ),
            )
        )
    ),
    "healthy": lambda: diagnose(Evidence(snapshot=machine())),
    "unknown": lambda: diagnose(
        Evidence(run=draft(verdict="error", outcome=Outcome(exit_code=139, ended=False), placements=()))
    ),
}


def test_every_cause_has_a_case() -> None:
    assert set(CASES) == set(CAUSES)


@every(CASES)
def test_a_rule_yields_it_with_evidence_and_one_action(cause: str) -> None:
    found = [entry for entry in CASES[cause]() if entry.id == cause]
    assert found
    for entry in found:
        assert entry.title
        assert entry.evidence or cause == "healthy"
        assert entry.action or cause == "healthy"
        assert "\n" not in entry.action
