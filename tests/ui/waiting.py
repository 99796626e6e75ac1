"""Waiting for what the dashboard shows, on a machine of any load."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot

_PATIENCE = 120.0


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Until a condition holds; it fails after two minutes."""
    end = time.monotonic() + _PATIENCE
    await pilot.pause()
    while not holds():
        assert time.monotonic() < end, "it did not come"
        await pilot.pause(0.01)
