"""A user's program under ``gpuwatch run``: what it did itself, and what that means."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.run import (
    INHERITED,
    DeviceMapping,
    Devices,
    Framework,
    Outcome,
    Placement,
    Run,
    RunError,
    RunProcess,
    Setting,
)
from gpuwatch.core.model.run_memory import DeviceMemory, HostMemory, Memory
from gpuwatch.experiment.probing.program_end import EndFacts, with_program_end
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule, finding
from gpuwatch.explain.diagnosis.runs.finished_run import complete
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.machine.sources.oom_kills import read_oom_kills
from gpuwatch.share.reports.run_report import run_content
from tests.diagnosis.cases import ON_CPU, draft, machine
from tests.every import every
from tests.logs import small_logs
from tests.logs.wordings import ALL, HEALTHY, Wording

TENSORFLOW = Framework(name="tensorflow", version="2.21.0", gpu_build=True)
CPU, GPU = "/physical_device:CPU:0", "/physical_device:GPU:0"


def program(log: str = "", **fields: object) -> Run:
    values: dict[str, object] = {"group": "run", "framework": TENSORFLOW, "placements": (), **fields}
    return complete(draft("run", **values), parse(log), machine())


_DISABLED = Devices(physical=(CPU, GPU), visible=(CPU,), logical=("/device:CPU:0",))
_NONE = Devices(physical=(CPU,), visible=(CPU,), logical=("/device:CPU:0",))


def _with_variable(value: str, source: str) -> dict[str, object]:
    setting = Setting(asked=value, effective=value, source=source)
    return {
        "devices": _NONE,
        "environment": {"CUDA_VISIBLE_DEVICES": value},
        "settings": {"CUDA_VISIBLE_DEVICES": setting},
    }


@pytest.mark.parametrize(
    ("fields", "verdict", "severity"),
    [
        ({"devices": _DISABLED}, "ok", "info"),
        (_with_variable("-1", "train.py:2"), "ok", "info"),
        (_with_variable("", "train.py:2"), "ok", "info"),
        (_with_variable("-1", INHERITED), "fallback", "error"),
        (_with_variable("7", "train.py:2"), "fallback", "error"),  # meant a GPU
    ],
)
@pytest.mark.parametrize("placements", [(), (ON_CPU,)])
def test_a_program_that_hides_its_gpus_itself_is_on_the_cpu_by_choice(
    fields: dict[str, Any], verdict: str, severity: str, placements: tuple[Placement, ...]
) -> None:
    run = program(placements=placements, **fields)
    assert (run.verdict, run.findings[0].severity) == (verdict, severity)
    assert (run.verdict == "fallback") >= bool(run.fallbacks)
    chosen = "The program hides every GPU from itself" in run.findings[0].title
    assert chosen == (severity == "info") == ("as it requests" in run.verdict_reason)


def test_a_program_that_hides_its_gpus_and_requests_one() -> None:
    run = program(devices=_DISABLED, placements=(replace(ON_CPU, requested="/device:GPU:0"),))
    assert (run.verdict, run.primary, run.findings[0].severity) == ("fallback", "visibility.hidden", "warning")
    assert [one.requested for one in run.fallbacks] == ["GPU:0"]


def test_a_program_that_takes_one_of_two_gpus_hides_none() -> None:
    devices = Devices(physical=(CPU, GPU), visible=(CPU, GPU), logical=("/device:CPU:0", "/device:GPU:0"))
    assert program(devices=devices).primary == "healthy"


def test_a_program_that_the_kernel_killed_for_want_of_the_hosts_memory() -> None:
    run = program(verdict="error", outcome=Outcome(signal=9, ended=True), host_memory_out=True)
    assert (run.verdict, run.primary) == ("error", "unknown")
    assert "host's memory" in run.findings[0].title
    assert "killed by SIGKILL" in " ".join(run.findings[0].evidence)
    (entry,) = run.findings
    assert entry.certainty == "fact"


@pytest.mark.parametrize(
    ("number", "host", "says"),
    [
        (9, None, "usually by the kernel"),
        (9, HostMemory(peak_bytes=60 << 30, total_bytes=64 << 30), "usually by the kernel"),
        (
            9,
            HostMemory(peak_bytes=1 << 30, total_bytes=64 << 30, oom_kills=0),
            "not by the kernel's OOM killer",
        ),
        (11, None, "SIGSEGV"),
        (7, None, "/dev/shm"),
        (6, None, "SIGABRT"),
        (4, None, "SIGILL"),
    ],
)
def test_a_signal_that_ended_a_program_is_a_finding(number: int, host: HostMemory | None, says: str) -> None:
    for outcome in (Outcome(signal=number, ended=True), Outcome(exit_code=128 + number, ended=True)):
        run = program(verdict="error", outcome=outcome, host_memory=host)
        (entry,) = run.findings
        assert (run.primary, entry.severity) == ("unknown", "error")
        assert says in entry.title
        assert "It ended in" not in entry.title
        if host is not None:
            assert any("of host memory" in line for line in entry.evidence)
    # What somebody wished is no failure.
    wished = program(verdict="interrupted", outcome=Outcome(signal=number, ended=True))
    assert "unknown" not in [entry.id for entry in wished.findings]


@every([entry for entry in ALL if entry not in HEALTHY])
def test_one_line_never_has_a_named_cause_and_none(wording: Wording) -> None:
    """The exception with which a program ended, as Python tells it and as the log has it."""
    text = wording.text
    error = RunError(type="RuntimeError", message=text)
    run = program(f"RuntimeError: {text}", errors=(error,), verdict="error", outcome=Outcome(exit_code=1, ended=True))
    unknown = [found for found in run.findings if found.id == "unknown" and found.title.startswith("It ended in")]
    named = [found for found in run.findings if found.id not in ("unknown", "healthy")]
    lines = {line.rpartition(": ")[2] for found in named for line in found.evidence}
    assert not [line for found in unknown for line in found.evidence if line.rpartition(": ")[2] in lines]


def test_a_flag_that_xla_does_not_know_is_named() -> None:
    said = "F0000 00:00:1795181982.271454   19936 parse_flags_from_env.cc:234] Unknown flag in XLA_FLAGS: --foo"
    run = program(said, verdict="error", outcome=Outcome(exit_code=1, ended=True))
    assert run.primary == "unknown"
    assert "XLA_FLAGS" in run.findings[0].title
    assert said in run.findings[0].evidence


@pytest.mark.parametrize(("gpus", "severity"), [(("/device:GPU:0", "/device:GPU:1"), "error"), ((), "warning")])
def test_replicas_on_gpus_that_are_not_there(gpus: tuple[str, ...], severity: str) -> None:
    asked = [f"/device:GPU:{number}" for number in range(3)]
    results = {"replicas": {"devices": asked, "missing": [name for name in asked if name not in gpus]}}
    run = program(devices=Devices(logical=("/device:CPU:0", *gpus)), results=results)
    found = next(entry for entry in run.findings if entry.id == "distribution.devices-missing")
    assert found.severity == severity
    assert "GPU:2, which do not exist" in found.title
    assert not gpus or (run.verdict, run.primary) == ("fallback", "distribution.devices-missing")
    assert not gpus or run.verdict_reason == f"{found.title}."


GPU_0 = Devices(physical=(CPU, GPU), visible=(CPU, GPU), logical=("/device:CPU:0", "/device:GPU:0"))


def placed(op: str, dtype: str, *, gpu: bool | None, cuda: bool | None, asked: str | None = "GPU:0") -> Placement:
    return Placement(op=op, dtype=dtype, requested=asked, actual="CPU:0", gpu_kernel=gpu, cuda_kernel=cuda)


def test_an_unknown_failure_is_told_beside_notes_of_any_wording() -> None:
    """A note whose lines have no colon says nothing about the failure."""
    error = RunError(type="ImportError", message="You must see the manual of the package to go on")
    run = program(devices=GPU_0, errors=(error,), verdict="error", outcome=Outcome(exit_code=1, ended=True))
    note = finding("idle.memory-held", "info", "fact", evidence=["its peak in use 590 KiB"])
    noting = Rule("noting", ("idle.memory-held",), lambda evidence: [note])
    told = diagnose(Evidence(run=run), [noting, *RULES["evidence"]])
    assert [one.id for one in told] == ["unknown", "idle.memory-held"]


def test_ops_of_different_requests_are_told_apart() -> None:
    missing = [placed(op, "float32", gpu=True, cuda=True, asked="GPU:7") for op in ("AddV2", "Mul", "Sub", "RealDiv")]
    missing = [replace(one, actual="GPU:0") for one in missing]
    without = [placed(op, "string", gpu=False, cuda=False) for op in ("StringUpper", "StringLower")]
    run = program(devices=GPU_0, placements=(*missing, *without))
    assert run.verdict_reason == (
        "AddV2 float32 and 3 more ran on GPU:0 instead of GPU:7: The requested device does not exist. StringUpper"
        " string and 1 more ran on CPU:0 instead of GPU:0: No kernel for the requested device or type."
    )


def test_of_many_requests_two_are_told_and_nothing_false_of_the_rest() -> None:
    missing = [
        replace(placed("Mul", "float32", gpu=True, cuda=True, asked=f"GPU:{at}"), actual="GPU:0") for at in (6, 7)
    ]
    run = program(devices=GPU_0, placements=(*missing, placed("StringUpper", "string", gpu=False, cuda=False)))
    assert "Others fell back too" in run.verdict_reason
    assert run.verdict_reason.count("instead of") == 2


def test_an_op_that_was_moved_for_no_known_reason_is_a_finding() -> None:
    run = program(devices=GPU_0, placements=(placed("MatMul", "float32", gpu=True, cuda=True),))
    assert (run.verdict, run.primary) == ("fallback", "unknown")
    (found,) = [one for one in run.findings if one.id == "unknown"]
    assert "GPU:0, ran on CPU:0: " in found.title
    assert "set_soft_device_placement(False)" in found.action
    assert not any(one.id == "healthy" for one in run.findings)


@pytest.mark.parametrize("has", ["no GPU (CUDA_VISIBLE_DEVICES='')", "GPU:1 only"])
def test_what_fell_back_in_a_process_without_the_gpu_is_no_riddle(has: str) -> None:
    """Beside what the leading process requests and has not, which has an advice of its own."""
    moved = replace(placed("MatMul", "float32", gpu=True, cuda=True), process_has=has)
    lacking = replace(placed("Relu", "float32", gpu=True, cuda=True, asked="GPU:5"), actual="GPU:0")
    run = program(devices=GPU_0, placements=(moved, replace(moved, op="Relu", why="resource"), lacking))
    assert (run.verdict, run.primary) == ("fallback", "placement.device-missing")
    theirs, own = (one for one in run.findings if one.id == "placement.device-missing")
    assert theirs.title.endswith(f" has {has}")
    assert "Let that process see the GPU" in theirs.action
    assert own.title.endswith("the framework has GPU:0 only")


def test_what_a_second_process_has_is_not_missing() -> None:
    """It has two GPUs, the leading one has one."""
    moved = replace(placed("Tanh", "string", gpu=False, cuda=False, asked="GPU:1"), process_has="")
    (entry,) = program(devices=GPU_0, placements=(moved,)).fallbacks
    assert entry.reason == "placement.no-kernel"


def test_without_any_gpu_and_a_reason_the_doctor_is_asked() -> None:
    devices = Devices(physical=(CPU,), visible=(CPU,), logical=("/device:CPU:0",))
    run = program(devices=devices, placements=(placed("MatMul", "float32", gpu=None, cuda=None),))
    (found,) = [one for one in run.findings if one.id == "unknown"]
    assert found.action.startswith("Run gpuwatch doctor")


@every(
    [
        ("Reshape", "string", True, "", "If it works on a step's input, do it earlier, in the dataset's map"),
        ("Reshape", "int32", True, "", "if the values allow that"),
        ("ReverseV2", "int64", True, "", "if the values allow that"),  # names no type: tokens are no float32
        ("DecodeJpeg", "uint8", False, "", "If it works on a step's input"),
        ("Eig", "float32", False, "", "keep it out of the step"),  # maths on activations is no part of the input
        ("SparseDenseCwiseMul", "float32", False, "", "keep it out of the step"),
        ("AsString", "string", False, "data", "Remove tf.device from the dataset's functions"),
        ("PrintV2", "string", False, "", "Harmless"),
        ("StringFormat", "string", False, "", "Harmless"),
        ("HistogramSummary", "float32", False, "", "Harmless"),
        ("QueueDequeueManyV2", "resource", False, "", "Create and use it outside tf.device"),
        ("LookupTableFindV2", "string", False, "", "Create and use it outside tf.device"),
    ]
)
def test_advice_on_an_op_without_a_kernel(op: str, dtype: str, some: bool, why: str, advice: str) -> None:
    """Beside other ops, each kind with its own advice, the largest first."""
    lacking = replace(placed(op, dtype, gpu=False, cuda=False), some_type=some, why=why)
    others = [placed(name, "int64", gpu=False, cuda=False) for name in ("DenseBincount", "FloorMod")]
    run = program(devices=GPU_0, placements=(*others, lacking))
    found = [one for one in run.findings if one.id == "placement.no-kernel"]
    assert "DenseBincount int64 and" in found[0].title
    assert advice in found[-1].action
    assert found[-1].evidence[-1].startswith(op)
    assert len(found) == 1 or ("of any type" in found[-1].title) == (not some)


def test_what_was_refused_says_so_beside_another_one_that_ended_the_program() -> None:
    """Another type is only advised where the error lists a kernel of a GPU; a missing GPU is told as such."""
    refused = Placement(op="RandomShuffle", requested="GPU:0", actual="", why="refused", some_type=False, line="a.py:3")
    missing = replace(refused, op="MatMul", requested="GPU:4", why="absent", scope="a.py:7")
    for kernels, helps in (("device='CPU'", False), ("device='GPU'; T in [DT_FLOAT]", True)):
        error = RunError(
            type="InvalidArgumentError",
            message="Cannot assign a device for operation Hash: Could not satisfy explicit device specification"
            f" '/device:GPU:0' because no supported kernel for GPU devices is available.\n  {kernels}\n",
        )
        run = program(devices=GPU_0, placements=(refused, missing), errors=(error,), **FAILED)
        ended, caught = (one for one in run.findings if one.id == "placement.no-kernel")
        assert ("helps too" in ended.action, "soft" in ended.action) == (helps, True)
        assert [line.split()[1] for line in caught.evidence] == ["RandomShuffle"]
        (absent,) = (one for one in run.findings if one.id == "placement.device-missing")
        assert [line.split(";")[0] for line in absent.evidence] == ["a.py:7: MatMul requested GPU:4"]


def test_it_succeeded_says_whether_placement_was_looked_at() -> None:
    looked = {"placement": Setting(asked=True)}
    mapped = {"devices": GPU_0, "device_map": (DeviceMapping(framework_device="/device:GPU:0"),)}
    unseen = program(**mapped)
    assert "was not checked" in unseen.verdict_reason
    assert "was not checked" in unseen.findings[0].title
    assert program(settings=looked, **mapped).findings[0].title == "No problems found"
    assert "without problems" in program(settings=looked, **mapped).verdict_reason


@pytest.mark.parametrize(
    ("simulation", "some", "ends", "told"),
    [
        ("driver", True, "ok", ["info"]),
        ("plugin", False, "ok", ["info"]),
        ("plugin", True, "ok", []),
        ("driver", True, "error", ["warning"]),  # caught, and then it exits with a code of its own
    ],
)
def test_ops_that_were_refused_and_caught(simulation: str, some: bool, ends: Any, told: list[str]) -> None:
    """Without soft placement; of a GPU that is simulated as a plug-in only what has no kernel of any type."""
    refused = Placement(
        op="Upper", requested="GPU:0", actual="", why="refused", cuda_kernel=some, some_type=some, line="a.py:3"
    )
    run = program(devices=GPU_0, placements=(refused,), simulation=simulation, verdict=ends)
    found = [one for one in run.findings if one.id == "placement.no-kernel"]
    assert [one.severity for one in found] == told
    assert (run.verdict, run.fallbacks) == (ends, ())
    assert ("did not run" in run.verdict_reason) == (told == ["info"])
    assert not found or "a.py:3: Upper requested GPU:0" in found[0].evidence[0]


def test_what_uses_a_variable_has_the_cause_of_that_one_and_not_of_another() -> None:
    """Two variables of one scope, neither with a GPU kernel; a count is kept in another scope, and its line is told."""
    scope = {"scope": "train.py:4"}
    lacking = placed("VarHandleOp", "int32", gpu=False, cuda=False)
    makers = [replace(lacking, dtype=dtype, **scope) for dtype in ("int32", "string")]
    assigned = [
        replace(one, op="AssignVariableOp", gpu_kernel=True, cuda_kernel=True, why="resource") for one in makers
    ]
    counted = replace(lacking, op="AssignAddVariableOp", why="resource", scope="train.py:9", line="train.py:11")
    read, read_elsewhere = replace(assigned[0], op="ReadVariableOp"), replace(counted, op="ReadVariableOp")
    run = program(devices=GPU_0, placements=(*makers, *assigned, counted, read, read_elsewhere))
    found = {(one.op, one.dtype): (one.reason, one.detail.rpartition(" for ")[2]) for one in run.fallbacks}
    assert found == {
        ("VarHandleOp", "int32"): ("placement.no-kernel", "VarHandleOp int32"),
        ("VarHandleOp", "string"): ("placement.no-kernel", "VarHandleOp string"),
        ("AssignVariableOp", "int32"): ("placement.no-kernel", "VarHandleOp int32"),
        ("AssignVariableOp", "string"): ("placement.no-kernel", "VarHandleOp string"),
        ("AssignAddVariableOp", "int32"): ("placement.no-kernel", "its VarHandleOp int32"),
        ("ReadVariableOp", "int32"): ("placement.no-kernel", "VarHandleOp int32"),
    }
    assert {one.scope for one in run.fallbacks if one.op == "ReadVariableOp"} == {"train.py:4"}  # others copy its value
    of_numbers, of_strings = (one for one in run.findings if one.id == "placement.no-kernel")
    assert any("VariableOp int32 (train.py:11)" in line for line in of_numbers.evidence)
    assert ("type that has a GPU kernel" in of_numbers.action, "no GPU can hold it" in of_strings.action) == (
        True,
        True,
    )


@pytest.mark.parametrize(("why", "advice"), [("framework", "Move it out of"), ("resource", "TensorFlow runs it where")])
def test_advice_for_what_lies_elsewhere_says_what_helps(why: str, advice: str) -> None:
    lies = replace(placed("FIFOQueueV2", "resource", gpu=True, cuda=True), why=why)
    run = program(devices=GPU_0, placements=(lies,))
    (found,) = [one for one in run.findings if one.id == "placement.together"]
    assert found.action.startswith(advice)
    assert (run.verdict, run.primary) == ("fallback", "placement.together")
    assert not any(one.id == "healthy" for one in run.findings)


@pytest.mark.parametrize(
    ("dtype", "advice"), [("float32", "ResourceApplyX has no GPU kernel"), ("int32", "type that has a GPU kernel")]
)
def test_what_helps_a_group_is_what_its_op_without_a_kernel_needs(dtype: str, advice: str) -> None:
    """Another type helps no variable of floats: the update that has no kernel is to blame."""
    log = next(small.text for small in small_logs.ALL if "(ResourceApplyX)" in small.text)
    whole = dtype == "float32"
    variable = placed("VarHandleOp", dtype, gpu=whole, cuda=whole)
    variable = replace(variable, why="colocated:ResourceApplyX" if whole else "")
    run = program(log, devices=GPU_0, placements=(variable,))
    (found,) = [one for one in run.findings if one.id == "placement.no-kernel"]
    assert advice in found.action


def test_a_data_set_that_is_made_under_a_device_is_a_note() -> None:
    pipeline = [placed(op, "variant", gpu=False, cuda=False) for op in ("TensorSliceDataset", "BatchDatasetV2")]
    run = program(devices=GPU_0, placements=tuple(pipeline))
    assert (run.verdict, len(run.fallbacks)) == ("ok", 2)
    assert {found.severity for found in run.findings} == {"info"}
    run = program(devices=GPU_0, placements=(*pipeline, placed("AsString", "string", gpu=False, cuda=False)))
    assert run.verdict == "fallback"


def test_an_op_that_only_the_simulated_gpu_has_no_kernel_for_is_no_fallback() -> None:
    limited = placed("FloorMod", "int64", gpu=False, cuda=True)
    run = program(devices=GPU_0, placements=(limited,), simulation="plugin")
    assert (run.verdict, run.primary) == ("ok", "healthy")
    (entry,) = run.fallbacks
    assert (entry.reason, "TensorFlow has a CUDA kernel for FloorMod int64" in entry.detail) == (
        "simulation.limit",
        True,
    )
    assert any(found.title.startswith("Only on this simulated GPU") for found in run.findings)
    # Beside one that TensorFlow has no kernel for either.
    true = placed("AsString", "string", gpu=False, cuda=False)
    run = program(devices=GPU_0, placements=(limited, true), simulation="plugin")
    assert (run.verdict, run.primary) == ("fallback", "placement.no-kernel")
    assert run.verdict_reason.startswith("AsString string ran on CPU:0")
    # A build without CUDA cannot tell.
    run = program(devices=GPU_0, placements=(placed("Qr", "float32", gpu=False, cuda=None),), simulation="plugin")
    assert run.verdict == "ok"
    assert "is unknown" in run.fallbacks[0].detail


def test_an_op_that_has_a_kernel_was_not_moved_for_want_of_one() -> None:
    run = program(devices=GPU_0, placements=(placed("MatMul", "float32", gpu=True, cuda=True),))
    assert [(entry.reason, entry.detail) for entry in run.fallbacks] == [
        ("unknown", "TensorFlow has a GPU kernel for MatMul float32: why it was moved is unknown")
    ]
    assert "placement.no-kernel" not in [found.id for found in run.findings]
    # Nor did one that nobody asked for a GPU: tf.data puts its functions on the CPU.
    left = placed("MatMul", "float32", gpu=True, cuda=True, asked=None)
    assert program(devices=GPU_0, placements=(left,)).verdict == "ok"
    call = placed("PartitionedCall", "float32", gpu=False, cuda=False)
    assert program(devices=GPU_0, placements=(call,)).fallbacks == ()


_REFUSED = """Cannot assign a device for operation Qr: Could not satisfy explicit device specification '/device:GPU:0' \
because no supported kernel for GPU devices is available.
Op: Qr
Node attrs: T=DT_FLOAT, full_matrices=false
Registered kernels:
  device='CPU'; T in [DT_FLOAT]
