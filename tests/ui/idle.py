"""What makes pilots quick: no waiting for the clock, and style sheets that are parsed once in a process.

Textual's own ``wait_for_idle`` sleeps at least a fiftieth of a second, and twice for each key: in a thousand tests
that is minutes in which nobody computes. This one asks the event loop. And each dashboard has a cache of style sheets
of its own, which a test would fill again: a seventh of its CPU time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import textual.app
import textual.pilot
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

SOON = 0.025
"""Timers that are due within so many seconds are waited for, as Textual's pause would."""


async def wait_for_idle(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
    """Until no callback is ready, no timer is due soon, and no thread computes; ``max_sleep`` seconds at most."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (now := loop.time()) < began + max_sleep:
        await asyncio.sleep(0)
        if loop._ready:  # type: ignore[attr-defined]
            continue
        timers = [one.when() for one in loop._scheduled if not one.cancelled()]  # type: ignore[attr-defined]
        due = min(timers, default=now + 1)
        if due <= began + max(SOON, min_sleep):
            await asyncio.sleep(max(0.0, due - loop.time()))
        elif await _threads_are_idle():
            return


async def _threads_are_idle() -> bool:
    """Whether the process used next to no CPU in five milliseconds, where it has other threads that could."""
    if threading.active_count() == 1:
        return True
    used = time.process_time()
    await asyncio.sleep(0.005)
    return time.process_time() - used < 0.001


_parse_rules = Stylesheet._parse_rules
_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


def _parse_once(self: Stylesheet, *arguments: Any, **named: Any) -> list[RuleSet]:
    """As Textual's, with one cache for all apps whose variables (the theme's colours) are the same."""
    key = (arguments, tuple(named.items()), tuple(self._variables.items()))
    if key not in _parsed:
        _parsed[key] = _parse_rules(self, *arguments, **named)
    return _parsed[key]


def use(patch: pytest.MonkeyPatch) -> None:
    """Pilots of Textual wait and parse in these ways."""
    patch.setattr(Stylesheet, "_parse_rules", _parse_once)
    for module in (textual.app, textual.pilot):
        patch.setattr(module, "wait_for_idle", wait_for_idle)
