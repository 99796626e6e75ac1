"""The facts and results of ``gpuwatch doctor``. ``gpuwatch.doctor/1`` is the JSON of :class:`Doctor`.

A fact that was not checked is None; one that was checked and found empty is empty. ``late`` names what a deadline cut
off.
"""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import DeviceMapping, Framework

CheckState = Literal["pass", "warn", "fail", "skip"]
STATE_ORDER: dict[str, int] = {"fail": 0, "warn": 1, "skip": 2, "pass": 3}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer."""

    id: str
    """Dotted and unique; the part before the first dot is its group."""
    title: str = ""
    state: CheckState
    detail: str
    """What was found, in one sentence."""
    action: str = ""
    """What to do about it; empty if nothing."""

    @property
    def group(self) -> str:
        """``driver``, ``devices``, ``container``, ``environment`` or ``framework``."""
        return self.id.partition(".")[0]


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A device file of the driver under /dev."""

    path: str
    usable: bool
    """Whether this user may read and write it."""
    mode: str = ""
    """``crw-rw---- root video``."""


class PciCard(msgspec.Struct, frozen=True, kw_only=True):
    """An NVIDIA display or compute card on the PCI bus."""

    bus_id: str
    driver: str | None = None
    """Its kernel driver: ``nvidia``, ``nouveau``, ``vfio-pci``."""


class LibraryFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder in LD_LIBRARY_PATH, and NVIDIA's libraries in it."""

    folder: str
    exists: bool
    libraries: tuple[str, ...] = ()


class System(msgspec.Struct, frozen=True, kw_only=True):
    """Facts from the system's files."""

    kernel: str | None = None
    distribution: str | None = None
    """``Debian GNU/Linux 12 (bookworm)``; in a container, that of the image."""
    libc: str | None = None
    """``glibc 2.36``, to which gpuwatch's Python is linked."""
    processor: str | None = None
    """The first processor's model name in /proc/cpuinfo."""
    kernel_module: str | None = None
    """Version in /proc/driver/nvidia/version; None without that file."""
    modules: frozenset[str] | None = None
    """Loaded kernel modules among nvidia's and nouveau; None if /proc/modules cannot be read."""
    device_files: tuple[DeviceFile, ...] = ()
    cards: tuple[PciCard, ...] | None = None
    """None if /sys does not show the bus."""
    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``, ``slurm`` …; None outside a container."""
    jetson: bool = False
    """A board with a Tegra, whose GPU is not on the PCI bus and has a kernel module of its own (nvgpu)."""
    wsl: bool = False
    wsl_libraries: bool = False
    library_path: tuple[LibraryFolder, ...] = ()
    shadowing_files: tuple[tuple[str, bool], ...] = ()
    """Files and folders with a framework's name that Python finds before the package, and whether in every program."""


class LoadedLibrary(msgspec.Struct, frozen=True, kw_only=True):
    """A driver library, as loaded in a child process."""

    name: str
    path: str | None = None
    """The library's file, links resolved."""
    version: str | None = None
    error: str | None = None


class DriverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of the driver's two libraries in a child process."""

    libcuda: LoadedLibrary | None = None
    nvml: LoadedLibrary | None = None
    nvml_code: int | None = None
    """Return code of nvmlInit; None: not reached."""
    nvml_driver: str | None = None
    cuinit_code: int | None = None
    """Return code of cuInit; None: not reached."""
    cuinit_seconds: float | None = None
    cuda_driver: int | None = None
    """cuDriverGetVersion, ``12080`` for 12.8."""
    cuda_devices: int | None = None
    late: str = ""
    """The call that did not return before the deadline."""
    ended_in: str = ""
    """The call that ended the child process: it crashed, or exited."""
    problem: str = ""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A library that the framework opens by name."""

    name: str
    state: Literal["loaded", "missing", "broken"]
    path: str | None = None
    version: str | None = None
    origin: str | None = None
    """``wheel``, ``LD_LIBRARY_PATH``, ``conda``, ``system``, ``WSL`` or ``simulated``."""
    detail: str = ""
    """The loader's message."""
    shadows: str | None = None
    """The wheel's own file that this one shadows."""
    opened: bool | None = None
    """Whether the framework itself opened it; None if it did not get that far."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """An installed Python distribution related to GPUs."""

    name: str
    version: str


class DeviceTest(msgspec.Struct, frozen=True, kw_only=True):
    """One op on one device of the framework."""

    device: str
    ran_on: str | None = None
    seconds: float | None = None
    """Until the result was there, including the start of the device's libraries."""
    correct: bool | None = None
    error: str | None = None


class FrameworkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a child process in the chosen interpreter found."""

    name: str
    interpreter: str | None = None
    gpu_build: bool | None = None
    """From the package's files, without importing it."""
    missing: str = ""
    """Why there is no interpreter to check."""
    distributions: tuple[Distribution, ...] | None = None
    libraries: tuple[Library, ...] | None = None
    tests: tuple[DeviceTest, ...] = ()
    import_seconds: float | None = None
    search_late: str = ""
    """What was cut off by the deadline for distributions and libraries."""
    late: str = ""
    """What was cut off by the deadline for the import and its ops."""
    problems: tuple[str, ...] = ()


class Doctor(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.doctor/1"):
    """Whether the framework finds the GPUs of this machine in this environment."""

    taken_at: datetime.datetime
    took_seconds: float
    simulated: bool
    host: str | None = None
    versions: dict[str, str | None]
    framework: Framework | None = None
    """As the framework reports itself; None if it was not imported."""
    checks: tuple[Check, ...]
    libraries: tuple[Library, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    device_map: tuple[DeviceMapping, ...] = ()
    tests: tuple[DeviceTest, ...] = ()
    environment: dict[str, str] = {}
    """Variables that affect GPUs."""
    findings: tuple[Finding, ...] = ()
    primary: str | None = None
    log_tail: tuple[str, ...] = ()
