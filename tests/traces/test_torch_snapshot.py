"""PyTorch's snapshots: one recorded with PyTorch 2.15's CUDA build on simulated GPUs, small ones, and real ones.

The real ones are not part of the project: their tests skip where there are none.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from gpuwatch.explain.traces.memory_profiles import torch_profiles
from tests.every import every
from tests.traces.hostile import SNAPSHOT

MIB = 1 << 20
MODULE = "/x/site-packages/torch/nn/modules/module.py"


def frames(*places: tuple[str, int, str]) -> list[dict[str, Any]]:
    return [{"filename": file, "line": line, "name": name} for file, line, name in places]


def entry(action: str, at: int, address: int, size: int, *places: tuple[str, int, str]) -> dict[str, Any]:
    return {"action": action, "time_us": at, "addr": address, "size": size, "frames": frames(*places)}


def block(address: int, size: int, state: str, *places: tuple[str, int, str]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size - 12, "state": state, "frames": frames(*places)}


def one(trace: list[dict[str, Any]], *blocks: dict[str, Any]) -> MemoryProfile:
    total = sum(part["size"] for part in blocks)
    segments = [{"device": 0, "address": 0, "total_size": total, "blocks": list(blocks)}] if blocks else []
    (found,) = torch_profiles(pickle.dumps({"segments": segments, "device_traces": [trace]}))
    return found


def test_a_recorded_snapshot() -> None:
    (found,) = torch_profiles(SNAPSHOT)
    assert (found.tool, found.device, found.peak_bytes) == ("torch", "cuda:0", 27_394_048)
    assert found.live_bytes == found.peak_bytes
    assert found.failed_bytes == 160 << 30
    assert found.pool_bytes == 46_137_344
    weights = [holder for holder in found.holders if holder.group == "weights"]
    assert [(holder.source, holder.requested_bytes) for holder in weights] == [
        ("train.py:10 in main", 4 * MIB),
        ("train.py:10 in main", 2 * MIB),
    ]
    assert found.groups["activations"] == 1_572_864
    assert any("backward pass" in note for note in found.notes)


def test_what_was_alive_before_the_history_is_found() -> None:
    trace = [
        entry("free_completed", 10, 5000, 1024),
        entry("alloc", 20, 9000, 2048, ("/home/user/train.py", 7, "step")),
    ]
    found = one(trace, block(9000, 2048, "active_allocated"), block(20000, 4096, "active_allocated", ("a.py", 1, "f")))
    assert found.peak_bytes == 4096 + 2048
    assert {holder.source for holder in found.holders} == {"train.py:7 in step", "a.py:1 in f"}
    assert [moment.in_use_bytes for moment in found.moments][-1] == 4096 + 2048
    nameless = one(trace, block(9000, 2048, "active_allocated"), block(20000, 4096, "active_allocated"))
    assert any(note.endswith("what frees it") for note in nameless.notes)


def test_a_snapshot_without_history_has_its_blocks() -> None:
    found = one([], block(0, 2048, "active_allocated", ("a.py", 1, "f")), block(2048, 1024, "inactive"))
    assert (found.peak_bytes, found.requested_bytes, found.fragmentation) == (2048, 2036, 0.0)
    assert not found.has_history
    assert describe_largest_holder(found) == (
        "In use on cuda:0 when the snapshot was taken: 2.0 KiB (it has no history), tensors created outside"
        " modules held the most: 2.0 KiB (100 %), by a.py:1 in f"
    )
    bare = one([{"action": "snapshot", "addr": 0, "size": 0}], block(0, 2048, "active_allocated"))
    assert describe_largest_holder(bare) == (
        "In use on cuda:0 when the snapshot was taken: 2.0 KiB (it has no history), none of it has a known line;"
        " the largest: an allocation of 2.0 KiB"
    )
    (alone,) = torch_profiles(
        pickle.dumps([{"device": 0, "total_size": 512, "blocks": [block(0, 512, "active_allocated")]}])
    )
    assert (alone.peak_bytes, alone.has_history) == (512, False)


def test_a_line_with_a_tiny_part_of_the_largest_group_is_not_named() -> None:
    small = block(1 << 22, 512, "active_allocated", ("a.py", 1, "f"))
    found = one([], block(0, 1 << 21, "active_allocated", ("a.py", 7, "g")), small)
    (held,) = [holder for holder in found.holders if holder.source == "a.py:1 in f"]
    most = replace(found, groups={"gradients": 1 << 21}, holders=(replace(held, group="gradients"),))
    assert describe_largest_holder(most).endswith("of the rest, the largest holder was a.py:1 in f: 512 B (0 %)")


def test_segments_by_kind_and_private_pool() -> None:
    def segment(pool: tuple[int, int], address: int, **more: object) -> dict[str, Any]:
        held = block(address, 1024, "active_allocated")
        return {
            "device": 1, "address": address, "total_size": 4096, "segment_pool_id": pool, "stream": 7,
            "blocks": [held, block(address + 1024, 3072, "inactive")], **more,
        }  # fmt: skip

    segments = [segment((0, 0), 0, is_expandable=True), segment((0, 3), 8192, segment_type="small")]
    (found,) = torch_profiles(pickle.dumps({"segments": segments, "device_traces": [[], []]}))
    assert found.device == "cuda:1"
    assert [(part.kind, part.pool, part.stream, part.allocated_bytes) for part in found.segments] == [
        ("expandable", "", 7, 1024),
        ("small", "0.3", 7, 1024),
    ]
    assert {part.largest_free_bytes for part in found.segments} == {3072}


def test_the_framework_s_frames_tell_what_it_was_for() -> None:
    user = ("train.py", 3, "main")
    stacks = {
        "optimizer state": (("/x/site-packages/torch/optim/adam.py", 9, "_init_group"), ("train.py", 4, "main")),
        "gradients": (("/x/site-packages/torch/autograd/__init__.py", 2, "backward"), ("train.py", 6, "main")),
        "activations": (("/x/site-packages/torch/nn/modules/linear.py", 9, "forward"), ("train.py", 7, "main")),
        "weights": ((MODULE, 9, "convert"), ("train.py", 8, "main")),
        "created": (user,),
    }
    trace = [entry("alloc", 9, 4096 * (n + 1), 512 << n, *places) for n, places in enumerate(stacks.values())]
    found = one(trace)
    assert found.groups == {name: 512 << n for n, name in reversed(list(enumerate(stacks)))}
    own = one([entry("alloc", 9, 1, 512, ("net.py", 2, "forward"), (MODULE, 9, "_call_impl"), user)])
    assert (own.holders[0].source, own.holders[0].group) == ("net.py:2 in forward", "activations")


MAIN = ("/home/u/train.py", 3, "<module>")
GATHER = [
    ("??", 0, "torch::unwind::unwind()"),
    ("memory_snapshot.cpp", 0, "torch::(anonymous namespace)::gather_with_cpp()"),
]
ENGINE = ("??", 0, "torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)")
STEP = (("/x/site-packages/torch/optim/optimizer.py", 9, "wrapper"), MAIN)


def native(*ops: str) -> list[tuple[str, int, str]]:
    """C++ frames as PyTorch records them: the unwinder, the allocator, ops from the innermost."""
    called = [("??", 0, f"at::_ops::{op}::call(at::Tensor const&)") for op in ops]
    return [*GATHER, ("CUDACachingAllocator.cpp", 0, "c10::cuda::malloc(unsigned long)"), *called]


def test_cpp_frames_name_the_op_and_never_the_holder() -> None:
    deep = [("/x/lib/python3.11/site-packages/torch/nn/modules/module.py", n, "_call_impl") for n in range(350)]
    found = one([entry("alloc", 9, 1, 512, *native("empty_strided", "bmm", "einsum"), *deep, MAIN)])
    assert [(holder.op, holder.source, holder.group) for holder in found.holders] == [
        ("einsum", "train.py:3 in <module>", "activations")
    ]
    backward = (
        *native("empty", "mul_Tensor"),
        ("??", 0, "torch::autograd::generated::ExpBackward0::apply(std::vector&&)"),
    )
    found = one([entry("alloc", 9, 1, 512, *backward, ENGINE)])
    assert (found.holders[0].op, found.holders[0].group) == ("ExpBackward0", "gradients")
    again = one(
        [entry("alloc", 9, 1, 512, *native("exp"), ("net.py", 2, "forward"), (MODULE, 9, "_call_impl"), ENGINE)]
    )
    assert again.holders[0].group == "activations", "computed once more in the backward pass (checkpointing)"
    scratch = ("??", 0, "at::cuda::getCurrentCUDABlasHandle()")
    assert one([entry("alloc", 9, 1, 512, *GATHER, scratch, *native("mm"), MAIN)]).groups == {"workspace": 512}


@every([
        ([("/tmp/ipykernel_4711/123.py", 5, "train"), ("/x/site-packages/IPython/core/a.py", 1, "run")],
         "notebook cell 123:5 in train"),
        ([("<ipython-input-12-0abc>", 5, "<module>")], "notebook cell 12:5 in <module>"),
        ([("/x/site-packages/einops/a.py", 1, "einsum"), ("/x/site-packages/serve/run.py", 7, "load"),
          ("/x/lib/python3.11/threading.py", 1, "run")], "run.py:7 in load"),
        ([("/x/site-packages/serve/run.py", 7, "load"), ("/x/bin/serve", 8, "<module>")], "run.py:7 in load"),
        ([("C:\\Users\\u\\train.py", 5, "f"), ("C:\\Python311\\Lib\\threading.py", 5, "run")], "train.py:5 in f"),
        ([("/tmp/torchinductor_u/ab/cab.py", 90, "call"), ("/x/site-packages/torch/_inductor/a.py", 1, "run"), MAIN],
         "train.py:3 in <module>"),
        ([("<string>", 1, "<module>")], "<string>:1 in <module>"),
        ([("/usr/bin/python3.11", 4224, "_start"), ("/x/lib/libc.so.6", 160516, "??"), MAIN], "train.py:3 in <module>"),
        ([("/home/u/train", 4, "main"), ("/home/u/train", 9, "<module>")], "train:4 in main"),
        ([("/home/u/torch/net.py", 5, "f"), MAIN], "net.py:5 in f"),
        ([("/opt/pytorch/torch/nn/functional.py", 5, "linear"), MAIN], "train.py:3 in <module>"),
        ([("/x/site-packages/torch/nn/functional.py", 5, "linear")], ""),
    ])  # fmt: skip
def test_the_holder_is_the_innermost_frame_of_the_program(places: list[tuple[str, int, str]], line: str) -> None:
    found = one([entry("alloc", 9, 1, 512, *native("mul_Tensor"), *places)])
    assert found.holders[0].source == line
    assert describe_largest_holder(found).count("  ") == 0
    assert describe_largest_holder(found)[-1] not in ",. "


def test_the_layer_of_a_library_and_files_of_one_name() -> None:
    layer = ("/x/site-packages/transformers/llama.py", 220, "forward")
    trace = [
        entry("alloc", 9, 1, 1024, *native("linear"), layer, (MODULE, 1, "_call_impl"), MAIN),
        entry("alloc", 9, 9000, 512, *native("exp"), ("/home/u/a/net.py", 1, "f"), MAIN),
        entry("alloc", 9, 12000, 512, *native("exp"), ("/home/u/b/net.py", 1, "f"), MAIN),
    ]
    found = one(trace)
    assert found.holders[0].layer == "llama.py:220 in forward"
    assert {holder.source for holder in found.holders} == {
        "train.py:3 in <module>", "a/net.py:1 in f", "b/net.py:1 in f",
    }  # fmt: skip


def test_a_headline_of_one_line_names_the_layer_below_it() -> None:
    linear = ("/x/site-packages/torch/nn/modules/linear.py", 9, "forward")
    layer = ("/x/site-packages/transformers/llama.py", 220, "forward")
    called = (MODULE, 1, "_call_impl")
    trace = [
        entry("alloc", 9, 4096 * n, 1024, *native("linear"), linear, called, layer, called, MAIN) for n in range(1, 3)
    ]
    found = one(trace)
    assert describe_largest_holder(found).endswith(
        "by train.py:3 in <module> (linear) ×2, 2.0 KiB through llama.py:220 in forward"
    )


def test_tensors_that_the_program_creates_are_weights_only_with_gradients_of_their_size() -> None:
    trace = [entry("alloc", 1, 4096 * n, 1024, *native("zeros"), MAIN) for n in range(1, 4)]
    assert one(trace).groups == {"created": 3072}
    trace += [entry("alloc", 2, 65536, 1024, *native("new_empty_strided"), ENGINE)]
    trace += [entry("alloc", 3, 99999, 2048, *native("randint"), MAIN)]
    assert one(trace).groups == {"created": 4096, "weights": 1024, "gradients": 1024}


def test_without_the_stack_of_a_free_the_phase_that_it_lies_in_tells() -> None:
    trace = [
        entry("alloc", 1, 1000, 512, *native("mul_Tensor"), ENGINE),
        entry("free_completed", 2, 2000, 4096),
        entry("free_completed", 3, 1000, 512),
    ]
    assert one(trace).groups == {"activations": 4096, "gradients": 512}


def test_a_refused_request_is_told_with_its_line() -> None:
    trace = [entry("alloc", 1, 1000, 512, MAIN), {**entry("oom", 2, 0, 1 << 40, MAIN), "device_free": 4096}]
    found = one(trace)
    assert (found.failed_bytes, found.failed_source) == (1 << 40, "train.py:3 in <module>")


def test_what_an_optimizer_keeps_is_its_state() -> None:
    trace = [
        entry("alloc", 1, 1000, 512, *native("mul_Tensor"), ("/home/u/optimizer.py", 7, "step"), *STEP),
        entry("alloc", 2, 2000, 512, *native("add_Tensor"), ("/home/u/optimizer.py", 8, "step"), *STEP),
        entry("free_completed", 3, 1000, 512),
        entry("alloc", 4, 3000, 512, *native("exp"), ("net.py", 2, "forward"), (MODULE, 9, "_call_impl"), MAIN),
        entry("alloc", 5, 4000, 4096, *native("exp"), ("net.py", 2, "forward"), (MODULE, 9, "_call_impl"), MAIN),
    ]
    found = one(trace)
    assert found.groups == {"activations": 4608, "optimizer state": 512}
    assert found.moments[1].groups == {"workspace": 512, "optimizer state": 512}


def training(*, stacks: bool) -> list[dict[str, Any]]:
    """A step that was recorded from its middle: gradients, the optimizer's step with a new state, zero_grad."""
    backward = [*native("new_empty_strided"), ENGINE] if stacks else []
    forward = [*(native("exp") if stacks else []), ("net.py", 2, "forward"), (MODULE, 9, "_call_impl"), MAIN]
    optimizer = ("/x/site-packages/torch/optim/optimizer.py", 9, "zero_grad")
    step = [*(native("add_Tensor") if stacks else []), ("/home/u/optimizer.py", 8, "step"), *STEP]
    trace = [entry("alloc", 1, 100_000, 8192, *forward)]
    trace += [entry("alloc", 2, 200_000 + n * 4096, 1024, *backward) for n in range(4)]
    trace += [entry("free_completed", 3, 100_000, 8192)]
    for n in range(4):
        trace += [entry("alloc", 4, 300_000 + n * 4096, 1024, *step)]
        trace += [entry("free_requested", 5, 400_000 + n * 4096, 1024, *step)]
        trace += [entry("free_completed", 5, 400_000 + n * 4096, 1024)]
    for n in range(4):
        trace += [entry("free_requested", 6, 200_000 + n * 4096, 1024, optimizer, MAIN)]
        trace += [entry("free_completed", 6, 200_000 + n * 4096, 1024)]
    return trace