"""
_EAGER = (
    "Could not satisfy device specification '/device:GPU:0'. enable_soft_placement=0. Supported device types [CPU]."
    " All available devices [/device:GPU:0, /device:CPU:0]. [Op:FloorMod] name: "
)


@pytest.mark.parametrize(
    ("message", "results", "cause"),
    [
        (_REFUSED + "  device='CUDA, not simulated'; T in [DT_HALF, DT_FLOAT]\n", {}, "simulation.limit"),
        (_REFUSED + "  device='CUDA, not simulated'; T in [DT_HALF]\n", {}, "placement.no-kernel"),
        (_REFUSED, {}, "placement.no-kernel"),
        (_EAGER, {"kernels": {"op": "FloorMod", "cuda": ["int64"]}}, "simulation.limit"),
        (_EAGER, {"kernels": {"op": "FloorMod", "cuda": []}}, "placement.no-kernel"),
        (_EAGER, {}, "simulation.limit"),
    ],
)
def test_an_error_for_want_of_a_kernel_on_a_simulated_gpu(message: str, results: dict[str, object], cause: str) -> None:
    error = RunError(type="InvalidArgumentError", message=message)
    ended: dict[str, Any] = {"verdict": "error", "outcome": Outcome(exit_code=1, ended=True), "results": results}
    run = program(devices=GPU_0, errors=(error,), simulation="plugin", **ended)
    assert (run.verdict, run.primary) == ("error", cause)
    real = program(devices=GPU_0, errors=(error,), simulation="driver", **ended)
    assert real.primary == "placement.no-kernel"


def test_a_compiler_that_simulated_gpus_lack_is_their_limit_and_nothing_unknown() -> None:
    message = "No JIT device registered for GPU [Op:__inference_f_10]"
    error = RunError(type="InvalidArgumentError", message=message)
    on_plugin = draft(simulated=True, simulation="plugin", verdict="error", errors=(error,))
    (found,) = [one for one in diagnose(Evidence(run=on_plugin)) if one.severity == "error"]
    assert (found.id, found.certainty) == ("simulation.limit", "fact")
    on_real = draft(verdict="error", errors=(error,))
    assert [one.id for one in diagnose(Evidence(run=on_real))] == ["unknown"]


def test_pytorch_on_gpus_simulated_for_tensorflow_is_not_told_about_a_driver() -> None:
    """Of a machine that has none of its own it says that there is no driver, or an old one."""
    message = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"
    run = program(
        message,
        framework=Framework(name="torch", version="2.7.1", gpu_build=True),
        devices=Devices(),
        settings={"PyTorch": Setting(asked="simulated GPUs", effective="none", note="none on this tier")},
        errors=(RunError(type="RuntimeError", message=message),),
        verdict="error",
        outcome=Outcome(exit_code=1, ended=True),
        simulation="plugin",
    )
    assert (run.verdict, run.primary) == ("error", "simulation.limit")
    assert [found.id for found in run.findings if found.severity == "error"] == ["simulation.limit"]
    old = Framework(name="torch", version="2.7.1", gpu_build=True, build={"cuda_version": "11.8"})
    ended: dict[str, Any] = {"verdict": "error", "outcome": Outcome(exit_code=1, ended=True), "errors": run.errors}
    assert (
        program(message, framework=old, devices=Devices(), simulation="driver", **ended).primary == "simulation.limit"
    )
    assert "--sim-tier driver" in (run.findings[0].action or "")


def test_pytorch_without_a_way_in_is_one_finding() -> None:
    """The program's own line about it and the setting that gpuwatch recorded say the same."""
    lacks = "the simulated driver lacks support for PyTorch on this tier: its GPUs work only with TensorFlow"
    run = draft(
        "run",
        group="run",
        simulated=True,
        simulation="plugin",
        verdict="error",
        framework=Framework(name="torch", version="2.7.1+cu126", gpu_build=True),
        settings={"PyTorch": Setting(asked="simulated GPUs", effective="none", note=lacks)},
        errors=(RunError(type="RuntimeError", message="Found no NVIDIA driver on your system."),),
        outcome=Outcome(exit_code=1, ended=True),
        placements=(),
    )
    log = parse(f"gpuwatch: {lacks}\nRuntimeError: Found no NVIDIA driver on your system.\n")
    done = complete(run, log, machine(gpus=1))
    assert [(found.id, found.severity) for found in done.findings] == [("simulation.limit", "error")]
    assert done.findings[0].title.startswith("PyTorch has no GPU here")
    assert "matrix products without a bias" in (done.findings[0].action or "")


