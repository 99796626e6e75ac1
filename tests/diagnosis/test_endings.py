"""Failures that have no cause id of their own, told by what they are."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain
from tests.every import every

_TRACE = 'Traceback (most recent call last):\n  File "a.py", line 3, in <module>\n    x = work()\n'
_SHELL = "/var/spool/slurmd/job1/slurm_script: line 12: 21345 Killed                  python train.py"


@every(
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", "host's memory (RAM)", "--mem"),
        (_TRACE + "MemoryError", "host's memory (RAM)", "less data"),
        (_TRACE + "OSError: [Errno 12] Cannot allocate memory", "host's memory (RAM)", "less data"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "host's memory (RAM)", "less data"),
        ("Epoch 1/5\nKilled", "SIGKILL", "dmesg"),
        ("Epoch 1/5\n" + _SHELL, "SIGKILL", "dmesg"),
        ("RuntimeError: Unexpected bus error: insufficient shared memory (shm)", "shared memory", "--shm-size"),
        ("2026-05-04 10:11:12.1: F external/x/parse_flags_from_env.cc:226] Unknown flag in XLA_FLAGS: --foo",
         "XLA_FLAGS", "unset it"),
        (_TRACE + "OSError: [Errno 28] No space left on device: '/ckpt/1.pt'", "disk is full", "df -h"),
        (_TRACE + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /ckpt/x.tempstate; No space left on"
         " device [Op:SaveV2]", "disk is full", "df -i"),
        (_TRACE + "RuntimeError: unable to write to file </torch_4_9_0>: No space left on device (28)",
         "shared memory", "--shm-size"),
        (_TRACE + "OSError: [Errno 28] No space left on device: '/dev/shm/x'", "shared memory", "--shm-size"),
        (_TRACE + "OSError: [Errno 122] Disk quota exceeded: '/home/u/.cache'", "quota", "quota -s"),
        (_TRACE + "OSError: [Errno 24] Too many open files: 'a.png'", "too many files open", "ulimit -n"),
        (_TRACE + "OSError: [Errno 28] Aucun espace disponible sur le p\u00e9riph\u00e9rique", "disk is full", "df -h"),
        (_TRACE + "OSError: [Errno 28] Auf dem Ger\u00e4t ist kein Platz: '/dev/shm/x'", "shared memory", "--shm-size"),
        (_TRACE + "OSError: [Errno 24] Zu viele offene Dateien: 'a.png'", "too many files open", "ulimit -n"),
        (_TRACE + "OSError: [Errno 12] No se pudo asignar memoria", "host's memory (RAM)", "less data"),
        (_TRACE + "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler. Please specify via CC"
         " environment variable", "compiler is missing", "build-essential"),
        (_TRACE + "torch._inductor.exc.InductorError: InvalidCxxCompiler: No working C++ compiler found in"
         " torch._inductor.config.cpp.cxx: (None, 'g++')", "compiler is missing", "build-essential"),
        (_TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'g++'", "compiler is missing", "CXX"),
        (_TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
         "nvcc", "CUDA_HOME"),
        (_TRACE + "RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)",
         "ninja is missing", "pip install ninja"),
        (_TRACE + "RuntimeError: The server socket has failed to listen on any local network address. The server socket"
         " has failed to bind to [::]:29500 (errno: 98 - Address already in use).", "port is in use", "--master-port"),
        (_TRACE + "OSError: [Errno 98] Die Adresse wird bereits verwendet", "port is in use", "ss -ltnp"),
        ("ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\nLast error:\nDuplicate GPU detected :"
         " rank 1 and rank 0 both on CUDA device 1000", "same GPU", "LOCAL_RANK"),
        ("'CUDA_VISIBLE_DEVICES' n'est pas reconnu en tant que commande interne", "The shell treated", "Windows"),
        (_TRACE + "RuntimeError: Error compiling objects for extension", "compiler failed", "Python.h"),
        ("error: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'", "nvcc", "prebuilt wheel"),
        ("error: Microsoft Visual C++ 14.0 or greater is required.", "compiler is missing", "Build Tools"),
        ("error: command '/usr/bin/gcc' failed with exit code 1", "compiler failed", "Python.h"),
        ("error: command 'x86_64-linux-gnu-g++' failed: No such file or directory", "compiler is missing", "CXX"),
        (_TRACE + "ValueError: Cluster spec must be non-empty in `tf.distribute.cluster_resolver.ClusterResolver`.",
         "has no cluster", "TF_CONFIG"),
        (_TRACE + "ValueError: There must be at least one ps.", "has no cluster", "MirroredStrategy"),
        (_TRACE + "ValueError: The `task_id` 3 exceeds the maximum id of worker.", "not in the strategy's cluster",
         "TF_CONFIG"),
        (_TRACE + "ValueError: To use this dataset, you need to pass this dataset to"
         " ClusterCoordinator.create_per_worker_dataset.", "as fit() in Keras 3 does", "tf_keras"),
        (_TRACE + "RuntimeError: odd", "ended in RuntimeError: odd", "that line"),
        ("&&&& RUNNING TensorRT.trtexec\n[E] Error[4]: [a.cpp::f::1] Error Code 4: Internal Error (Conv_7: kernel"
         " weights are empty)\n[E] Engine set up failed\n&&&& FAILED TensorRT.trtexec [TensorRT v8601]",
         "engine: Conv_7: kernel weights are empty", "names the layer"),
        ("c10::Error\nframe #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<long>) + 0x1d2 (0x7f)",
         "waited for one that never arrived",
         "stopped first"),
        ("NCCL WARN [1] ncclRemoteError: A call failed\n" + _TRACE + "RuntimeError: The server socket has failed to"
         " bind to [::]:7 (errno: 98 - Address already in use).", "port is in use", "--master-port"),
        ("shard-manager: Shard process was signaled to shutdown with signal 11 rank=1", "SIGSEGV",
         "faulthandler"),
        (_TRACE + "RuntimeError: Triton Error [CUDA]: device kernel image is invalid", "Triton's CUDA is newer",
         "PTXAS"),
    ],
)  # fmt: skip
def test_what_ended_it(text: str, title: str, action: str) -> None:
    explained = explain(text.split("\n"))
    assert [(found.id, found.severity) for found in explained.findings] == [("unknown", "error")]
    assert title in explained.findings[0].title
    assert action in explained.findings[0].action
    last = text.split("\n")[-1]
    for module in ("tensorflow.python.framework.errors_impl.", "torch._inductor.exc."):
        last = last.removeprefix(module)
    assert last in explained.findings[0].evidence


def test_a_full_disk_that_was_handled_is_not_what_ended_it() -> None:
    text = "OSError: [Errno 28] No space left on device: '/ckpt/1.pt'\nsaved elsewhere\n" + _TRACE + "ValueError: bad"
    assert explain(text.split("\n")).findings[0].title.startswith("It ended in ValueError")


_FAULT = "n1:7:9 [0] NCCL WARN Cuda failure 'uncorrectable ECC error encountered'"


@pytest.mark.parametrize(
    ("fault", "after", "severity", "note"),
    [
        (_FAULT, [], "error", ""),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered",
         [f"step {i} loss {i / 7:.4f}" for i in range(100, 140)], "info", "(the program continued after it)"),
        (_FAULT.replace("NCCL WARN", "WARNING:"), [], "info", "(only a warning)"),
    ],
)  # fmt: skip
def test_nobody_goes_on_after_what_only_a_traceback_follows(
    fault: str, after: list[str], severity: str, note: str
) -> None:
    """NCCL's WARN is the level of its errors, and a traceback that says nothing is no proof of work."""
    steps = [f"step {i} loss {i / 7:.4f}" for i in range(10)]
    lines = [*steps, fault, *after, *_TRACE.rstrip("\n").split("\n"), "SystemError: worker stopped"]
    (found,) = [one for one in explain(lines).findings if one.id == "hardware.fault"]
    assert found.severity == severity
    assert found.title == f"The GPU reports a hardware fault {note}".rstrip()


