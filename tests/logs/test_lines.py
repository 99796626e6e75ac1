"""Single lines of every wording that tf versions print, written out from their format strings."""

from __future__ import annotations

import re

import pytest

from gpuwatch.explain import size_texts
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts
from gpuwatch.explain.diagnosis.memory.oom_verdict import judge
from gpuwatch.explain.logs import device_names
from gpuwatch.explain.logs.log_parser import LogParser, parse
from gpuwatch.explain.logs.message_topics import TEXTS_AND_TOPICS
from gpuwatch.explain.logs.op_placement_lines import op_name
from tests.every import every
from tests.logs.logs import MIB, NAMES, text

PREFIXES = (
    "I tensorflow/core/common_runtime/gpu/gpu_device.cc:885] ",
    "2019-10-02 22:23:56.142821: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1178] ",
    "2024-10-02 22:23:56.142821: I external/local_xla/xla/gpu_device.cc:1178] ",
    "I0000 00:00:1755594043.834784      19 gpu_device.cc:2022] ",
    "2018-06-09 22:01:01.782469: I T:\\src\\github\\tensorflow\\gpu_device.cc:1312] ",
)

MAPPINGS = (
    ("Creating TensorFlow device (/gpu:0) -> (device: 0, name: GeForce GTX 1080, pci bus id: 0000:01:00.0)", None),
    (
        "Creating TensorFlow device (/device:GPU:0) -> (device: 0, name: GeForce GTX 1080, "
        "pci bus id: 0000:01:00.0, compute capability: 6.1)",
        None,
    ),
    (
        "Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 20545 MB memory) -> "
        "physical GPU (device: 0, name: GeForce GTX 1080, pci bus id: 0000:01:00.0, compute capability: 5.2)",
        20545,
    ),
    (
        "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13762 MB memory:  -> "
        "device: 0, name: GeForce GTX 1080, pci bus id: 0000:01:00.0, compute capability: 7.5",
        13762,
    ),
    (
        "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13762 MB memory:  -> "
        "device: 0, name: GeForce GTX 1080, pci bus id: 0000:01:00.0",
        13762,
    ),
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("message", "mib"), MAPPINGS)
def test_every_mapping_line_in_every_prefix(prefix: str, message: str, mib: int | None) -> None:
    (mapping,) = parse(prefix + message).device_map
    assert (mapping.framework_device, mapping.cuda_ordinal, mapping.pci_bus_id, mapping.name) == (
        "/device:GPU:0",
        0,
        "0000:01:00.0",
        "GeForce GTX 1080",
    )
    assert mapping.granted_bytes == (None if mib is None else mib * MIB)


def test_a_plug_in_has_no_bus_id() -> None:
    (mapping,) = parse(
        "Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 0 MB memory) -> "
        "physical PluggableDevice (device: 0, name: METAL, pci bus id: <undefined>)"
    ).device_map
    assert (mapping.pci_bus_id, mapping.name, mapping.granted_bytes) == (None, "METAL", 0)


def test_a_mapping_line_that_was_folded_by_hand() -> None:
    (mapping,) = parse(
        "2020-01-01 00:00:00.1: I gpu_device.cc:1] Created TensorFlow device (/device:GPU:0 with\n"
        "7176 MB memory) -> physical GPU (device: 0, name: GeForce RTX 2070,\n"
        "pci bus id: 0000:01:00.0, compute capability: 7.5)\n"
    ).device_map
    assert (mapping.name, mapping.granted_bytes) == ("GeForce RTX 2070", 7176 * MIB)


def test_the_harmless_twin_is_no_oom() -> None:
    found = parse(
        "2024-01-01 00:00:00.1: W external/local_tsl/tsl/framework/bfc_allocator.cc:1] Allocator (GPU_0_bfc) ran out "
        "of memory trying to allocate 25.15GiB with freed_by_count=0. The caller indicates that this is not a failure, "
        "but this may mean that there could be performance gains if more memory were available."
    )
    assert found.ooms == []
    assert found.topics["memory.not-a-failure"] == 1


