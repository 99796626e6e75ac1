"""Chooses the simulated machine for a fault, and reports what was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli import output
from gpuwatch.cli.options import SIM_NAME, asked_shape, sim_option

if TYPE_CHECKING:
    from gpuwatch.sim.machine import SimMachine

F = TypeVar("F", bound=Callable[..., Any])

_UNUSED = "gpuwatch.sim.unused"


def _remember_name(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[SIM_NAME] = value


def which(command: F) -> F:
    """``--sim`` and ``--name``: which machine to use if several are in use."""
    named_option = click.option(
        "--name", metavar="NAME", callback=_remember_name, expose_value=False, help="Name of a private machine."
    )
    return sim_option(named_option(command))


def chosen_machine(ctx: click.Context) -> SimMachine:
    """The chosen machine; by default the one in use."""
    from gpuwatch.sim.machines import choose

    shape, name = asked_shape(ctx), ctx.meta.get(SIM_NAME)
    chosen = choose(shape, name)
    if not chosen.in_use:
        how = f": gpuwatch --sim {chosen.machine.shape}{f'@{name}' if name else ''}"
        ctx.meta[_UNUSED] = f" (not in use yet{how}; {chosen.others})"
    return chosen.machine


def say(text: str) -> None:
    """Prints what was done to stderr, with a note if nobody uses the machine."""
    output.say(f"gpuwatch: {text}{click.get_current_context().meta.get(_UNUSED, '')}")
