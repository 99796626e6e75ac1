"""Properties that hold whatever a log contains."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import product, zip_longest

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpuwatch.explain.logs.log_facts import LINES_PER_TOPIC, LogFacts
from gpuwatch.explain.logs.log_parser import LogParser, parse
from gpuwatch.explain.logs.multiline_messages import MAX_LIST_ENTRIES
from gpuwatch.explain.logs.oom_collector import MAX_OOMS
from tests.logs.logs import NAMES, text

SCRAPS = st.sampled_from(
    [
        "2024-01-01 00:00:00.1: I tensorflow/core/gpu_device.cc:1] ",
        "E0000 00:00:1.1 1 bfc_allocator.cc:1] ",
        "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 13762 MB memory:  -> device: ",
        "0, name: X, pci bus id: 0000:00:04.0, compute capability: 7.5",
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate ",
        "99999999999999999999GiB (rounded to 9999999999999999999999)",
        "OOM when allocating tensor with shape[1,2,] and type float on /device:GPU:0 by allocator GPU_0_bfc",
        "Colocation Debug Info:",
        "Root Member(requested_device_name_='/device:GPU:0' supported_device_types_=[CPU] x",
        "Colocation members, user-requested devices",
        "  a (B) /device:GPU:0",
        "failed call to cuInit: CUDA_ERROR_",
        "Executing op MatMul in device /device:GPU:0",
        "x: (MatMul): /job:localhost/replica:0/task:0/device:CPU:0",
        "failed to allocate 1B (1 bytes) from device",
        "Limit: 1.1.1",
        "InUse: 99",
        "ValueError: ",
        "\r",
        "\x1b[31m",
        "> ",
    ]
)
LINES = st.lists(st.one_of(st.text(max_size=60), SCRAPS), max_size=6).map("".join)


@pytest.mark.thorough
@settings(max_examples=200, deadline=None)
@given(st.lists(LINES, max_size=25))
@example(["(", "\ud800", "\x00", ".cc:", ".cc:1]", "] .cc:"])
def test_never_raises_and_counts_every_line(lines: list[str]) -> None:
    parser = LogParser()
    for line in lines:
        parser.feed(line)
        assert isinstance(parser.facts, LogFacts)
    parser.close()
    assert parser.facts.line_count == len(lines)


def essence(found: LogFacts) -> dict[str, object]:
    """The facts without the lines that are quoted as evidence."""
    plain = msgspec.to_builtins(found)
    for name in (
        "evidence",
        "unknown_gpu_lines",
        "line_count",
        "last_error_line",
        "topic_line_numbers",
        "last_survived_error_line",
        "error_places",
        "last_frame_line",
        "open_traceback_line",
        "driver_messages",
        "ending_line",
        "last_warning",
        "last_line",
        "last_lines",
        "unexplained_failure_line",
        "ending_kind",  # a collector's level is part of it
        "logged_error",
        "ending_line_is_last",
        "lines_after_ending_line",
        "last_output_line",
    ):
        del plain[name]
    # A decoration may tell who handed the log on.
    plain["topics"] = {topic: count for topic, count in found.topics.items() if not topic.startswith("environment.")}
    return plain


@cache
def whole(name: str) -> LogFacts:
    """What is read of an undamaged log; do not change it."""
    return parse(text(name))


@cache
def essence_of(name: str) -> dict[str, object]:
    return essence(whole(name))


DECORATIONS: dict[str, Callable[[int, str], str]] = {
    "quoted": lambda i, line: f"> {line}",
    "quoted twice": lambda i, line: f">> {line}",
    "commented": lambda i, line: f"# {line}",
    "listed": lambda i, line: f"- {line}",
    "indented": lambda i, line: f"    {line}",
    "coloured": lambda i, line: f"\x1b[33m{line}\x1b[0m",
    "ranked": lambda i, line: f"[rank3]: {line}",
    "windows": lambda i, line: f"{line}\r\n",
    "numbered": lambda i, line: f"{i:6d}  {line}",
    "found by grep": lambda i, line: f"train.log:{i}:{line}",
    "of a web page": lambda i, line: line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
    "of a notebook's file": lambda i, line: "      " + json.dumps(line + "\n") + ",",
    "of Docker": lambda i, line: json.dumps(
        {"log": line + "\n", "stream": "stderr", "time": f"2026-11-20T07:00:01.{i}Z"}
    ),
    "of Jupyter": lambda i, line: json.dumps({"pid": 7, "type": "jupyter", "level": 40, "msg": line, "v": 0}),
    "of a cloud": lambda i, line: json.dumps({"severity": "ERROR", "jsonPayload": {"message": line}}),
    "of Kubernetes": lambda i, line: f"2026-11-20T07:00:01.{i:09d}Z stderr F {line}",
    "of Actions": lambda i, line: f"2026-11-20T07:00:01.{i:07d}Z {line}",
    "of the journal": lambda i, line: f"Nov 20 07:00:{i % 60:02d} gpu-box python3[4211]: {line}",
    "of Compose": lambda i, line: f"trainer-1  | {line}",
    "of mpirun": lambda i, line: f"[1,0]<stderr>:{line}",
    "of SageMaker": lambda i, line: f"[1,mpirank:0,algo-1]<stdout>:{line}",
    "of srun": lambda i, line: f"12: {line}",
    "of torchrun": lambda i, line: f"[default0]:{line}",
    "of Ray": lambda i, line: f"\x1b[36m(RayTrainWorker pid=3121, ip=10.0.0.4)\x1b[0m {line}",
    "of Airflow": lambda i, line: f"[2026-11-20, 07:00:01 UTC] {{subprocess.py:93}} INFO - {line}",
    "of Spark": lambda i, line: f"26/11/20 07:00:01 ERROR Executor: {line}",
    "of logging": lambda i, line: f"2026-11-20 07:00:01,{i % 1000:03d} - train - ERROR - {line}",
    "of logging's own": lambda i, line: f"ERROR:root:{line}",
    "of loguru": lambda i, line: f"2026-11-20 07:00:01.{i % 1000:03d} | ERROR    | trainer:fit:120 - {line}",
    "of DeepSpeed": lambda i, line: f"[2026-11-20 07:00:01,{i % 1000:03d}] [INFO] [launch.py:31] {line}",
}


@pytest.mark.thorough
@pytest.mark.parametrize("turn", range(3))
def test_decoration_changes_nothing(turn: int) -> None:
    """Every decoration on a third of the logs, and every log in a third of the decorations."""
    wrong = []
    for (place, name), (number, (decoration, decorate)) in product(enumerate(NAMES), enumerate(DECORATIONS.items())):
        if place % 3 == (number + number // 3) % 3 == turn:
            parser = LogParser()
            for at, line in enumerate(text(name).splitlines()):
                parser.feed(decorate(at, line))
            parser.close()
            if essence(parser.facts) != essence_of(name):
                wrong.append((name, decoration))
    assert not wrong


@pytest.mark.thorough
def test_the_same_log_again_adds_no_device_and_no_failure() -> None:
    for name in NAMES:
        once, twice = whole(name), parse(text(name) + "\n" + text(name))
        for field in ("device_map", "ooms", "missing_libraries", "ignored_gpus", "errors", "colocations"):
            assert getattr(twice, field) == getattr(once, field), (name, field)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(NAMES), st.integers(0, 200), st.integers(0, 400))
@example("lab_tf215_bfc_fragmentation_cpu", 84, 205)
def test_a_log_cut_anywhere_is_still_read(name: str, line: int, column: int) -> None:
    lines = text(name).splitlines()[: line + 1]
    lines[-1] = lines[-1][:column]
    found = parse("\n".join(lines))
    assert len(found.device_map) <= len(whole(name).device_map)
    assert len(found.ooms) <= len(whole(name).ooms)


@pytest.mark.thorough
def test_memory_stays_bounded_in_a_flood_of_different_lines() -> None:
    parser = LogParser()
    for i in range(3000):
        parser.feed(f"OOM when allocating tensor with shape[{i}] and type float on /device:GPU:{i} by allocator A{i}")
        parser.feed(f"Error{i}Error: device CUDA {i}")
        parser.feed(f"Could not load dynamic library 'lib{i}.so'; dlerror: CUDA")
        parser.feed(f"n{i}: (Op{i}): /job:localhost/replica:0/task:0/device:GPU:{i}")
    parser.close()
    found = parser.facts
    assert len(found.ooms) == MAX_OOMS
    assert len(found.missing_libraries) == MAX_LIST_ENTRIES
    assert len(found.errors) <= MAX_LIST_ENTRIES
    assert len(found.placements) <= 2000
    assert all(len(lines) <= LINES_PER_TOPIC for lines in found.evidence.values())


def test_two_processes_that_write_at_once_keep_their_own_numbers() -> None:
    """Each line of 2.21 names its thread; those of the Stats block do not, and are given to nobody."""
    one, other = (text(name).splitlines() for name in ("lab_tf221_bfc_fragmentation_cpu", "stub_tf221_gpu_bfc_oom"))
    mixed = [line for pair in zip_longest(one, other) for line in pair if line is not None]
    found = {oom.allocator: oom for oom in parse("\n".join(mixed)).ooms}
    for lines in (one, other):
        (alone,) = parse("\n".join(lines)).ooms
        together = found[alone.allocator]
        assert together.requested_bytes == alone.requested_bytes
        assert together.limit_bytes == alone.limit_bytes
        assert together.largest_free_bytes == alone.largest_free_bytes
        assert together.in_use_bytes == pytest.approx(alone.in_use_bytes, abs=1 << 20)
