"""CUDA_VISIBLE_DEVICES as CUDA reads it: in order, ending at the first entry that is not valid.

CUDA programming guide, environment variables: "if one of the indices is invalid, only the devices whose
index precedes the invalid index are visible".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuwatch.model.snapshot import Device

_NOTHING = ("", "nodevfiles", "none", "void")


@dataclass(frozen=True, slots=True)
class Visible:
    """What a value leaves visible."""

    entries: tuple[str, ...]
    """Valid entries, in CUDA's order."""
    ended_at: str | None
    """The first entry that is not valid."""
    after: tuple[str, ...]
    """Entries behind it, which CUDA never reads."""

    @property
    def hides_all(self) -> bool:
        """Whether no GPU is left."""
        return not self.entries

    @property
    def on_purpose(self) -> bool:
        """A value that people use to mean "no GPU"."""
        return self.hides_all and not self.after and (self.ended_at is None or self.ended_at.startswith("-"))


def read_visible(value: str, devices: Sequence[Device] | None) -> Visible:
    """Reads a value. ``devices`` are the machine's, in NVML's order; None where they are unknown."""
    if value.strip().lower() in _NOTHING:
        return Visible((), None, ())
    parts = [part.strip() for part in value.split(",")]
    good: list[str] = []
    for index, part in enumerate(parts):
        if not _valid(part, devices) or part in good:
            return Visible(tuple(good), part, tuple(parts[index + 1 :]))
        good.append(part)
    return Visible(tuple(good), None, ())


def _valid(entry: str, devices: Sequence[Device] | None) -> bool:
    if entry.isdigit():
        return devices is None or int(entry) < len(devices)
    if entry.startswith("MIG-"):
        return True  # instances are not in the list of devices
    if entry.startswith("GPU-"):
        return devices is None or any(device.uuid.startswith(entry) for device in devices)
    return False