@pytest.mark.parametrize(
    ("head", "requested"),
    [
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB.  Current allocation summary follows.",
            2304,
        ),
        ("Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB (rounded to 2415919104).  Current", 2304),
        (
            "Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB (rounded to 2415919104)requested by ",
            2304,
        ),
        ("Ran out of memory trying to allocate 2.25GiB.  See logs for memory state.", 2304),
    ],
)
def test_every_head_of_an_allocator_dump(head: str, requested: int) -> None:
    (oom,) = parse(f"W tensorflow/core/common_runtime/bfc_allocator.cc:273] {head}").ooms
    assert oom.requested_bytes == requested * MIB


@pytest.mark.parametrize(
    "free", ["Free at 0x7f1c4f000200 next 3 of size 2048", "Free  at 7f71a1ffe040 of size 2048 next 8"]
)
def test_every_spelling_of_a_free_chunk(free: str) -> None:
    at = "I bfc_allocator.cc:1] "
    log = (
        f"{at}Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.0KiB (rounded to 1024)\n"
        f"{at}{free}\n{at}Stats:\nLimit:  4096\nInUse:  1024\n"
    )
    (oom,) = parse(log).ooms
    assert oom.largest_free_bytes == 2048
    assert (oom.limit_bytes, oom.in_use_bytes) == (4096, 1024)


def test_two_root_errors_are_one_failure() -> None:
    text = (
        "OOM when allocating tensor with shape[16,112,112,147] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
    )
    (oom,) = parse(f"2 root error(s) found.\n  (0) Resource exhausted: {text}\n  (1) RESOURCE_EXHAUSTED: {text}").ooms
    assert oom.requested_bytes == 16 * 112 * 112 * 147 * 4
    assert oom.device == "GPU:0"


REFUSED = (
    "I0000 00:00:1795151782.{} 8525 cuda_executor.cc:522] failed to allocate {}.00MiB ({} bytes) "
    "from device: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory"
)


def test_an_allocator_that_backs_off_has_not_failed() -> None:
    sizes = [256, 230, 207] * 100
    found = parse("\n".join(REFUSED.format(i, size, size * MIB) for i, size in enumerate(sizes)))
    assert found.ooms == []
    assert (found.refusals.count, found.refusals.first_bytes, found.refusals.smallest_bytes) == (
        300,
        256 * MIB,
        207 * MIB,
    )


def test_one_size_refused_again_and_again_is_a_failure() -> None:
    found = parse("\n".join(REFUSED.format(i, 32, 32 * MIB) for i in range(500)))
    assert found.refusals.count == 500
    assert [(oom.requested_bytes, oom.verdict) for oom in found.ooms] == [(32 * MIB, "memory.other-process")]


TORCH = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate"
HINT = "If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation."


@pytest.mark.parametrize(
    ("message", "requested", "verdict"),
    [
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; "
            "8.57 GiB already allocated; 9.28 MiB free; 4.68 MiB cached)",
            12.5,
            "memory.model-too-large",
        ),
        (
            f"{TORCH} 3.00 GiB. GPU 0 has a total capacty of 23.65 GiB of which 1.66 GiB is free. Of the allocated "
            f"memory 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated. {HINT}",
            3072,
            "memory.fragmented",
        ),
        (
            f"{TORCH} 55.57 GiB. GPU 0 has a total capacity of 12.00 GiB of which 9.02 GiB is free. Of the allocated "
            f"memory 984.52 MiB is allocated by PyTorch, and 463.48 MiB is reserved by PyTorch but unallocated. {HINT}",
            56903.68,
            "memory.request-too-large",
        ),
        (
            f"{TORCH} 496.00 MiB. GPU 0 has a total capacity of 16.00 GiB of which 100.00 MiB is free. Process 20398 "
            "has 14.52 GiB memory in use. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 10.00 MiB is "
            "reserved by PyTorch but unallocated.",
            496,
            "memory.other-process",
        ),
    ],
)
def test_pytorch_tells_its_whole_story_in_one_line(message: str, requested: float, verdict: str) -> None:
    found = parse(message)
    (oom,) = found.ooms
    assert (oom.device, oom.requested_bytes, judge(oom, OomFacts()).cause) == (
        "GPU:0",
        int(requested * MIB),
        verdict,
    )
    assert oom.limit_bytes is None, "a device's memory is not a limit that somebody set"
    assert found.frameworks == ["pytorch"]


