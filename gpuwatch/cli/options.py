"""Options that several commands share."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli.completion import named
from gpuwatch.errors import GpuwatchError

if TYPE_CHECKING:
    from gpuwatch.sim.shape import SimShape

F = TypeVar("F", bound=Callable[..., Any])

_SHAPE = "gpuwatch.sim.shape"
_GPM = "gpuwatch.gpm"
TAKEN_BEFORE = frozenset({"--sim", "--gpm"})
"""Options that may also stand before the command that they are for."""


def _remember(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from gpuwatch.sim.shape import SimShape

        ctx.meta[_SHAPE] = SimShape.parse(value)


class FiniteRange(click.FloatRange):
    """A range of numbers that knows no ``nan``, which is neither below nor above anything."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click does, and refuses what is no number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def sim_option(command: F) -> F:
    """``--sim NxSIZE``: the command then runs on simulated GPUs (:func:`enter_simulation`)."""
    return click.option(
        "--sim",
        metavar="NxSIZE",
        callback=_remember,
        shell_complete=named("shapes"),
        expose_value=False,
        help="Use simulated GPUs, 2x24GiB for example.",
    )(command)


def _want_gpm(ctx: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    if value is not None:
        ctx.meta[_GPM] = value


def gpm_option(command: F) -> F:
    """``--gpm``: the activity of the GPUs' parts is asked for too (:func:`asked_gpm`)."""
    return click.option(
        "--gpm/--no-gpm",
        default=None,
        callback=_want_gpm,
        expose_value=False,
        show_default="no",
        help="Ask for the activity of SMs, tensor cores, pipes and DRAM too (Hopper and later). It takes the "
        "counters that DCGM and profilers take.",
    )(command)


def asked_gpm(ctx: click.Context) -> bool | None:
    """What ``--gpm`` or ``--no-gpm`` said here or before the command; None where neither was given."""
    asked: bool | None = ctx.meta.get(_GPM)
    return asked


def enter_simulation(ctx: click.Context, tier: str = "driver") -> None:
    """Gives everything that is started from here the simulated GPUs that were asked for, if any."""
    shape = ctx.meta.get(_SHAPE)
    if shape is None:
        return
    os.environ.update(simulated_environment(shape, tier))


def asked_shape(ctx: click.Context) -> SimShape | None:
    """The shape that ``--sim`` named here or before the command, if any."""
    shape: SimShape | None = ctx.meta.get(_SHAPE)
    return shape


def simulated_environment(shape: SimShape, tier: str, *, hold: bool = False) -> dict[str, str]:
    """The environment of a program that shall see simulated GPUs; builds them at the first use.

    ``hold``: this process will become that program, which counts as a user of the GPUs from now on.

    ``auto`` is for programs of the user's own: GPUs that compute where a C++ compiler is at hand, with
    a note and the driver tier where none is.
    """
    from gpuwatch.sim import build
    from gpuwatch.sim.machine import SimMachine

    if tier == "auto":
        try:
            build.find_cxx_compiler()
            tier = "plugin"
        except GpuwatchError as error:
            click.echo(f"gpuwatch: {error.message}; matrix products alone are computed ({error.hint})", err=True)
            tier = "driver"
    with compiling_told():
        machine = SimMachine.open(shape, tier="plugin" if tier == "plugin" else "driver")
        if hold:
            machine.hold()
        return machine.environment(os.environ)


@contextmanager
def compiling_told() -> Iterator[None]:
    """Says on a terminal that simulated libraries are being compiled, when they are."""
    if not progress_wanted():
        yield
        return
    from gpuwatch.sim import build

    with build.announced(_say_compiling):
        yield


def _say_compiling() -> None:
    # Over a line of progress, should there be one.
    sys.stderr.write("\r\x1b[Kgpuwatch: compiling the simulated GPUs: once, for some seconds\n")
    sys.stderr.flush()


def progress_wanted() -> bool:
    """Long work shows progress on a terminal and none in a pipe."""
    return sys.stderr.isatty()
