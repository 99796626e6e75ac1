"""JAX's device memory profiles (``jax.profiler.save_device_memory_profile``): arrays and programs alive, with stacks.

Format: github.com/google/pprof/blob/main/proto/profile.proto, usually in gzip. A sample has a stack, innermost first,
how many allocations and bytes, and labels: ``kind`` (``buffer`` or ``executable``) and ``device``.
"""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.memory_profile import AllocationGroup, Group, MemoryProfile
from gpuwatch.core.safe_text import printable
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.explain.traces import InvalidTrace
from gpuwatch.explain.traces.allocation_stacks import MAX_FRAMES, StackReader
from gpuwatch.explain.traces.protobuf_reader import BYTES, VARINT, fields, signed, text, varint

MAX_SAMPLES = 500_000
_MAX_FRAMES_READ = 20_000_000
_MAX_HOLDERS = 200
_MAX_NANOSECONDS = 1 << 62
_MAX_NAME_CHARS = 100
_GROUPS: dict[str, Group] = {"buffer": "arrays", "executable": "executables"}
_PUBLIC_FUNCTION_FILE = re.compile(r"/jax/_src/(?:numpy|lax|nn|scipy|ops|image|random\.py)|^(?!.*/jax/)")
_WRAPPERS = frozenset({"deferring_binary_op", "wrapper", "wrapped"})


class Sample(NamedTuple):
    """Allocations of one stack that are alive."""

    line: str
    """``train.py:12 in step``; empty if no frame of the program is in the stack."""
    called_function: str
    """The library's function that the line called, such as ``broadcast_in_dim``; empty for none."""
    allocation_count: int
    held_bytes: int
    """All of them together."""
    kind: str
    device: str


def is_pprof(start: bytes) -> bool:
    """Whether it begins with a value type, which is two indices into the table of texts."""
    return start[:1] == b"\n" and 4 <= (start[1:2] or b"\0")[0] <= 8 and start[2:3] == b"\x08"


def _read(data: bytes) -> tuple[list[Sample], int]:
    """The samples of a profile, and the nanoseconds since 1970 when it was taken; 0 if the file does not say."""
    strings: list[str] = []
    value_types: list[tuple[int, int]] = []
    samples: list[tuple[int, int]] = []
    functions: dict[int, tuple[int, int]] = {}
    locations: dict[int, tuple[int, int]] = {}
    taken_at = 0
    for number, kind, start, end in fields(data, 0, len(data)):
        if number == 9 and kind == VARINT:
            taken_at = signed(start)
        if kind != BYTES:
            continue
        if number == 6:
            strings.append(text(data, start, min(end, start + 4096)))
        elif number == 1:
            value_types.append(_number_fields(data, start, end, 1, 2))
        elif number == 2:
            if len(samples) >= MAX_SAMPLES:
                raise InvalidTrace(f"it has more than {MAX_SAMPLES:,} samples")
            samples.append((start, end))
        elif number == 4:
            key, _ = _number_fields(data, start, end, 1, 3)
            locations[key] = start, end
        elif number == 5:
            key, name = _number_fields(data, start, end, 1, 2)
            functions[key] = name, _number_fields(data, start, end, 4, 5)[0]

    def text_at(number: int) -> str:
        return strings[number] if 0 <= number < len(strings) else ""

    values = {text_at(name): place for place, (name, _) in enumerate(value_types)}
    if "space" not in values:
        shown = ", ".join(name for name in values if name) or "nothing"
        raise InvalidTrace(f"it is a pprof profile of {printable(shown[:80])}, not of a device's memory")
    named_functions = {
        key: {"name": text_at(name), "filename": text_at(file)} for key, (name, file) in functions.items()
    }
    unknown = {"name": "", "filename": ""}
    frames = {
        key: [named_functions.get(of, unknown) | {"line": line} for of, line in _functions_and_lines(data, start, end)]
        for key, (start, end) in locations.items()
    }
    stacks = StackReader()
    found: list[Sample] = []
    left = _MAX_FRAMES_READ
    for start, end in samples:
        keys, amounts, labels = _parse_sample(data, start, end)
        stack = [frame for key in keys[:MAX_FRAMES] for frame in frames.get(key, ())][:MAX_FRAMES]
        left -= len(stack)
        if left < 0:
            raise InvalidTrace(f"its stacks have more than {_MAX_FRAMES_READ:,} frames")
        label_texts = {text_at(key): text_at(value) for key, value in labels}
        line = stacks.read(stack).line
        by_name = {name: amounts[place] for name, place in values.items() if place < len(amounts)}
        count, held_bytes = max(by_name.get("allocations", 1), 0), max(by_name.get("space", 0), 0)
        of_labels = label_texts.get("kind", ""), label_texts.get("device", "")
        found.append(Sample(line, _called_function(stack, line), count, held_bytes, *of_labels))
    return [sample._replace(line=stacks.shorten(sample.line)) for sample in found], taken_at


