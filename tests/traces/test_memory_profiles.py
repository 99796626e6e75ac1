"""Who held the memory at the peak, out of TensorFlow's profiles."""

from __future__ import annotations

import msgspec
import pytest

from gpuwatch.core.model.memory_profile import MemoryProfile
from gpuwatch.explain.traces import InvalidTrace, tensorflow_xplane
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from gpuwatch.explain.traces.memory_profiles import tensorflow_profiles
from gpuwatch.explain.traces.tensorflow_allocation_purposes import AllocationPurposes, FunctionInput, Variable
from gpuwatch.explain.traces.tensorflow_op_names import name_scope, strip_calls
from tests.traces.profiles import Profile, encoded, field

KIB = 1024
CALL = "StatefulPartitionedCall/"


def one(*changes: tuple[object, ...], allocation_purposes: AllocationPurposes | None = None) -> MemoryProfile:
    (found,) = tensorflow_profiles([(encoded(changes), 0.0, None)], allocation_purposes)
    return found


def test_the_peak_is_where_most_was_in_use() -> None:
    found = one(
        (1000, 100, "A", "[25]"), (2000, 300, "B", "[75]"), (2000, 300), (3000, 50, "C", "[1]")
    )  # fmt: skip
    assert (found.peak_bytes, found.live_bytes, found.events) == (400, 400, 4)
    assert [(holder.op, holder.shape, holder.dtype) for holder in found.holders] == [
        ("B", "[75]", "float32"),
        ("A", "[25]", "float32"),
    ]
    assert found.limit_bytes == 1 << 30
    assert found.program_peak_bytes == 400
    assert found.device == "GPU:0"


def test_types_and_shapes_that_say_nothing_are_unknown() -> None:
    found = one((1000, 256, "_EagerConst", "[0]"))
    assert (found.holders[0].shape, found.holders[0].dtype) == (None, None)
    assert (found.named_bytes, found.shaped_bytes) == (256, 0)


def test_groups_need_evidence() -> None:
    found = one(
        (1, 1 * KIB, "MatMul", "[16,16]"),
        (3000, 2 * KIB, f"{CALL}sequential/dense/MatMul", "[16,32]"),
        (9000, 3 * KIB, f"{CALL}gradient_tape/sequential/dense/MatMul/MatMul_1", "[16,48]"),
        (20000, 4 * KIB, f"{CALL}adam/Mul_3", "[16,64]"),
        (30000, 5 * KIB, "adam/kernel_momentum/Initializer/zeros"),
        (40000, 6 * KIB, f"{CALL}cluster_3_1/xla_run"),
    )
    assert found.groups == {
        "unattributed": 7 * KIB,
        "optimizer state": 5 * KIB,
        "workspace": 4 * KIB,
        "gradients": 3 * KIB,
        "activations": 2 * KIB,
    }
    assert any("XLA cluster is one buffer" in note for note in found.notes)


def test_what_assigns_a_variable_allocated_the_variable_whatever_its_region() -> None:
    """TF1's initializers and slots by name; an optimizer's own update may be of a weight or of its state."""
    profile = Profile()
    groups = {
        ("AssignSubVariableOp_1", "temp"): "other variables",
        ("phi/Initializer/random_uniform/RandomUniform", "output"): "other variables",
        ("phi/Adam_1/Assign", "temp"): "optimizer state",
        ("beta1_power/Assign", "temp"): "optimizer state",
        ("Adam/update_phi/ResourceApplyAdam", "temp"): "workspace",
        ("phi/Adam/Initializer/zeros", "persist"): "unattributed",  # a constant, which is copied
    }
    for number, (op, region) in enumerate(groups):
        profile.allocate(number << 20, (1 + number) * KIB, op, region_type=region)
    (found,) = tensorflow_profiles([(profile.encoded(), 0.0, None)], None)
    assert {holder.op: holder.group for holder in found.holders} == {op: group for (op, _), group in groups.items()}


VARIABLES = (
    Variable("dense/kernel", (16, 16), "float32", "weight"),
    Variable("adam/dense_kernel_momentum", (16, 16), "float32", "optimizer"),
    Variable("adam/dense_kernel_velocity", (16, 16), "float32", "optimizer"),
    Variable("counter", (), "int64", ""),
)


