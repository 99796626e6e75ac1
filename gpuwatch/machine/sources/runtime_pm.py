"""Which GPUs are suspended: the kernel's runtime power management, read from /sys alone.

An unused GPU of a laptop is suspended. A call to the driver would wake it; reading /sys does not. On servers and
desktops runtime power management is off for GPUs, and nothing more is read.
"""

from __future__ import annotations

from pathlib import Path

from gpuwatch.machine.sources.procfs import file_text
from gpuwatch.sim import sysfs

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""First byte of the PCI class of display and 3D controllers; a card's audio device has a different one."""
_ASLEEP = ("suspended", "suspending")


class RuntimePm:
    """The power state of NVIDIA's PCI devices."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = sysfs.root() if root is None else root

    def managed(self, pci_bus_id: str) -> bool:
        """Whether the kernel may suspend the device (``power/control`` is ``auto``)."""
        return bool(pci_bus_id) and self._read(self._power(pci_bus_id) / "control") == "auto"

    def asleep(self, pci_bus_id: str) -> bool:
        """Whether the device is suspended now (``power/runtime_status``)."""
        return self._read(self._power(pci_bus_id) / "runtime_status") in _ASLEEP

    def gpus(self) -> list[str]:
        """PCI bus ids of NVIDIA's GPUs in the order of NVML's indices; empty if /sys cannot be read."""
        folder = self._root / "bus" / "pci" / "devices"
        try:
            found = [entry for entry in folder.iterdir() if self._read(entry / "vendor") == _NVIDIA]
        except OSError:
            return []
        return sorted(entry.name for entry in found if self._read(entry / "class").startswith(_DISPLAY))

    def _power(self, pci_bus_id: str) -> Path:
        return sysfs.power_folder(self._root, pci_bus_id)

    @staticmethod
    def _read(path: Path) -> str:
        return (file_text(path) or "").strip()
