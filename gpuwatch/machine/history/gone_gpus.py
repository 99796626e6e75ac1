"""What is remembered of GPUs that are gone or do not answer: their last processes; and of how many GPUs at most."""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableMapping
from typing import Any

from gpuwatch.core.model.snapshot import Device, Process, Snapshot

MAX_GONE_GPUS = 64
"""GPUs of which something is remembered after they are gone."""


def forget_gone(here: Collection[str], *remembered: MutableMapping[Any, Any]) -> None:
    """Deletes what is remembered of the oldest GPUs that are not ``here``; a key is a UUID, or begins with one.

    A GPU may come back, but ever new ones must not add up.
    """
    for entries in remembered:
        if len(entries) > MAX_GONE_GPUS + len(here):
            known = {key: key if isinstance(key, str) else key[0] for key in entries}
            gone = list(dict.fromkeys(uuid for uuid in known.values() if uuid not in here))
            forgotten = set(gone[: max(len(gone) - MAX_GONE_GPUS, 0)])
            for key in [key for key, uuid in known.items() if uuid in forgotten]:
                del entries[key]


class LastProcesses(dict[str, tuple[Process, ...]]):
    """The last known processes of each device that does not answer, by UUID."""

    def remember(self, uuid: str, processes: Iterable[Process]) -> None:
        """Remembers those of ``processes`` that are on the device."""
        self[uuid] = tuple(row for row in processes if row.device_uuid == uuid)

    def update_from(self, devices: Iterable[Device], processes: Iterable[Process], now: Snapshot) -> None:
        """``devices``, ``processes``: those of the sample before ``now``."""
        answering = {device.uuid for device in devices if "memory.used_bytes" in device.readings}
        for device in now.devices:
            if "memory.used_bytes" in device.readings:
                self.pop(device.uuid, None)
            elif device.uuid in answering:
                self.remember(device.uuid, processes)