def test_variables_are_the_allocations_of_their_size_that_live_longest() -> None:
    found = one(
        (10000, KIB, "AddV2", "[16,16]"),
        (20000, KIB, "adam/dense_kernel_momentum/Initializer/zeros"),
        (30000, KIB, f"{CALL}adam/AssignAddVariableOp", "[16,16]"),
        (40000, KIB, f"{CALL}dense/Relu", "[16,16]"),
        (50000, KIB, "Other", "[256]"),
        (40000, KIB),
        allocation_purposes=AllocationPurposes(VARIABLES),
    )
    assert {holder.op: (holder.variable, holder.group) for holder in found.holders} == {
        "AddV2": ("dense/kernel", "weights"),
        "adam/dense_kernel_momentum/Initializer/zeros": ("adam/dense_kernel_momentum", "optimizer state"),
        f"{CALL}adam/AssignAddVariableOp": ("adam/dense_kernel_velocity", "optimizer state"),
        f"{CALL}dense/Relu": ("", "activations"),
        "Other": ("", "unattributed"),
    }
    by_op = {holder.op: (holder.shape, holder.shape_from) for holder in found.holders}
    assert by_op["adam/dense_kernel_momentum/Initializer/zeros"] == ("[16,16]", "variable")
    assert by_op["AddV2"] == ("[16,16]", "framework")


def test_the_shape_of_an_input_is_worked_out_only_if_one_fits() -> None:
    given = [
        FunctionInput((-1, 64), "float32"),
        FunctionInput((-1, 10), "int64"),
        FunctionInput((-1, 1), "float32"),
        FunctionInput((-1, 3), "int64"),
    ]
    found = one((1000, 32 * 64 * 4, "_EagerConst"), allocation_purposes=AllocationPurposes((), given))
    # A free length and an unknown type: as many bytes may be of half the length, as float64.
    assert (found.holders[0].shape, found.holders[0].dtype or "", found.holders[0].group) == ("[?,64]", "", "inputs")
    fixed = one(
        (1000, 32 * 64 * 4, "_EagerConst"),
        allocation_purposes=AllocationPurposes((), [FunctionInput((32, 64), "float32")]),
    )
    assert (fixed.holders[0].shape, fixed.holders[0].group) == ("[32,64]", "inputs")
    both = one(
        (1000, 11 * 3 * 8, "_EagerConst"),
        allocation_purposes=AllocationPurposes((), [*given, FunctionInput((-1, 3, 1), "int64")]),
    )
    assert (both.holders[0].shape, both.holders[0].group) == (None, "unattributed")
    other = one((1000, 32 * 64 * 4, "SameWorkerRecvDone", "[64,32]"), allocation_purposes=AllocationPurposes((), given))
    assert (other.holders[0].shape, other.holders[0].group) == ("[64,32]", "unattributed")


def test_what_was_freed_between_two_windows_is_gone() -> None:
    first = Profile()
    first.allocate(1000, 100, "kept")
    first.allocate(2000, 100, "freed unseen")
    second = Profile(in_use=100)
    second.allocate(2050, 500, "on its place")
    second.free(1000, 100)
    (found,) = tensorflow_profiles([(first.encoded(), 0.0, (0, 5)), (second.encoded(), 9.0, (90, 100))])
    assert found.peak_bytes == 600
    assert {holder.op for holder in found.holders} == {"kept", "on its place"}
    assert found.peak_seconds == pytest.approx(9.0)
    assert found.windows == 2
    assert [moment.step for moment in found.moments][-1] in range(90, 101)


def test_what_was_allocated_between_two_windows_is_not_claimed() -> None:
    first = Profile()
    first.allocate(1000, 100, "kept")
    second = Profile(in_use=1100)
    second.allocate(9000, 100, "new")
    (found,) = tensorflow_profiles([(first.encoded(), 0.0, None), (second.encoded(), 9.0, None)])
    assert (found.peak_bytes, found.live_bytes, found.named_bytes) == (1200, 200, 200)


def test_more_than_was_in_use_is_never_claimed() -> None:
    first = Profile()
    first.allocate(1000, 700, "old")
    first.allocate(2000, 700, "young")
    second = Profile(in_use=700)
    second.allocate(9000, 10, "new")
    (found,) = tensorflow_profiles([(first.encoded(), 0.0, None), (second.encoded(), 9.0, None)])
    assert found.live_bytes <= found.peak_bytes
    top = max(second_moment.in_use_bytes for second_moment in found.moments if second_moment.t >= 9)
    assert sum(found.moments[-1].groups.values()) <= top


def test_gpus_come_before_the_host_which_is_named() -> None:
    made = encoded([(1000, 100, "A", "[25]")], allocator="mklcpu")
    (found,) = tensorflow_profiles([(made, 0.0, None)])
    assert found.device == "host"
    assert any("host memory" in note for note in found.notes)
    gpu = encoded([(1000, 10, "A", "[25]")])
    (only,) = tensorflow_profiles([(made + gpu, 0.0, None)])
    assert only.device == "GPU:0"


