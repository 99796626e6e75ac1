"""Where the ops of a watched program ran, joined with where it wanted them.

TensorFlow's log says where an op ran and never what was asked; the watching thread says what was asked,
and of an op in a graph not where it ran. Joined by the type of the op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuwatch.logs.clean import device
from gpuwatch.model.run import Placement

_PLUMBING = ("Anonymous", "Dataset", "DeleteIterator", "Iterator", "MultiDeviceIterator", "Optional")
"""Ops of input pipelines, for which Keras asks and which nobody minds on the CPU."""

Placed = Mapping[tuple[str, str, str, str | None], int]


def joined(placed: Placed, log: Sequence[Placement]) -> tuple[Placement, ...]:
    """Ops that were asked for a device with that device, the others as the log has them."""
    placed = {key: count for key, count in placed.items() if not key[0].startswith(_PLUMBING)}
    eager = [
        Placement(op=op, dtype=dtype, requested=_short(asked), actual=_short(actual) or "", count=count)
        for (op, dtype, asked, actual), count in placed.items()
        if actual is not None
    ]
    wanted: dict[str, set[tuple[str, str]]] = {}
    for (op, dtype, asked, actual), _ in placed.items():
        if actual is None and (short := _short(asked)) is not None:
            wanted.setdefault(op, set()).add((short, dtype))
    told = {(entry.op, entry.actual) for entry in eager}
    rest: list[Placement] = []
    for entry in log:
        if (entry.op, entry.actual) in told:
            continue
        asked_of = wanted.get(entry.op, set())
        if len({asked for asked, _ in asked_of}) == 1:
            (asked, dtype), *_ = sorted(asked_of)
            entry = Placement(op=entry.op, dtype=dtype, requested=asked, actual=entry.actual, count=entry.count)
        rest.append(entry)
    return (*eager, *rest)


def _short(name: str | None) -> str | None:
    """``GPU:0``; None where only a host was asked for."""
    if not name:
        return None
    short = device(name)
    return short if short.startswith(("GPU", "CPU")) else None