def test_a_compiler_that_was_missed_and_done_without() -> None:
    missed = ["RuntimeError: Failed to find C compiler. Please specify via CC environment variable."]
    steps = [f"step {i}: loss {i / 7:.4f}" for i in range(40)]
    assert [one.severity for one in explain([*missed, *steps]).findings] == ["info"]
    found = explain([*missed, *steps, *_TRACE.split("\n"), "ValueError: bad"]).findings[0]
    assert found.title.startswith("It ended in ValueError")


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/acc'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'gcc.txt'",
        "error: [Errno 2] No such file or directory: 'README.md'",
        "error: command 'cmake' failed with exit code 1",
    ],
)
def test_a_file_that_is_no_compiler(line: str) -> None:
    assert "compiler" not in explain([*_TRACE.split("\n")[:3], line]).findings[0].title


def test_the_compilers_own_message_is_evidence() -> None:
    said = "/tmp/a/main.c:3:10: fatal error: Python.h: No such file or directory"
    call = "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/a/main.c']' returned non-zero exit status 1."
    found = explain([said, *_TRACE.split("\n")[:3], call]).findings[0]
    assert "header Python.h" in found.title
    assert "compiler failed" in explain([*_TRACE.split("\n")[:3], call]).findings[0].title
    other = explain([*_TRACE.split("\n")[:3], call.replace("/usr/bin/gcc", "/usr/bin/python")]).findings[0]
    assert "process of the job failed" in other.title


