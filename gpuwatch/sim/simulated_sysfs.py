"""The folder that replaces /sys for a simulated machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ENV_STATE: Final = "GPUWATCH_SIM_STATE"
VENDOR: Final = "0x10de"
CLASS: Final = "0x030200"
"""PCI class of NVIDIA's 3D controllers, by which GPUs are found."""


def sysfs_root() -> Path:
    """``/sys``, or the folder that replaces it if the environment names a simulated machine."""
    state = os.environ.get(ENV_STATE)
    return sysfs_folder(Path(state)) if state else Path("/sys")


def sysfs_folder(state: Path) -> Path:
    """The folder of the machine with this state file; it exists only if it has content."""
    return state.with_suffix(".sys")


def power_folder(sysfs_root: Path, pci_bus_id: str) -> Path:
    """The folder of a device's runtime power management."""
    return sysfs_root / "bus" / "pci" / "devices" / pci_bus_id / "power"
