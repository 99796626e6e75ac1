"""Rules of ``run`` that fire on a symptom: the program that has the cause, and its neighbours that have another."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.memory_profile import AllocationGroup, MemoryProfile
from gpuwatch.core.model.run import (
    DeviceMapping,
    Devices,
    Framework,
    KilledChild,
    Oom,
    Outcome,
    Placement,
    Run,
    RunError,
    RunProcess,
    Setting,
    TimedStep,
)
from gpuwatch.core.model.run_memory import DeviceMemory, Holding, Memory, MemoryPoint
from gpuwatch.explain.diagnosis.rules.gpu_environment_variables import known_variable_meant
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.share.reports.run_report import settings_text
from tests.diagnosis.cases import GIB, MIB
from tests.diagnosis.test_watched_program import GPU_0, placed, program
from tests.every import every

FAILED: dict[str, Any] = {"verdict": "error", "outcome": Outcome(exit_code=1, ended=True)}
FULL = Oom(device="GPU:0", allocator="GPU_0_bfc", limit_bytes=8 * GIB, in_use_bytes=8 * GIB, largest_free_bytes=0)
COPY = "Failed copying input tensor from CPU:0 to GPU:0 in order to run _EagerConst: Dst tensor is not initialized."


def only(run: Run, cause: str) -> Finding:
    (found,) = (one for one in run.findings if one.id == cause)
    return found


def causes(run: Run) -> list[str]:
    return [one.id for one in run.findings]


def oom(**fields: object) -> Oom:
    values: dict[str, Any] = {name: getattr(FULL, name) for name in FULL.__struct_fields__} | fields
    return Oom(**values)


@pytest.mark.parametrize(
    ("asked_bytes", "copied"), [(4, False), (256 * MIB, False), (2 * GIB, True), (GIB, True)]
)  # the last constant of a full GPU, a batch, a dataset
def test_only_a_large_copy_is_why_memory_ran_out(asked_bytes: int, *, copied: bool) -> None:
    error = RunError(type="InternalError", message=COPY)
    run = program(ooms=(oom(requested_bytes=asked_bytes),), errors=(error,), **FAILED)
    found = only(run, "memory.model-too-large")
    assert ("copied from the host" in found.title) == copied
    assert ("generator" in found.action) == copied


@pytest.mark.parametrize(
    ("gradient", "activations", "of_batch"), [("[500,9]", 1, False), ("[64,9]", 1, True), ("[500,9]", 4, True)]
)
def test_a_smaller_batch_is_advised_unless_variables_fill_the_memory(
    gradient: str, activations: int, *, of_batch: bool
) -> None:
    held = [("weights", "[500,9]", 2), ("optimizer state", "[500,9]", 2), ("gradients", gradient, 2)]
    held += [("activations", "[64,9]", activations)]
    holders = tuple(
        AllocationGroup(op="x", group=name, shape=shape, allocated_bytes=many * GIB, requested_bytes=many * GIB)  # type: ignore[arg-type]
        for name, shape, many in held
    )
    whole = (6 + activations) * GIB
    known = MemoryProfile(
        tool="tensorflow", device="GPU:0", allocator="GPU_0_bfc", peak_bytes=whole, peak_seconds=1.0, live_bytes=whole,
        requested_bytes=whole, named_bytes=whole, holders=holders,
    )  # fmt: skip
    failed = oom(requested_bytes=2 * GIB, limit_bytes=whole + GIB, in_use_bytes=whole, largest_free_bytes=GIB)
    found = only(program(ooms=(failed,), memory_profiles=(known,), **FAILED), "memory.model-too-large")
    assert ("batch or the model smaller" in found.action) == of_batch
    assert ("less state" in found.action) != of_batch


@pytest.mark.parametrize(
    ("shape", "helps"), [("64,4,4096,4096", "a smaller batch"), ("1,256,4096,4096", "its largest dimension (4096)")]
)
def test_no_smaller_batch_is_advised_where_the_first_dimension_is_1(shape: str, helps: str) -> None:
    line = f"OOM when allocating tensor with shape[{shape}] and type float on /device:GPU:0 by allocator GPU_0_bfc"
    failed = oom(requested_bytes=16 * GIB, in_use_bytes=MIB, largest_free_bytes=8 * GIB)
    assert helps in only(program(line, ooms=(failed,), **FAILED), "memory.request-too-large").action


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ('Protocol message GPUOptions has no "per_process_gpu_memory_fractoin" field.', "_fraction was probably meant"),
        ('Protocol message GPUOptions has no "per_process_memory_fraction" field.', "per_process_gpu_memory_fraction"),
        ('Protocol message GPUOptions has no "alow_growth" field.', "allow_growth was probably meant"),
        ('Protocol message ConfigProto has no "allow_growth" field.', "ConfigProto.gpu_options.allow_growth"),
        ('Protocol message GPUOptions has no "log_device_placement" field.', "belongs to ConfigProto"),
        ('Protocol message GPUOptions has no "zzz" field.', "GPUOptions has no field zzz"),
    ],
)
def test_a_field_that_does_not_exist_was_not_removed(message: str, says: str) -> None:
    run = program(f"ValueError: {message}", errors=(RunError(type="ValueError", message=message),), **FAILED)
    assert run.primary == "config.inconsistent"
    assert says in only(run, "config.inconsistent").title
    assert "api.removed" not in causes(run)


def test_a_method_that_the_programs_own_class_lacks_was_not_removed() -> None:
    message = "'Agent' object has no attribute 'reset_states'"
    run = program(message, errors=(RunError(type="AttributeError", message=message),), **FAILED)
    assert "api.removed" not in causes(run)


@pytest.mark.parametrize(
    ("error", "says", "does"),
    [
        (
            "AttributeError: module 'tensorflow' has no attribute 'to_float'",
            "uses tf.to_float,",
            "tf.compat.v1.to_float.",
        ),
        (
            "AttributeError: module 'tensorflow' has no attribute 'Session'",
            "uses tf.Session,",
            "disable_eager_execution",
        ),
        ("ModuleNotFoundError: No module named 'tensorflow.contrib'", "tensorflow.contrib", "tf-slim"),
        ("ModuleNotFoundError: No module named 'keras.engine.topology'", "keras.engine.topology", "tf-keras"),
        ("ValueError: Argument(s) not recognized: {'lr': 0.01}", "the argument lr of a Keras optimizer", "tf-keras"),
        (
            "TypeError: ProgbarLogger.__init__() got an unexpected keyword argument 'count_mode'",
            "the argument count_mode of ProgbarLogger",
            "tf-keras",
        ),
        ("TypeError: to_categorical() got an unexpected keyword argument 'dtype'", "to_categorical()", "tf-keras"),
        ("AttributeError: 'Mean' object has no attribute 'reset_states'", "reset_states() of a Keras", "tf-keras"),
        (
            "ValueError: Invalid filepath extension for saving. Please add either a `.keras` extension for the native"
            " Keras format (recommended) or a `.h5` extension.",
            "save() of a path without .keras",
            "tf-keras",
        ),
        (
            "ValueError: Only input tensors may be passed as positional arguments. The following argument value should"
            " be passed as a keyword argument: 2.0 (of type <class 'float'>)",
            "positional arguments of a layer",
            "tf-keras",
        ),
    ],
)
def test_a_removed_call_is_told_once_with_what_replaces_it(error: str, says: str, does: str) -> None:
    kind, _, message = error.partition(": ")
    run = program(error, errors=(RunError(type=kind, message=message),), **FAILED)
    assert run.primary == "api.removed"
    assert says in only(run, "api.removed").title
    assert does in only(run, "api.removed").action
    assert "program.error" not in causes(run), "which would advise to install a package"


def settings(name: str, asked: object, effective: object, note: str = "") -> dict[str, Setting]:
    return {name: Setting(asked=asked, effective=effective, note=note, source="train.py:7")}


@every(
    [
        (settings("memory growth", True, False), "config.too-late"),
        (settings("visible devices", ["GPU:1"], ["GPU:0", "GPU:1"]), "config.too-late"),
        (settings("memory_limit", 1024, []), "config.too-late"),
        (settings("logical devices", 2, 1), "config.too-late"),
        (settings("allow_growth", True, None, "too late: TensorFlow already has its devices"), "config.too-late"),
        (
            settings("memory growth", True, False, "overridden by TF_FORCE_GPU_ALLOW_GROWTH=false"),
            "config.inconsistent",
        ),
        (settings("memory growth", True, True, "overridden by TF_FORCE_GPU_ALLOW_GROWTH=true"), "healthy"),
        (settings("memory growth", True, True), "healthy"),
        (settings("visible devices", ["GPU:1", "GPU:0"], ["GPU:0", "GPU:1"]), "healthy"),
        (settings("memory_limit", 1024, None), "healthy"),  # its devices were never made
        (settings("jit_compile", True, False, "simulated GPUs have no XLA"), "healthy"),
        (settings("per_process_gpu_memory_fraction", 0.5, None, "granted: GPU:0 990 MiB"), "healthy"),
    ]
)
def test_a_setting_that_is_not_in_effect_is_a_finding_though_its_error_was_caught(
    given: dict[str, Setting], cause: str
) -> None:
    run = program(settings=given)
    assert [one for one in causes(run) if one != "idle.memory-held"] == [cause]
    if cause != "healthy":
        found = only(run, cause)
        assert found.severity == "warning"
        assert next(iter(given)) in found.title
        assert "train.py:7" in found.evidence[0]


def two_gpus(peak: int, **fields: object) -> Run:
    mapped = tuple(
        DeviceMapping(framework_device=f"GPU:{n}", uuid=f"GPU-{n}", physical_index=n, cuda_ordinal=n) for n in range(2)
    )
    holders = (Holding(pid=7, own=True, first_seconds=3.0, last_seconds=40.0),)
    held = tuple(DeviceMemory(uuid=f"GPU-{n}", index=n, process_bytes=20 * GIB, holders=holders) for n in range(2))
    memory = Memory(allocators={"GPU:0": 4000, "GPU:1": peak}, devices=held)
    return program(device_map=mapped, memory=memory, **fields)


def test_a_gpu_with_a_replica_of_a_small_model_is_used() -> None:
    replicas = {"replicas": {"devices": ["/device:GPU:0", "/device:GPU:1"]}}
    assert "idle.memory-held" not in causes(two_gpus(1000, results=replicas))
    assert "idle.memory-held" not in causes(two_gpus(0, results=replicas))
    assert "idle.memory-held" not in causes(two_gpus(300)), "a small op ran there"
    assert "used 1 of the 2 GPUs" in only(two_gpus(0), "idle.memory-held").title


HANDLE = "E0000 00:00:1.1 7 cuda_dnn.cc:466] Could not create cudnn handle: {}"
USAGE = "E0000 00:00:1.2 7 cuda_dnn.cc:470] Memory usage: {} bytes free, 4294967296 bytes total."


@pytest.mark.parametrize(
    ("status", "free", "cause"),
    [
        ("CUDNN_STATUS_NOT_INITIALIZED", 100 * MIB, "memory.masked"),
        ("CUDNN_STATUS_ALLOC_FAILED", 100 * MIB, "memory.masked"),
        ("CUDNN_STATUS_NOT_INITIALIZED", 1536 * MIB, "unknown"),
        ("CUDNN_STATUS_NOT_SUPPORTED", 100 * MIB, "unknown"),
        ("CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", 100 * MIB, "cuda.version-mismatch"),
    ],
)
def test_status_and_free_memory_decide_why_cudnn_does_not_start(status: str, free: int, cause: str) -> None:
    error = RunError(type="InvalidArgumentError", message="No DNN in stream executor. [Op:Conv2D]")
    log = "\n".join((HANDLE.format(status), USAGE.format(free), f"{error.type}: {error.message}"))
    run = program(log, errors=(error,), **FAILED)
    assert [one.id for one in run.findings if one.severity == "error"] == [cause]


def test_a_simulated_driver_without_nccl_lacks_no_library() -> None:
    error = RunError(type="InternalError", message="NCCL: Unable to load NCCL library.")
    for simulation, cause in ((None, "cuda.libraries-missing"), ("driver", "simulation.limit")):
        run = program(f"InternalError: {error.message}", simulation=simulation, errors=(error,), **FAILED)
        assert run.primary == cause


def test_settings_that_nobody_asked_for_are_not_told_as_asked() -> None:
    given = {"jit_compile": Setting(asked="auto", effective=False), "use_cudnn": Setting(asked="auto", effective=False)}
    assert settings_text(program(settings=given)) == "–"
    assert "jit_compile" in settings_text(program(settings={"jit_compile": Setting(asked=True, effective=False)}))


@pytest.mark.parametrize(
    ("peak", "in_use", "requested", "cause"),
    [
        (2000 * MIB, 1900 * MIB, 256 * MIB, "memory.model-too-large"),  # Adam's first step, at its highest ever
        (2200 * MIB, 1900 * MIB, 256 * MIB, "memory.fragmented"),  # as much was in use before
        (1200 * MIB, 1100 * MIB, 256 * MIB, "memory.fragmented"),  # there is ample room, in small blocks
        (None, 1900 * MIB, 256 * MIB, "memory.fragmented"),
    ],
)
def test_fragmented_is_only_what_would_fit(peak: int | None, in_use: int, requested: int, cause: str) -> None:
    failed = oom(limit_bytes=2160 * MIB, in_use_bytes=in_use, requested_bytes=requested, largest_free_bytes=200 * MIB)
    memory = Memory(allocators={} if peak is None else {"GPU:0": peak})
    run = program(
        ooms=(failed,), memory=memory, errors=(RunError(type="ResourceExhaustedError", message=""),), **FAILED
    )
    assert run.ooms[0].verdict == cause
    found = only(run, cause)
    assert ("needs next would fit" in " ".join(found.evidence)) == (peak == 2000 * MIB)


def test_host_memory_that_ran_out_below_tensorflows_limit_is_not_another_process_on_the_gpu() -> None:
    failed = oom(
        device="CPU:0", allocator="mklcpu", limit_bytes=23 * GIB, in_use_bytes=6 * GIB, requested_bytes=256 * MIB
    )
    run = program(ooms=(failed,), errors=(RunError(type="ResourceExhaustedError", message=""),), **FAILED)
    assert "memory.other-process" not in causes(run)
    assert "Out of host memory" in only(run, "memory.model-too-large").title


THREAD = (
    "F0000 00:00:1.3 7 env.cc:100] Check failed: ret == 0 (11 vs. 0)Thread tf_x creation via pthread_create() failed."
)


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("", RunError(type="RuntimeError", message="can't start new thread")),
        ("", RunError(type="ImportError", message="libx.so.2: failed to map segment from shared object")),
        (THREAD, None),
        ("terminate called after throwing an instance of 'std::bad_alloc'", None),
    ],
)
def test_what_a_limit_of_the_address_space_ends_is_no_bug_of_the_framework(log: str, error: RunError | None) -> None:
    near = {"address_limit_bytes": 4 * GIB}
    far = {"address_limit_bytes": 400 * GIB, "address_peak_bytes": 30 * GIB}
    outcome = {"verdict": "error", "outcome": Outcome(signal=6, ended=True)} if error is None else FAILED
    errors = (error,) if error is not None else ()
    text = log or f"{errors[0].type}: {errors[0].message}"
    for results, limited in ((near, True), (far, False), ({}, False)):
        (found,) = program(text, errors=errors, results=results, **outcome).findings
        assert ("ulimit -v" in found.title) == limited
        assert "bug in the framework" not in found.action
        assert "does not know" not in found.title


def still(second: int) -> MemoryPoint:
    return MemoryPoint(t=float(second), allocator_bytes=8000 * MIB)


def rising(*, steps: bool, memory: Memory | None = None, **more: object) -> Run:
    points = tuple(MemoryPoint(t=float(n), allocator_bytes=n * 400 * MIB) for n in range(1, 21))
    memory = memory or Memory(allocators={"GPU:0": 8000 * MIB}, timeline=points)
    failed = oom(requested_bytes=400 * MIB, in_use_bytes=8000 * MIB)
    times = (TimedStep(t=20.0, seconds=0.5, number=20),) if steps else ()
    error = RunError(type="ResourceExhaustedError", message="")
    return program(ooms=(failed,), memory=memory, errors=(error,), step_times=times, **FAILED, **more)


def test_a_model_that_is_built_layer_by_layer_keeps_no_tensors() -> None:
    kept = rising(steps=True)
    assert "probably keeps tensors" in only(kept, "memory.growing").title
    assert kept.ooms[0].verdict == kept.primary == "memory.growing"
    waited = msgspec.structs.replace(kept.memory, timeline=(*kept.memory.timeline, *map(still, range(21, 60))))
    assert only(rising(steps=True, memory=waited), "memory.growing"), "it ended long after its last step"
    limited = {"memory_limit": Setting(asked=8000, effective=8000)}
    assert only(rising(steps=True, settings=limited), "memory.growing"), "a larger limit would only postpone it"
    found = only(rising(steps=False), "memory.model-too-large")
    assert "keeps" not in found.title
    assert found.action.startswith("If memory grows with every")


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"memory_limit": Setting(asked=20480, effective=20480)}, "memory.limit-too-small"),
        ({"memory_limit": Setting(asked={"GPU:1": [512, 20480]})}, "memory.limit-too-small"),
        ({"memory_limit": Setting(asked=512, effective=512)}, "memory.model-too-large"),  # of another GPU
        ({"memory_limit": Setting(asked=20480, effective=[])}, "memory.model-too-large"),  # it came too late
        ({"TF_GPU_HOST_MEM_LIMIT_IN_MB": Setting(asked="4096")}, "memory.model-too-large"),
        ({"per_process_gpu_memory_fraction": Setting(asked=0.5)}, "memory.limit-too-small"),
        ({"per_process_gpu_memory_fraction": Setting(asked=0.5, note="too late: …")}, "memory.model-too-large"),
    ],
)
def test_only_a_limit_of_this_gpu_that_is_in_effect_is_too_small(given: dict[str, Setting], cause: str) -> None:
    failed = oom(limit_bytes=20 * GIB, in_use_bytes=20 * GIB, requested_bytes=GIB)
    held = DeviceMemory(uuid="GPU-0", index=0, total_bytes=24 * GIB, others_start_bytes=0, others_peak_bytes=0)
    run = program(
        ooms=(failed,),
        settings=given,
        memory=Memory(devices=(held,)),
        device_map=(DeviceMapping(framework_device="GPU:0", uuid="GPU-0", physical_index=0),),
        errors=(RunError(type="ResourceExhaustedError", message=""),),
        **FAILED,
    )
    assert run.ooms[0].verdict == cause


def test_a_variable_that_tensorflow_reads_is_not_misspelt() -> None:
    real = ("TF_CPP_MIN_VLOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL", "TF_ENABLE_ZENDNN_OPTS", "NVIDIA_VISIBLE_DEVICES")
    assert [name for name in real if known_variable_meant(name)] == []
    assert known_variable_meant("TF_CPP_MIN_LOG_LEVL") == "TF_CPP_MIN_LOG_LEVEL"


def test_an_abort_that_the_program_calls_is_no_failed_check() -> None:
    (found,) = program(verdict="error", outcome=Outcome(signal=6, ended=True)).findings
    assert "or it called abort()" in found.title


def allocated_at_the_start(**of_gpu: object) -> Memory:
    return Memory(
        allocator_peak_bytes=MIB,
        allocator_limit_bytes=20 * GIB,
        nvml_peak_bytes=22 * GIB,
        device_total_bytes=24 * GIB,
        device_uuid="GPU-0",
        devices=(DeviceMemory(uuid="GPU-0", index=0, total_bytes=24 * GIB, **of_gpu),),  # type: ignore[arg-type]
    )


def test_what_tensorflow_allocates_is_told_where_somebody_may_want_it() -> None:
    def held(seconds: float) -> tuple[Holding, ...]:
        return (Holding(pid=7, own=True, first_seconds=3.0, last_seconds=3.0 + seconds),)

    for of_gpu, told in (
        ({"others_peak_bytes": 2 * GIB, "holders": held(5)}, True),
        ({"others_peak_bytes": 8 * MIB, "holders": held(5)}, False),
        ({"holders": held(500)}, True),
        ({}, False),
    ):
        run = program(memory=allocated_at_the_start(**of_gpu))
        assert ("idle.memory-held" in causes(run)) == told


def test_who_allocated_nearly_the_whole_gpu_is_named_only_if_known() -> None:
    memory = allocated_at_the_start(others_peak_bytes=2 * GIB)
    for name, title in (("tensorflow", "TensorFlow allocated"), ("jax", "The program allocated")):
        found = only(program(memory=memory, framework=Framework(name=name)), "idle.memory-held")
        assert found.title.startswith(title)
        assert ("TF_FORCE_GPU_ALLOW_GROWTH" in found.action) == (name == "tensorflow")


def test_a_program_that_hides_the_gpus_and_fails_otherwise() -> None:
    error = RunError(
        type="AttributeError", message="module 'tensorflow._api.v2.compat.v1' has no attribute 'estimator'"
    )
    fields = {"environment": {"CUDA_VISIBLE_DEVICES": ""}, "errors": (error,), **FAILED}
    by_itself = settings("CUDA_VISIBLE_DEVICES", "", None)
    run = program(f"{error.type}: {error.message}", settings=by_itself, **fields)
    assert run.primary == "api.removed"
    hidden = only(run, "visibility.hidden")
    assert hidden.severity == "info"
    assert "train.py:7 sets CUDA_" in hidden.title
    by_the_shell = only(program(f"{error.type}: {error.message}", **fields), "visibility.hidden")
    assert by_the_shell.severity == "error"
    assert "the shell, a job script" in by_the_shell.action


def test_ops_on_the_cpu_within_each_call_of_a_function() -> None:
    words = {"StringLower": [1, "train.py:4"], "LookupTableFindV2": [1, "train.py:4"]}
    for calls, ops, does in (
        (24, words, "dataset.map"),
        (24, {"Eig": [1, ""]}, "regardless of its type"),
        (2, words, ""),
    ):
        found = program(devices=GPU_0, results={"cpu_hops": [["step", calls, ops]]}).findings
        told = [one for one in found if one.title.startswith("Each of the 24 calls of step goes to the CPU for")]
        assert bool(told) == bool(does)
        assert not told or (does in told[0].action and told[0].severity == "info")


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("module 'keras.backend' has no attribute 'convert_to_numpy'", "warning"),
        ("No JIT device registered for GPU", "error"),
    ],
)
def test_xla_that_is_not_simulated_is_an_error_if_it_ended_the_program(message: str, severity: str) -> None:
    limits = ("simulated GPUs have no XLA: jit_compile=True is not honored, Keras does not compile the model",)
    error = RunError(type="InvalidArgumentError", message=message)
    run = program(devices=GPU_0, errors=(error,), simulation="plugin", simulation_limits=limits, **FAILED)
    assert only(run, "simulation.limit").severity == severity


def test_a_gpu_that_does_not_exist_is_named() -> None:
    asked = Placement(op="MatMul", requested="/device:GPU:3", scope="train.py:4", why="missing", actual="")
    found = only(program(devices=GPU_0, placements=(asked,)), "placement.device-missing")
    assert (found.severity, found.title[:5]) == ("warning", "GPU:3")
    message = (
        "Could not satisfy device specification '/job:localhost/replica:0/task:0/device:GPU:5'."
        " enable_soft_placement=0. All available devices [/job:localhost/replica:0/task:0/device:GPU:0, /device:CPU:0]."
    )
    error = RunError(type="InvalidArgumentError", message=message)
    found = only(program(devices=GPU_0, errors=(error,), **FAILED), "placement.device-missing")
    assert found.title.endswith(" has GPU:0, CPU:0")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("CPU:0", "(a.py:2 requests CPU:0: nothing to do if that is intended)"),
        ("GPU:1", "(a.py:2 requests GPU:1)"),
        (None, "change the line that creates that."),
    ],
)
def test_advice_on_what_is_kept_where_its_variable_is_says_what_was_requested_for_that(
    asked: str | None, said: str
) -> None:
    used = replace(placed("ResourceGather", "float32", gpu=True, cuda=True), why="resource", scope="a.py:9")
    maker = replace(used, op="VarHandleOp", requested=asked, scope="a.py:2", why="")
    run = program(devices=GPU_0, placements=(used, maker))
    assert said in only(run, "placement.together").action


def test_a_device_type_that_tensorflow_does_not_have() -> None:
    """TF1 graphs take any; a GPU of any number is where it was requested, on whichever GPU it is."""
    placements = tuple(
        Placement(op=op, dtype="float32", requested=asked, scope="a.py:2", actual="GPU:1")
        for op, asked in (("MatMul", "CUDA:0"), ("Tanh", "/device:NVIDIA:0"), ("Relu", "GPU:*"))
    )
    run = program(devices=GPU_0, placements=placements)
    assert [(entry.op, entry.requested) for entry in run.fallbacks] == [("MatMul", "CUDA:0"), ("Tanh", "NVIDIA:0")]
    assert "no device type CUDA" in only(run, "placement.device-missing").title
    assert device_name("/device:GPU:*") == "GPU:*"


def test_an_invalid_entry_that_leaves_a_gpu_does_not_say_that_all_ran_on_the_cpu() -> None:
    moved = Placement(op="MatMul", dtype="float32", requested="GPU:1", scope="a.py:2", actual="GPU:0")
    run = program(devices=GPU_0, placements=(moved,), environment={"CUDA_VISIBLE_DEVICES": "0,7"})
    assert (run.verdict, run.primary) == ("fallback", "visibility.bad-ordinal")
    assert "on GPU:0 instead of GPU:1" in run.verdict_reason
    none = {"devices": Devices(logical=("/device:CPU:0",)), "environment": {"CUDA_VISIBLE_DEVICES": "7,0"}}
    on_cpu = program(placements=(replace(moved, actual="CPU:0"),), **none)
    assert on_cpu.verdict_reason.startswith("All of it ran on the CPU")


def test_a_setting_that_never_came_into_effect_says_what_helps() -> None:
    note = "not in effect: the session of a.py:9 was made without this ConfigProto"
    notes = {
        "allow_growth": (note, "config=config"),
        "mixed precision": ("not in effect: no layer", "layers are created"),
    }
    for name, (why, helps) in notes.items():
        run = program(devices=GPU_0, settings={name: Setting(asked=True, note=why)})
        found = only(run, "config.inconsistent")
        assert (run.verdict, found.title) == ("ok", f"Not in effect: {name}")
        assert helps in found.action
        assert found.evidence == (f"{name}: True was requested; {why}",)


def test_where_a_missing_gpus_op_ran_is_told_once() -> None:
    """A session's first run may not have the op that a later one places."""
    unseen = Placement(op="MatMul", requested="/device:GPU:3", scope="a.py:4", why="missing", actual="")
    run = program(devices=GPU_0, placements=(unseen, replace(unseen, dtype="float32", why="", actual="GPU:0")))
    assert only(run, "placement.device-missing").evidence == (
        "a.py:4: MatMul float32 requested GPU:3, ran on GPU:0: the framework has GPU:0 only",
    )


