"""The kinds of GPUs that gpuwatch supports. To add one: its class
(:mod:`gpuwatch.machine.sources.device_source`), and a line here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwatch.machine.sources.device_source import DeviceSource, SeenDevice
from gpuwatch.machine.sources.nvidia.nvml_source import NvmlSource


def device_sources(seen: Sequence[SeenDevice] = ()) -> tuple[DeviceSource[Any], ...]:
    """A new source of each kind, not yet opened.

    ``seen``: the devices of an earlier collector.
    """
    return (NvmlSource(seen),)
