"""JAX's device memory profiles and PyTorch's memory timelines."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gpuwatch.explain.traces import InvalidTrace, jax_pprof, torch_memory_timeline
from gpuwatch.explain.traces.largest_holder import describe_largest_holder
from tests.conftest import gpuwatch
from tests.traces.profiles import field, varint

CAPTURES = Path(__file__).parents[3] / "shared/captures"
JAX = "/x/lib/python3.11/site-packages/jax/_src/"
Frame = tuple[str, str, int]


def profile(
    *samples: tuple[list[Frame], int, int, dict[str, str]], values: tuple[str, ...] = ("allocations", "space")
) -> bytes:
    """A profile of samples: frames from the innermost, allocations, bytes, labels."""
    strings = [""]

    def named(text: str) -> int:
        if text not in strings:
            strings.append(text)
        return strings.index(text)

    made = b"".join(field(1, field(1, named(name)) + field(2, named("bytes"))) for name in values)
    frames: list[Frame] = []
    for stack, count, held, labels in samples:
        frames += [frame for frame in stack if frame not in frames]
        keys = b"".join(varint(frames.index(frame) + 1) for frame in stack)
        told = b"".join(field(3, field(1, named(key)) + field(2, named(text))) for key, text in labels.items())
        made += field(2, field(1, keys) + field(2, varint(count) + varint(held)) + told)
    for number, (file, function, line) in enumerate(frames, 1):
        made += field(4, field(1, number) + field(4, field(1, number) + field(2, line)))
        made += field(5, field(1, number) + field(2, named(function)) + field(4, named(file)))
    return made + b"".join(field(6, text.encode()) for text in strings)


MAIN = ("/home/u/train.py", "<module>", 9)
STEP = ("/home/u/model.py", "step", 4)
BIND = (f"{JAX}core.py", "bind", 1)
SAMPLES = (
    ([BIND, (f"{JAX}numpy/lax_numpy.py", "zeros", 7), STEP, MAIN], 2, 8192, {"kind": "buffer", "device": "cuda:1"}),
    ([(f"{JAX}compiler.py", "backend_compile", 7), STEP, MAIN], 1, 1000, {"kind": "executable"}),
    ([BIND], 1, 24, {"kind": "buffer", "device": "cuda:1"}),
)


def test_holders_by_line_with_the_function_that_it_called() -> None:
    (found,) = jax_pprof.profiles(profile(*SAMPLES))
    assert (found.tool, found.device, found.peak_bytes, found.has_history) == ("jax", "cuda:1", 9216, False)
    assert found.groups == {"arrays": 8216, "executables": 1000}
    assert [(one.source, one.op, one.count, one.allocated_bytes) for one in found.holders] == [
        ("model.py:4 in step", "zeros", 2, 8192),
        ("model.py:4 in step", "", 1, 1000),
        ("", "", 1, 24),
    ]
    assert describe_largest_holder(found) == (
        "In use on cuda:1 when the snapshot was taken: 9.0 KiB (it has no history), arrays held the most: 8.0 KiB"
        " (89 %), by model.py:4 in step (zeros) ×2"
    )


def test_several_devices_each_have_a_profile() -> None:
    other = ([STEP, MAIN], 1, 99, {"kind": "buffer", "device": "cuda:0"})
    found = jax_pprof.profiles(profile(*SAMPLES, other))
    assert [(one.device, one.peak_bytes) for one in found] == [("cuda:1", 8216), ("all devices", 1000), ("cuda:0", 99)]


def test_a_profile_of_something_else_is_refused() -> None:
    with pytest.raises(InvalidTrace, match="pprof profile of cpu, not of a device's memory"):
        jax_pprof.profiles(profile(values=("cpu",)))


@pytest.mark.parametrize("packed", [True, False])
def test_the_command_reads_both_packed_or_not(packed: bool, tmp_path: Path) -> None:
    timeline = json.dumps([[-1, 1, 4096, 0], [1000, 2, 1024, 4], [2000, 3, -1024, 4], [2000, 3, 1024, 5]]).encode()
    for kind, content in (("JAX memory profile", profile(*SAMPLES)), ("PyTorch memory timeline", timeline)):
        path = tmp_path / kind
        path.write_bytes(gzip.compress(content) if packed else content)
        done = gpuwatch("explain", str(path))
        assert (done.code, done.err) == (0, "")
        assert kind in done.out


def test_a_cut_ends_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "memory.prof"
    path.write_bytes(gzip.compress(profile(*SAMPLES)[:-7]))
    assert "truncated" in gpuwatch("explain", str(path)).err


def test_a_timeline_has_groups_over_time() -> None:
    entries = [[-1, 1, 4096, 0], [1000, 2, 1024, 4], [1500, 3, -1024, 4], [1500, 3, 1024, 5], [2000, 4, -1024, 5]]
    found = torch_memory_timeline.profile(json.dumps(entries).encode())
    assert (found.peak_bytes, found.groups) == (5120, {"weights": 4096, "activations": 1024})
    assert [moment.groups.get("gradients", 0) for moment in found.moments] == [0, 1024, 0]
    assert describe_largest_holder(found).endswith("the weights held the most: 4.0 KiB (80 %)")
    for broken in (b"[[1,2,3]]", b"[[1,2,3,4]", b"[[1,2,3,99999999999999999999999]]"):
        with pytest.raises(InvalidTrace):
            torch_memory_timeline.profile(broken)


def test_real_files() -> None:
    if not CAPTURES.exists():
        pytest.skip("there are no captures")
    (found,) = jax_pprof.profiles(gzip.decompress((CAPTURES / "jax_microjax.memory.prof").read_bytes()))
    assert (found.device, found.peak_bytes, found.named_bytes) == ("cuda:0", 1_055_160, 1_055_160)
    assert "lightcurve.py:57 in chunked_vmap" in describe_largest_holder(found)
    timeline = torch_memory_timeline.profile(gzip.decompress((CAPTURES / "hta_memory_timeline.raw.gz").read_bytes()))
    assert max(timeline.groups, key=lambda name: timeline.groups[name]) == "activations"