@pytest.mark.parametrize(("nvml_bytes", "on_cpu"), [(None, True), (0, True), (1 << 30, False)])
def test_a_pytorch_program_that_used_no_gpu_is_said_to_have_run_on_the_cpu(
    nvml_bytes: int | None, on_cpu: bool
) -> None:
    torch = Framework(name="torch", version="2.11.0", gpu_build=True)
    used: dict[str, Any] = {"framework": torch, "devices": Devices(), "memory": Memory(nvml_peak_bytes=nvml_bytes)}
    run = program(**used, gpus=("0 NVIDIA H200 GPU-0",))
    assert run.verdict == "ok"
    assert run.verdict_reason.startswith("It succeeded, on the CPU: PyTorch uses a GPU only for") is on_cpu
    assert program(**used, gpus=()).verdict_reason == "It succeeded."
    handled = "It was sent SIGTERM after 12 s, and ended by itself."
    ended = {"outcome": Outcome(exit_code=0, ended=True), "verdict_reason": handled}
    told = f"It succeeded; it{handled[2:]}"
    assert program(**used, gpus=(), **ended).verdict_reason == told
    assert program(**used, gpus=run.gpus, **ended).verdict_reason == (
        f"{run.verdict_reason} {handled}" if on_cpu else told
    )


@pytest.mark.parametrize("simulation", ["driver", None])
@pytest.mark.parametrize(
    ("message", "real_cause"),
    [
        ("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasLtMatmulAlgoGetHeuristic(h)`", "memory.masked"),
        ("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic(h)`", "unknown"),
        ("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", "memory.masked"),
    ],
)
def test_a_library_that_fails_on_a_simulated_gpu_lacks_no_memory(
    message: str, real_cause: str, simulation: str | None
) -> None:
    error = RunError(type="RuntimeError", message=message)
    torch = Framework(name="torch", version="2.11.0", gpu_build=True)
    log = traceback(28, "self.linear(x)", f"RuntimeError: {message}")
    own = "100%|###| 5/5 [00:00<?, ?it/s]gpuwatch: the simulated driver lacks what libcudnn.so.9 asks of it"
    run = program(
        f"{own}\n{log}" if simulation else log, framework=torch, simulation=simulation, errors=(error,), **FAILED
    )
    causes = [found.id for found in run.findings if found.severity == "error"]
    assert causes == ["simulation.limit" if simulation else real_cause]
    alone = program(log, framework=torch, simulation=simulation, errors=(error,), **FAILED)
    assert [found.id for found in alone.findings if found.severity == "error"] == causes
    if simulation:
        assert any(line.startswith("gpuwatch: the simulated driver") for line in run.findings[0].evidence)


