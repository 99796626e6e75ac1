"""Types of options: a choice of names, finite numbers, amounts with a unit (durations and sizes), shell words."""

from __future__ import annotations

import math
import shlex
from typing import Any

import click

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import UNIT_SECONDS, parse_duration
from gpuwatch.core.formatting.suggest import did_you_mean
from gpuwatch.core.formatting.units import parse_size

_MAX_SIZE_BYTES = 1 << 62


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """``500ms``, ``1s``, ``5min``, ``30d``; seconds without a unit. The range is in seconds."""

    name = "duration"

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            seconds: float | None = float(value)
        except ValueError:
            seconds = parse_duration(value)
        if seconds is None:
            self.fail(f"{value!r} is not a duration such as 500ms, 1s, 5min, 12h or 30d", param, ctx)
        if not self._least <= seconds <= self._most:
            self.fail(
                f"{value} is not between {_duration_text(self._least)} and {_duration_text(self._most)}", param, ctx
            )
        return seconds


class Size(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.2 only
    """``500MB``, ``1GiB``."""

    name = "size"

    def __init__(self, least: int) -> None:
        """``least``: the minimum, in bytes."""
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        size = parse_size(value)
        if size is None or size > _MAX_SIZE_BYTES:
            self.fail(f"{value!r} is not a size such as 500MB or 1GiB", param, ctx)
        if size < self._least:
            self.fail(f"{value} is less than {self._least >> 20} MiB", param, ctx)
        return size


def _duration_text(seconds: float) -> str:
    for unit in ("d", "h", "min", "s"):
        if seconds >= UNIT_SECONDS[unit]:
            return f"{seconds / UNIT_SECONDS[unit]:g} {unit}"
    return f"{seconds * 1e3:g} ms"


class FiniteRange(click.FloatRange):
    """A range of numbers without ``nan``, which passes every comparison with a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


class Choice(click.Choice):  # type: ignore[type-arg]  # generic since click 8.2 only
    """One of a few names; for a typo the error suggests the closest name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(error.message.rstrip(".") + did_you_mean(str(value), map(str, self.choices)), param, ctx)


def split_words(text: str, option: str) -> list[str]:
    """The words of an option's value, as a shell splits them; UsageError for unbalanced quotes, or no word at all."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text[:80]!r}: {str(error).lower()}", hint="quote it as for a shell") from None
    if not words:
        raise UsageError(f"{option} is empty", hint="omit it")
    return words
