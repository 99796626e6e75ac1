"""Facts about the system, NVIDIA's driver and the job, from /proc, /dev, /sys, library folders and variables.

For ``doctor``, reports and snapshots. Files are read below a root folder, so that a test can build a machine.
Sources: the driver's README ("/proc interface" and "device nodes"), ``proc(5)``, Linux's
``sysfs-bus-pci``, Microsoft's notes on CUDA in WSL (libraries in /usr/lib/wsl/lib), Linux's
``Documentation/devicetree/bindings/arm/tegra.yaml``.
"""

from __future__ import annotations

import grp
import os
import platform
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpuwatch.core.model.doctor import DeviceFile, LibraryFolder, PciCard, System
from gpuwatch.core.model.snapshot import WSL
from gpuwatch.machine.sources.procfs import file_text, user_name

_KERNEL_MODULE_VERSION = re.compile(r"NVRM version:.*?\s(\d{3}\.\d+(?:\.\d+)?)\s")
_GPU_DEVICE_FILE = re.compile(r"^nvidia\d+$")
_CONTROL_DEVICE_FILES = ("nvidiactl", "nvidia-uvm")
_LOADED_MODULES = re.compile(r"^(nvidia(?:_\w+)?|nouveau)\b", re.MULTILINE)
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"  # VGA 0x0300, 3D controller 0x0302; the audio device of a card has another
_CONTAINERS = (
    (re.compile(r"kubepods"), "kubernetes"),
    (re.compile(r"docker"), "docker"),
    (re.compile(r"libpod|podman"), "podman"),
    (re.compile(r"containerd|crio"), "containerd"),
    (re.compile(r"/lxc[./]"), "lxc"),
)
_HOST_MOUNT_NAMESPACES = ("mnt:[4026531840]", "mnt:[4026531841]", "mnt:[4026531832]")
"""The first mount namespace of a kernel, which containers never share: the first number that kernels hand out, the
second where the network's is before it, and the fixed one of Linux 6.18. A virtual machine whose disk was made from a
container image has the image's ``.dockerenv``."""
_LIBRARIES = re.compile(
    r"^lib(?:cuda|cudart|cublas|cublasLt|cudnn|cufft|curand|cusolver|cusparse|nvidia-ml|nccl|nvJitLink)\.so(?:\.|$)"
)