def test_pytorch_names_who_holds_memory_and_what_is_free() -> None:
    (oom,) = parse(
        f"{TORCH} 2.00 GiB. GPU 3 has a total capacity of 23.68 GiB of which 512.00 MiB is free. Process 4321 has "
        "20.00 GiB memory in use. Including non-PyTorch memory, this process has 3.10 GiB memory in use. Of the "
        "allocated memory 2.50 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated."
    ).ooms
    assert (oom.device_free_bytes, oom.free_bytes) == (512 * MIB, 512 * MIB)
    assert [(holder.pid, holder.held_bytes) for holder in oom.others] == [(4321, 20 * 1024 * MIB)]
    assert oom.process_bytes == int(3.1 * 1024 * MIB)


def test_pytorch_in_a_container_names_itself_by_another_pid() -> None:
    (oom,) = parse(
        f"{TORCH} 496.00 MiB. GPU 0 has a total capacity of 14.75 GiB of which 235.06 MiB is free. Process 20398 has "
        "14.52 GiB memory in use. Of the allocated memory 14.06 GiB is allocated by PyTorch, and 100.00 MiB is "
        "reserved by PyTorch but unallocated."
    ).ooms
    assert oom.others == ()
    assert oom.process_bytes == int(14.52 * 1024 * MIB)
    assert judge(oom, OomFacts()).cause == "memory.model-too-large"


def test_a_dump_whose_head_was_cut_off_is_still_an_oom() -> None:
    at = "> I tensorflow/core/common_runtime/bfc_allocator.cc:692] "
    (oom,) = parse(
        f"{at}22 Chunks of size 256 totalling 5.5KiB\n{at}Sum Total of in-use chunks: 2.00GiB\n"
        f"{at}Stats:\nLimit:  4294967296\n"
    ).ooms
    assert (oom.requested_bytes, oom.in_use_bytes, oom.limit_bytes) == (None, 2048 * MIB, 4096 * MIB)


def test_tensorflow_blames_the_environment() -> None:
    found = parse(
        "I0000 00:00:1.1 1 cuda_diagnostics.cc:165] CUDA_VISIBLE_DEVICES is set to -1 - this hides all GPUs from CUDA"
    )
    assert found.hiding_visible_devices == "-1"


def test_executions_count_and_the_functions_around_them_do_not() -> None:
    device = "/job:localhost/replica:0/task:0/device:GPU:0"
    eager = f"I0000 00:00:1.{{}} 1 execute.cc:1775] Executing op _MklMatMul in device {device}\n"
    placer = f"a: (_Arg): {device}\nMatMul: (MatMul): {device}\nproduct_RetVal: (_Retval): {device}\n"
    found = parse("".join(placer + eager.format(i) for i in range(7)))
    assert [(p.op, p.actual, p.count) for p in found.placements] == [("MatMul", "GPU:0", 7)]


def test_lines_that_overwrite_themselves_are_read_one_by_one() -> None:
    found = parse(f" 1/10 loss\r 2/10 loss\r{PREFIXES[1]}{MAPPINGS[3][0]}")
    assert len(found.device_map) == 1
    assert found.line_count == 1


@every(
    [
        ("0B", 0),
        ("268435456", 268435456),
        ("2.25GiB", 2415919104),
        ("7.81G", 8385923645),
        ("496.00 MiB", 520093696),
        ("32.00M", 33554432),
        ("1.5KiB", 1536),
        ("", None),
        ("lots", None),
        ("1.2.3GiB", None),
    ]
)
def test_sizes(text: str, expected: int | None) -> None:
    assert size_texts.size_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/job:localhost/replica:0/task:0/device:GPU:3", "GPU:3"),
        ("/device:CPU:0", "CPU:0"),
        ("/gpu:1", "GPU:1"),
        ("/GPU:7", "GPU:7"),
        ("cuda:2", "GPU:2"),
        ("/job:localhost/replica:0/task:0/cpu:0", "CPU:0"),
        ("/job:localhost/replica:0/task:0/device:CUSTOM:0", "CUSTOM:0"),  # of DTensor
        ("custom:1", "custom:1"),
        ("nowhere", "nowhere"),
    ],
)
def test_device_names(text: str, expected: str) -> None:
    assert device_names.device_name(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("/device:GPU:0", True),
        ("/device:XLA_GPU:0", True),
        ("cuda:1", True),
        ("rocm:0", True),
        ("/device:CPU:0", False),
        ("/job:cuda/replica:0/task:0/device:CPU:0", False),
        ("CUDA, not simulated", False),
    ],
)
def test_names_of_gpus(name: str, expected: bool) -> None:
    assert device_names.is_gpu(name) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("00000000:0A:00.0", "0000:0a:00.0"), ("0000:0a:00.0", "0000:0a:00.0"), ("<undefined>", None), (None, None)],
)
def test_pci_addresses_of_nvml_and_tensorflow_meet(text: str | None, expected: str | None) -> None:
    assert device_names.pci_address(text) == expected


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("_MklMatMul", "MatMul"),
        ("_MklNativeConv2D", "Conv2D"),
        ("__inference_train_step_1234", "train_step"),
        ("AddV2", "AddV2"),
    ],
)
def test_op_names(raw: str, name: str) -> None:
    assert op_name(raw) == name