@pytest.mark.parametrize(
    ("type_", "message", "reason"),
    [
        (
            "ChildFailedError",
            "\n====================\ntrain.py FAILED\n--------------------\nFailures:\n  <NO_OTHER_FAILURES>",
            "train.py FAILED.",
        ),
        (
            "RuntimeError",
            "Cdesc.descriptor(), " * 20,
            f"{('Cdesc.descriptor(), ' * 20)[:199]}…",
        ),
    ],
)
def test_the_reason_is_no_heading_and_shows_that_it_was_cut(type_: str, message: str, reason: str) -> None:
    facts = EndFacts(outcome=Outcome(exit_code=1), oom_kills_before=read_oom_kills())
    run = replace(draft("run", group="run"), errors=(RunError(type=type_, message=message),))
    assert with_program_end(run, facts).verdict_reason == f"It exited with code 1, in {type_}: {reason}"


@pytest.mark.parametrize(("code", "verdict", "severity"), [(0, "ok", "warning"), (1, "oom", "error")])
def test_a_program_that_catches_that_memory_ran_out_has_not_failed(code: int, verdict: str, severity: str) -> None:
    text = "ResourceExhaustedError: OOM when allocating tensor with shape[1024,1024] and type float on /device:GPU:0"
    ended: dict[str, object] = {} if code == 0 else {"verdict": "oom", "verdict_reason": "It ran out of memory."}
    done = program(f"{text} by allocator GPU_0_bfc\n", outcome=Outcome(exit_code=code, ended=True), **ended)
    assert done.verdict == verdict
    assert (done.verdict_reason == "It exited with code 0, although memory ran out.") == (code == 0)
    about = [found for found in done.findings if found.id.startswith(("memory.", "unknown"))]
    assert {found.severity for found in about} == {severity}
    assert all(("continued after it" in found.evidence[0]) == (code == 0) for found in about)
    assert done.ooms


