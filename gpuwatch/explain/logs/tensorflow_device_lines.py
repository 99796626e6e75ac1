"""TensorFlow's lines about GPUs, the driver and CUDA_VISIBLE_DEVICES, from 0.x to today, and of plug-ins."""

from __future__ import annotations

from gpuwatch.core.model.run import DeviceMapping
from gpuwatch.core.parsing import lazy
from gpuwatch.explain.logs import cuda_errors
from gpuwatch.explain.logs.device_names import pci_address
from gpuwatch.explain.logs.log_facts import CuInitError, IgnoredGpu, LoggedGpu
from gpuwatch.explain.size_texts import size_bytes

_MIB = 1024**2

_GPU_DESCRIPTION = (
    r"device: (?P<ordinal>\d{1,6}), name: (?P<name>.{1,120}?), pci bus id: (?P<bus>[0-9a-fA-F:.]+|<undefined>)"
    r"(?:, compute capability: (?P<capability>\d+\.\d+))?"
)
_CREATED_DEVICE = lazy(
    r"Creat(?:ed|ing) (?:TensorFlow )?device \(?\S*?(?:gpu|GPU):(?P<number>\d{1,6})\)?"
    r"(?: with \**(?P<megabytes>\d{1,12}) MB\**(?: memory)?)?\)?:?\s*"
    rf"-> (?:physical (?:GPU|PluggableDevice) )?\(?{_GPU_DESCRIPTION}"
)
_SESSION_DEVICE = lazy(rf"/(?:device:)?(?:gpu|GPU):(?P<number>\d{{1,6}})\s*-> {_GPU_DESCRIPTION}")
_LISTED_DEVICE = lazy(rf"physical_device_desc: \"{_GPU_DESCRIPTION}")
"""Of device_lib.list_local_devices(). The framework's name is in an earlier line; by default the numbers are the same.
"""
_IGNORED_GPU = lazy(
    r"Ignoring (?:visible )?gpu device \(device: (\d{1,6}), name: (.{1,120}?), pci bus id: ([0-9a-fA-F:.]+)"
    r".{0,120}?\) with (.+)$"
)
# A mapping line that was cut off.
_CUT_MAPPING = lazy(
    r"Creat(?:ed|ing) (?:TensorFlow )?device \(?(?:/\S*?)?[/:](?:gpu|GPU):(\d{1,6})\)?"
    r"(?: with \**(\d{1,12}) MB\**(?: memory)?\)?:?| ?-> )"
)
_CUINIT = lazy(r"(CUDA_ERROR_\w+|UNKNOWN ERROR)(?: ?\((\d{1,9})\))?(?::\s*(.*))?")
HIDING_VISIBLE_DEVICES = lazy(r"CUDA_VISIBLE_DEVICES is set to (.{0,400}?) - this hides all GPUs")
"""CUDA_VISIBLE_DEVICES, where TensorFlow says that it hides all GPUs."""
PRINTED_VISIBLE_DEVICES = lazy(r'env: CUDA_VISIBLE_DEVICES="([^"]*)"')
"""Printed by 2.19 and later when cuInit fails."""
_ASSIGNED = lazy(
    r"environ(?:\.setdefault\()?\[?[\"']CUDA_VISIBLE_DEVICES[\"']\]?\s{0,4}[=,]\s{0,4}[\"']([^\"']{0,200})[\"']"
    r"|(?:^|export |set |\$ |env |Setting )CUDA_VISIBLE_DEVICES=[\"']?([\w,.-]{0,200})"
)
FREE_AT_LIBRARY_START = lazy(r"Memory usage: (\d{1,18}) bytes free, \d{1,18} bytes total")
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
_CURESULT_BY_NAME = {
    **{
        f"CUDA_ERROR_{error.names[0].upper()}": error.numbers[0]
        for error in cuda_errors.TABLE
        if error.numbers and error.names
    },
    "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED": 303,
}
"""CUresult (cuda.h) by name."""


def parse_mapping(message: str) -> DeviceMapping | None:
    """``Created device … -> device: 0, name: …`` of any version, with or without the memory."""
    match = _CREATED_DEVICE.search(message) or _SESSION_DEVICE.search(message) or _LISTED_DEVICE.search(message)
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


def starts_mapping(message: str) -> bool:
    """Whether a mapping line starts here, which may have been wrapped by hand."""
    return "Creat" in message and (" device (" in message or "Created device /" in message)


def parse_cut_mapping(message: str) -> DeviceMapping | None:
    """What can be read from a mapping line that was cut off; None if it has only a device name."""
    match = _CUT_MAPPING.search(message)
    if match is None:
        return None
    return DeviceMapping(
        framework_device=f"/device:GPU:{int(match[1])}",
        granted_bytes=int(match[2]) * _MIB if match[2] else None,
    )


def parse_ignored_gpu(message: str) -> IgnoredGpu | None:
    """``Ignoring visible gpu device (…) with …``."""
    match = _IGNORED_GPU.search(message)
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


def parse_cuinit_error(message: str) -> CuInitError | None:
    """``failed call to cuInit: …`` of every version."""
    at = message.find("failed call to cuInit")
    if at < 0:
        return None
    text = message[at:].partition(":")[2].strip()
    match = _CUINIT.search(text)
    if match is None:
        return CuInitError(name=None, code=None, text=text)
    code = int(match[2]) if match[2] else _CURESULT_BY_NAME.get(match[1])
    name = match[1]
    if name == "UNKNOWN ERROR":
        name = next((known for known, number in _CURESULT_BY_NAME.items() if number == code), name)
    return CuInitError(name=name, code=code, text=text)


def assigned_visible_devices(message: str) -> str | None:
    """The value in a line of code or a command line that sets CUDA_VISIBLE_DEVICES."""
    match = _ASSIGNED.search(message)
    return next(group for group in match.groups() if group is not None) if match else None


def add_gpu_properties(message: str, known: LoggedGpu) -> LoggedGpu:
    """``known`` with the name, bus address or memory from this line."""
    name, bus, total, free = (found.search(message) for found in (_NAME, _BUS, _TOTAL, _FREE))
    return LoggedGpu(
        name=name[1].strip() if name else known.name,
        pci_bus_id=pci_address(bus[1]) if bus else known.pci_bus_id,
        total_bytes=size_bytes(total[1]) if total else known.total_bytes,
        free_bytes=size_bytes(free[1]) if free else known.free_bytes,
    )
