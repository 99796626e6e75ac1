"""The table of verdicts: what each kind of run is called, by which cause, and how loud."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.core.model.comparison import Comparison
from gpuwatch.core.model.diagnostic_report import Diagnostic
from gpuwatch.core.model.run import DeviceMapping, Devices, Oom, Outcome, Placement, Run, RunError, Setting
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.diagnostic_report import diagnostic_report
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_facts import LogFacts
from tests.diagnosis.cases import (
    CPU,
    GPU,
    MIB,
    NO_DRIVER,
    ON_CPU,
    ON_GPU,
    draft,
    expected,
    hides,
    log,
    machine,
    on_gpus,
)
from tests.every import every

MISSING = (
    "Could not satisfy device specification '/job:localhost/replica:0/task:0/device:GPU:7'. enable_soft_placement=0."
)
LATE = "Physical devices cannot be modified after being initialized"
DIFFER = "Memory growth cannot differ between GPU devices"
NO_KERNEL = (
    "Could not satisfy explicit device specification '/device:GPU:0' because no supported kernel for GPU devices"
)
THERE_BUT_NO_KERNEL = (
    "Could not satisfy device specification '/job:localhost/replica:0/task:0/device:GPU:0'. enable_soft_placement=0. "
    "Supported device types [CPU]. All available devices [/job:localhost/replica:0/task:0/device:GPU:0, "
    "/job:localhost/replica:0/task:0/device:CPU:0]."
)
ASKED_7 = (Placement(op="MatMul", dtype="float32", requested="/GPU:7", actual=GPU),)
ASKED_7_CPU = (Placement(op="MatMul", dtype="float32", requested="/GPU:7", actual=CPU),)
INT_ADD = (ON_GPU, Placement(op="AddV2", dtype="int32", requested="/GPU:0", actual=CPU))
EVERY_GPU = machine()

NO_GPU_LOG = "lab_tf221_import_no_gpu"
TWO_GPUS_LOG = "stub_tf221_map_default"
HIDDEN_LOG = "stub_tf221_cuinit100"

Row = tuple[Run, str, Snapshot | None, str, str, str]
ROWS: list[Row] = [
    # draft, log, machine, verdict, primary, severity of the primary
    (draft("growth"), NO_GPU_LOG, NO_DRIVER, "fallback", "driver.missing", "error"),
    (draft("default"), NO_GPU_LOG, NO_DRIVER, "fallback", "driver.missing", "error"),
    (draft("cpu-only", **hides("-1")), NO_GPU_LOG, NO_DRIVER, "ok", "visibility.hidden", "info"),
    (draft("soft-missing", placements=ASKED_7_CPU), NO_GPU_LOG, NO_DRIVER, "fallback", "driver.missing", "error"),
    (
        draft("hard-missing", placements=(), errors=expected("InvalidArgumentError", MISSING)),
        NO_GPU_LOG,
        NO_DRIVER,
        "ok",
        "driver.missing",
        "error",
    ),
    (on_gpus("default"), TWO_GPUS_LOG, EVERY_GPU, "ok", "healthy", "info"),
    (draft("cpu-only", **hides("-1")), HIDDEN_LOG, EVERY_GPU, "ok", "visibility.hidden", "info"),
    (draft("cpu-only", **hides("")), HIDDEN_LOG, EVERY_GPU, "ok", "visibility.hidden", "info"),
    (
        on_gpus("soft-missing", placements=ASKED_7),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "fallback",
        "placement.device-missing",
        "info",
    ),
    (on_gpus("no-kernel-soft", placements=INT_ADD), TWO_GPUS_LOG, EVERY_GPU, "fallback", "placement.no-kernel", "info"),
    (
        draft("visible-invalid-first", **hides("-1,0")),
        HIDDEN_LOG,
        EVERY_GPU,
        "fallback",
        "visibility.bad-ordinal",
        "info",
    ),
    (
        draft("growth", environment={"CUDA_VISIBLE_DEVICES": "-1"}),
        HIDDEN_LOG,
        EVERY_GPU,
        "fallback",
        "visibility.hidden",
        "error",
    ),
    (
        on_gpus("growth", environment={"CUDA_VISIBLE_DEVICES": "0,7"}),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "visibility.bad-ordinal",
        "warning",
    ),
    (
        on_gpus("misspelt-env", environment={"CUDA_VISIBLE_DIVICES": "1"}),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "visibility.misspelt",
        "warning",
    ),
    (
        on_gpus("late-config", errors=expected("RuntimeError", LATE)),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "config.too-late",
        "info",
    ),
    (
        on_gpus("mixed", errors=expected("ValueError", DIFFER)),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "config.inconsistent",
        "info",
    ),
    (
        on_gpus("hard-missing", placements=(), errors=expected("InvalidArgumentError", MISSING)),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "placement.device-missing",
        "info",
    ),
    (
        on_gpus("no-kernel-hard", placements=(), errors=expected("InvalidArgumentError", NO_KERNEL)),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "placement.no-kernel",
        "info",
    ),
    (
        on_gpus("no-kernel-hard", placements=(), errors=expected("InvalidArgumentError", THERE_BUT_NO_KERNEL)),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "ok",
        "placement.no-kernel",
        "info",
    ),
    (draft("visible-invalid-first", **hides("-1,0")), NO_GPU_LOG, NO_DRIVER, "fallback", "driver.missing", "error"),
    (draft("growth"), "stub_tf_dlopen_218_vmodule", EVERY_GPU, "fallback", "cuda.libraries-missing", "error"),
    (draft("growth"), "stub_tf221_cuinit803", EVERY_GPU, "fallback", "driver.mismatch", "error"),
    (draft("growth"), "stub_tf215_cuinit999", EVERY_GPU, "fallback", "driver.bad-state", "error"),
    (
        on_gpus("limit", verdict="oom", placements=(), settings={"memory limit MB": Setting(asked=256)}),
        "stub_tf221_gpu_bfc_oom",
        EVERY_GPU,
        "oom",
        "memory.limit-too-small",
        "error",
    ),
    (
        draft("occupied", verdict="error", placements=(), devices=Devices()),
        "stub_tf218_ctx_oom",
        machine(used=24 * 1024 * MIB),
        "oom",
        "memory.context-failed",
        "error",
    ),
    (
        on_gpus("growth", verdict="error", placements=(), errors=(RunError(type="InternalError", message="strange"),)),
        TWO_GPUS_LOG,
        EVERY_GPU,
        "error",
        "unknown",
        "error",
    ),
]


@every(ROWS)
def test_verdict_and_primary_cause(row: Row) -> None:
    run, log_name, before, verdict, main, severity = row
    done = complete(run, log(log_name), before)
    assert (done.verdict, done.primary) == (verdict, main)
    assert done.verdict_reason.endswith((".", "strange"))
    assert [found.severity for found in done.findings if found.id == main] == [severity]


def test_a_skipped_run_and_its_reason_stay() -> None:
    done = complete(draft("virtual", verdict="skipped", verdict_reason="needs two GPUs"), LogFacts(), EVERY_GPU)
    assert (done.verdict, done.verdict_reason) == ("skipped", "needs two GPUs")


@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [("timeout", Outcome(timed_out=True)), ("error", Outcome(signal=11)), ("error", Outcome(exit_code=3))],
)
def test_a_run_that_broke_is_never_healthy(verdict: str, outcome: Outcome) -> None:
    done = complete(
        draft("x", verdict=verdict, outcome=outcome, placements=(), devices=Devices()), LogFacts(), EVERY_GPU
    )
    assert done.verdict == verdict
    assert done.primary == "unknown"
    assert done.verdict_reason


def test_a_deadline_asks_for_a_later_one_and_blames_nobody() -> None:
    done = complete(
        draft("x", verdict="timeout", outcome=Outcome(timed_out=True), placements=(), devices=Devices()),
        LogFacts(),
        EVERY_GPU,
    )
    (found,) = [entry for entry in done.findings if entry.id == "unknown"]
    assert found.severity == "warning"
    assert "--deadline" in (found.action or "")
    assert "report it" not in (found.action or "")


def test_a_probes_deadline_is_not_what_a_report_on_the_machine_begins_with() -> None:
    late = complete(
        draft("x", verdict="timeout", outcome=Outcome(timed_out=True), placements=(), devices=Devices()),
        LogFacts(),
        EVERY_GPU,
    )
    report = diagnostic_report(
        Diagnostic(
            taken_at=late.started_at,
            took_seconds=1.0,
            gpuwatch_version="1",
            simulated=False,
            snapshot=EVERY_GPU,
            probes=Comparison(runs=(late,), columns=()),
        )
    )
    assert report.primary == "healthy"
    assert [entry.severity for entry in report.findings if entry.id == "unknown"] == ["info"]


def test_the_map_is_joined_by_bus_address_and_not_by_index() -> None:
    swapped = machine()
    first, second = swapped.devices
    reordered = Snapshot(
        **{
            **{name: getattr(swapped, name) for name in ("taken_at", "took_seconds", "simulated", "driver", "host")},
            "devices": (second, first),
            "processes": (),
        }
    )
    done = complete(on_gpus("default"), log(TWO_GPUS_LOG), reordered)
    assert [(m.framework_device, m.physical_index, m.uuid) for m in done.device_map] == [
        ("/device:GPU:0", 0, "GPU-0"),
        ("/device:GPU:1", 1, "GPU-1"),
    ]


def test_a_map_without_addresses_is_joined_by_cudas_numbering() -> None:
    plug_in = LogFacts(
        device_map=[DeviceMapping(framework_device="/device:GPU:0", cuda_ordinal=0, name="SIM", granted_bytes=MIB)]
    )
    run = on_gpus("visible-env", environment={"CUDA_VISIBLE_DEVICES": "1"}, simulated=True, simulation="plugin")
    done = complete(run, plug_in, EVERY_GPU)
    assert [(m.physical_index, m.uuid) for m in done.device_map] == [(1, "GPU-1")]
    assert {found.id: found.severity for found in done.findings} == {"visibility.renumbered": "info", "healthy": "info"}
    assert done.primary == "healthy"


def test_a_variable_that_came_too_late_hides_nothing() -> None:
    done = complete(on_gpus("visible-late", **hides("-1")), log(TWO_GPUS_LOG), EVERY_GPU)
    assert (done.verdict, done.primary) == ("ok", "healthy")


def test_without_a_snapshot_the_map_stays_unjoined() -> None:
    done = complete(on_gpus("default"), log(TWO_GPUS_LOG), None)
    assert {m.uuid for m in done.device_map} == {None}
    assert {m.physical_index for m in done.device_map} == {None}


def test_an_auto_fallback_says_what_was_asked_and_why() -> None:
    (entry,) = complete(draft("growth"), log(NO_GPU_LOG), NO_DRIVER).fallbacks
    assert (entry.op, entry.requested, entry.actual, entry.reason) == ("MatMul", "auto", "CPU:0", "driver.missing")


def test_alike_fallbacks_are_one_entry() -> None:
    placements = (Placement(op="MatMul", dtype="float32", actual=CPU, count=2), ON_CPU)
    done = complete(draft("x", placements=placements), log(NO_GPU_LOG), NO_DRIVER)
    assert [(entry.op, entry.count) for entry in done.fallbacks] == [("MatMul", 3)]


@pytest.mark.parametrize("why", ["resource", "framework", "compiled"])
def test_what_lies_with_something_made_for_a_missing_gpu_has_that_cause(why: str) -> None:
    """On a machine with one GPU, a model under tf.device("GPU:1") is compiled there, and its variables are, too."""
    gpu = "/device:GPU:0"
    placements = (Placement(op="Less", dtype="bool", requested="/device:GPU:1", scope="a.py:3", why=why, actual=gpu),)
    run = draft("run", devices=Devices(logical=(CPU, gpu)), device_map=(DeviceMapping(framework_device=gpu),))
    done = complete(msgspec.structs.replace(run, placements=placements), LogFacts(), EVERY_GPU)
    assert [entry.reason for entry in done.fallbacks] == ["placement.device-missing"]


def test_int_ops_and_ops_meant_for_the_cpu_are_no_fallbacks() -> None:
    placements = (
        Placement(op="AddV2", dtype="int32", actual=CPU),
        Placement(op="MatMul", dtype="float32", requested="/CPU:0", actual=CPU),
        Placement(op="MatMul", actual=CPU),  # from the log: the probe's preparation
    )
    assert complete(draft("x", placements=placements), log(NO_GPU_LOG), NO_DRIVER).fallbacks == ()


def test_a_users_program_is_judged_by_its_log() -> None:
    run = draft("run", outcome=Outcome(exit_code=0), placements=(Placement(op="MatMul", actual=CPU, count=9),))
    done = complete(run, log(NO_GPU_LOG), NO_DRIVER)
    assert [(f.op, f.count) for f in done.fallbacks] == [("MatMul", 9)]


def test_failures_that_the_probe_provoked_are_expected() -> None:
    run = on_gpus(
        "largest-batch", errors=expected("ResourceExhaustedError", "OOM when allocating"), ooms=(Oom(device="GPU:0"),)
    )
    done = complete(run, LogFacts(), EVERY_GPU)
    assert done.verdict == "ok"
    assert [oom.expected for oom in done.ooms] == [True]
    assert not [found for found in done.findings if found.severity == "error"]


def test_an_oom_is_known_from_the_exception_where_the_log_is_silent() -> None:
    message = "OOM when allocating tensor with shape[1024,1024] and type float on /device:GPU:0 by allocator GPU_0_bfc"
    run = on_gpus("growth", verdict="error", errors=(RunError(type="ResourceExhaustedError", message=message),))
    done = complete(run, LogFacts(), EVERY_GPU)
    assert done.verdict == "oom"
    assert [(oom.device, oom.requested_bytes) for oom in done.ooms] == [("GPU:0", 4 * MIB)]


def test_completing_twice_changes_nothing() -> None:
    once = complete(draft("growth"), log(NO_GPU_LOG), NO_DRIVER)
    assert complete(once, log(NO_GPU_LOG), NO_DRIVER) == once


def parts(count: int) -> tuple[DeviceMapping, ...]:
    return tuple(
        DeviceMapping(framework_device=f"/device:GPU:{index}", uuid="GPU-0", granted_bytes=8192 * MIB)
        for index in range(count)
    )


REFUSED = Oom(
    device="GPU:0",
    allocator="GPU_0_bfc",
    requested_bytes=MIB,
    limit_bytes=8192 * MIB,
    in_use_bytes=0,
    largest_free_bytes=0,
)


def test_limits_that_add_up_to_more_than_the_device_are_nobody_elses_fault() -> None:
    run = on_gpus("virtual", verdict="oom", ooms=(REFUSED,), device_map=parts(4))
    done = complete(run, LogFacts(), machine(gpus=1, used=0))
    (found,) = [entry for entry in done.findings if entry.severity == "error"]
    assert (done.primary, found.certainty) == ("memory.model-too-large", "fact")
    assert "32.0 GiB" in found.title
    assert "32.0 GiB > 24.0 GiB" in " ".join(found.evidence)
    assert "--virtual" in found.action
    assert "--memory-limit" in found.action
    assert done.verdict_reason == f"{found.title}."


@pytest.mark.parametrize(
    ("used", "cause"),
    # Where the device has room for a MiB, by all that is known, neither others nor the model explain the refusal.
    [(0, "unknown"), (20 * 1024 * MIB, "unknown"), (24 * 1024 * MIB - 400 * MIB, "memory.other-process")],
)
def test_another_process_is_blamed_only_where_memory_was_held(used: int, cause: str) -> None:
    oom = msgspec.structs.replace(REFUSED, largest_free_bytes=None)
    run = on_gpus("growth", verdict="oom", ooms=(oom,), device_map=parts(1))
    assert complete(run, LogFacts(), machine(gpus=1, used=used)).primary == cause


@pytest.mark.parametrize("allocator", ["cpu", "mklcpu"])
def test_an_oom_of_the_host_is_not_told_as_one_of_a_gpu(allocator: str) -> None:
    oom = Oom(
        device="CPU:0",
        allocator=allocator,
        requested_bytes=400 * MIB,
        limit_bytes=600 * MIB,
        in_use_bytes=400 * MIB,
        largest_free_bytes=0,
    )
    done = complete(on_gpus("growth", verdict="oom", ooms=(oom,)), LogFacts(), machine())
    assert done.verdict_reason.startswith("Out of host memory")
    assert "RAM" in done.findings[0].action


SESSION_NO_KERNEL = """Graph execution error:

Detected at node 'counter' defined at (most recent call last):
Node: 'counter'
Cannot assign a device for operation counter: Could not satisfy explicit device specification '/device:GPU:0' \
because no supported kernel for GPU devices is available.
Colocation Debug Info:
Colocation group had the following types and supported devices:
Root Member(assigned_device_name_index_=-1 requested_device_name_='/device:GPU:0' assigned_device_name_='' \
resource_device_name_='/device:GPU:0' supported_device_types_=[CPU] possible_devices_=[]
Assign: CPU
VariableV2: CPU

Colocation members, user-requested devices, and framework assigned devices, if any:
  counter (VariableV2) /device:GPU:0
  counter/Assign (Assign) /device:GPU:0

Op: VariableV2
"""


@pytest.mark.parametrize(
    ("message", "op", "sentence", "line"),
    [
        (
            SESSION_NO_KERNEL,
            "VariableV2",
            "VariableV2 `counter` requested /GPU:0, its type int32 has only a CPU kernel,"
            " and it is colocated with Assign `counter/Assign`",
            "Cannot assign a device for operation counter: Could not satisfy explicit",
        ),
        (
            THERE_BUT_NO_KERNEL,
            "MatMul",
            "MatMul requested /GPU:0, its type int32 has only a CPU kernel",
            "Could not satisfy device specification",
        ),
    ],
    ids=["session", "eager"],
)
def test_an_op_without_a_kernel_is_named_with_its_type_and_what_was_asked(
    message: str, op: str, sentence: str, line: str
) -> None:
    run = on_gpus(
        "no-kernel-hard",
        placements=(),
        results={"op": op, "dtype": "int32", "requested": "/gpu:0"},
        errors=expected("InvalidArgumentError", message),
    )
    (found,) = [entry for entry in complete(run, LogFacts(), EVERY_GPU).findings if entry.id == "placement.no-kernel"]
    assert found.title == sentence
    assert line in found.evidence[0]


def test_a_run_that_was_skipped_is_not_healthy() -> None:
    done = complete(on_gpus("virtual", verdict="skipped", placements=()), LogFacts(), EVERY_GPU)
    assert (done.verdict, done.primary) == ("skipped", None)
    assert "healthy" not in [found.id for found in done.findings]
