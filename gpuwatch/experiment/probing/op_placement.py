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
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.op_placement_lines import op_name, sorted_copies, sorted_placements

_MAX_OP_KINDS = 4000
"""Kinds of op that are kept of one process."""


class OpCounts:
    """What one process has counted."""

    def __init__(self) -> None:
        self.counts: dict[Placement, int] = {}
        """By op, request and place; ``count`` of the keys is 1."""
        self.copies: dict[tuple[str, int, str, str], int] = {}
        self.graph_nodes = self.unclear_nodes = 0

    def add_placement(self, data: dict[str, Any]) -> None:
        """Adds to the count of an op on a device."""
        key = msgspec.convert(
            {
                **data,
                "op": op_name(str(data["op"])),
                "requested": short_device_name(data["requested"]),
                "scope": data.get("scope") or None,
                "line": data.get("line") or None,
                "actual": short_device_name(data["actual"]) or "",
                "count": 1,
            },
            Placement,
        )
        if key in self.counts or len(self.counts) < _MAX_OP_KINDS:
            self.counts[key] = self.counts.get(key, 0) + int(data["count"])

    def add_copies(self, data: dict[str, Any]) -> None:
        """How often an input of an op was copied so far."""
        source, destination = (device_name(str(data[name])) for name in ("source", "destination"))
        key = (str(data["op"]), int(data["input"]), source, destination)
        if key in self.copies or len(self.copies) < _MAX_OP_KINDS:
            self.copies[key] = int(data["count"])

    def with_process_devices(self, process_devices: Devices, leading_devices: Devices, visible: str | None) -> OpCounts:
        """The same with what this process has, where a requested GPU is only among its devices or the leading ones.

        ``visible``: its CUDA_VISIBLE_DEVICES, if that differs from the leading process's.
        """
        own_gpus, leading_gpus = _gpu_names(process_devices), _gpu_names(leading_devices)
        if not process_devices.logical or own_gpus == leading_gpus:
            return self
        reason = "" if visible is None else " (CUDA_VISIBLE_DEVICES=" + (visible or "''") + ")"
        gpus_text = (f"{', '.join(own_gpus)} only" if own_gpus else "no GPU") + reason
        op_counts = OpCounts()
        op_counts.copies = self.copies
        op_counts.graph_nodes, op_counts.unclear_nodes = self.graph_nodes, self.unclear_nodes
        for placement, count in self.counts.items():
            requested = placement.requested or ""
            if requested.startswith("GPU:") and requested != placement.actual:
                if not _is_among(requested, own_gpus):
                    placement = msgspec.structs.replace(placement, process_has=gpus_text)
                elif not _is_among(requested, leading_gpus):
                    placement = msgspec.structs.replace(placement, process_has="")
            op_counts.counts[placement] = count
        return op_counts


def _gpu_names(devices: Devices) -> list[str]:
    return [name for name in map(device_name, devices.logical) if name.startswith("GPU:")]


def _is_among(requested: str, gpus: list[str]) -> bool:
    return requested in gpus or (requested == "GPU:*" and bool(gpus))


def merge_op_counts(processes: Sequence[OpCounts]) -> tuple[tuple[Placement, ...], tuple[DeviceCopy, ...]]:
    """The placements and copies of all processes, most frequent first."""
    counts: Counter[Placement] = Counter()
    copies: Counter[tuple[str, int, str, str]] = Counter()
    for process in processes:
        counts.update(process.counts)
        copies.update(process.copies)
    return tuple(sorted_placements(counts)), tuple(sorted_copies(copies))


def graph_coverage(processes: Sequence[OpCounts]) -> PlacementCoverage | None:
    """For how many nodes of graphs request and place are known; None without graphs."""
    nodes = sum(process.graph_nodes for process in processes)
    unclear = sum(process.unclear_nodes for process in processes)
    return PlacementCoverage(nodes=nodes, unclear=unclear) if nodes else None


def short_device_name(name: str | None) -> str | None:
    """``GPU:0``, or PyTorch's own ``cuda:0``; None if no device was named."""
    if not name:
        return None
    return name if name.startswith("cuda") else device_name(name)
