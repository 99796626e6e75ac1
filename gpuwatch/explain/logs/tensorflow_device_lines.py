"""TensorFlow's lines about GPUs, the driver and libraries, from 0.x to today, and of plug-ins."""

from __future__ import annotations

import re

from gpuwatch.core.formatting.lazy_pattern import lazy
from gpuwatch.core.model.run import DeviceMapping
from gpuwatch.explain.logs import cuda_errors
from gpuwatch.explain.logs.log_facts import CuInitError, IgnoredGpu, LoggedGpu
from gpuwatch.explain.logs.sizes_and_device_names import pci_address, size_bytes

_MIB = 1024**2

_CARD = (
    r"device: (?P<ordinal>\d{1,6}), name: (?P<name>.{1,120}?), pci bus id: (?P<bus>[0-9a-fA-F:.]+|<undefined>)"
    r"(?:, compute capability: (?P<capability>\d+\.\d+))?"
)
_CREATED = lazy(
    r"Creat(?:ed|ing) (?:TensorFlow )?device \(?\S*?(?:gpu|GPU):(?P<number>\d{1,6})\)?"
    r"(?: with \**(?P<megabytes>\d{1,12}) MB\**(?: memory)?)?\)?:?\s*"
    rf"-> (?:physical (?:GPU|PluggableDevice) )?\(?{_CARD}"
)
_SESSION = lazy(rf"/(?:device:)?(?:gpu|GPU):(?P<number>\d{{1,6}})\s*-> {_CARD}")
_LISTED = lazy(rf"physical_device_desc: \"{_CARD}")
"""Of device_lib.list_local_devices(). The framework's name is in an earlier line; by default the numbers are the same.
"""
_IGNORED = lazy(
    r"Ignoring (?:visible )?gpu device \(device: (\d{1,6}), name: (.{1,120}?), pci bus id: ([0-9a-fA-F:.]+)"
    r".{0,120}?\) with (.+)$"
)
# A mapping line that was cut off.
_BEGUN = lazy(
    r"Creat(?:ed|ing) (?:TensorFlow )?device \(?(?:/\S*?)?[/:](?:gpu|GPU):(\d{1,6})\)?"
    r"(?: with \**(\d{1,12}) MB\**(?: memory)?\)?:?| ?-> )"
)
_CUINIT = lazy(r"(CUDA_ERROR_\w+|UNKNOWN ERROR)(?: ?\((\d{1,9})\))?(?::\s*(.*))?")
_LIBRARY = lazy(r"[Cc]ould(?: not load dynamic library|n't open CUDA library) '?([^\s';]+)'?")
# The loader's message may be translated; the exception around it is not.
_SHARED = lazy(
    r"(?:^|[\s:'\"(])(lib(?:cu|nccl|nv)[\w-]{0,60}\.so[.\d]*): cannot open shared object"
    r"|(?:ImportError|OSError): (lib(?:cu|nccl|nv)[\w-]{0,60}\.so[.\d]*): "
)
_FILE = r"((?:lib)?[\w+-]{1,60}\.(?:so[.\d]{0,20}|dll|dylib))(?![\w])"
# Files that cuDNN, PaddlePaddle, CTranslate2, CuPy, bitsandbytes or JAX could not load.
_NOT_LOADED = lazy(
    rf"(?:could not|cannot|can't|couldn't|unable to|failed to) (?:load|locate|find|open)(?: the)?(?: dynamic)?"
    rf"(?: shared)?(?: library| object| any of)?:? [{{'\"]?{_FILE}"
    rf"|library '?{_FILE}'? (?:is |was )?not found"
    rf"|required library version not found: {_FILE}"
    rf"|{_FILE} not found in any environmental path",
    re.IGNORECASE,
)
_DLL = lazy(
    r"Could not find '([\w.-]+\.dll)'"
    r"|WinError 12[67]\].{0,200}?Error loading [\"\u201c][^\"\u201c\u201d]{0,300}?([\w.-]{1,100}\.dll)[\"\u201d]",
    re.IGNORECASE,
)
_OF_CUDA = lazy(r"^(?:lib)?(?:cu|nv|nccl|libdevice|bitsandbytes_cuda|onnxruntime_providers_)|cuda", re.IGNORECASE)
"""Libraries of CUDA and the driver, or linked against them."""
_DLERROR = lazy(r"dlerror: ([^\s:;]+\.so[.\d]*): cannot open shared object")
HIDDEN = lazy(r"CUDA_VISIBLE_DEVICES is set to (.{0,400}?) - this hides all GPUs")
"""CUDA_VISIBLE_DEVICES, where TensorFlow says that it hides all GPUs."""
LISTED_IN_ENVIRONMENT = lazy(r'env: CUDA_VISIBLE_DEVICES="([^"]*)"')
"""Printed by 2.19 and later when cuInit fails."""
_ASSIGNED = lazy(
    r"environ(?:\.setdefault\()?\[?[\"']CUDA_VISIBLE_DEVICES[\"']\]?\s{0,4}[=,]\s{0,4}[\"']([^\"']{0,200})[\"']"
    r"|(?:^|export |set |\$ |env |Setting )CUDA_VISIBLE_DEVICES=[\"']?([\w,.-]{0,200})"
)
OF_CONTAINER = lazy(r"(?:root@|information for host: |hostname: )[0-9a-f]{12}\b")
"""A message or prompt that names a host as Docker does: by the first digits of its container's number."""
LIBRARY_MEMORY = lazy(r"Memory usage: (\d{1,18}) bytes free, \d{1,18} bytes total")
"""Bytes that were free on the GPU when cuDNN or cuBLAS failed to start."""
REAL_GPU = lazy(r"(?<!XLA_)GPU:\d")
"""A GPU other than an XLA_GPU."""
KERNEL_DRIVER = lazy(r"(?:kernel reported version is|kernel version seems to match DSO): (\d+(?:\.\d+)+)")
"""The version of the kernel module."""
_NAME = lazy(r"\bname: (.+?)(?: (?:major|computeCapability): |$)")
_BUS = lazy(r"\bpciBusID:? ?([0-9a-fA-F:.]+)")
_TOTAL = lazy(r"(?:[Tt]otal ?[Mm]emory|deviceMemorySize): ?([\d.]+[KMGT]iB)")
_FREE = lazy(r"[Ff]ree ?[Mm]emory: ?([\d.]+[KMGT]iB)")
NUMA_PCI = lazy(r"/sys/bus/pci/devices/([0-9a-fA-F:.]+)/numa_node")
"""Of the NUMA warning, which proves that the driver enumerated this device."""
_MISSING_FILE = lazy(r"(?:libdevice not found at|was not found at|Can't find) (?:\S{0,300}/)?(libdevice[\w.]*bc)")
# TensorFlow 0.x
_DSO = lazy(r"Unable to load (cu[A-Za-z]{2,10}) DSO")
LIBDEVICE = "libdevice.10.bc"
"""The file that XLA searches for (its name since CUDA 9)."""

