"""MIG layouts of simulated GPUs, as text: ``1g,-,2g,3g``.

Each part is an instance with this number of compute slices (1, 2, 3, 4 or 7). ``-`` leaves an index empty, as after an
instance was destroyed; ``1c.2g`` is a compute instance of one slice in a GPU instance of two. ``on`` is MIG without
instances.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpuwatch.core.errors import UsageError

MAX_INSTANCES: Final = 8
_EXAMPLE: Final = "for example 1g,1g,-,2g,3g; - leaves an index empty; on: MIG without instances; off: no MIG"
_PART: Final = re.compile(r"(?:([1-7])c\.)?([12347])g")
_COMPUTE_SLICES: Final = 7
_MEMORY_SLICES: Final = 8
# The first GPU instance id of each profile, as on real cards.
_FIRST_INSTANCE_ID: Final = {7: 0, 4: 1, 3: 1, 2: 3, 1: 7}
_MEMORY_SLICES_OF_PROFILE: Final = {1: 1, 2: 2, 3: 4, 4: 4, 7: 8}


@dataclass(frozen=True, slots=True)
class SimInstance:
    """One MIG instance."""

    index: int
    gpu_instance: int
    compute_instance: int
    gpu_slices: int
    compute_slices: int

    def __str__(self) -> str:
        compute = "" if self.compute_slices == self.gpu_slices else f"{self.compute_slices}c."
        return f"{compute}{self.gpu_slices}g"


def parse_layout(text: str) -> tuple[SimInstance, ...] | None:
    """The instances of a layout; None for ``off``, a GPU without MIG.

    Raises:
        UsageError: it is not a layout, or does not fit on a GPU.
    """
    text = text.strip().lower()
    if text == "off":
        return None
    parts = [] if text == "on" else [part.strip() for part in text.split(",")]
    if len(parts) > MAX_INSTANCES:
        raise _layout_error(text, f"more than {MAX_INSTANCES} instances")
    found: list[SimInstance] = []
    spare_slices: dict[int, int] = {}  # GPU instances with compute slices to spare
    compute = memory = 0
    for index, part in enumerate(parts):
        if part == "-":
            continue
        match = _PART.fullmatch(part)
        if not match:
            raise _layout_error(text, f"{part!r} is not a profile (1g, 2g, 3g, 4g, 7g, 1c.2g)")
        slices = int(match[2])
        wanted = int(match[1] or slices)
        if wanted > slices:
            raise _layout_error(text, f"{part} has more compute slices than its GPU instance")
        with_room = [i for i in found if i.gpu_slices == slices and spare_slices[i.gpu_instance] >= wanted]
        if match[1] and with_room:
            instance = with_room[-1].gpu_instance
        else:
            instance = _free_id(slices, spare_slices)
            spare_slices[instance] = slices
            compute, memory = compute + slices, memory + _MEMORY_SLICES_OF_PROFILE[slices]
        number = sum(i.gpu_instance == instance for i in found)
        spare_slices[instance] -= wanted
        found.append(SimInstance(index, instance, number, slices, wanted))
    if compute > _COMPUTE_SLICES or memory > _MEMORY_SLICES:
        raise _layout_error(text, "a GPU has 7 compute slices and 8 memory slices (3g takes 4 memory slices, 7g all 8)")
    return tuple(found)


def layout_text(instances: Iterable[SimInstance]) -> str:
    """The layout as text that :func:`parse_layout` reads back."""
    by_index = {instance.index: str(instance) for instance in instances}
    return ",".join(by_index.get(i, "-") for i in range(max(by_index, default=-1) + 1)) or "on"


def _free_id(slices: int, used_ids: dict[int, int]) -> int:
    number = _FIRST_INSTANCE_ID[slices]
    while number in used_ids:
        number += 1
    return number


def _layout_error(text: str, why: str) -> UsageError:
    return UsageError(f"not a MIG layout: {text!r}: {why}", hint=_EXAMPLE)
