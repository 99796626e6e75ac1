"""The ops of a probe or a watched program: the device that it requested for each, and where it ran.

A probe reports those of its work, the processes of a watched program count all
(``probes/_gpuwatch_watch/_gpuwatch_placement.py``); here the counts of all processes become one list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from gpuwatch.core.model.run import DeviceCopy, Devices, Placement, PlacementCoverage
from gpuwatch.explain.logs.op_placement_lines import op_name, sorted_copies, sorted_placements
from gpuwatch.explain.logs.sizes_and_device_names import device_name

_MAX_OP_KINDS = 4000
"""Kinds of op that are kept of one process."""


class PlacedOps:
    """What one process has counted."""

    def __init__(self) -> None:
        self.counts: dict[Placement, int] = {}
        """By op, request and place; ``count`` of the keys is 1."""
        self.copies: dict[tuple[str, int, str, str], int] = {}
        self.nodes = self.unclear = 0

    def add_placement(self, data: dict[str, Any]) -> None:
        """Adds to the count of an op on a device."""
        key = msgspec.convert(
            {
                **data,
                "op": op_name(str(data["op"])),
                "requested": short(data["requested"]),
                "scope": data.get("scope") or None,
                "line": data.get("line") or None,
                "actual": short(data["actual"]) or "",
                "count": 1,
            },
            Placement,
        )
        if key in self.counts or len(self.counts) < _MAX_OP_KINDS:
            self.counts[key] = self.counts.get(key, 0) + int(data["count"])

    def add_copies(self, data: dict[str, Any]) -> None:
        """How often an input of an op was copied so far."""
        key = (
            str(data["op"]),
            int(data["input"]),
            device_name(str(data["source"])),
            device_name(str(data["destination"])),
        )
        if key in self.copies or len(self.copies) < _MAX_OP_KINDS:
            self.copies[key] = int(data["count"])

    def of_another(self, own: Devices, leading: Devices, visible: str | None) -> PlacedOps:
        """The same with what this process has, where a requested GPU is only among its devices or the leading ones.

        ``visible``: its CUDA_VISIBLE_DEVICES, if that differs from the leading process's.
        """
        mine, theirs = _gpus(own), _gpus(leading)
        if not own.logical or mine == theirs:
            return self
        why = "" if visible is None else " (CUDA_VISIBLE_DEVICES=" + (visible or "''") + ")"
        has = (f"{', '.join(mine)} only" if mine else "no GPU") + why
        found = PlacedOps()
        found.copies, found.nodes, found.unclear = self.copies, self.nodes, self.unclear
        for key, count in self.counts.items():
            asked = key.requested or ""
            if asked.startswith("GPU:") and asked != key.actual:
                if not _among(asked, mine):
                    key = msgspec.structs.replace(key, process_has=has)
                elif not _among(asked, theirs):
                    key = msgspec.structs.replace(key, process_has="")
            found.counts[key] = count
        return found


def _gpus(devices: Devices) -> list[str]:
    return [name for name in map(device_name, devices.logical) if name.startswith("GPU:")]


def _among(asked: str, gpus: list[str]) -> bool:
    return asked in gpus or (asked == "GPU:*" and bool(gpus))


def merged(processes: Sequence[PlacedOps]) -> tuple[tuple[Placement, ...], tuple[DeviceCopy, ...]]:
    """The placements and copies of all processes, most frequent first."""
    counts: Counter[Placement] = Counter()
    copies: Counter[tuple[str, int, str, str]] = Counter()
    for process in processes:
        counts.update(process.counts)
        copies.update(process.copies)
    return tuple(sorted_placements(counts)), tuple(sorted_copies(copies))


def coverage(processes: Sequence[PlacedOps]) -> PlacementCoverage | None:
    """For how many nodes of graphs request and place are known; None without graphs."""
    nodes = sum(process.nodes for process in processes)
    return PlacementCoverage(nodes=nodes, unclear=sum(process.unclear for process in processes)) if nodes else None


def short(name: str | None) -> str | None:
    """``GPU:0``, or PyTorch's own ``cuda:0``; None if no device was named."""
    if not name:
        return None
    return name if name.startswith("cuda") else device_name(name)