_GLOO = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]:28048"
_NCCL = "torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:1275, "


@pytest.mark.parametrize(
    "text",
    [
        _TRACE + _GLOO,
        _TRACE + _GLOO.replace("closed by peer [10.0.0.7]:28048", "reset by peer"),
        "\n".join(f"[rank0]: {line}" for line in (_TRACE + _GLOO).split("\n")),
        _TRACE + _NCCL + "internal error, NCCL version 2.14.3\nncclInternalError: Internal check failed.\nLast error:\n"
        "Net : Connection closed by remote peer node7<50260>",
        _TRACE + _NCCL + "remote process exited or there was a network error, NCCL version 2.27.3\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        _TRACE + "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId"
        " from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer",
        _TRACE + "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down. This was caused by an"
        " exception on one of the ranks or an attempt to allreduce after one of the ranks finished execution.",
        _TRACE + "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to"
        " connect to all addresses",
    ],
)  # fmt: skip
def test_a_rank_that_lost_another(text: str) -> None:
    found = explain(text.split("\n")).findings[0]
    assert (found.id, found.severity) == ("unknown", "error")
    assert "another rank was lost" in found.title
    assert "other rank's own log" in found.action
    own = explain([*_TRACE.split("\n"), "ValueError: bad", *text.split("\n")]).findings[0]
    assert (own.certainty, own.evidence[0]) == ("likely", "ValueError: bad")
    assert "Another rank failed first" in own.title
    killed = explain([*text.split("\n"), "srun: error: n7: task 3: Killed"]).findings[0]
    assert "SIGKILL" in killed.title


def test_the_rank_that_others_waited_for() -> None:
    waited = "[rank0]:[E504 10:21:12.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout:"
    waited += " WorkNCCL(SeqNum=812, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600017 milliseconds"
    assert "never arrived" in explain([waited]).findings[0].title
    own = [f"[rank2]: {line}" for line in (*_TRACE.split("\n")[:3], "ValueError: bad")]
    found = explain([*own, waited]).findings[0]
    assert "ValueError" in found.title


@pytest.mark.parametrize("error", ["ValueError: bad", "FileExistsError: [Errno 17] File exists: '/wandb/run-1.wandb'"])
@pytest.mark.parametrize(
    ("between", "explains"),
    [
        (["2026-06-13 20:55:01,100 INFO trainer: saving"], True),
        (["2026-06-14 02:07:50,931 INFO trainer: saving"], False),
        (["[rank2]:[W614 02:07:50.931850750 Utils.hpp:111] Warning: deprecated"], True),  # may be another time zone
        ([f"2026-06-13 20:12:31,100 INFO trainer: step {step} loss 0.1" for step in range(4)], True),
        ([f"2026-06-13 20:12:31,100 INFO trainer: step {step} loss 0.1" for step in range(20)], False),
    ],
)
def test_an_error_long_before_explains_no_later_end(error: str, between: list[str], explains: bool) -> None:
    failed = ["2026-06-13 20:12:25,165 INFO trainer: loading", *_TRACE.split("\n")[:3], error]
    text = [*failed, *["rank 0 is saving"] * 60, *between]
    lost = (_TRACE + _NCCL + "remote process exited or there was a network error").split("\n")
    title = explain([*text, *lost]).findings[0].title
    assert (error.partition(":")[0] in title) == explains, title
    assert ("another rank was lost" in title) == (not explains)