def test_the_sentence_names_who_held_the_most() -> None:
    text = describe_largest_holder(
        one((1000, 3 * KIB, f"{CALL}conv/Conv2D", "[768]"), (9000, KIB, f"{CALL}conv/Relu", "[256]"))
    )
    assert text == (
        "At the recorded peak of 4.0 KiB on GPU:0, activations held the most: 4.0 KiB (100 %),"
        " 3.0 KiB of it by conv/Conv2D [768]"
    )
    text = describe_largest_holder(one((1000, 3 * KIB, "MatMul", "[768]")))
    assert text.endswith("MatMul [768]: 3.0 KiB (100 %)")


def test_a_sum_of_gradients_is_no_state_of_the_optimizer_of_the_same_shape() -> None:
    """A step that fails before its update: the slots share one buffer, and a gradient has their size."""
    lines = {f"gradient_tape/dense/MatMul_{n}": "a.py:9 in step" for n in range(2)} | {"AddN_1": "a.py:9 in step"}
    begun = [(1000, KIB, "Fill", "[16,16]"), (2000, KIB, "adam/dense_kernel_momentum/Initializer/zeros")]
    for op, group in (("AddN_1", "gradients"), ("AddN_4/inputs_0", "unattributed"), ("dense/Mul", "activations")):
        found = one(
            *begun,
            (3000, KIB, CALL + op, "[16,16]"),
            allocation_purposes=AllocationPurposes(variables=VARIABLES, lines=lines),
        )
        held = {holder.op: (holder.group, holder.variable) for holder in found.holders}
        assert held[CALL + op] == (group, ""), op
        assert held["Fill"][0] == "weights"


def test_a_peak_that_was_not_recorded_is_told() -> None:
    found = one((1000, 3 * KIB, "MatMul", "[768]"))
    known = msgspec.structs.replace(found, program_peak_bytes=30 * KIB)
    assert "of 3.0 KiB on GPU:0 (the program's own of 30.0 KiB was not recorded), the" in describe_largest_holder(known)
    assert "recorded)" not in describe_largest_holder(msgspec.structs.replace(found, program_peak_bytes=3 * KIB))


def test_a_profile_is_known_by_its_content() -> None:
    made = encoded([(1000, 100, "A", "[25]")])
    assert tensorflow_xplane.is_xplane(made)
    assert tensorflow_xplane.is_xplane(made[:40])
    assert not tensorflow_xplane.is_xplane(b"")
    assert not tensorflow_xplane.is_xplane(b"\n\n\n2026-01-01 a log")
    assert not tensorflow_xplane.is_xplane(b"\x80\x02}q\x00")


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_profile_that_is_cut_off_is_an_error(cut: int) -> None:
    made = field(1, encoded([(1000, 100, "A", "[25]")]))
    with pytest.raises(InvalidTrace):
        tensorflow_profiles([(made[:-cut], 0.0, None)])


def test_the_layer_is_the_scope() -> None:
    assert name_scope(f"{CALL}StatefulPartitionedCall_1/model/conv1/Conv2D") == "model/conv1"
    assert name_scope(f"{CALL}gradient_tape/model/conv1/Conv2D/Conv2DBackpropFilter") == "model/conv1/Conv2D"
    assert strip_calls("MatMul") == "MatMul"
    assert name_scope("MatMul") == ""


def test_a_line_is_that_of_an_op_in_a_graph() -> None:
    lines = {"net/MatMul": "train.py:3 in call", "MatMul": "train.py:9 in step"}
    found = one(
        (1000, KIB, f"{CALL}net/MatMul", "[256]"),
        (9000, KIB, f"{CALL}MatMul", "[256]"),
        (19000, KIB, "MatMul", "[256]"),
        allocation_purposes=AllocationPurposes((), (), lines),
    )
    assert {holder.op: holder.source for holder in found.holders} == {
        f"{CALL}net/MatMul": "train.py:3 in call",
        f"{CALL}MatMul": "train.py:9 in step",
        "MatMul": "",
    }


def test_what_was_in_use_before_the_recording_is_told_as_that() -> None:
    began = Profile(in_use=8 * KIB)
    began.allocate(1000, 2 * KIB, f"{CALL}sequential/dense/MatMul", "[16,32]")
    (found,) = tensorflow_profiles([(began.encoded(), 0.0, None)])
    assert (found.peak_bytes, found.live_bytes, found.before_bytes) == (10 * KIB, 2 * KIB, 8 * KIB)
    assert describe_largest_holder(found) == (
        "At the recorded peak of 10.0 KiB on GPU:0, 8.0 KiB (80 %) were in use before the recording began; of the rest,"
        " activations held the most: 2.0 KiB (20 %)"
    )
    again = Profile(in_use=10 * KIB)
    again.allocate(9000, 4 * KIB, f"{CALL}sequential/dense/MatMul", "[16,64]")
    (several,) = tensorflow_profiles([(began.encoded(), 0.0, None), (again.encoded(), 1.0, None)])
    assert several.before_bytes == 0, "between two windows it may have been freed, and other memory allocated"
