"""A bound of what is kept by GPU: one that is gone may come back, but ever new GPUs must not add up."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any

MAX_DEVICES = 64
"""GPUs of which something is kept after they are gone."""


def forget_gone(here: Collection[str], *kept: MutableMapping[Any, Any]) -> None:
    """Deletes what is of the GPUs known longest that are not ``here``; a key is a UUID, or begins with one."""
    for entries in kept:
        if len(entries) > MAX_DEVICES + len(here):
            known = {key: key if isinstance(key, str) else key[0] for key in entries}
            gone = list(dict.fromkeys(uuid for uuid in known.values() if uuid not in here))
            forgotten = set(gone[: max(len(gone) - MAX_DEVICES, 0)])
            for key in [key for key, uuid in known.items() if uuid in forgotten]:
                del entries[key]