def test_libraries_that_fail_after_a_kernels_assertion() -> None:
    failed = "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    kernel = "Loss.cu:250: nll_loss: block: [0,0,0], thread: [7,0,0] Assertion `t >= 0 && t < n_classes` failed."
    assert explain([*_TRACE.split("\n")[:3], failed]).primary == "memory.masked"
    found = explain([kernel, *_TRACE.split("\n")[:3], failed]).findings
    assert [(one.id, one.severity) for one in found] == [("unknown", "error")]
    assert "stopped at an assertion" in found[0].title


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (_TRACE + _NCCL + "internal error, NCCL version 2.14.3", "NCCL failed"),
        (_TRACE + _NCCL + "unhandled system error, NCCL version 2.14.3\n" + _GLOO, "NCCL failed"),
        (_TRACE + "ConnectionResetError: [Errno 104] Connection reset by peer", "It ended in ConnectionResetError"),
        (_TRACE + _GLOO.replace("pair.cc:598] Connection closed by peer [10.0.0.7]:28048", "unbound_buffer.cc:81] Timed"
                                " out waiting 1800000ms for recv operation to complete"), "Ranks of a job waited"),
    ],
)  # fmt: skip
def test_what_is_no_lost_rank(text: str, title: str) -> None:
    assert explain(text.split("\n")).findings[0].title.startswith(title)


def test_what_only_looks_like_one() -> None:
    found = explain(["Killed workers so far: 0"])
    assert found.primary in ("healthy", "unknown")
    assert [entry.severity for entry in found.findings] == ["info"]


def test_a_reason_that_was_reported_comes_before_one_that_is_inferred() -> None:
    """A cuDNN of the wrong version is also "not found"."""
    text = (
        "E cuda_dnn.cc:417] Loaded runtime CuDNN library: 8.2.4 but source was compiled with: 8.6.0.\n"
        "tensorflow.python.framework.errors_impl.UnimplementedError: DNN library is not found."
    )
    assert explain(text.split("\n")).primary == "cuda.version-mismatch"


_AT_LINE_3 = "a.py, line 3: x = work()"


def test_a_message_that_begins_on_a_later_line() -> None:
    found = explain([*_TRACE.split("\n")[:3], "RuntimeError: ", "", "  the weights are of another model", ""])
    assert found.findings[0].evidence == ("RuntimeError: the weights are of another model", f"raised at {_AT_LINE_3}")
    bare = explain([*_TRACE.split("\n")[:3], "AssertionError", "bye"]).findings[0]
    assert bare.evidence == ("AssertionError", f"raised at {_AT_LINE_3}")


_OLD = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."


