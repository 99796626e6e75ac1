"""Which GPUs sleep: the kernel's runtime power management, from /sys alone.

A laptop's GPU that nobody uses is suspended, and a question to the driver wakes it; a file of /sys does
not. On servers and desktops runtime power management is off for GPUs, and nothing is read again.
"""

from __future__ import annotations

from pathlib import Path

from gpuwatch.sim import sysfs

_NVIDIA = "0x10de"
_DISPLAY = "0x03"
"""First byte of the class of a display or 3D controller; a card's sound device has another."""
_ASLEEP = ("suspended", "suspending")


class Sleep:
    """The kernel's word on NVIDIA's devices."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = sysfs.root() if root is None else root

    def managed(self, pci_bus_id: str) -> bool:
        """Whether the kernel may put the device to sleep at all."""
        return bool(pci_bus_id) and self._read(self._power(pci_bus_id) / "control") == "auto"

    def asleep(self, pci_bus_id: str) -> bool:
        """Whether it sleeps now."""
        return self._read(self._power(pci_bus_id) / "runtime_status") in _ASLEEP

    def gpus(self) -> list[str]:
        """PCI bus ids of NVIDIA's GPUs in the order of NVML's indices; empty where /sys does not tell."""
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
        try:
            return path.read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            return ""
