"""CUDA_VISIBLE_DEVICES as CUDA reads it: in order, up to the first invalid entry.

:mod:`gpuwatch.model.visibility` says which GPU each entry is, and has the sources; this module explains a value, with
or without a machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.model.snapshot import Device
from gpuwatch.model.visibility import leading_number

_NOTHING = ("", "nodevfiles", "none", "void")
_PLAIN = re.compile(r"[+]?[0-9]+")
_SEVERAL = re.compile(r"[0-9]+(?:[ ;:|/][ ]*[0-9]+)+")
_RANGE = re.compile(r"([0-9]{1,3}) ?(?:-|\.\.) ?([0-9]{1,3})")
_MOST = 16
INSTANCE = "MIG-"


@dataclass(frozen=True, slots=True)
class Visible:
    """The GPUs that a value leaves visible."""

    entries: tuple[str, ...]
    """Valid entries in CUDA's order; of a number, only its digits."""
    ended_at: str | None
    """The first invalid entry."""
    after: tuple[str, ...]
    """Entries after it, which CUDA never reads."""
    repeated: bool = False
    """Whether ``ended_at`` is a duplicate: CUDA then shows no GPU at all."""
    loose: tuple[tuple[str, str], ...] = ()
    """Entries that are not plain numbers but that CUDA reads as a number, with that number."""

    @property
    def hides_all(self) -> bool:
        """Whether no GPU is visible."""
        return not self.entries

    @property
    def on_purpose(self) -> bool:
        """Whether people use this value to mean "no GPU"."""
        ended = self.ended_at is None or self.ended_at.startswith("-")
        return self.hides_all and not self.after and not self.repeated and ended

    @property
    def misread(self) -> str:
        """How CUDA reads entries that are not plain numbers; empty without any."""
        return ", ".join(f"{entry!r} is read as {number}" for entry, number in self.loose)

    @property
    def meant(self) -> str:
        """The probable meaning of entries that are not plain numbers: ``0,1`` for ``0 1``; empty without any."""
        return ",".join(_meant(entry) or number for entry, number in self.loose)


def read_visible(value: str, devices: Sequence[Device] | None) -> Visible:
    """Reads a value. ``devices`` are the machine's, in NVML's order; None if unknown."""
    if value.strip().lower() in _NOTHING:
        return Visible((), None, ())
    parts = [part.strip() for part in value.split(",")]
    numbers = leading_number(parts[0]) is not None
    good: list[str] = []
    known: list[object] = []
    loose: list[tuple[str, str]] = []
    for index, part in enumerate(parts):
        number, after = leading_number(part), tuple(parts[index + 1 :])
        device = _device(part, number, devices)
        if device is None or (number is not None) != numbers:
            return Visible(tuple(good), part, after, loose=tuple(loose))
        if number is not None and not _PLAIN.fullmatch(part):
            loose.append((part, str(number)))
        if device in known:
            return Visible((), part, after, repeated=True, loose=tuple(loose))
        known.append(device)
        good.append(str(number) if number is not None else part)
    return Visible(tuple(good), None, (), loose=tuple(loose))


def _device(entry: str, number: int | None, devices: Sequence[Device] | None) -> object | None:
    """The device of an entry, as a key that distinguishes entries; None if it is invalid."""
    if number is not None:
        if devices is None:
            return number
        return devices[number].uuid if number < len(devices) else None
    if entry.startswith(INSTANCE):
        # On a machine with MIG, NVML may not report an instance's UUID: it is assumed to be valid.
        return entry if devices is None or any(map(divided, devices)) else None
    if entry.upper().startswith("GPU-"):
        if devices is None:
            return entry
        found = [device.uuid for device in devices if device.uuid.lower().startswith(entry.lower())]
        return found[0] if len(found) == 1 else None
    return None


def divided(device: Device) -> bool:
    """Whether this GPU has MIG on."""
    return device.readings.get("mig.mode") == "enabled"


def _meant(entry: str) -> str:
    if span := _RANGE.fullmatch(entry):
        first, last = int(span[1]), int(span[2])
        return ",".join(map(str, range(first, last + 1))) if first < last < first + _MOST else ""
    return ",".join(re.findall("[0-9]+", entry)) if _SEVERAL.fullmatch(entry) else ""
