"""Options that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_SHAPE = "gpuwatch.sim.shape"


def _remember(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from gpuwatch.sim.shape import SimShape

        ctx.meta[_SHAPE] = SimShape.parse(value)


def sim_option(command: F) -> F:
    """``--sim NxSIZE``: the command then runs on simulated GPUs (:func:`enter_simulation`)."""
    return click.option(
        "--sim",
        metavar="NxSIZE",
        callback=_remember,
        expose_value=False,
        help="Use simulated GPUs, 2x24GiB for example.",
    )(command)


def enter_simulation(ctx: click.Context) -> None:
    """Gives everything that is started from here the simulated GPUs that were asked for, if any."""
    shape = ctx.meta.get(_SHAPE)
    if shape is None:
        return
    from gpuwatch.sim.machine import SimMachine

    machine = SimMachine.open(shape)
    os.environ.update(machine.environment(os.environ))


def progress_wanted() -> bool:
    """Long work shows progress on a terminal and none in a pipe."""
    return sys.stderr.isatty()
