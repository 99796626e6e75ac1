"""Waiting for a condition, in place of a sleep: on a machine of any load, and no longer than it takes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.live_feed import LiveFeed

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds to wait for what takes far less on an idle machine."""


def wait_for(condition: Callable[[], T], what: object = "", seconds: float = PATIENCE, pause: float = 0.02) -> T:
    """Calls ``condition`` until what it returns is true, and returns that.

    AssertionError after ``seconds`` names ``what`` was waited for (without it the condition's source). A callable is
    called for the text then.
    """
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() >= end:
            raise AssertionError(_report(condition, what, seconds, value))
        time.sleep(pause)
    return value


async def wait_for_async(
    condition: Callable[[], T],
    what: object = "",
    seconds: float = PATIENCE,
    pause: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0.02),
) -> T:
    """The same in a coroutine; ``pause`` is awaited between two calls, so that what is tested can go on."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() >= end:
            raise AssertionError(_report(condition, what, seconds, value))
        await pause()
    return value


def wait_for_sample(feed: LiveFeed, condition: Callable[[Snapshot], object], seconds: float = PATIENCE) -> Snapshot:
    """The first snapshot of ``feed`` for which ``condition`` is true."""
    return wait_for(
        lambda: next(filter(condition, feed.wait(1, 1.0)), None),
        lambda: f"a sample with {source_of(condition)}",
        seconds,
    )


def remains(condition: Callable[[], object], seconds: float, pause: float = 0.02) -> None:
    """Calls ``condition`` for ``seconds``: AssertionError as soon as what it returns is not true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not (value := condition()):
            raise AssertionError(f"no longer true: {source_of(condition)} (now {value!r})")
        time.sleep(pause)


def _report(condition: Callable[[], object], what: object, seconds: float, value: object) -> str:
    text = what() if callable(what) else what
    return f"waited {seconds:g} s for {text or source_of(condition)} (last {value!r})"


def source_of(condition: Callable[..., object]) -> str:
    """The source of a condition in one line."""
    try:
        return " ".join(inspect.getsource(condition).split())
    except (OSError, TypeError):
        return getattr(condition, "__qualname__", repr(condition))
