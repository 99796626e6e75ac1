"""How CUDA reads CUDA_VISIBLE_DEVICES, and which GPUs a process therefore sees.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables": the list ends at the first invalid entry; integers
count in CUDA_DEVICE_ORDER; ``GPU-`` entries may be abbreviated as long as they are unique. PyTorch, which reads the
variable as the driver does (torch.cuda, pull requests 84879 and 92315): only the leading digits of an entry count, as
in ``strtoul``; numbers and UUIDs cannot be mixed; a duplicate leaves nothing visible.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gpuwatch.model.snapshot import Device, Mapped


class Visible(msgspec.Struct, frozen=True, kw_only=True):
    """What one value of CUDA_VISIBLE_DEVICES selects."""

    map: tuple[Mapped, ...]
    invalid: str | None = None
    """The entry at which the list ended; None if all are valid."""
    hidden: bool = False
    """Nothing is visible because the value says so (empty, ``-1``, ``NoDevFiles``)."""
    unsure: str = ""
    """Why the map cannot be known from outside; it is empty then."""


_NUMBER = re.compile(r"[+]?([0-9]{1,9})")


def leading_number(entry: str) -> int | None:
    """The number that CUDA reads from an entry: ``0`` from ``0 1``, ``1`` from ``1gpu2``; None if there is none."""
    match = _NUMBER.match(entry.strip())
    return int(match[1]) if match else None


def _order_known(devices: Sequence[Device], order: str | None) -> bool:
    return order == "PCI_BUS_ID" or len({device.name for device in devices}) <= 1


def visible_devices(value: str | None, order: str | None, devices: Sequence[Device]) -> Visible:
    """The map from CUDA ordinal to physical GPU for a process with this environment.

    ``value`` and ``order`` are CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER (None: not set). If the card models differ
    and the order is the default (fastest first), integers cannot be resolved from outside: the result is ``unsure``.
    """
    if not devices:
        return Visible(map=())
    mixed = "cards differ and CUDA_DEVICE_ORDER is not PCI_BUS_ID"
    if value is None:
        if not _order_known(devices, order):
            return Visible(map=(), unsure=mixed)
        return Visible(map=tuple(Mapped(ordinal=d.index, uuid=d.uuid, index=d.index) for d in devices))
    entries = [entry.strip() for entry in value.split(",")]
    if entries in ([""], ["-1"], ["NoDevFiles"]):
        return Visible(map=(), hidden=True)
    chosen: list[Device] = []
    for entry in entries:
        device = _find(entry, devices)
        number = leading_number(entry)
        mixed_kinds = (number is None) != (leading_number(entries[0]) is None)
        if device is None or mixed_kinds:
            return Visible(map=_mapped(chosen), invalid=entry, hidden=not chosen and entry.startswith("-"))
        if number is not None and not _order_known(devices, order):
            return Visible(map=(), unsure=mixed)
        if device in chosen:
            return Visible(map=(), invalid=entry)  # a duplicate hides all
        chosen.append(device)
    return Visible(map=_mapped(chosen))


def _find(entry: str, devices: Sequence[Device]) -> Device | None:
    number = leading_number(entry)
    if number is not None:
        return next((device for device in devices if device.index == number), None)
    if entry.upper().startswith("GPU-"):
        found = [device for device in devices if device.uuid.lower().startswith(entry.lower())]
        return found[0] if len(found) == 1 else None
    return None


def _mapped(chosen: Sequence[Device]) -> tuple[Mapped, ...]:
    return tuple(Mapped(ordinal=ordinal, uuid=device.uuid, index=device.index) for ordinal, device in enumerate(chosen))
