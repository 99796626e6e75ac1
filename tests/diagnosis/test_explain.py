"""A log by itself, as ``gpuwatch explain`` tells it."""

from __future__ import annotations

import json

import msgspec
import pytest

from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.explain.diagnosis.explain_log import explain, findings_so_far
from gpuwatch.explain.logs.log_parser import LogParser
from gpuwatch.explain.logs.python_exceptions import essential_line
from tests.every import every
from tests.logs.logs import MIB, NAMES, text


def of(name: str) -> Explanation:
    return explain(text(name).splitlines(keepends=True))


def test_an_oom_is_explained_with_its_numbers_and_its_cause() -> None:
    found = of("stub_tf221_gpu_bfc_oom")
    assert found.frameworks == ("tensorflow",)
    assert [(oom.requested_bytes, oom.verdict) for oom in found.ooms] == [(400 * MIB, "memory.request-too-large")]
    assert found.primary == "memory.request-too-large"
    assert "400 MiB > limit of 256 MiB" in " ".join(found.findings[0].evidence)


def test_soft_placement_tells_its_request_in_the_colocation_report() -> None:
    found = of("stub_tf221_int32_soft_fallback")
    assert {(f.op, f.requested, f.actual, f.reason) for f in found.fallbacks} == {
        ("VariableV2", "GPU:0", "CPU:0", "placement.no-kernel"),
        ("Assign", "GPU:0", "CPU:0", "placement.no-kernel"),
        ("Identity", "GPU:0", "CPU:0", "placement.no-kernel"),
    }


def test_a_refusal_is_no_fallback() -> None:
    assert of("stub_tf221_int32_hard_no_kernel").fallbacks == ()


@every(NAMES)
def test_every_explanation_is_one_document(name: str) -> None:
    found = of(name)
    document = json.loads(to_json(found))
    assert document["schema"] == "gpuwatch.explanation/1"
    assert msgspec.convert(document, Explanation) == found
    assert found.primary is not None


def test_nothing_is_explained_as_nothing() -> None:
    found = explain([])
    assert (found.lines, found.primary, found.ooms, found.device_map) == (0, "unknown", (), ())


_TORCH = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 15.90 GiB total capacity;"
    " 12.76 GiB already allocated; 11.88 MiB free; 14.99 GiB {})"
)


@pytest.mark.parametrize("reserved", ["reserved in total by PyTorch", "cached"])
def test_pytorchs_fragmentation_gets_pytorchs_remedy(reserved: str) -> None:
    (found,) = explain([_TORCH.format(reserved)]).findings
    assert (found.id, found.certainty) == ("memory.fragmented", "likely")
    assert "expandable_segments" in (found.action or "")
    assert "TF_GPU_ALLOCATOR" not in (found.action or "")
    assert "20.0 MiB ≤ 2.2 GiB reserved" in " ".join(found.evidence)


def test_pytorchs_capacity_is_no_limit_and_its_free_is_what_it_says() -> None:
    found = explain(
        [
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            "23.68 GiB of which 512.00 MiB is free. Process 4321 has 20.00 GiB memory in use. Of the allocated memory "
            "2.50 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
        ]
    )
    assert found.primary == "memory.other-process"
    assert "4321" in (found.findings[0].action or "")
    told = " ".join(found.findings[0].evidence)
    assert "2.0 GiB > 512 MiB free" in told
    assert "below the limit" not in told
    assert (found.ooms[0].limit_bytes, found.ooms[0].free_bytes) == (None, 512 * MIB)


_CREATED = (
    "2026-05-04 10:11:12.131415: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1635] Created device"
    " /job:localhost/replica:0/task:0/device:GPU:{0} with {1} MB memory:  -> device: {0}, name: A Card, pci bus id:"
    " 0000:0{0}:00.0, compute capability: 8.6"
)
_REFUSED = (
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
    " shape[{},100000] and type float on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc [Op:Mul]"
)