def test_an_optimizer_that_allocates_nothing_has_state_of_its_gradients_size() -> None:
    trace = [entry("alloc", 1, 100_000, 1024, *native("new_empty_strided"), ENGINE)]
    trace += [entry("free_requested", 2, 100_000, 1024, ("/x/torch/optim/optimizer.py", 9, "zero_grad"), MAIN)]
    trace += [entry("free_completed", 2, 100_000, 1024)]
    held = [{**block(n * 4096, 1024, "active_allocated"), "requested_size": 1024} for n in range(4)]
    found = one(trace, *held)
    assert found.groups == {"optimizer state": 2048, "weights": 1024, "weights and caches": 1024, "gradients": 1024}


@pytest.mark.parametrize("stacks", [True, False])
def test_what_was_alive_before_is_told_by_its_end_and_by_gradients_of_its_size(stacks: bool) -> None:
    trace = training(stacks=stacks)
    held = [block(n * 4096, 1024, "active_allocated") for n in range(4)]
    kept = [block(300_000 + n * 4096, 1024, "active_allocated") for n in range(4)]
    found = one(trace, *[{**one, "requested_size": 1024} for one in (*held, *kept)])
    assert found.groups == {"activations": 8192, "weights": 4096, "optimizer state": 4096, "gradients": 4096}
    state = next(one for one in found.holders if one.group == "optimizer state")
    assert state.source.startswith("optimizer.py:8 in step")