def read_system_facts(environment: Mapping[str, str], root: str | Path = "/") -> System:
    """Reads everything at once; what cannot be read is None, never an exception."""
    base = Path(root)
    release = file_text(base / "proc/sys/kernel/osrelease")
    return System(
        kernel=release.strip() if release is not None else None,
        distribution=_first_match(r"^PRETTY_NAME=([\"']?)(?P<is>.+?)\1$", base / "etc/os-release"),
        libc=" ".join(filter(None, platform.libc_ver())) or None,
        processor=_first_match(r"^model name\s*:\s*(?P<is>.+)$", base / "proc/cpuinfo"),
        kernel_module=_kernel_module(base),
        modules=_modules(base),
        device_files=_device_files(base),
        cards=_pci_cards(base),
        container=_find_container_kind(base, environment),
        jetson="nvidia,tegra" in (file_text(base / "proc/device-tree/compatible") or ""),
        wsl=release is not None and "microsoft" in release.lower(),
        wsl_libraries=(base / "usr/lib/wsl/lib/libcuda.so.1").exists(),
        library_path=tuple(
            _library_folder(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder
        ),
        shadowing_files=tuple(_shadowing_files(environment)),
    )


_FRAMEWORKS = ("tensorflow", "torch", "keras")


def _shadowing_files(environment: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Files that shadow a framework, in the working directory or in PYTHONPATH (True: it affects every program).

    A folder counts only if it has an ``__init__.py``, and not if it is the framework itself (metadata beside it).
    """
    folders: dict[Path, bool] = {}
    with suppress(OSError):  # the working directory may be gone
        folders[Path.cwd()] = False
    folders |= {Path(folder).resolve(): True for folder in environment.get("PYTHONPATH", "").split(":") if folder}
    for folder, everywhere in folders.items():
        for name in _FRAMEWORKS:
            try:
                if (folder / f"{name}.py").is_file():
                    yield str(folder / f"{name}.py"), everywhere
                elif (folder / name / "__init__.py").is_file() and not any(folder.glob(f"{name}*-*.dist-info")):
                    yield f"{folder / name}/", everywhere
            except OSError:
                continue


def _first_match(pattern: str, path: Path) -> str | None:
    """The group ``is`` of the first line of a file that matches."""
    match = re.search(pattern, file_text(path) or "", re.MULTILINE)
    return match["is"].strip() if match else None


def _kernel_module(base: Path) -> str | None:
    version = file_text(base / "proc/driver/nvidia/version")
    if version is None:
        return None
    match = _KERNEL_MODULE_VERSION.search(version)
    return match[1] if match else version.strip().splitlines()[0] if version.strip() else None


def _modules(base: Path) -> frozenset[str] | None:
    listed = file_text(base / "proc/modules")
    return None if listed is None else frozenset(_LOADED_MODULES.findall(listed))


def _device_files(base: Path) -> tuple[DeviceFile, ...]:
    folder = base / "dev"
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return ()
    gpu_files = [
        name for name in names if name in _CONTROL_DEVICE_FILES or name == "dxg" or _GPU_DEVICE_FILE.match(name)
    ]
    return tuple(_device_file(folder / name, name) for name in gpu_files)


def _device_file(path: Path, name: str) -> DeviceFile:
    try:
        status = path.stat()
    except OSError as error:
        return DeviceFile(path=f"/dev/{name}", usable=False, mode=error.strerror or "cannot be read")
    owner = f"{user_name(status.st_uid) or status.st_uid} {_group(status.st_gid)}"
    usable = os.access(path, os.R_OK | os.W_OK)
    return DeviceFile(path=f"/dev/{name}", usable=usable, mode=f"{stat.filemode(status.st_mode)} {owner}")


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _pci_cards(base: Path) -> tuple[PciCard, ...] | None:
    slots = nvidia_slots(base / "sys")
    if slots is None:
        return None
    drivers = [slot / "driver" for slot in slots]
    names = (driver.resolve().name if driver.exists() else None for driver in drivers)
    return tuple(PciCard(bus_id=slot.name, driver=name) for slot, name in zip(slots, names, strict=True))


def nvidia_slots(sysfs: Path) -> list[Path] | None:
    """The folders of NVIDIA's GPUs on the PCI bus, in the order of NVML's indices; None if they cannot be read."""
    try:
        slots = sorted((sysfs / "bus" / "pci" / "devices").iterdir())
    except OSError:
        return None
    return [
        slot
        for slot in slots
        if (file_text(slot / "vendor") or "").strip() == _NVIDIA_VENDOR
        and (file_text(slot / "class") or "").startswith(_DISPLAY_CLASS)
    ]


_SLURM_VARIABLES = (
    ("SLURM_JOB_ID", "job"),
    ("SLURM_JOB_PARTITION", "partition"),
    ("SLURM_JOB_GPUS", "GPUs of the node"),
    ("SLURM_STEP_GPUS", "GPUs of the step"),
    ("SLURM_GPUS_ON_NODE", "GPUs on this node"),
    ("SLURM_NTASKS", "tasks"),
)
"""Slurm's own variables (sbatch, "OUTPUT ENVIRONMENT VARIABLES")."""
_SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""UEFI's variable in efivarfs: four bytes of attributes, then 1 or 0 (UEFI 3.3, Linux efivarfs.rst)."""
_MAX_CHARS = 200


def job_and_platform_facts(environment: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """What this process runs in (a Slurm job, a notebook service, WSL, Secure Boot) by name."""
    found: dict[str, str] = {}
    if environment.get("SLURM_JOB_ID"):
        found["Slurm"] = ", ".join(
            f"{what} {environment[name][:_MAX_CHARS]}" for name, what in _SLURM_VARIABLES if environment.get(name)
        )
    if environment.get("COLAB_RELEASE_TAG") or environment.get("COLAB_GPU"):
        release = environment.get("COLAB_RELEASE_TAG", "")[:_MAX_CHARS]
        found["Google Colab"] = f"release {release}" if release else "detected by its variables"
    if environment.get("KAGGLE_KERNEL_RUN_TYPE"):
        found["Kaggle"] = environment["KAGGLE_KERNEL_RUN_TYPE"][:_MAX_CHARS]
    release = file_text(root / "proc/sys/kernel/osrelease") or ""
    if "microsoft" in release.lower():
        found["WSL"] = f"kernel {release.strip()[:_MAX_CHARS]}"
    try:
        content = (root / "sys/firmware/efi/efivars" / _SECURE_BOOT).read_bytes()
    except OSError:
        content = b""
    if len(content) == 5:
        on = "on: the kernel loads only modules signed with an enrolled key (mokutil --list-enrolled)"
        found["Secure Boot"] = on if content[4] == 1 else "off"
    return found


def container_kind(environment: Mapping[str, str]) -> str | None:
    """The kind of container that this process runs in, or ``wsl``; None outside, or if unknown."""
    found = _find_container_kind(Path("/"), environment)
    return WSL if found is None and "microsoft" in os.uname().release.lower() else found


def _find_container_kind(base: Path, environment: Mapping[str, str]) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    with suppress(OSError):
        if str((base / "proc/self/ns/mnt").readlink()) in _HOST_MOUNT_NAMESPACES:
            return None
    if (base / ".dockerenv").exists():
        return "docker"
    if (base / "run/.containerenv").exists():
        return "podman"
    for name in ("self", "1"):
        groups = file_text(base / f"proc/{name}/cgroup") or ""
        for pattern, kind in _CONTAINERS:
            if pattern.search(groups):
                return kind
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "apptainer"
    return None


def _library_folder(folder: str) -> LibraryFolder:
    try:
        names = sorted(path.name for path in Path(folder).iterdir() if _LIBRARIES.match(path.name))
    except OSError:
        return LibraryFolder(folder=folder, exists=False)
    return LibraryFolder(folder=folder, exists=True, libraries=tuple(names))
