"""How CUDA reads CUDA_VISIBLE_DEVICES, and which GPUs a process therefore sees: the only reader of that variable.

:func:`read_visible` explains a value, with or without a machine; :func:`visible_devices` maps a process's device
numbers to physical GPUs.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables": the list ends at the first invalid entry; integers
count in CUDA_DEVICE_ORDER; ``GPU-`` entries may be abbreviated as long as they are unique. PyTorch, which reads the
variable as the driver does (torch.cuda, pull requests 84879 and 92315): only the leading digits of an entry count, as
in ``strtoul``; numbers and UUIDs cannot be mixed; a duplicate leaves nothing visible.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from gpuwatch.core.model.snapshot import Device, MappedDevice

MIG_PREFIX = "MIG-"
"""How the UUID of a MIG instance begins."""
_NO_DEVICE_WORDS = ("", "nodevfiles", "none", "void")
_LEADING_DIGITS = re.compile(r"[+]?([0-9]{1,9})")
_PLAIN_NUMBER = re.compile(r"[+]?[0-9]+")
_SEVERAL_NUMBERS = re.compile(r"[0-9]+(?:[ ;:|/][ ]*[0-9]+)+")
_RANGE = re.compile(r"([0-9]{1,3}) ?(?:-|\.\.) ?([0-9]{1,3})")
_MAX_RANGE_LENGTH = 16
_MIXED_MODELS = "cards differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID"
_MIG_LISTED = "it lists a MIG instance"


@dataclass(frozen=True, slots=True)
class VisibleList:
    """What a value leaves visible, in CUDA's order, up to its first invalid entry."""

    entries: tuple[str, ...]
    """Valid entries; of a number, only its digits."""
    invalid_entry: str | None = None
    """The first invalid entry."""
    unread_entries: tuple[str, ...] = ()
    """Entries after it, which CUDA never reads."""
    repeated: bool = False
    """Whether ``invalid_entry`` is a duplicate: CUDA then shows no GPU at all."""
    misread: tuple[tuple[str, str], ...] = ()
    """Entries that are not plain numbers but that CUDA reads as a number, with that number."""
    devices: tuple[Device | None, ...] = ()
    """The GPU of each of ``entries``; None without a machine, and for a MIG instance."""

    @property
    def hides_all(self) -> bool:
        """Whether no GPU is visible."""
        return not self.entries

    @property
    def asks_for_none(self) -> bool:
        """Whether no GPU is visible because the list is empty or begins with a negative number."""
        return (
            self.hides_all and not self.repeated and (self.invalid_entry is None or self.invalid_entry.startswith("-"))
        )

    @property
    def on_purpose(self) -> bool:
        """Whether people use this value to mean "no GPU"."""
        return self.asks_for_none and not self.unread_entries

    @property
    def misread_text(self) -> str:
        """How CUDA reads entries that are not plain numbers; empty without any."""
        return ", ".join(f"{entry!r} is read as {number}" for entry, number in self.misread)

    @property
    def probable_value(self) -> str:
        """The probable meaning of entries that are not plain numbers: ``0,1`` for ``0 1``; empty without any."""
        return ",".join(_meant_entry(entry) or number for entry, number in self.misread)


class VisibleMap(msgspec.Struct, frozen=True, kw_only=True):
    """The GPUs that a process sees with one value of CUDA_VISIBLE_DEVICES."""

    map: tuple[MappedDevice, ...]
    invalid: str | None = None
    """The entry at which the list ended; None if all are valid."""
    hidden: bool = False
    """Nothing is visible because the value says so (empty, ``-1``, ``NoDevFiles``)."""
    why_unsure: str = ""
    """Why the map cannot be known from outside; it is empty then."""