def test_the_limit_of_a_request_is_that_of_the_devices_creation() -> None:
    """No dump of the allocator tells it where only the exception was kept."""
    created = [_CREATED.format(0, 44000), _CREATED.format(1, 22000)]
    found = explain([*created, _REFUSED.format(100000)])
    assert found.primary == "memory.request-too-large"
    assert found.ooms[0].limit_bytes == 22000 * MIB
    assert "37.3 GiB > limit of 21.5 GiB" in " ".join(found.findings[0].evidence)
    # One that an empty allocator could have held says nothing of who held the rest.
    assert explain([*created, _REFUSED.format(10000)]).primary == "memory.model-too-large"


_START = (
    "2026-05-04 10:11:12.131415: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is"
    " optimized to use available CPU instructions in performance-critical operations."
)
_MAPPED = (
    "2026-05-04 10:11:12.131415: I tensorflow/core/common_runtime/gpu/gpu_device.cc:2022] Created device"
    " /job:localhost/replica:0/task:0/device:GPU:0 with 13762 MB memory:  -> device: 0, name: Tesla T4, pci bus id:"
    " 0000:00:04.0, compute capability: 7.5"
)
_ON_CPU = (
    "2026-05-04 10:11:12.131415: I tensorflow/core/common_runtime/eager/execute.cc:611] Executing op MatMul in device"
    " /job:localhost/replica:0/task:0/device:CPU:0"
)
_EPOCHS = ("Epoch 1/2", "100/100 ━━━━━━━━━━━━━━━━━━━━ 1s 3ms/step - loss: 0.5")


@pytest.mark.parametrize(
    ("lines", "says", "acts"),
    [
        ((_START, *_EPOCHS), "mentions no GPU", True),
        ((_START, _ON_CPU), "mentions no GPU", True),
        ((_START, _MAPPED, *_EPOCHS), "No failure in the log; last line: 100/100", False),
        ((_START, _ON_CPU.replace("CPU:0", "GPU:0")), "No problems found", False),
        (("2026-05-04 10:11:12.1: I tensorflow/core/x.cc:7] a line",), "does not say on which device", False),
        (("dear diary",), "Nothing recognized", True),
    ],
)
def test_of_a_quiet_log_no_more_is_claimed_than_it_tells(lines: tuple[str, ...], says: str, acts: bool) -> None:
    found = explain(lines)
    (only,) = found.findings
    # The document says what the text says: of what holds nothing that is known, nothing is claimed.
    assert (found.primary, only.severity) == ("unknown" if says == "Nothing recognized" else "healthy", "info")
    assert says in only.title
    assert bool(only.action) is acts
    assert (lines[0] in only.evidence) is acts


def test_a_log_that_is_still_read_may_yet_name_a_gpu() -> None:
    parser = LogParser()
    parser.feed(_START)
    assert not [found for found in findings_so_far(parser.facts) if found.severity != "info"]


_LACKS = "gpuwatch: the simulated driver lacks"
_NOT_RUN = "operation not supported: the GPU is simulated, and the simulated driver lacks it"


@pytest.mark.parametrize(
    "log",
    [
        f"RuntimeError: CUDA error: {_NOT_RUN}\n",
        f"torch.AcceleratorError: CUDA error: {_NOT_RUN}\n",
        f"{_LACKS} what libcudnn_graph.so.9 asks of it (CUDA error 801)\n"
        "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED\n",
        f"{_LACKS} what libcublasLt.so.12 asks of it (CUDA error 801)\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n",
        f"{_LACKS} support for PyTorch on this tier: its GPUs work only with TensorFlow\n"
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU\n",
        f"{_LACKS} the runtime of CUDA 11: it has CUDA 12 and 13\n"
        "RuntimeError: The NVIDIA driver on your system is too old (found version 13000).\n",
    ],
)
def test_what_a_simulated_driver_lacks_is_no_fault_of_a_driver_or_of_memory(log: str) -> None:
    found = explain(log.splitlines(keepends=True))
    assert (found.primary, [entry.id for entry in found.findings]) == ("simulation.limit", ["simulation.limit"])