def profiles(data: bytes) -> list[MemoryProfile]:
    """A profile for each device, the fullest first; :class:`InvalidTrace` if it is cut off or is none of memory."""
    samples, taken_at = _read(data)
    devices = {sample.device for sample in samples if sample.device}
    alone = next(iter(devices)) if len(devices) == 1 else "all devices"
    by_device = group_by(samples, lambda sample: sample.device or alone)
    at = utc_datetime(taken_at / 1e9) if 0 < taken_at < _MAX_NANOSECONDS else None
    found = [_profile(device, samples, at) for device, samples in by_device.items()]
    return sorted((profile for profile in found if profile.peak_bytes), key=lambda profile: -profile.peak_bytes)


def _profile(device: str, samples: list[Sample], at: datetime.datetime | None) -> MemoryProfile:
    alike = group_by(samples, lambda sample: (sample.line, sample.called_function, sample.kind))
    holders = [
        AllocationGroup(
            op=called,
            source=line,
            group=_GROUPS.get(kind, "unattributed"),
            count=sum(sample.allocation_count for sample in alike_samples),
            allocated_bytes=sum(sample.held_bytes for sample in alike_samples),
            requested_bytes=sum(sample.held_bytes for sample in alike_samples),
        )
        for (line, called, kind), alike_samples in alike.items()
    ]
    holders.sort(key=lambda op: (-op.allocated_bytes, op.source))
    groups: Counter[str] = Counter()
    for holder in holders:
        groups[holder.group] += holder.allocated_bytes
    total = groups.total()
    return MemoryProfile(
        tool="jax",
        device=device,
        allocator="XLA",
        peak_bytes=total,
        peak_seconds=0.0,
        live_bytes=total,
        requested_bytes=total,
        named_bytes=sum(holder.allocated_bytes for holder in holders if holder.source),
        holders=tuple(holders[:_MAX_HOLDERS]),
        more_bytes=sum(holder.allocated_bytes for holder in holders[_MAX_HOLDERS:]),
        groups=dict(groups.most_common()),
        has_history=False,
        timed=False,
        ended_at=at,
        events=sum(holder.count for holder in holders),
        notes=("a device memory profile has neither a peak, nor the scratch memory of programs while they run",),
    )


def _parse_sample(data: bytes, begin: int, end: int) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    keys: list[int] = []
    amounts: list[int] = []
    labels: list[tuple[int, int]] = []
    for number, kind, start, stop in fields(data, begin, end):
        into = keys if number == 1 else amounts if number == 2 else None
        if into is not None and kind == VARINT:
            into.append(signed(start))
        elif into is not None and kind == BYTES:
            while start < stop and len(into) < 4 * MAX_FRAMES:
                value, start = varint(data, start, stop)
                into.append(signed(value))
        elif number == 3 and kind == BYTES:
            labels.append(_number_fields(data, start, stop, 1, 2))
    return keys, amounts, labels


def _number_fields(data: bytes, begin: int, end: int, first: int, second: int) -> tuple[int, int]:
    """The fields ``first`` and ``second`` of a message, which are numbers; 0 for one that is not there."""
    found = {number: start for number, kind, start, _ in fields(data, begin, end) if kind == VARINT}
    return found.get(first, 0), signed(found.get(second, 0))


def _functions_and_lines(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Function and line of a location, innermost first where functions were inlined."""
    for number, kind, start, stop in fields(data, begin, end):
        if number == 4 and kind == BYTES:
            yield _number_fields(data, start, stop, 1, 2)


def _called_function(stack: list[dict[str, Any]], line: str) -> str:
    """The function of JAX that the program's line called; functions that wrap many others are skipped."""
    place = next((number for number, frame in enumerate(stack) if line and line.startswith(f"{frame['filename']}:")), 0)
    for frame in reversed(stack[:place]):
        name = frame["name"]
        if name not in _WRAPPERS and name[:1] != "_" and _PUBLIC_FUNCTION_FILE.search(frame["filename"]):
            return str(name)[:_MAX_NAME_CHARS]
    return ""
