"""What the parser reads out of logs that TensorFlow itself printed."""

from __future__ import annotations

import pytest

from gpuwatch.explain.logs.log_facts import LogFacts
from tests.logs.logs import MIB, facts


def mapped(found: LogFacts) -> list[tuple[str, int | None, str | None, int | None]]:
    return [
        (m.framework_device, m.cuda_ordinal, m.pci_bus_id, m.granted_bytes and m.granted_bytes // MIB)
        for m in found.device_map
    ]


@pytest.mark.parametrize("name", ["stub_tf210_map_default", "stub_tf221_map_default"])
def test_each_device_is_mapped_once_although_it_is_printed_often(name: str) -> None:
    assert mapped(facts(name)) == [
        ("/device:GPU:0", 0, "0000:01:00.0", 21464),
        ("/device:GPU:1", 1, "0000:02:00.0", 21464),
    ]


def test_a_memory_limit_is_the_granted_size() -> None:
    assert [size for *_, size in mapped(facts("stub_tf215_map_memory_limit"))] == [1024, 21464]


def test_two_logical_devices_share_one_card() -> None:
    found = mapped(facts("stub_tf221_map_virtual_gpus"))
    assert [(device, pci) for device, _, pci, _ in found] == [
        ("/device:GPU:0", "0000:01:00.0"),
        ("/device:GPU:1", "0000:01:00.0"),
        ("/device:GPU:2", "0000:02:00.0"),
    ]


@pytest.mark.parametrize("name", ["stub_tf215_gpu_bfc_oom", "stub_tf221_gpu_bfc_oom"])
def test_one_failure_told_by_many_lines_is_one_oom(name: str) -> None:
    (oom,) = facts(name).ooms
    assert (oom.device, oom.allocator) == ("GPU:0", "GPU_0_bfc")
    assert oom.requested_bytes == 400 * MIB
    assert oom.limit_bytes == 256 * MIB
    assert oom.in_use_bytes == 1536
    assert oom.largest_free_bytes == 268433920


def test_sizes_in_bytes_and_in_words_give_the_same_numbers() -> None:
    (old,) = facts("lab_tf215_bfc_fragmentation_cpu").ooms
    (new,) = facts("lab_tf221_bfc_fragmentation_cpu").ooms
    assert old.limit_bytes == new.limit_bytes == 256 * MIB
    assert old.requested_bytes == new.requested_bytes == 64 * MIB
    # The largest hole is smaller than the request although more is free in all.
    assert new.largest_free_bytes is not None
    assert new.in_use_bytes is not None
    assert new.largest_free_bytes < 64 * MIB < 256 * MIB - new.in_use_bytes


@pytest.mark.parametrize(("name", "device"), [("stub_tf215_ctx_oom", "GPU:0"), ("stub_tf218_ctx_oom", None)])
def test_a_context_that_does_not_fit(name: str, device: str | None) -> None:
    (oom,) = facts(name).ooms
    assert (oom.verdict, oom.device, oom.requested_bytes) == ("memory.context-failed", device, None)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("lab_tf221_import_no_gpu", 303),
        ("lab_tf210_import_no_gpu", 303),
        ("stub_tf221_cuinit803", 803),
        ("stub_tf215_cuinit999", 999),
        ("stub_tf221_cuinit100", 100),
    ],
)
def test_the_code_of_cuinit(name: str, code: int) -> None:
    error = facts(name).cuinit_error
    assert error is not None
    assert error.code == code


def test_versions_that_print_no_cuinit_line_leave_it_unknown() -> None:
    found = facts("lab_tf215_import_no_gpu")
    assert found.cuinit_error is None
    assert found.cudart_missing


def test_libraries_are_named_where_tensorflow_names_them() -> None:
    found = facts("stub_tf_dlopen_218_vmodule")
    assert found.libraries_skipped
    assert found.missing_libraries == [
        "libcudart.so.12",
        "libcublas.so.12",
        "libcublasLt.so.12",
        "libcufft.so.11",
        "libcusolver.so.11",
        "libcusparse.so.12",
        "libcudnn.so.9",
    ]
    hidden = facts("stub_tf_dlopen_218")
    assert hidden.libraries_skipped
    assert hidden.missing_libraries == []


def test_tensorrt_takes_no_gpu_away_and_is_no_missing_library() -> None:
    assert not any("nvinfer" in name for name in facts("stub_tf210_map_default").missing_libraries)


def test_an_ignored_gpu_is_neither_mapped_nor_forgotten() -> None:
    found = facts("stub_tf210_ignoring_cc30")
    assert found.device_map == []
    assert {gpu.reason for gpu in found.ignored_gpus} == {"capability"}
    assert {gpu.pci_bus_id for gpu in found.ignored_gpus} == {"0000:01:00.0", "0000:02:00.0"}


@pytest.mark.parametrize(
    ("name", "failed"), [("stub_tf221_int32_soft_fallback", False), ("stub_tf221_int32_hard_no_kernel", True)]
)
def test_colocation_names_what_was_asked_and_what_is_supported(name: str, failed: bool) -> None:
    report = facts(name).colocations[0]
    assert (report.requested, report.supported, report.failed) == ("GPU:0", ("CPU",), failed)
    assert [(member.node, member.op) for member in report.members][:1] == [("a_gpu", "VariableV2")]
    assert report.lacking == ("Assign", "VariableV2"), "Identity has a GPU kernel"


def test_placements_count_once_although_stdout_and_stderr_both_tell_them() -> None:
    found = facts("stub_tf221_int32_soft_fallback")
    assert {(p.op, p.actual, p.count) for p in found.placements} == {
        ("VariableV2", "CPU:0", 1),
        ("Assign", "CPU:0", 1),
        ("Identity", "CPU:0", 1),
    }


@pytest.mark.parametrize(
    ("name", "topic", "error"),
    [
        ("stub_tf221_growth_late", "config.too-late", "RuntimeError"),
        ("stub_tf221_growth_differ", "config.inconsistent", "ValueError"),
        ("stub_tf221_hard_gpu5", "placement.device-missing", "InvalidArgumentError"),
        ("lab_tf221_session_hard_gpu1", "placement.device-missing", "InvalidArgumentError"),
    ],
)
def test_errors_of_configuration_and_placement(name: str, topic: str, error: str) -> None:
    found = facts(name)
    assert topic in found.topics
    assert error in {entry.type for entry in found.errors}
    assert found.lines_of(topic)