_KERNELS = """Graph execution error:

Detected at node 'loss/Mul' defined at (most recent call last):
    File "train.py", line 7, in <module>
Node: 'loss/Mul'
No registered 'Snapshot' OpKernel for 'GPU' devices compatible with node {{node loss/Mul}}
\t.  Registered:  device='XLA_CPU_JIT'; T in [DT_FLOAT]
  device='XLA_GPU_JIT'; T in [DT_FLOAT, DT_HALF]
  device='CPU'; T in [DT_FLOAT]
"""
FAILED: dict[str, Any] = {"verdict": "error", "outcome": Outcome(exit_code=1, ended=True)}


def test_a_list_of_kernels_does_not_mean_that_xla_was_requested() -> None:
    """TensorFlow lists kernels for XLA, too, whatever op is without one."""
    cuda = "  device='CUDA, not simulated'; T in [DT_FLOAT]\n  device='CUDA, not simulated'; T in [DT_HALF]\n"
    for message, cause in ((_KERNELS + cuda, "simulation.limit"), (_KERNELS, "placement.no-kernel")):
        error = RunError(type="NotFoundError", message=message)
        run = program(devices=GPU_0, errors=(error,), simulation="plugin", **FAILED)
        assert run.primary == cause
        assert not [found for found in run.findings if "XLA" in found.title]
        assert program(devices=GPU_0, errors=(error,), **FAILED).primary == "placement.no-kernel"
    error = RunError(type="NotFoundError", message=_KERNELS + cuda)
    (found, *_) = program(devices=GPU_0, errors=(error,), simulation="plugin", **FAILED).findings
    assert "it has no kernel for Snapshot; TensorFlow has CUDA kernels for it in float, half" in found.title
    xla = RunError(
        type="NotFoundError", message="No registered 'Qr' OpKernel for XLA_GPU_JIT devices compatible with x"
    )
    (found, *_) = program(devices=GPU_0, errors=(xla,), simulation="plugin", **FAILED).findings
    assert "XLA" in found.title


