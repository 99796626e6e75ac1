"""Memory that grows steadily, and when it would be full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gpuwatch.diagnosis.overtime.look import BUCKET, Bucket, Look
from gpuwatch.diagnosis.overtime.registry import LastingRule, lasting
from gpuwatch.diagnosis.overtime.stretch import Sign, Stretch
from gpuwatch.diagnosis.overtime.words import lasted, span
from gpuwatch.diagnosis.registry import finding
from gpuwatch.diagnosis.rules.words import seen_as, who
from gpuwatch.formatting.units import size
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Process

_WINDOW = 10
"""Buckets: growth must go on for more than a minute and a half."""
_STEPS = 0.75
"""Share of the buckets in which it must have grown."""
_HALF = 0.5
"""Share of the device below which growth is no worry yet."""
_SOON = 600.0
_LOADING = 300.0
"""Age in seconds below which the largest holder may still be loading its model, which ends by itself."""


def to_full(buckets: Sequence[Bucket], total: float) -> tuple[float, float] | None:
    """Bytes per second and seconds until ``total`` is reached; None unless it grows steadily towards it.

    The slower of the whole window's rate and its last third's counts: a start-up that levels off is no leak.
    """
    used = [bucket.memory for bucket in buckets if bucket.memory is not None]
    if len(used) < _WINDOW or used[-1] < _HALF * total:
        return None
    grown = sum(later > earlier for earlier, later in pairwise(used))
    if grown < _STEPS * (len(used) - 1) or any(later < 0.99 * earlier for earlier, later in pairwise(used)):
        return None
    third = len(used) // 3
    rate = min(
        (used[-1] - used[0]) / (BUCKET * (len(used) - 1)),
        (used[-1] - used[-1 - third]) / (BUCKET * third),
    )
    return (rate, max(total - used[-1], 0.0) / rate) if rate > 0 else None


def _holder(look: Look, uuid: str) -> Process | None:
    return max(look.on(uuid), key=lambda row: row.number("gpu_memory_bytes") or 0, default=None)


def _loading(look: Look, uuid: str) -> bool:
    holder = _holder(look, uuid)
    age = holder.number("run_seconds") if holder is not None else None
    return age is not None and age < _LOADING


@lasting
class Filling(LastingRule):
    """At this pace the device is full within ten minutes."""

    causes = ("memory.model-too-large",)
    looks_for = "memory that grows until it is full"
    needs = ("memory.used_bytes", "memory.total_bytes")
    appears = 20.0
    leaves = 30.0

    def signs(self, look: Look) -> Iterator[Sign]:
        """Per device."""
        for uuid, device in look.devices.items():
            total, series = device.number("memory.total_bytes"), look.memory.devices.get(uuid)
            grows = to_full(series.whole(_WINDOW), total) if series is not None and total else None
            if grows is not None and grows[1] <= _SOON and not _loading(look, uuid):
                yield Sign(
                    cause="memory.model-too-large",
                    device=device,
                    about="filling",
                    numbers={"rate": grows[0], "seconds": grows[1], "used": device.number("memory.used_bytes")},
                )

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """With the largest holder, who need not be the one that grows."""
        device = stretch.sign.device
        assert device is not None
        rate, left, used = (stretch.figure(name) for name in ("rate", "seconds", "used"))
        if rate is None or left is None or used is None:
            return None
        first = _holder(look, device.uuid)
        return finding(
            "memory.model-too-large",
            "warning",
            "likely",
            title=f"{seen_as(device)}'s memory grows and would be full in about {span(left.last)}",
            evidence=(
                f"{size(used.last)} of {size(device.number('memory.total_bytes'))} are used",
                f"it grows by {size(rate.last * 60)} a minute, steadily {lasted(stretch, look.at)}",
                f"most is held by {who(first)}: {size(first.number('gpu_memory_bytes'))}" if first is not None else "",
            ),
            action="Look for what keeps tensors alive between steps (lists of losses, growing shapes).",
            device_uuid=device.uuid,
            pid=first.pid if first is not None else None,
        )
