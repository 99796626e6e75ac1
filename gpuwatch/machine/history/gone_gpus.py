"""Bounds what is remembered of GPUs that are gone: one may come back, but ever new ones must not add up."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any

MAX_GONE_GPUS = 64
"""GPUs of which something is remembered after they are gone."""


def forget_gone(here: Collection[str], *remembered: MutableMapping[Any, Any]) -> None:
    """Deletes what is remembered of the oldest GPUs that are not ``here``; a key is a UUID, or begins with one."""
    for entries in remembered:
        if len(entries) > MAX_GONE_GPUS + len(here):
            known = {key: key if isinstance(key, str) else key[0] for key in entries}
            gone = list(dict.fromkeys(uuid for uuid in known.values() if uuid not in here))
            forgotten = set(gone[: max(len(gone) - MAX_GONE_GPUS, 0)])
            for key in [key for key, uuid in known.items() if uuid in forgotten]:
                del entries[key]