def traceback(line: int, code: str, error: str) -> str:
    return f'Traceback (most recent call last):\n  File "/home/u/train.py", line {line}, in f\n    {code}\n{error}\n'


_FULL = "OOM when allocating tensor with shape[1024,1024] and type float on /device:GPU:0 by allocator GPU_0_bfc"
_EXHAUSTED = f"tensorflow.python.framework.errors_impl.ResourceExhaustedError: {_FULL}"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (traceback(5, "x = tf.zeros((1024, 1024))", _EXHAUSTED), 5),
        # A process pool raises it again, in the parent.
        (traceback(5, "x = tf.zeros(n)", _EXHAUSTED) + "\n" + traceback(8, "pool.map(f, sizes)", _EXHAUSTED), 5),
        # While it is handled, something else fails.
        (
            traceback(5, "x = tf.zeros(n)", _EXHAUSTED) + traceback(9, "os.remove(p)", "PermissionError: [Errno 13] x"),
            5,
        ),
        # The program raises an exception of its own about it.
        (f"{_FULL}\n" + traceback(9, "raise RuntimeError(str(e))", f"RuntimeError: failed: {_FULL}"), None),
        (f"{_FULL}\n" + traceback(9, "x = {}['loss']", "KeyError: 'loss'"), None),
    ],
)
def test_memory_was_requested_where_its_own_traceback_says(log: str, line: int | None) -> None:
    run = program(log, devices=GPU_0, **FAILED)
    (entry,) = [found for found in run.findings if found.severity == "error"]
    requested = [said for said in entry.evidence if said.startswith("requested at")]
    assert [f"line {line}:" in said for said in requested] == ([] if line is None else [True])


def test_a_line_about_one_failure_is_no_evidence_for_another() -> None:
    def failure(asked: int, in_use: int, shape: str) -> str:
        return (
            f"W0000 00:00:1 1 bfc_allocator.cc:1] Allocator (GPU_0_bfc) ran out of memory trying to allocate {asked}B"
            f" (rounded to {asked}) requested by op Fill\n"
            f"I0000 00:00:1 1 bfc_allocator.cc:1] Sum Total of in-use chunks: {in_use}B\n"
            "I0000 00:00:1 1 bfc_allocator.cc:1] Total size in pool: 4.00GiB memory_limit_: 4.00GiB available size: 0\n"
            f"W0000 00:00:1 1 x.cc:1] OOM when allocating tensor with shape[{shape}] and type float on /device:GPU:0 by"
            " allocator GPU_0_bfc\n"
        )

    log = failure(8 << 30, 0, "2,1024,1024,1024") + failure(2 << 30, 3 << 30, "512,1024,1024")
    found = {entry.id: " ".join(entry.evidence) for entry in program(log, devices=GPU_0, **FAILED).findings}
    assert "shape[2,1024,1024,1024]" in found["memory.request-too-large"]
    assert "shape[512,1024,1024]" in found["memory.model-too-large"]
    assert "shape[2,1024,1024,1024]" not in found["memory.model-too-large"]
    # Nor the allocator's own line, if only the other failure has one in the log.
    log = failure(8 << 30, 0, "2,1024,1024,1024") * 6 + failure(2 << 30, 3 << 30, "512,1024,1024")
    cut = "\n".join(line for line in log.splitlines() if "shape[512" not in line)
    found = {entry.id: " ".join(entry.evidence) for entry in program(cut, devices=GPU_0, **FAILED).findings}
    assert "8589934592B" not in found["memory.model-too-large"]
    (alone, *_) = program(failure(2 << 30, 3 << 30, "512,1024,1024"), devices=GPU_0, **FAILED).findings
    assert "shape[512,1024,1024]" in " ".join(alone.evidence)


_DECODE = """Graph execution error:

Detected at node EagerPyFunc defined at (most recent call last):
<stack traces unavailable>
2 root error(s) found.
  (0) INVALID_ARGUMENT:  ValueError: cannot decode 1.jpg
Traceback (most recent call last):
"""


def test_an_error_is_told_by_the_line_that_says_what_was_wrong_and_where() -> None:
    log = traceback(6, "return decode(path)", "ValueError: cannot decode 1.jpg")
    error = RunError(type="InvalidArgumentError", message=_DECODE)
    (found, *_) = program(log, devices=GPU_0, errors=(error,), **FAILED).findings
    assert found.evidence == (
        "InvalidArgumentError: INVALID_ARGUMENT:  ValueError: cannot decode 1.jpg",
        "raised at /home/u/train.py, line 6: return decode(path)",
    )
    # Another exception's place is not its own.
    assert found.action.startswith("Open train.py, line 6: ")
    interrupted = program(log, devices=GPU_0, errors=(error,), verdict="interrupted")
    assert interrupted.findings[0].title.startswith("Before it was interrupted")
    (found, *_) = program(traceback(2, "f()", "OSError: x"), devices=GPU_0, errors=(error,), **FAILED).findings
    assert not [said for said in found.evidence if said.startswith("raised at")]
    assert found.action.startswith("Read the end of the log")