def test_without_gradients_what_stays_is_weights_or_a_cache() -> None:
    forward = [*native("exp"), ("net.py", 2, "forward"), (MODULE, 9, "_call_impl"), MAIN]
    found = one([entry("alloc", 1, 100_000, 1024, *forward)], block(0, 8192, "active_allocated"))
    assert found.groups == {"weights and caches": 8192, "activations": 1024}
    assert describe_largest_holder(found) == (
        "At the recorded peak of 9.0 KiB on cuda:0, weights and caches held the most: 8.0 KiB (89 %); of the rest, the"
        " largest holder was net.py:2 in forward (exp): 1.0 KiB (11 %)"
    )


def steps_with_a_workspace(size: int, *, again: int = 0) -> list[dict[str, Any]]:
    """Two steps of a linear layer: in the first, cuBLAS gets its workspace in the forward and the backward pass.

    ``again``: bytes of another result of the layer in the second step.
    """
    forward = (("/x/site-packages/torch/nn/modules/linear.py", 9, "forward"), (MODULE, 9, "_call_impl"), MAIN)
    zero = ("/x/site-packages/torch/optim/optimizer.py", 9, "zero_grad")
    trace = []
    for at in (0, 10):
        trace += [entry("alloc", at + 1, 1000, 4096, *forward)]
        trace += [entry("alloc", at + 1, 1 << 30, size, *forward)] if at == 0 or again == size else []
        trace += [entry("alloc", at + 2, 9000, 1024)]
        trace += [entry("alloc", at + 2, 2 << 30, size)] if at == 0 else []
        trace += [entry("free_completed", at + 3, 1000, 4096)]
        trace += [entry("free_completed", at + 3, 1 << 30, size)] if again == size else []
        trace += [entry("free_requested", at + 4, 9000, 1024, zero, MAIN), entry("free_completed", at + 4, 9000, 1024)]
    return trace


