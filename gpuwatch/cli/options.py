"""Options that several commands share."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from gpuwatch.cli.completion import files, names
from gpuwatch.cli.option_types import Choice, F, together
from gpuwatch.cli.output import say
from gpuwatch.cli.progress import compile_notice, say_line
from gpuwatch.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from gpuwatch.core.model.snapshot import Snapshot
    from gpuwatch.session.alerts.alerts import Alerts
    from gpuwatch.sim.build import Tier
    from gpuwatch.sim.shape import SimShape

_SHAPE = "gpuwatch.sim.shape"
SIM_NAME = "gpuwatch.sim.name"
"""Key in a context's ``meta``: the name of a simulated machine, where one was given."""
SIM_GIVEN = "gpuwatch.sim.given"
"""Likewise: the value of ``--sim`` as it was given."""
_GPM = "gpuwatch.gpm"
TAKEN_BEFORE = frozenset({"--sim", "--gpm"})
"""Options that may also come before their command."""


def _remember(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from gpuwatch.cli.machine_file import named_file
        from gpuwatch.sim.shape import parse_machine

        ctx.meta[SIM_GIVEN] = value
        file = named_file(value)
        ctx.meta[_SHAPE], name = parse_machine(value) if file is None else _machine_of(ctx, *file)
        if name is not None:
            ctx.meta[SIM_NAME] = name


def _machine_of(ctx: click.Context, file: Path, moment: str | None) -> tuple[SimShape, str]:
    from gpuwatch.cli.machine_file import machine_of

    with compile_notice():
        machine = machine_of(file, moment)
    ctx.call_on_close(machine.close)  # others can join until then
    assert machine.name is not None
    return machine.shape, machine.name


class FiniteRange(click.FloatRange):
    """A range of numbers without ``nan``, which passes every comparison with a limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As click does, but rejects ``nan``."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


sim_option = click.option(
    "--sim",
    metavar="NxSIZE[@NAME]|FILE",
    callback=_remember,
    shell_complete=names("sim"),
    expose_value=False,
    help="Use simulated GPUs, for example 2x24GiB or 2xh100; 2x24GiB@NAME shares a named machine. FILE: GPUs as "
    "nvidia-smi -q, gpuwatch snapshot --json or a recording shows them; RECORDING@14:05: as at that time.",
)
"""``--sim NxSIZE``: the command then runs on simulated GPUs (:func:`enter_simulation`)."""


def sim_tier_option(*names: str) -> Callable[[F], F]:
    """``--sim-tier``, and other names for it: how the GPUs of ``--sim`` reach a framework."""
    return click.option(
        *("--sim-tier", *names, "tier"),
        type=Choice(["auto", "driver", "plugin"]),
        default="auto",
        show_default=True,
        help="How to simulate GPUs: plugin computes everything; driver has CUDA's log lines but computes only matrix "
        "products. PyTorch needs driver.",
    )


python_option = click.option(
    "--python", metavar="PATH", shell_complete=files, help="Use the framework of this Python interpreter."
)
"""``--python``: where to look for the framework."""
framework_option = click.option(
    "--framework",
    type=Choice(["tensorflow", "torch"]),
    help="Check this framework (default: TensorFlow, else PyTorch).",
)
"""``--framework``: which one the doctor checks."""


def _want_gpm(ctx: click.Context, parameter: click.Parameter, value: bool | None) -> None:
    if value is not None:
        ctx.meta[_GPM] = value


gpm_option = click.option(
    "--gpm/--no-gpm",
    default=None,
    callback=_want_gpm,
    expose_value=False,
    show_default="no",
    help="Also read SM, tensor core, pipe and DRAM activity (GPM; Hopper and later). Takes the counters that DCGM "
    "and profilers use.",
)
"""``--gpm``: also read the activity of the GPUs' parts (:func:`asked_gpm`)."""


def asked_gpm(ctx: click.Context) -> bool | None:
    """The value of ``--gpm`` or ``--no-gpm``, here or before the command; None if neither was given."""
    asked: bool | None = ctx.meta.get(_GPM)
    return asked


alert_options = together(
    click.option(
        "--on-finding",
        metavar="COMMAND",
        help="Run this shell command when a warning or error begins and ends, with the finding as JSON on stdin.",
    ),
    click.option(
        "--webhook",
        metavar="URL",
        envvar="GPUWATCH_WEBHOOK",
        show_envvar=True,
        help="Post the same JSON to this URL.",
    ),
)
"""``--on-finding`` and ``--webhook``: who is told of findings (:func:`asked_alerts`)."""


def asked_alerts(on_finding: str | None, webhook: str | None, notify: bool) -> Alerts | None:
    """The alerts of these options; None without any. :class:`UsageError` for a URL that is none."""
    if on_finding is None and webhook is None and not notify:
        return None
    from gpuwatch.session.alerts.alerts import Alerts
    from gpuwatch.session.alerts.webhook import checked

    return Alerts(command=on_finding, webhook=None if webhook is None else checked(webhook), notify=notify)


def enter_simulation(
    ctx: click.Context, tier: str = "driver", command: Sequence[str] = (), *, private: bool = False
) -> None:
    """Makes this process and what it starts see the GPUs of ``--sim``, if it was given.

    ``command``: the program to start, for the tier ``auto``. Under ``gpuwatch sim``, ``--sim-tier`` works without
    ``--sim``. ``private``: GPUs that nobody else uses, removed when the command ends, unless they have a name or this
    runs under ``gpuwatch sim`` with the same shape.

    Raises:
        UsageError: ``--sim-tier`` without simulated GPUs.
    """
    shape = ctx.meta.get(_SHAPE)
    if shape is not None:
        name = ctx.meta.get(SIM_NAME)
        if private and name is None:
            _enter(_private_environment(ctx, shape, _tier(tier, command)))
        else:
            _enter(simulated_environment(shape, tier, name=name, command=command))
        return
    if ctx.get_parameter_source("tier") is not ParameterSource.COMMANDLINE:
        return
    from gpuwatch.sim.machine import SimMachine

    machine = SimMachine.from_environment(os.environ)
    if machine is None:
        raise UsageError("--sim-tier needs simulated GPUs", hint="add --sim 2x24GiB")
    _enter(machine.environment(os.environ, tier=_tier(tier, command)))


def _private_environment(ctx: click.Context, shape: SimShape, tier: Tier) -> dict[str, str]:
    from gpuwatch.sim.machine import SimMachine
    from gpuwatch.sim.state_files import private_name

    with compile_notice():
        around = SimMachine.from_environment(os.environ) if os.environ.get("GPUWATCH_SIM") == str(shape) else None
        if around is not None:
            return around.environment(os.environ, tier=tier)
        machine = SimMachine.open(shape, name=private_name(), tier=tier)
    ctx.call_on_close(machine.remove)  # also keeps it open until then
    return machine.environment(os.environ)


def _enter(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)


def asked_shape(ctx: click.Context) -> SimShape | None:
    """The shape given by ``--sim``, here or before the command; None without it."""
    shape: SimShape | None = ctx.meta.get(_SHAPE)
    return shape


def simulated_environment(
    shape: SimShape, tier: str, *, name: str | None = None, command: Sequence[str] = (), hold: bool = False
) -> dict[str, str]:
    """The environment in which a program sees simulated GPUs; compiles them on first use.

    ``name``: of a machine that is not the shared one of this shape. ``hold``: this process becomes that program, and
    counts as a user of the GPUs from now on.
    """
    from gpuwatch.sim.machine import SimMachine

    chosen = _tier(tier, command)
    with compile_notice():
        machine = SimMachine.open(shape, name=name, tier=chosen)
        if hold:
            machine.hold()
        return machine.environment(os.environ)


def _tier(asked: str, command: Sequence[str]) -> Tier:
    """``auto`` is the plugin tier, which computes; the driver tier where that cannot work."""
    from gpuwatch.experiment.probing.simulation_tier import plugin_obstacle
    from gpuwatch.sim import build

    if asked != "auto":
        return "plugin" if asked == "plugin" else "driver"
    if (error := build.compiler_obstacle()) is not None:
        say(f"gpuwatch: {error.message}; only matrix products are computed ({error.hint})")
        return "driver"
    if obstacle := plugin_obstacle(command):
        say(f"gpuwatch: only matrix products are computed: {obstacle}")
        return "driver"
    return "plugin"


def offer_simulation(ctx: click.Context) -> None:
    """Ends the output with this command line on simulated GPUs, where no NVIDIA card is on the PCI bus.

    Not that of ``--json``, which programs read.
    """
    from gpuwatch.machine.sources import system_facts

    name = ctx.info_name or ""
    asked = asked_shape(ctx) is not None or os.environ.get("GPUWATCH_SIM")
    if asked or ctx.params.get("as_json") or name not in sys.argv:
        return
    system = system_facts.look(os.environ)
    if system.cards != () or system.wsl or system.device_files or system.kernel_module is not None:
        return
    at = sys.argv.index(name) + 1
    words = ["gpuwatch", *sys.argv[1:at], "--sim", "2x24GiB", *sys.argv[at:]]
    say_line(f"no NVIDIA card is on the PCI bus; on simulated GPUs: {shlex.join(words)}")


def check_gpus(gpu: str | None) -> None:
    """Rejects a malformed ``--gpu`` list, on any machine."""
    wanted = [entry.strip() for entry in gpu.split(",")] if gpu is not None else []
    if not all(wanted):
        raise UsageError(f"--gpu {gpu}: an entry is empty", hint="list GPUs by index or UUID, for example 0,1")
    twice = next((entry for entry in wanted if wanted.count(entry) > 1), None)
    if twice is not None:
        raise UsageError(f"--gpu {gpu}: GPU {twice} is listed twice", hint="list each GPU once")


def visible_gpus(gpu: str, machine: Snapshot | None) -> tuple[str, ...]:
    """UUIDs of the chosen GPUs, in their order; UsageError for one that is not here."""
    devices = () if machine is None else machine.devices
    chosen = []
    for wanted in gpu.split(","):
        wanted = wanted.strip()
        found = [d for d in devices if (str(d.index) == wanted if wanted.isdigit() else d.uuid.startswith(wanted))]
        if len(found) != 1 or not wanted:
            known = ", ".join(f"{d.index} {d.uuid}" for d in devices) or "none"
            raise UsageError(f"--gpu {wanted}: no such GPU", hint=f"GPUs here: {known}")
        if found[0].uuid in chosen:
            raise UsageError(f"--gpu {gpu}: GPU {found[0].index} is listed twice", hint="list each GPU once")
        chosen.append(found[0].uuid)
    return tuple(chosen)