@pytest.mark.parametrize(
    ("type_", "message", "title"),
    [
        (  # torchvision's
            "RuntimeError",
            "Error downloading train-images-idx3-ubyte.gz:\nTried https://a.org/mnist/, got:\n"
            "<urlopen error [Errno -3] Temporary failure in name resolution>\n",
            "A server on the network could not be reached",
        ),
        (
            "RuntimeError",
            "The download of the data failed.\nSee the log.\nHTTPSConnectionPool(host='a.org', port=443): Max retries"
            " exceeded with url: /x",
            "A server on the network could not be reached",
        ),
        (
            "OSError",
            "Caught OSError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n"
            '  File "/home/u/train.py", line 3, in save\n    file.write(data)\n'
            "OSError: [Errno 28] No space left on device",
            "The disk is full",
        ),
    ],
)
def test_the_cause_may_stand_in_any_line_of_a_message(type_: str, message: str, title: str) -> None:
    log = traceback(6, "load()", f"{type_}: {message}")
    (found, *_) = program(log, devices=GPU_0, errors=(RunError(type=type_, message=message),), **FAILED).findings
    assert found.title.startswith(title)
    explained = explain(log.splitlines()).findings[0]
    assert (explained.title, explained.action) == (found.title, found.action)


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("It was interrupted (SIGINT, Ctrl+C) after 9 s.", "after 9 s, in train.py, line 6 (f)."),
        ("It was ended by SIGTERM, which gpuwatch passed on, after 9 s.", "passed on, after 9 s."),
        ("It was still running after 9 s, when this was saved.", "when this was saved."),
    ],
)
def test_an_interruption_is_told_with_its_place_and_without_a_finding(reason: str, told: str) -> None:
    run = program(traceback(6, "step()", "KeyboardInterrupt"), verdict="interrupted", verdict_reason=reason)
    assert run.verdict_reason.endswith(told)
    assert [found.id for found in run.findings if found.severity == "error"] == []


def test_a_launcher_s_failure_has_the_error_of_the_process_that_failed() -> None:
    child = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1."
    log = traceback(7, "open(path)", "FileNotFoundError: [Errno 2] x") + traceback(4, "run(check=True)", child)
    (found, *_) = program(log, devices=GPU_0, **FAILED).findings
    assert "failed in FileNotFoundError" in found.title
    assert found.evidence[:2] == (
        "FileNotFoundError: [Errno 2] x",
        "raised at /home/u/train.py, line 7: open(path)",
    )


@pytest.mark.parametrize(
    ("log", "severity", "title"),
    [
        (traceback(3, "x @ y", "ValueError: shapes"), "warning", "its stderr ends in the traceback of ValueError"),
        (
            "Exception in thread Thread-1:\n" + traceback(3, "x[k]", "KeyError: 'k'") + "step\n" * 20,
            "warning",
            "a thread of it ended in KeyError",
        ),
        (traceback(3, "get()", "TimeoutError: s3") + "step\n" * 20, "info", "It continued after TimeoutError"),
        ("ValueError: shapes\n", "", ""),
        (traceback(3, "wait()", "KeyboardInterrupt"), "", ""),
    ],
)
def test_an_exit_code_of_0_after_a_traceback_is_no_claim_that_all_went_well(
    log: str, severity: str, title: str
) -> None:
    run = program(log, devices=GPU_0)
    assert run.verdict == "ok"
    found = [entry for entry in run.findings if entry.id == "unknown"]
    assert [entry.severity for entry in found] == ([severity] if severity else [])
    assert all(title in entry.title for entry in found)
    assert (run.verdict_reason == "It succeeded.") == (severity in ("info", ""))
    # Where the program failed, its own end is told.
    failed = program(log, devices=GPU_0, **FAILED)
    assert not [entry for entry in failed.findings if "exited with code 0" in entry.title]


def test_what_ended_a_program_comes_before_why_it_had_no_gpu() -> None:
    def without_driver(message: str, type_: str = "RuntimeError", log: str = "") -> Run:
        error = RunError(type=type_, message=message)
        values: dict[str, Any] = {"group": "run", "framework": TENSORFLOW, "placements": (), "errors": (error,)}
        return complete(draft("run", **values, **FAILED), parse(log), machine(gpus=0, driver=False))

    for type_, message, primary in (
        ("RuntimeError", "the list of labels is empty", "unknown"),
        ("AttributeError", "module 'torch' has no attribute 'x'", "program.error"),
        ("KeyError", "'final_observation'", "program.error"),  # "the program's own error, not the GPU's"
        ("OSError", "[Errno 28] No space left on device: 'a.pt'", "unknown"),  # "… is a disk, not the GPU"
        ("RuntimeError", "Failed to find C compiler. Please specify via CC", "unknown"),  # "the GPU is not the problem"
    ):
        run = without_driver(message, type_, traceback(7, "work()", f"{type_}: {message}"))
        assert run.primary == primary
        assert {found.severity for found in run.findings if found.id == "driver.missing"} == {"warning"}
    for message in ("cannot run on cuda", "Found no NVIDIA driver on your system."):
        run = without_driver(message)
        assert run.primary == "driver.missing"
        assert run.findings[0].severity == "error"


_WORKER = "RuntimeError: DataLoader worker (pid 7) is killed by signal: "


@pytest.mark.parametrize(
    ("message", "host", "title"),
    [
        (f"{_WORKER}Killed. ", None, "usually for lack of host memory"),
        (f"{_WORKER}Killed. ", HostMemory(oom_kills=0), "not by the kernel's OOM killer: its counter did not change"),
        (f"{_WORKER}Killed. ", HostMemory(oom_kills=1), "ran out of host memory"),
        (f"{_WORKER}Killed. ", HostMemory(), "usually for lack of host memory"),
        (f"{_WORKER}Segmentation fault. ", HostMemory(oom_kills=0), "ended with a signal: Segmentation fault"),
        (f"{_WORKER}Bus error. ", HostMemory(oom_kills=0), "shared memory"),
        ("RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", None, "exited unexpectedly"),
    ],
)
def test_a_worker_of_a_loader_that_died(message: str, host: HostMemory | None, title: str) -> None:
    error = RunError(type="RuntimeError", message=message.partition(": ")[2])
    run = program(message, errors=(error,), host_memory=host, **FAILED)
    (entry,) = [found for found in run.findings if found.severity == "error"]
    assert title in entry.title
    assert ("host memory" in entry.title) == ("host memory" in title)
    if host is not None and host.oom_kills == 1:
        assert "the kernel's OOM killer ended 1 process meanwhile" in entry.evidence