@pytest.mark.parametrize("line", ["E0000 00:00:1.1 1 somewhere.cc:1] x {} y", "some.package.InternalError: x {} y"])
def test_every_text_of_the_table_is_found_in_native_lines_and_in_exceptions(line: str) -> None:
    assert [
        (needle, topic) for needle, topic in TEXTS_AND_TOPICS if topic not in parse(line.format(needle)).topics
    ] == []


@pytest.mark.thorough
def test_a_failure_that_is_cut_off_anywhere_is_still_one_failure() -> None:
    lines = text("lab_tf215_bfc_fragmentation_cpu").splitlines()
    at = next(i for i, line in enumerate(lines) if "OOM when allocating" in line)
    for column in range(0, len(lines[at]), 5):
        assert len(parse("\n".join([*lines[:at], lines[at][:column]])).ooms) == 1, lines[at][:column]


@pytest.mark.parametrize(
    "line",
    [
        # 1.4, 1.5 to 1.15, and the raw form on stdout
        "I tensorflow/core/common_runtime/simple_placer.cc:841] a/MatMul: (MatMul)/job:localhost/task:0/gpu:1",
        "2018-01-01 00:00:00.1: I tensorflow/core/common_runtime/placer.cc:874] a/MatMul: (MatMul)/job:x/device:GPU:1",
        "a/MatMul: (MatMul): /job:localhost/replica:0/task:0/device:GPU:1",
    ],
)
def test_placer_lines_of_every_version(line: str) -> None:
    (placement,) = parse(f"{line}\n{line}").placements
    assert (placement.op, placement.actual, placement.count) == ("MatMul", "GPU:1", 1)


class Forgetful(LogParser):
    """Remembers no message, so that every line is understood on its own."""

    def feed(self, line: str) -> None:
        self._memo.clear()
        super().feed(line)


@pytest.mark.thorough
def test_what_the_parser_remembers_changes_nothing_that_it_finds() -> None:
    """Every log twice, the second time with other numbers: a shape without a meaning must not hide one with."""
    for name in NAMES:
        shifted = re.sub(r"\d", lambda match: str((int(match[0]) + 1) % 10), text(name))
        quick, slow = LogParser(), Forgetful()
        for line in f"{shifted}\n{text(name)}\n{shifted}".split("\n"):
            quick.feed(line)
            slow.feed(line)
        for parser in (quick, slow):
            parser.close()
            parser.facts.unknown_gpu_lines.clear()  # of one shape one line is enough
        found, expected = quick.facts, slow.facts
        assert set(found.topics) == set(expected.topics), name
        for field in ("topics", "topic_line_numbers", "warnings_by_topic", "evidence", "placements"):
            setattr(found, field, getattr(expected, field))
        assert found == expected, name


def test_a_line_that_means_something_is_seen_among_many_that_do_not() -> None:
    noise = [f"step {i}: device GPU:{i % 4} memory {i} MB" for i in range(9000)]
    noise[7000] = "Created device /device:GPU:0 with 7 MB memory:  -> device: 0, name: X, pci bus id: 0000:01:00.0"
    noise[8000] = "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity)"
    found = parse("\n".join(noise))
    assert len(found.device_map) == 1
    assert [oom.requested_bytes for oom in found.ooms] == [13107200]
    assert found.line_count == 9000