def test_a_pool_that_lost_a_process_is_told_with_that_process() -> None:
    log = "\n".join(
        (
            "Traceback (most recent call last):",
            '  File "/a/train.py", line 9, in <module>',
            "    k = f.result()",
            "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly.",
        )
    )
    child = KilledChild(pid=7, signal=9, started_by="multiprocessing", command="train.py", framework=True)
    run = program(log, killed_children=(child,), **FAILED)
    (found,) = run.findings
    assert "process 7 was ended by SIGKILL" in found.title
    assert found.evidence[:2] == (
        "BrokenProcessPool: A process in the process pool was terminated abruptly.",
        "raised at /a/train.py, line 9: k = f.result()",
    )
    assert "torchrun" not in found.action
    assert "error is not in this log" in program(log, **FAILED).findings[0].title


def test_a_process_whose_parent_names_a_gpu_that_does_not_exist() -> None:
    mapped = (DeviceMapping(framework_device="GPU:0", uuid="GPU-0", physical_index=0),)
    for value, told in (("5", True), ("-1", False), ("", False), ("1", False)):
        other = RunProcess(pid=8, environment={"CUDA_VISIBLE_DEVICES": value})
        first = RunProcess(pid=7, environment={"CUDA_VISIBLE_DEVICES": "0"}, device_map=mapped)
        run = program(processes=(first, other), device_map=mapped, environment={"CUDA_VISIBLE_DEVICES": "0"})
        found = [one.title for one in run.findings if one.id == "visibility.bad-ordinal"]
        assert found == ["CUDA_VISIBLE_DEVICES=5 of process 8 names no GPU in this machine"] * told
