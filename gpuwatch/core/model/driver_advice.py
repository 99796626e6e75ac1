"""What to do when this machine lacks a usable NVIDIA driver: for snapshot, dashboard, doctor (logs: advice.txt).

It depends on the machine: a container gets its GPUs from outside, WSL its driver from Windows, and without a card no
driver helps. Sources: NVIDIA driver README, Container Toolkit, CUDA on WSL guide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.core.model.doctor import System

INSTALL_DRIVER = "Install NVIDIA's driver and load it (modprobe nvidia; nvidia-smi must work)."
LOAD_KERNEL_MODULE = "Load the driver's kernel module (modprobe nvidia); if it does not load, dmesg says why."
PASS_GPUS_TO_CONTAINER = (
    "Start the container with its GPUs (docker run --gpus all IMAGE, with the NVIDIA Container Toolkit on the host)."
)
USE_MACHINE_WITH_GPU = (
    "Use a machine with an NVIDIA GPU, or pass one through to this one; if it has one, reseat it and enable its slot in"
    " the firmware."
)
REPLACE_NOUVEAU = (
    "Blacklist nouveau (modprobe.d: blacklist nouveau, options nouveau modeset=0), reboot, and install NVIDIA's driver."
)
DRIVER_CAPABILITIES_ACTION = "Start the container with NVIDIA_DRIVER_CAPABILITIES=compute,utility (or all)."
"""Advice if only one of libcuda and NVML (libnvidia-ml), libraries of the driver, is present in a container."""
REINSTALL_LIBRARIES = (
    "Reinstall the driver's libraries (libnvidia-ml, libcuda); if another file hides them, remove it, or its folder"
    " from LD_LIBRARY_PATH."
)
REPLACE_CRASHING_LIBRARY = (
    "Check dmesg for NVRM and Xid lines; without any, reinstall the driver: its library is damaged, or of another"
    " release than the kernel module."
)
TRY_SIMULATED_GPUS = " To look at simulated GPUs: gpuwatch --sim 2x24GiB"
"""Appended to the advice when a person looks at this machine; not a remedy."""
_ELSEWHERE = "Install NVIDIA's driver and load it (nvidia-smi must work); in a container: " + PASS_GPUS_TO_CONTAINER
_NO_CARD_IN_CONTAINER = (
    "Run the container on a machine with an NVIDIA card (none is on this one's PCI bus), and with its GPUs"
    " (docker run --gpus all IMAGE)."
)
_ON_HOST = "Install NVIDIA's driver on the host, never in the container. "
INSTALL_JETPACK = (
    "Install JetPack's libraries (apt install nvidia-jetpack). NVML comes with JetPack 6 and later; before, tegrastats"
    " shows the GPU."
)
_JETSON_CONTAINER = (
    "Start the container with the libraries of the Jetson's JetPack (docker run --runtime nvidia IMAGE)."
)
JOIN_DEVICE_GROUP = "Join the group that owns them (usermod -aG GROUP $USER, then log in again), or fix the udev rule."
INSTALL_DRIVER_IN_WINDOWS = "Install the NVIDIA driver in Windows (never in WSL), then wsl --update and wsl --shutdown."


def says_not_installed(reason: str, library: str) -> bool:
    """Whether the loader found no file of that name, by its message; otherwise there is one that it cannot load.

    It is glibc's ("X: cannot open shared object file: No such file or directory") or musl's ("Error loading shared
    library X: No such file or directory"), which both name another library if that is the one that is missing.
    """
    return re.search(rf"{re.escape(library)}: (?:cannot open shared object file: )?No such file", reason) is not None


def missing_driver_evidence(system: System) -> str:
    """What this machine shows of why there is no driver, for a sentence; empty if nothing."""
    if system.wsl:
        return "this is WSL, whose driver belongs to Windows"
    if system.jetson:
        return "this is a Jetson, whose GPU is not on the PCI bus"
    if any(card.driver == "nouveau" for card in system.cards or ()):
        return "the kernel module nouveau has claimed the card"
    facts = []
    if system.cards is not None and not system.cards:
        facts.append("no NVIDIA card is on the PCI bus")
    if system.container is not None and not system.device_files:
        facts.append(f"this container ({system.container}) has no /dev/nvidia*")
    return ", and ".join(facts)


def missing_driver_action(system: System | None, *, library: bool = False) -> str:
    """The advice for a system; None: it was not checked, or is the unknown machine of a log.

    ``library``: the driver's libraries are there and report that no kernel module is loaded.
    """
    if system is None:
        return _ELSEWHERE
    if system.wsl:
        return INSTALL_DRIVER_IN_WINDOWS
    if system.jetson:
        return INSTALL_JETPACK if system.container is None else _JETSON_CONTAINER
    no_card = system.cards is not None and not system.cards
    loaded = system.kernel_module is not None or "nvidia" in (system.modules or ())
    if system.container is not None:
        if no_card and not loaded:
            return _NO_CARD_IN_CONTAINER
        return PASS_GPUS_TO_CONTAINER if loaded else _ON_HOST + PASS_GPUS_TO_CONTAINER
    if any(card.driver == "nouveau" for card in system.cards or ()):
        return REPLACE_NOUVEAU
    if no_card:
        return USE_MACHINE_WITH_GPU
    if loaded and not library:
        release = f" of release {system.kernel_module}" if system.kernel_module is not None else ""
        return f"Install the driver's libraries (libnvidia-ml, libcuda){release}, which the loaded kernel module needs."
    return LOAD_KERNEL_MODULE if library else INSTALL_DRIVER


def missing_half_action(system: System | None, library: str, release: str | None) -> str:
    """The advice where one of the driver's libraries works, and ``library``, another one, is not there."""
    if system is None or system.container is not None:
        return DRIVER_CAPABILITIES_ACTION
    if system.wsl:
        return "Add /usr/lib/wsl/lib to LD_LIBRARY_PATH, or run ldconfig with it."
    if system.jetson:
        return INSTALL_JETPACK
    package = "libcuda1" if library.startswith("libcuda") else "libnvidia-ml1"
    whole = f" of release {release}" if release else ""
    return f"Install {library}{whole}: it is in a package of its own (Debian {package}, Ubuntu libnvidia-compute-*)."