_CODES = {
    **{
        f"CUDA_ERROR_{error.names[0].upper()}": error.numbers[0]
        for error in cuda_errors.TABLE
        if error.numbers and error.names
    },
    "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED": 303,
}
"""CUresult (cuda.h) by name."""

_OPTIONAL_LIBRARIES = ("libnvinfer", "nvinfer", "libnccl-")
"""TensorRT, and plug-ins of NCCL (libnccl-net.so, libnccl-tuner.so): GPUs work without them."""


def mapping(message: str) -> DeviceMapping | None:
    """``Created device … -> device: 0, name: …`` of any version, with or without the memory."""
    match = _CREATED.search(message) or _SESSION.search(message) or _LISTED.search(message)
    if match is None:
        return None
    found = match.groupdict()
    granted = found.get("megabytes")
    return DeviceMapping(
        framework_device=f"/device:GPU:{int(found.get('number', found['ordinal']))}",
        cuda_ordinal=int(found["ordinal"]),
        pci_bus_id=pci_address(found["bus"]),
        name=found["name"],
        compute_capability=found["capability"],
        granted_bytes=int(granted) * _MIB if granted else None,
    )


def begins_mapping(message: str) -> bool:
    """Whether a mapping line starts here, which may have been wrapped by hand."""
    return "Creat" in message and (" device (" in message or "Created device /" in message)