@pytest.mark.parametrize(
    ("error", "own"),
    [
        ("KeyError: 'label'", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/data/cuda/a.csv'", True),
        ("IndexError: list index out of range", True),
        ("ImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory", True),
        ("KeyboardInterrupt", True),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'", False),
        ("KeyError: 'cuda:0'", False),
        ("RuntimeError: Engine core initialization failed. See root cause above.", False),
    ],
)
def test_a_warning_about_the_gpu_never_outranks_an_error_of_the_programs_own(error: str, own: bool) -> None:
    found = explain([_OLD, "epoch 1 loss 0.3", *_TRACE.split("\n")[:3], error])
    assert (found.primary != "driver.too-old") is own
    told = {one.id: one.severity for one in found.findings}
    assert told["driver.too-old"] == ("info" if own else "error")
    assert any(error in one.evidence for one in found.findings) is own


@pytest.mark.parametrize(
    "told", ["ProcessGroupNCCL is only supported with GPUs, no GPUs found!", "CUDA available: False"]
)
def test_a_missing_gpu_whose_reason_is_in_the_log(told: str) -> None:
    group = "ValueError: Default process group has not been initialized, please make sure to call init_process_group."
    assert explain([_OLD, told, *_TRACE.split("\n")[:3], group]).primary == "driver.too-old"
    own = explain([_OLD, told, *_TRACE.split("\n")[:3], "KeyError: 'label'"])
    assert own.primary != "driver.too-old"
    assert {one.severity for one in own.findings if one.id == "driver.too-old"} == {"warning"}
    assert not any("does not say why" in one.title or "went on" in one.title for one in own.findings)


def test_gpus_that_are_asked_for_where_there_are_none() -> None:
    asked = "pytorch_lightning.utilities.exceptions.MisconfigurationException: You requested GPUs: [0]"
    for has, title in (("[]", "the process sees none"), ("[0]", "strategy")):
        found = explain([*_TRACE.split("\n")[:3], asked, f" But your machine only has: {has}"]).findings[0]
        assert found.id == "distribution.devices-missing"
        assert title in found.title


def test_a_file_that_is_no_engine() -> None:
    magic = "Serialization assertion plan->header.magicTag == rt::kPLAN_MAGIC_TAG failed."
    tag = "Serialization assertion stdVersionRead == serializationVersion failed.Version tag does not match."
    for said, title in ((magic, "or it is not an engine"), (tag, "built with another TensorRT version")):
        found = explain(["[I] start", f"[E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization ({said})"])
        assert title in found.findings[0].title


def test_an_index_into_a_list_of_gpus_follows_from_the_warning() -> None:
    head, frame, _ = _TRACE.split("\n")[:3]
    found = explain(
        [_OLD, head, frame, "    gpu = tf.config.list_physical_devices('GPU')[0]", "IndexError: out of range"]
    )
    assert found.primary == "driver.too-old"


_WARNED = [
    ["/env/torchaudio/_ext.py:12: UserWarning: libtorchaudio_ffmpeg.so: undefined symbol: _ZNK5torch8autograd4Node"],
    [
        "/env/torch/cuda/__init__.py:235: UserWarning:",
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
        "The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.",
    ],
    [
        "2023-03-01 10:00:00.1: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic"
        " library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object file",
    ],
]


@pytest.mark.parametrize("warned", _WARNED)
@pytest.mark.parametrize("end", [[*_TRACE.split("\n")[:3], "TypeError: float() argument must be a string"], ["Killed"]])
def test_what_ended_the_program_outranks_its_warnings(warned: list[str], end: list[str]) -> None:
    found = explain([*warned, "epoch 1 loss 0.3", *end]).findings[0]
    assert (found.severity, found.evidence[0]) == ("error", end[-1])


@pytest.mark.parametrize("warned", _WARNED[1:])
def test_a_program_that_worked_without_a_gpu(warned: list[str]) -> None:
    found = explain([*warned, "epoch 1 loss 0.3", "epoch 2 loss 0.2", "Training finished"])
    assert found.findings[0].severity != "error"


def test_a_file_that_an_earlier_failure_did_not_write() -> None:
    trace = _TRACE.split("\n")[:3]
    gpu = "RuntimeError: CUDA error: unknown error"
    found = explain([*trace, gpu, *trace, "FileNotFoundError: [Errno 2] No such file or directory: 'a.png'"])
    assert [one.id for one in found.findings] == ["driver.bad-state"]


@pytest.mark.parametrize(("error", "title"), [("KeyError: 'label'", "It ended in KeyError"), ("", "The host's memory")])
def test_another_program_that_the_kernel_killed(error: str, title: str) -> None:
    kernel = "Nov 22 10:11:12 n1 kernel: Out of memory: Killed process 999 (chrome) total-vm:9kB"
    found = explain([kernel, *(_TRACE.split("\n")[:3] if error else []), error]).findings[0]
    assert found.title.startswith(title)
    assert any("Out of memory" in line for line in found.evidence)


def test_setting_a_variable_in_python_is_no_command() -> None:
    found = explain(["os.environ['CUDA_VISIBLE_DEVICES'] = '-1'", "epoch 1 loss 0.2"])
    assert "shell" not in found.findings[0].title


def test_a_tensor_of_a_gpu_that_jax_has_no_backend_for() -> None:
    assert (
        explain(
            [_TRACE + "XlaRuntimeError: INVALID_ARGUMENT: a tensor is on GPU, but no GPU backend was provided."]
        ).primary
        == "build.cpu-only"
    )


@pytest.mark.parametrize(("backend", "cause"), [("cuda", "build.cpu-only"), ("rocm", "healthy")])
def test_a_backend_of_jax_that_is_not_the_gpus(backend: str, cause: str) -> None:
    reason = "module 'jaxlib.xla_extension' has no attribute 'GpuAllocatorConfig'"
    lines = [f"INFO:jax._src.xla_bridge:Unable to initialize backend '{backend}': {reason}", "epoch 1 loss 0.2"]
    assert explain(lines).primary == cause