@pytest.mark.parametrize("size", [32 << 20, 8320 << 10])
def test_what_cublas_keeps_in_each_thread_is_no_result_of_the_op_that_needed_it_first(size: int) -> None:
    assert one(steps_with_a_workspace(size)).groups == {"workspace": 2 * size, "activations": 4096, "gradients": 1024}
    made_each_step = one(steps_with_a_workspace(size, again=size)).groups
    assert made_each_step == {"workspace": size, "activations": size + 4096, "gradients": 1024}
    other = one(steps_with_a_workspace(size + 512)).groups
    assert other == {"activations": size + 512 + 4096, "gradients": size + 512 + 1024}


@pytest.mark.parametrize("ended", [True, False])
def test_what_lives_until_the_program_ends_is_told_by_its_size(ended: bool) -> None:
    """Weights, state and workspaces from before the history, and a trainer that frees them at its end."""
    sizes = [1024, 1024, 1024, 32 << 20, 999_424]
    trace = [*steps_with_a_workspace(512), *steps_with_a_workspace(512)]
    held = [{**block(n << 33, size, "active_allocated"), "requested_size": size} for n, size in enumerate(sizes, 1)]
    last = ("/x/site-packages/lightning/strategies/strategy.py", 9, "teardown")
    for n, size in enumerate(sizes, 1) if ended else ():
        trace += [entry("free_requested", 99, n << 33, size, last, MAIN), entry("free_completed", 99, n << 33, size)]
    groups = one(trace, *([] if ended else held)).groups
    assert (groups["weights"], groups["optimizer state"]) == (1024, 2048)
    assert (groups["workspace"], groups["weights and caches"]) == (32 << 20, 999_424)