@pytest.mark.parametrize(
    ("results", "limited"),
    [
        ({"address_limit_bytes": 4 << 30, "address_peak_bytes": (4 << 30) - 1000}, True),
        ({"address_limit_bytes": 4 << 30, "address_peak_bytes": 2 << 30}, False),
        ({}, False),
    ],
)
def test_host_memory_below_a_limit_of_the_address_space(results: dict[str, object], limited: bool) -> None:
    message = "Unable to allocate 64.0 MiB for an array with shape (16, 1024, 1024) and data type float32"
    error = RunError(type="MemoryError", message=message)
    log = f"numpy._core._exceptions._ArrayMemoryError: {message}".replace("_Array", "")
    run = program(log, devices=GPU_0, errors=(error,), results=results, **FAILED)
    (entry,) = [found for found in run.findings if found.severity == "error"]
    assert ("ulimit -v" in entry.title) == limited
    assert ("its limit of 4.0 GiB" in " ".join(entry.evidence)) == limited
    assert entry.title.startswith("Out of host memory")


def test_failures_of_the_host_and_of_a_gpu_are_two_findings() -> None:
    host = "MemoryError: Unable to allocate 64.0 MiB for an array with shape (16, 1024, 1024) and data type float32"
    run = program(f"{_EXHAUSTED}\n{host}\n", devices=GPU_0, **FAILED)
    titles = [found.title for found in run.findings if found.severity == "error"]
    assert len(titles) == 2
    assert sum(title.startswith("Out of host memory") for title in titles) == 1


def test_memory_of_several_processes_is_not_compared_with_the_peak_of_one() -> None:
    memory = Memory(
        allocator_peak_bytes=1 << 20,
        allocator_limit_bytes=1 << 30,
        nvml_peak_bytes=3 << 30,
        device_total_bytes=3 << 30,
        device_uuid="GPU-0",
        devices=(DeviceMemory(uuid="GPU-0", index=0, total_bytes=3 << 30, others_peak_bytes=1 << 30),),
    )
    one = RunProcess(pid=1)
    for processes, found in (((one,), True), ((one, RunProcess(pid=2)), False)):
        run = program(devices=GPU_0, memory=memory, processes=processes)
        assert ("idle.memory-held" in [entry.id for entry in run.findings]) == found


@pytest.mark.parametrize(("codes", "told"), [((0, 2), 1), ((0, 0), 0), ((None, None), 0), ((-15, None), 0)])
def test_a_child_that_failed_is_told_though_its_parent_went_on(codes: tuple[int | None, ...], told: int) -> None:
    processes = tuple(RunProcess(pid=pid, exit_code=code) for pid, code in enumerate(codes, 7))
    run = program(devices=GPU_0, processes=processes, outcome=Outcome(exit_code=0, ended=True))
    found = [one for one in run.findings if "its process 8 ended with exit code 2" in one.title]
    assert [one.severity for one in found] == ["info"] * told
    assert (run.verdict, "its process 8" in run.verdict_reason) == ("ok", bool(told))
    assert ("healthy" in [one.id for one in run.findings]) == (not told)


def test_of_processes_with_other_gpus_the_header_says_whose_they_are() -> None:
    maps = [
        (DeviceMapping(framework_device="/device:GPU:0", uuid=f"GPU-{at}", physical_index=at, cuda_ordinal=0),)
        for at in range(2)
    ]
    processes = tuple(RunProcess(pid=pid, device_map=mapped) for pid, mapped in enumerate(maps, 7))
    apart = program(processes=processes, device_map=maps[1])
    facts = dict(run_content(apart).facts)
    assert facts["granted"].endswith(" (process 8; others below)")
    alike = dict(run_content(program(processes=processes[:1] * 2, device_map=maps[0])).facts)
    assert "process" not in alike["granted"]


@pytest.mark.parametrize(
    ("limit", "code", "told"),
    [
        (128 << 20, 1, True),
        (None, 1, False),  # nothing says why
        (2 << 30, 1, False),  # below its limit: the memory was in use, or another's
        (128 << 20, 0, False),  # it went on
    ],
)
def test_a_child_that_asked_for_more_than_its_own_limit(limit: int | None, code: int, told: bool) -> None:
    message = (
        "OOM when allocating tensor with shape[32768,4096] and type float on /job:localhost/replica:0/task:0/"
        "device:GPU:0 by allocator GPU_0_bfc [Op:RandomStandardNormal]"
    )
    failed = RunProcess(
        pid=8,
        exit_code=code,
        device_map=(DeviceMapping(framework_device="/device:GPU:0", granted_bytes=limit),),
        errors=(RunError(type="ResourceExhaustedError", message=message),),
    )
    ended = Outcome(exit_code=0, ended=True)
    run = program(devices=GPU_0, processes=(RunProcess(pid=7), failed), outcome=ended)
    found = [one for one in run.findings if one.id == "memory.request-too-large"]
    assert [one.severity for one in found] == ["info"] * told
    assert not told or found[0].title.endswith("but its limit is 128 MiB")


_JAX_LOG = """\
W1126 10:04:52.160840    2773 bfc_allocator.cc:598] Allocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB \
(rounded to 4294967296) from the lower end requested by op
jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4.00GiB with allocator \
GPU_0_bfc on device 0. [executable_name='jit_multiply']
"""


@pytest.mark.parametrize("limit", [18 << 30, None])
def test_jax_runs_out_of_memory_at_its_own_share_of_the_gpu(limit: int | None) -> None:
    """JAX takes 75 % of the GPU, as the watcher reports; the rest is free."""
    device = machine().devices[0]
    mapped = DeviceMapping(framework_device="cuda:0", cuda_ordinal=0, uuid=device.uuid, granted_bytes=limit)
    own = DeviceMemory(uuid=device.uuid, index=0, others_before_bytes=0, others_start_bytes=0, others_peak_bytes=0)
    text = _JAX_LOG.splitlines()[1].partition(": ")[2]
    run = program(
        _JAX_LOG,
        verdict="oom",
        framework=Framework(name="jax", version="0.11.2", gpu_build=True),
        device_map=(mapped,),
        ooms=tuple(parse(_JAX_LOG).ooms),
        errors=(RunError(type="JaxRuntimeError", message=text),),
        memory=Memory(allocators={"cuda:0": 15 << 30}, devices=(own,)),
        outcome=Outcome(exit_code=1, ended=True),
    )
    assert run.verdict == "oom"
    assert [(oom.requested_bytes, oom.limit_bytes) for oom in run.ooms] == [(4 << 30, limit)]
    if limit is None:
        assert "JAX allocates 75 %" in run.findings[0].action
        return
    assert run.primary == "memory.limit-too-small"
    assert "XLA_CLIENT_MEM_FRACTION" in run.findings[0].action
