"""Whether the kernel has suspended a GPU (runtime power management), from /sys, which does not wake it."""

from __future__ import annotations

from pathlib import Path

from gpuwatch.machine.sources.procfs import file_text
from gpuwatch.machine.sources.system_and_driver_facts import nvidia_slots
from gpuwatch.sim import simulated_sysfs

_ASLEEP = ("suspended", "suspending")


class RuntimePm:
    """The power state of NVIDIA's PCI devices: the kernel's runtime power management, read from /sys alone.

    An unused GPU of a laptop is suspended. A call to the driver would wake it; reading /sys does not. On servers and
    desktops runtime power management is off for GPUs, and nothing more is read.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = simulated_sysfs.sysfs_root() if root is None else root

    def managed(self, pci_bus_id: str) -> bool:
        """Whether the kernel may suspend the device (``power/control`` is ``auto``)."""
        return bool(pci_bus_id) and self._read(self._power(pci_bus_id) / "control") == "auto"

    def asleep(self, pci_bus_id: str) -> bool:
        """Whether the device is suspended now (``power/runtime_status``)."""
        return self._read(self._power(pci_bus_id) / "runtime_status") in _ASLEEP

    def gpus(self) -> list[str]:
        """PCI bus ids of NVIDIA's GPUs in the order of NVML's indices; empty if /sys cannot be read."""
        return [slot.name for slot in nvidia_slots(self._root) or ()]

    def _power(self, pci_bus_id: str) -> Path:
        return simulated_sysfs.power_folder(self._root, pci_bus_id)

    @staticmethod
    def _read(path: Path) -> str:
        return (file_text(path) or "").strip()