def test_an_error_without_numbers_that_passes_a_failure_on_is_no_second_one() -> None:
    passed_on = (
        "W tensorflow/core/framework/local_rendezvous.cc:412] Local rendezvous is aborting with status: "
        "RESOURCE_EXHAUSTED: RecvDone unable to allocate output tensor. Key: edge_5"
    )
    numbered = (
        "W tensorflow/core/common_runtime/bfc_allocator.cc:502] Allocator (GPU_0_bfc) ran out of memory trying to "
        "allocate 66.75MiB (rounded to 69992448)requested by op Mul"
    )
    assert [oom.requested_bytes for oom in parse(f"{numbered}\n{passed_on}").ooms] == [69992448]
    assert len(parse(passed_on).ooms) == 1, "alone it is all that there is"


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("message", "mib"),
    [
        ("Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:3 with 350 MB memory) -> phys", 350),
        ("Created device /job:localhost/replica:0/task:0/device:GPU:3 with 350 MB memory:  -> device: 3, n", 350),
        ("Creating TensorFlow device (/device:GPU:3) -> (device: 3, name: NVIDIA Te", None),
    ],
)
def test_a_mapping_line_that_was_cut_off_tells_what_it_still_has(prefix: str, message: str, mib: int | None) -> None:
    (mapping,) = parse(prefix + message).device_map
    assert (mapping.framework_device, mapping.pci_bus_id) == ("/device:GPU:3", None)
    assert mapping.granted_bytes == (None if mib is None else mib * MIB)


@pytest.mark.parametrize("rest", ["", " (/job:localhost/replica:0/task:0/device:XLA_GPU:0", " (/job:localhost/repl"])
def test_a_mapping_line_that_was_cut_off_before_its_device_maps_nothing(rest: str) -> None:
    assert parse(f"{PREFIXES[1]}Created TensorFlow device{rest}").device_map == []


def test_the_whole_line_replaces_the_one_that_was_cut_off() -> None:
    line = PREFIXES[1] + MAPPINGS[2][0]
    (mapping,) = parse(f"{line[:160]}\n{line}").device_map
    assert (mapping.pci_bus_id, mapping.granted_bytes) == ("0000:01:00.0", 20545 * MIB)


def test_chunks_alone_are_what_is_left_of_a_dump() -> None:
    line = "I tensorflow/core/common_runtime/bfc_allocator.cc:632] Chunk at 0xf00 of size 256"
    (oom,) = parse(f"{line}\n{line}").ooms
    assert (oom.requested_bytes, oom.limit_bytes) == (None, None)


@pytest.mark.parametrize(("free", "cause"), [("11.06 MiB", "memory.fragmented"), ("2.35 GiB", "driver.bad-state")])
def test_what_the_driver_refuses_beside_free_memory_is_not_fragmentation(free: str, cause: str) -> None:
    (oom,) = parse(
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00"
        f" GiB of which {free} is free. Of the allocated memory 825.15 MiB is allocated by PyTorch, and 524.85 MiB is"
        " reserved by PyTorch but unallocated."
    ).ooms
    assert judge(oom, OomFacts()).cause == cause


def test_an_exception_that_quotes_a_source_is_an_exception() -> None:
    line = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]:28"
    for prefix in ("", "[rank0]: ", "2026-11-20T07:00:01.5Z stderr F "):
        facts = parse(f"{prefix}{line}\n{prefix}{line}")
        assert [error.type for error in facts.errors] == ["RuntimeError"]
        assert facts.last_error_line == 2
    tensorflow = "2026-05-04 10:11:12.1: E tensorflow/core/x.cc:12] InternalError: no"
    assert parse(tensorflow).errors == []


@pytest.mark.parametrize("key", ["exception", "exc_info", "stack_trace"])
def test_the_traceback_beside_the_text_of_a_json_line(key: str) -> None:
    trace = 'Traceback (most recent call last):\\n  File \\"a.py\\", line 3, in f\\n    x()\\nKeyError: 3'
    facts = parse(f'{{"event": "failed", "level": "error", "{key}": "{trace}"}}')
    assert [error.type for error in facts.errors] == ["KeyError"]
    assert facts.line_count == 1


def test_plugins_of_nccl_are_optional() -> None:
    line = "n1:77:99 [0] NCCL INFO NET/Plugin: Could not find: {}. Using internal network plugin."
    assert parse(line.format("libnccl-net.so")).missing_libraries == []
    assert parse("ImportError: libnccl.so.2: cannot open shared object file").missing_libraries == ["libnccl.so.2"]
