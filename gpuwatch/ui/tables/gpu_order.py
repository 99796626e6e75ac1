"""The order of the GPUs: by index or the most loaded first. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from gpuwatch.core.model.reading import fraction
from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.tables.gpu_fields import GRAPHS

GpuOrder = Literal["index", "utilization", "memory", "temperature", "power"]
ORDERS: tuple[GpuOrder, ...] = ("index", "utilization", "memory", "temperature", "power")
"""All orders; the others are also names of loads and graphs."""

_REORDER_SECONDS = 5.0
"""Seconds for which an order stays: GPUs that change places with every sample cannot be read."""


def _load(device: Device, order: GpuOrder) -> float | None:
    """What a device is sorted by; the memory as a share, as its bar shows it. None if it was not read."""
    value = device.number(GRAPHS[order].metric)
    return fraction(value, device.number("memory.total_bytes")) if order == "memory" else value


def sorted_devices(devices: Sequence[Device], order: GpuOrder) -> list[Device]:
    """The devices, most loaded first; ties by index, then those without a value."""

    def key(device: Device) -> tuple[bool, float, int]:
        load = _load(device, order)
        return (load is None, -(load or 0.0), device.index)

    return sorted(devices, key=(lambda device: device.index) if order == "index" else key)


def with_devices(view: View, devices: Sequence[Device]) -> View:
    """``view`` with its devices in another order."""
    if view.snapshot is None:
        return view
    return replace(view, snapshot=msgspec.structs.replace(view.snapshot, devices=tuple(devices)))


class SteadyOrder:
    """Keeps an order for some seconds."""

    def __init__(self) -> None:
        self._ordered: tuple[GpuOrder, frozenset[str]] = ("index", frozenset())
        self._positions: dict[str, int] = {}
        self._ordered_at = float("-inf")

    def of(self, view: View, order: GpuOrder) -> tuple[Device, ...]:
        """The devices of ``view`` in an order that is a few seconds old at most."""
        devices = view.devices
        of = (order, frozenset(device.uuid for device in devices))
        if of != self._ordered or not 0 <= view.moment - self._ordered_at < _REORDER_SECONDS:
            self._ordered, self._ordered_at = of, view.moment
            self._positions = {device.uuid: place for place, device in enumerate(sorted_devices(devices, order))}
        return tuple(sorted(devices, key=lambda device: self._positions[device.uuid]))