def test_a_snapshot_of_pytorch_2_0() -> None:
    history = [{"addr": 0, "real_size": 500, "frames": frames(("/home/u/run.py", 9, "init_weight"))}]
    held = {"size": 512, "state": "active_allocated", "history": history}
    segment = {"device": 0, "address": 0, "total_size": 512, "blocks": [held]}
    (found,) = torch_profiles(pickle.dumps({"segments": [segment], "device_traces": [[{"action": "snapshot"}]]}))
    assert (found.requested_bytes, found.groups) == (500, {"weights": 512})
    assert found.holders[0].source == "run.py:9 in init_weight"


def test_over_time_by_line_and_what_is_alive_at_the_end() -> None:
    trace = [
        entry("alloc", 1, 1 << 20, 4096, *native("exp"), ("/home/u/net.py", 2, "f"), MAIN),
        entry("alloc", 2, 1 << 21, 1024, *native("exp"), ("/home/u/net.py", 5, "g"), MAIN),
        entry("free_completed", 3, 1 << 20, 4096),
    ]
    found = one([{**part, "time_us": part["time_us"] + 1_700_000_000_000_000} for part in trace])
    assert found.lines == ("net.py:2 in f", "net.py:5 in g")
    assert [moment.lines for moment in found.moments] == [(4096, 0), (4096, 1024), (0, 1024)]
    assert [(holder.source, holder.allocated_bytes) for holder in found.ending] == [("net.py:5 in g", 1024)]
    assert (found.ending_bytes, str(found.ended_at)[:19]) == (1024, "2023-11-14 22:13:20")


CAPTURES = Path(__file__).parents[3] / "shared/captures"


@pytest.mark.parametrize(
    ("name", "requested", "line"),
    [
        ("torch_med1024_train", 24_207_167_496, "nn_utils.py:6 in softmax"),
        ("torch_med1024_infer", 2_877_435_904, "nn_utils.py:7 in softmax"),
        ("torch_med128_train", 7_013_335_044, "optimizer.py:73 in step"),
        ("torch_oom", 11_840_159_744, "pytorch_backend.py:190 in allocate"),
    ],
)
def test_real_snapshots(name: str, requested: int, line: str) -> None:
    """The peaks are those of PyTorch's own viewer, whose sizes are those that were asked for."""
    path = CAPTURES / f"{name}.pickle"
    if not path.exists():
        pytest.skip("there are no captures")
    (found,) = torch_profiles(path.read_bytes())
    assert found.requested_bytes == requested
    assert line in describe_largest_holder(found)
    assert found.groups.get("unattributed", 0) < 0.2 * found.peak_bytes
