"""Where a simulated machine keeps what the kernel tells of its GPUs in /sys."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ENV_STATE: Final = "GPUWATCH_SIM_STATE"
VENDOR: Final = "0x10de"
CLASS: Final = "0x030200"
"""Of NVIDIA's 3D controllers, by which a GPU is found among the PCI devices."""


def root(environment: Mapping[str, str] | None = None) -> Path:
    """``/sys``, or the folder in its place where this process looks at a simulated machine."""
    state = (os.environ if environment is None else environment).get(ENV_STATE)
    return folder(Path(state)) if state else Path("/sys")


def folder(state: Path) -> Path:
    """The folder of the machine with this state file; it is there only when something is in it."""
    return state.with_suffix(".sys")


def power_folder(root: Path, pci_bus_id: str) -> Path:
    """The folder in which the kernel tells of a device's runtime power management."""
    return root / "bus" / "pci" / "devices" / pci_bus_id / "power"
