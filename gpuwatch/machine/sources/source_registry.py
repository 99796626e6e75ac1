"""The kinds of GPUs that gpuwatch supports. To add one: its class (:mod:`gpuwatch.machine.sources.base`), and a line
here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.core.model.xids import Xid
from gpuwatch.machine.sources.base import DeviceSource
from gpuwatch.machine.sources.nvidia.source import NvmlSource


def device_sources(xids: Mapping[str, tuple[Xid, ...]] | None = None) -> tuple[DeviceSource[Any], ...]:
    """A new source of each kind, not yet opened.

    ``xids``: what the driver reported to an earlier collector, by UUID of the device.
    """
    return (NvmlSource(xids),)