@pytest.mark.parametrize(
    ("used", "free", "reserved", "cause", "said"),
    [
        (20.0, 0.02, 23.6, "memory.fragmented", "3.6 GiB reserved"),
        (22.6, 0.02, 23.6, "memory.model-too-large", ""),  # 1 GiB is more than was asked, but 4 % of the card
        (17.0, 0.0, 17.5, "memory.model-too-large", "6.5 GiB were held by others"),
        (3.0, 0.05, 3.5, "memory.other-process", "others held 20"),
    ],
)
def test_how_much_unallocated_memory_is_fragmentation(
    used: float, free: float, reserved: float, cause: str, said: str
) -> None:
    found = explain(
        [
            "RuntimeError: CUDA out of memory. Tried to allocate 300.00 MiB (GPU 0; 24.00 GiB total capacity;"
            f" {used} GiB already allocated; {free} GiB free; {reserved} GiB reserved in total by PyTorch)"
        ]
    ).findings[0]
    assert (found.id, said in " ".join(found.evidence)) == (cause, True)


_SUMMARY = """
python3 train.py   gpuwatch run · host · 2026-11-26 18:01:38 UTC
{}

  granted       GPU:0→0 NVIDIA H200 –
  took          14.75 s

Findings
  ✖ error  unknown  It ended in RuntimeError: Expected all tensors
      RuntimeError: Expected all tensors to be on the
    → Move them.

Errors
  Type          Message
  RuntimeError  Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!
written: run.json
"""
_FAILED = """\
Traceback (most recent call last):
  File "train.py", line 4, in <module>
    print(model(x))
RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!
"""
_ENDED = "✖ error: It exited with code 1, in RuntimeError: Expected all tensors."


@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_summary_of_a_run_is_no_evidence_beside_what_the_program_printed(ascii_only: bool) -> None:
    summary = _SUMMARY.format(_ENDED)
    if ascii_only:
        summary = summary.translate(str.maketrans("·✖→–", "-x>-"))
    alone = explain(_FAILED.splitlines())
    assert explain((_FAILED + summary).splitlines()) == msgspec.structs.replace(alone, lines=5)
    after = explain((_FAILED + summary + "\n$ python3 other.py\n" + _FAILED.replace("4", "7")).splitlines())
    assert "from line 2" in after.findings[0].title or "line 7" in " ".join(after.findings[0].evidence)
    assert after.lines == len((_FAILED + summary).splitlines()) + 6


def test_a_summary_alone_is_read() -> None:
    assert explain(_SUMMARY.format(_ENDED).splitlines()).primary == "unknown"
    worked = _SUMMARY.partition("Findings")[0].format("● ok: It succeeded without problems.")
    assert explain(worked.splitlines()).primary == "healthy"


_TRITON = """\
Traceback (most recent call last):
  File "train.py", line 6, in <module>
    k[(1,)](x, 1000, B=1024)
triton.compiler.errors.CompilationError: at 3:49:
def k(x, n, B: tl.constexpr):
    tl.store(x + i, tl.load(x + i, mask=i < n) * undefined_name, mask=i < n)
                                                 ^
NameError('undefined_name is not defined')
"""


def test_what_triton_could_not_compile_stands_below_the_kernels_source() -> None:
    found = explain(_TRITON.splitlines())
    assert "NameError('undefined_name" in found.findings[0].title
    assert essential_line(_TRITON.partition("Error: ")[2]) == "NameError('undefined_name is not defined')"
    assert essential_line("at 3:49:\ndef k(x):\n    ^") == "def k(x):"


def test_an_assertion_that_failed_in_many_threads_is_shown_once() -> None:
    line = (
        "/pytorch/aten/src/ATen/native/cuda/IndexKernelUtils.cu:16: vectorized_gather_kernel: block: [{0},0,0], thread:"
        ' [{0},0,0] Assertion `ind >=0 && ind < ind_dim_size && "vectorized gather kernel index out of bounds"` failed.'
    )
    ends = "torch.AcceleratorError: CUDA error: device-side assert triggered"
    found = explain([*(line.format(number) for number in range(9)), ends])
    assert "an index is out of range" in found.findings[0].title
    assert sum("vectorized_gather_kernel" in shown for shown in found.findings[0].evidence) == 1