def begun_mapping(message: str) -> DeviceMapping | None:
    """What can be read from a mapping line that was cut off; None if it has only a device name."""
    match = _BEGUN.search(message)
    if match is None:
        return None
    return DeviceMapping(
        framework_device=f"/device:GPU:{int(match[1])}",
        granted_bytes=int(match[2]) * _MIB if match[2] else None,
    )


def ignored(message: str) -> IgnoredGpu | None:
    """``Ignoring visible gpu device (…) with …``."""
    match = _IGNORED.search(message)
    if match is None:
        return None
    why = match[4]
    if "capability" in why:
        reason = "capability"
    elif "core count" in why or "multiprocessor count" in why:
        reason = "core-count"
    else:
        reason = "other"
    return IgnoredGpu(
        name=match[2], pci_bus_id=pci_address(match[3]), cuda_ordinal=int(match[1]), reason=reason, detail=why
    )


def cuinit(message: str) -> CuInitError | None:
    """``failed call to cuInit: …`` of every version."""
    at = message.find("failed call to cuInit")
    if at < 0:
        return None
    text = message[at:].partition(":")[2].strip()
    match = _CUINIT.search(text)
    if match is None:
        return CuInitError(name=None, code=None, text=text)
    code = int(match[2]) if match[2] else _CODES.get(match[1])
    name = match[1]
    if name == "UNKNOWN ERROR":
        name = next((known for known, number in _CODES.items() if number == code), name)
    return CuInitError(name=name, code=code, text=text)


def missing_library(message: str) -> list[str]:
    """Libraries that could not be loaded; a dlerror in the line may name a second one."""
    names = []
    if match := _LIBRARY.search(message):
        names.append(match[1].rstrip(".,"))
        if (second := _DLERROR.search(message)) and second[1] not in names:
            names.append(second[1])
    elif match := _MISSING_FILE.search(message):
        names.append(match[1])
    elif "Unable to load NCCL library" in message:  # nccl_stub.cc of TensorFlow
        names.append("libnccl.so.2")
    elif match := _DLL.search(message):
        names += [name for name in match.groups() if name and _OF_CUDA.search(name)]
    else:
        if match := _NOT_LOADED.search(message):
            names += [name.rstrip(".") for name in match.groups() if name and _OF_CUDA.search(name)]
        elif match := _DSO.search(message):
            names.append(f"lib{match[1].lower()}.so")
        if (match := _SHARED.search(message)) and (match[1] or match[2]) not in names:
            names.append(match[1] or match[2])
    return [name for name in names if not name.startswith(_OPTIONAL_LIBRARIES)]


def assigned(message: str) -> str | None:
    """The value in a line of code or a command line that sets CUDA_VISIBLE_DEVICES."""
    match = _ASSIGNED.search(message)
    return next(group for group in match.groups() if group is not None) if match else None


def described(message: str, so_far: LoggedGpu) -> LoggedGpu:
    """``so_far`` with the name, bus address or memory from this line."""
    name, bus, total, free = (found.search(message) for found in (_NAME, _BUS, _TOTAL, _FREE))
    return LoggedGpu(
        name=name[1].strip() if name else so_far.name,
        pci_bus_id=pci_address(bus[1]) if bus else so_far.pci_bus_id,
        total_bytes=size_bytes(total[1]) if total else so_far.total_bytes,
        free_bytes=size_bytes(free[1]) if free else so_far.free_bytes,
    )


def first_group(pattern: re.Pattern[str], message: str) -> str | None:
    """What the pattern finds in a message."""
    match = pattern.search(message)
    return match[1] if match else None
