"""What ``gpuwatch doctor`` looks at and what it says. ``gpuwatch.doctor/1`` is the JSON of :class:`Doctor`.

A fact that nobody looked at is None; one that was looked at and found empty is empty. What a deadline
cut off is named in ``late``.
"""

from __future__ import annotations

import datetime
from typing import Literal

import msgspec

from gpuwatch.model.findings import Finding
from gpuwatch.model.run import DeviceMapping, Framework

State = Literal["pass", "warn", "fail", "skip"]
STATE_ORDER: dict[str, int] = {"fail": 0, "warn": 1, "skip": 2, "pass": 3}


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One question and its answer."""

    id: str
    """Dotted and unique; the part before the first dot is its group."""
    title: str = ""
    state: State
    detail: str
    """What was found, in one sentence."""
    action: str = ""
    """What to do about it; empty where nothing is to be done."""

    @property
    def group(self) -> str:
        """``driver``, ``devices``, ``container``, ``environment`` or ``framework``."""
        return self.id.partition(".")[0]


class DeviceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file under /dev through which programs reach the driver."""

    path: str
    usable: bool
    """Whether this user may read and write it."""
    mode: str = ""
    """``crw-rw---- root video``."""


class PciCard(msgspec.Struct, frozen=True, kw_only=True):
    """A display or compute card of NVIDIA on the PCI bus."""

    bus_id: str
    driver: str | None = None
    """The kernel driver that has it: ``nvidia``, ``nouveau``, ``vfio-pci``."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of LD_LIBRARY_PATH, and the libraries of NVIDIA in it."""

    folder: str
    exists: bool
    libraries: tuple[str, ...] = ()


class System(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of the system tell."""

    kernel: str | None = None
    distribution: str | None = None
    """``Debian GNU/Linux 12 (bookworm)``: the operating system's name for itself; in a container, the image's."""
    libc: str | None = None
    """``glibc 2.36``, as the Python of gpuwatch was linked."""
    processor: str | None = None
    """The first processor's model name in /proc/cpuinfo."""
    kernel_module: str | None = None
    """Version in /proc/driver/nvidia/version; None where there is no such file."""
    modules: frozenset[str] | None = None
    """Loaded kernel modules among nvidia's and nouveau; None where /proc/modules cannot be read."""
    device_files: tuple[DeviceFile, ...] = ()
    cards: tuple[PciCard, ...] | None = None
    """None where /sys does not show the bus."""
    container: str | None = None
    """``docker``, ``podman``, ``kubernetes``, ``slurm`` …; None outside of one."""
    wsl: bool = False
    wsl_libraries: bool = False
    library_path: tuple[Entry, ...] = ()
    in_the_way: tuple[tuple[str, bool], ...] = ()
    """Files and folders with a framework's name that Python finds before the package; whether for every program."""


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """One library of the driver, as a child process could or could not load it."""

    name: str
    path: str | None = None
    """The file behind it, links resolved."""
    version: str | None = None
    error: str | None = None


class DriverAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the driver's two libraries said to a child process."""

    libcuda: Loaded | None = None
    nvml: Loaded | None = None
    nvml_code: int | None = None
    """What nvmlInit returned; None: not reached."""
    nvml_driver: str | None = None
    cuinit_code: int | None = None
    """What cuInit returned; None: not reached."""
    cuinit_seconds: float | None = None
    cuda_driver: int | None = None
    """cuDriverGetVersion, ``12080`` for 12.8."""
    cuda_devices: int | None = None
    late: str = ""
    """The call that did not come back before the deadline."""
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
    """What the loader said."""
    shadows: str | None = None
    """The wheel's own file, which this one stands in front of."""
    opened: bool | None = None
    """Whether the framework itself opened it; None where it did not come so far."""


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """An installed Python distribution that bears on GPUs."""

    name: str
    version: str


class DeviceTest(msgspec.Struct, frozen=True, kw_only=True):
    """One op on one device of the framework."""

    device: str
    ran_on: str | None = None
    seconds: float | None = None
    """Until its result was there, start of the device's libraries included."""
    correct: bool | None = None
    error: str | None = None


class FrameworkLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a child in the chosen interpreter found."""

    name: str
    interpreter: str | None = None
    gpu_build: bool | None = None
    """What the files of the package say, before it is imported."""
    missing: str = ""
    """Why there is no interpreter to look into."""
    distributions: tuple[Distribution, ...] | None = None
    libraries: tuple[Library, ...] | None = None
    tests: tuple[DeviceTest, ...] = ()
    import_seconds: float | None = None
    search_late: str = ""
    """What the deadline of the search for distributions and libraries cut off."""
    late: str = ""
    """What the deadline of the import and its ops cut off."""
    problems: tuple[str, ...] = ()


class Doctor(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.doctor/1"):
    """Will the framework find the GPUs of this machine, in this environment?"""

    taken_at: datetime.datetime
    took_seconds: float
    simulated: bool
    host: str | None = None
    versions: dict[str, str | None]
    framework: Framework | None = None
    """As the framework said of itself; None where it was not imported."""
    checks: tuple[Check, ...]
    libraries: tuple[Library, ...] = ()
    distributions: tuple[Distribution, ...] = ()
    device_map: tuple[DeviceMapping, ...] = ()
    tests: tuple[DeviceTest, ...] = ()
    environment: dict[str, str] = {}
    """Variables that bear on GPUs, as they are set."""
    findings: tuple[Finding, ...] = ()
    primary: str | None = None
    log_tail: tuple[str, ...] = ()