def read_visible(value: str, devices: Sequence[Device] | None) -> VisibleList:
    """Reads a value. ``devices`` are the machine's, in NVML's order; None if unknown."""
    if value.strip().lower() in _NO_DEVICE_WORDS:
        return VisibleList(())
    parts = [part.strip() for part in value.split(",")]
    numbers = _leading_number(parts[0]) is not None
    valid_entries: list[str] = []
    keys: list[object] = []
    found_devices: list[Device | None] = []
    found_misread: list[tuple[str, str]] = []
    for index, part in enumerate(parts):
        number, after = _leading_number(part), tuple(parts[index + 1 :])
        valid, device = _find_device(part, number, devices)
        if not valid or (number is not None) != numbers:
            return VisibleList(
                tuple(valid_entries), part, after, misread=tuple(found_misread), devices=tuple(found_devices)
            )
        if number is not None and not _PLAIN_NUMBER.fullmatch(part):
            found_misread.append((part, str(number)))
        key = device.uuid if device is not None else part if number is None else number
        if key in keys:
            return VisibleList((), part, after, repeated=True, misread=tuple(found_misread))
        keys.append(key)
        found_devices.append(device)
        valid_entries.append(str(number) if number is not None else part)
    return VisibleList(tuple(valid_entries), misread=tuple(found_misread), devices=tuple(found_devices))


def visible_to(environment: Mapping[str, str], devices: Sequence[Device]) -> VisibleMap:
    """As :func:`visible_devices`, with the values of a process's environment."""
    return visible_devices(environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER"), devices)


def visible_devices(value: str | None, order: str | None, devices: Sequence[Device]) -> VisibleMap:
    """The map from CUDA ordinal to physical GPU for a process with this environment.

    ``value`` and ``order`` are CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER (None: not set). The map is unknown if the
    card models differ and integers count in the default order (fastest first), which is not known from outside, and
    if a MIG instance is listed.
    """
    if not devices:
        return VisibleMap(map=())
    order_known = order == "PCI_BUS_ID" or len({device.name for device in devices}) <= 1
    if value is None:
        return VisibleMap(map=_device_map(devices)) if order_known else VisibleMap(map=(), why_unsure=_MIXED_MODELS)
    visible = read_visible(value, devices)
    known = [device for device in visible.devices if device is not None]
    if len(known) < len(visible.entries):
        return VisibleMap(map=(), why_unsure=_MIG_LISTED)
    if not order_known and visible.entries and _leading_number(visible.entries[0]) is not None:
        return VisibleMap(map=(), why_unsure=_MIXED_MODELS)
    return VisibleMap(
        map=_device_map(known),
        invalid=None if visible.on_purpose else visible.invalid_entry,
        hidden=visible.asks_for_none,
    )


def _leading_number(entry: str) -> int | None:
    """The number that CUDA reads from an entry: ``0`` from ``0 1``, ``1`` from ``1gpu2``; None if there is none."""
    match = _LEADING_DIGITS.match(entry)
    return int(match[1]) if match else None


def _find_device(entry: str, number: int | None, devices: Sequence[Device] | None) -> tuple[bool, Device | None]:
    """Whether an entry is valid, and its GPU; without a machine, every number and UUID is."""
    if number is None and not entry.startswith(MIG_PREFIX) and not entry.upper().startswith("GPU-"):
        return False, None
    if devices is None:
        return True, None
    if number is None and entry.startswith(MIG_PREFIX):
        # On a machine with MIG, NVML may not report an instance's UUID: it is assumed to be valid.
        return any(device.has_mig for device in devices), None
    if number is None:
        named = [device for device in devices if device.uuid.lower().startswith(entry.lower())]
    else:
        named = [device for device in devices if device.index == number]
    return (True, named[0]) if len(named) == 1 else (False, None)


def _device_map(chosen: Sequence[Device]) -> tuple[MappedDevice, ...]:
    return tuple(
        MappedDevice(ordinal=number, uuid=device.uuid, index=device.index) for number, device in enumerate(chosen)
    )


def _meant_entry(entry: str) -> str:
    if span := _RANGE.fullmatch(entry):
        first, last = int(span[1]), int(span[2])
        return ",".join(map(str, range(first, last + 1))) if first < last < first + _MAX_RANGE_LENGTH else ""
    return ",".join(re.findall("[0-9]+", entry)) if _SEVERAL_NUMBERS.fullmatch(entry) else ""
