"""A choice of a few names on the command line."""

from __future__ import annotations

from typing import Any

import click

from gpuwatch.core.formatting.suggest import did_you_mean


class Choice(click.Choice):  # type: ignore[type-arg]  # generic since click 8.2 only
    """One of a few names; for a typo the error suggests the closest name."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(error.message.rstrip(".") + did_you_mean(str(value), map(str, self.choices)), param, ctx)
