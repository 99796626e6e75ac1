"""``gpuwatch sim fault``: faults on a simulated machine that runs in another terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli.options import FiniteRange, asked_shape, sim_option
from gpuwatch.errors import UsageError
from gpuwatch.formatting.suggest import did_you_mean

if TYPE_CHECKING:
    from gpuwatch.sim.machine import SimMachine

F = TypeVar("F", bound=Callable[..., Any])

_NAME = "gpuwatch.sim.name"
_UNUSED = "gpuwatch.sim.unused"
_SECONDS = FiniteRange(min=0.05, max=86_400)

_EXAMPLES = """\b
Examples, while gpuwatch --sim 2x24GiB runs in another terminal:
  gpuwatch sim fault hang 30                     every NVML call hangs for 30 s
  gpuwatch sim fault slow 0.5 30                 ... takes half a second, for 30 s
  gpuwatch sim fault lost 1                      GPU 1 falls off the bus
  gpuwatch sim fault back 1                      ... and is there again
  gpuwatch sim fault fail nvmlDeviceGetPowerUsage NO_PERMISSION
  gpuwatch sim fault xid 1 79                    GPU 1 reports Xid 79
  gpuwatch sim fault mig 0 1g,1g,-,2g            GPU 0 is divided, with an index left out
  gpuwatch sim fault foreign-process 0 2GiB      a process of another container
  gpuwatch sim fault list
  gpuwatch sim fault clear                       all is well again
"""


class _Faults(click.Group):
    """Says in one line which faults there are."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            raise UsageError(
                f"there is no fault {name!r}{did_you_mean(name, self.commands)}",
                hint="there are " + ", ".join(self.commands),
            )
        return super().resolve_command(ctx, args)


def _remember_name(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_NAME] = value


def _which(command: F) -> F:
    """``--sim`` and ``--name``: which machine is meant, where several are in use."""
    named_option = click.option(
        "--name", metavar="NAME", callback=_remember_name, expose_value=False, help="A private machine, by its name."
    )
    return sim_option(named_option(command))


def _machine(ctx: click.Context) -> SimMachine:
    from gpuwatch.sim.machines import choose

    shape, name = asked_shape(ctx), ctx.meta.get(_NAME)
    chosen = choose(shape, name)
    if not chosen.in_use:
        how = "" if name else f": gpuwatch --sim {chosen.machine.shape}"
        ctx.meta[_UNUSED] = f" (nobody uses it yet{how}; {chosen.others})"
    return chosen.machine


def _say(text: str) -> None:
    click.echo(f"gpuwatch: {text}{click.get_current_context().meta.get(_UNUSED, '')}", err=True)


def _lasting(seconds: float | None) -> str:
    return "until it is cleared" if seconds is None else f"for {seconds:g} s"


@click.group(
    cls=_Faults,
    no_args_is_help=False,
    epilog=_EXAMPLES,
    short_help="Let a simulated machine that runs have faults.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@_which
def fault() -> None:
    """Put faults on a simulated machine that runs in another terminal, at any time.

    The machine is the one that is in use; where several are, --sim or --name says which. A GPU is
    named by its number or its UUID. What has SECONDS ends by itself, the rest with clear.
    """


@fault.command()
@click.argument("seconds", type=_SECONDS, required=False)
@_which
@click.pass_context
def hang(ctx: click.Context, seconds: float | None) -> None:
    """Every call of NVML hangs."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    faults.hang(machine, seconds)
    _say(f"every NVML call on {machine.shape} hangs {_lasting(seconds)}")


@fault.command()
@click.argument("delay", type=FiniteRange(min=0.001, max=3600))
@click.argument("seconds", type=_SECONDS, required=False)
@_which
@click.pass_context
def slow(ctx: click.Context, delay: float, seconds: float | None) -> None:
    """Every call of NVML takes DELAY seconds."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    faults.slow(machine, delay, seconds)
    _say(f"every NVML call on {machine.shape} takes {delay:g} s, {_lasting(seconds)}")


@fault.command()
@click.argument("gpu")
@_which
@click.pass_context
def lost(ctx: click.Context, gpu: str) -> None:
    """GPU is lost, as after it fell off the bus."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    faults.lose(machine, device)
    _say(f"GPU {device} of {machine.shape} is lost; back {device} ends it")


@fault.command()
@click.argument("gpu")
@_which
@click.pass_context
def back(ctx: click.Context, gpu: str) -> None:
    """GPU is back: all faults of this one end."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    count = faults.bring_back(machine, device)
    _say(f"GPU {device} of {machine.shape} is back" if count else f"GPU {device} of {machine.shape} had no faults")


@fault.command()
@click.argument("function")
@click.argument("code")
@click.argument("seconds", type=_SECONDS, required=False)
@click.option("--gpu", help="Only calls about this GPU.")
@click.option("--count", type=click.IntRange(min=1), help="Only that many calls.")
@_which
@click.pass_context
def fail(
    ctx: click.Context, function: str, code: str, seconds: float | None, gpu: str | None, count: int | None
) -> None:
    """FUNCTION fails with CODE, a name or number of NVML (GPU_IS_LOST, 15).

    FUNCTION is one of NVML or of the CUDA driver; nvmlDeviceGet* is a family, * all of NVML.
    """
    from gpuwatch.sim import faults
    from gpuwatch.sim.machine import ANY_DEVICE, FOR_EVER

    machine = _machine(ctx)
    name = faults.function_of(machine, function)
    number = _cuda_code(code) if name.startswith("cu") else _nvml_code(code)
    device = ANY_DEVICE if gpu is None else faults.gpu_of(machine, gpu)
    machine.inject(name, code=number, device=device, count=count or FOR_EVER, seconds=seconds, label=faults.FAIL)
    _say(f"{name} on {machine.shape} fails with {code} {_lasting(seconds)}")


def _nvml_code(text: str) -> int:
    from gpuwatch.sim import faults

    try:
        return faults.code_of(text)
    except UsageError as error:
        raise UsageError(error.message + did_you_mean(text, faults.CODES), hint=error.hint) from None


def _cuda_code(text: str) -> int:
    if text.isdecimal() and 0 < int(text) < 1000:
        return int(text)
    raise UsageError(f"{text!r} is no error code of the CUDA driver", hint="a number, 100 (no device) for example")


@fault.command()
@click.argument("code")
@click.argument("seconds", type=_SECONDS, required=False)
@_which
@click.pass_context
def init(ctx: click.Context, code: str, seconds: float | None) -> None:
    """NVML does not start: CODE. Sessions that are open end."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    faults.fail_init(machine, _nvml_code(code), seconds)
    _say(f"NVML on {machine.shape} does not start ({code}) {_lasting(seconds)}")


@fault.command()
@click.argument("seconds", type=_SECONDS, required=False)
@_which
@click.pass_context
def mismatch(ctx: click.Context, seconds: float | None) -> None:
    """Library and kernel module differ, as after an upgrade."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    faults.fail_init(machine, faults.MISMATCH, seconds)
    _say(f"NVML on {machine.shape} does not start (driver/library version mismatch) {_lasting(seconds)}")


@fault.command()
@click.argument("gpu")
@click.argument("reasons")
@_which
@click.pass_context
def throttle(ctx: click.Context, gpu: str, reasons: str) -> None:
    """GPU is slowed down for REASONS, or no longer (off).

    Several are joined with commas: sw-power-cap, hw-slowdown, sync-boost, sw-thermal, hw-thermal,
    hw-power-brake. The time that each lasts is counted as the driver does.
    """
    from gpuwatch.model.metrics import BY_ID
    from gpuwatch.sim import faults

    bits = {name: bit for bit, name in BY_ID["clocks.event_reasons"].flags.items()}
    wanted = [] if reasons == "off" else reasons.split(",")
    for reason in wanted:
        if reason not in bits:
            raise UsageError(f"there is no event reason {reason!r}{did_you_mean(reason, bits)}", hint=", ".join(bits))
    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "clock_event_reasons", sum({bits[reason] for reason in wanted}) if wanted else None)
    _say(f"GPU {device} of {machine.shape}: event reasons {reasons}")


@fault.command()
@click.argument("gpu")
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--corrected", type=click.IntRange(min=0), help="Corrected errors beside them.")
@_which
@click.pass_context
def ecc(ctx: click.Context, gpu: str, errors: int, corrected: int | None) -> None:
    """GPU has counted ERRORS uncorrected ECC errors."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "ecc_uncorrected", errors)
    if corrected is not None:
        machine.override(device, "ecc_corrected", corrected)
    _say(f"GPU {device} of {machine.shape}: {errors} uncorrected ECC errors")


@fault.command()
@click.argument("gpu")
@click.argument("code", type=click.IntRange(1, 999))
@_which
@click.pass_context
def xid(ctx: click.Context, gpu: str, code: int) -> None:
    """GPU reports an error: the driver tells Xid CODE once, 79 for example; 999 is one that it does not know.

    Nothing else happens to the GPU: lost makes it fall off the bus.
    """
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "xid", code)
    _say(f"GPU {device} of {machine.shape} reports Xid {code}")


@fault.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("gpu")
@click.argument("value_name", metavar="NAME")
@click.argument("value")
@_which
@click.pass_context
def set_value(ctx: click.Context, gpu: str, value_name: str, value: str) -> None:
    """GPU tells VALUE for NAME; off: its own again.

    Names: temperature_celsius, power_milliwatts, remapped_pending, pcie_replays, nvlink_links, gpm,
    numa_node and more; a wrong one lists them all.
    """
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    names = machine.override_names()
    if value_name not in names:
        raise UsageError(
            f"a simulated GPU has no value {value_name!r}{did_you_mean(value_name, names)}", hint=", ".join(names)
        )
    try:
        number = None if value == "off" else int(value)
    except ValueError:
        raise UsageError(f"{value!r} is no whole number", hint="or off, for the GPU's own value") from None
    machine.override(device, value_name, number)
    _say(f"GPU {device} of {machine.shape}: {value_name} {value}")


@fault.command()
@click.argument("gpu")
@click.argument("layout")
@_which
@click.pass_context
def mig(ctx: click.Context, gpu: str, layout: str) -> None:
    """GPU is divided by MIG: 1g,1g,-,2g,3g.

    Each part is an instance by its slices (1g 2g 3g 4g 7g), - leaves an index empty, 1c.2g is a part of
    a GPU instance. on: MIG without instances; off: no MIG. What runs on simulated CUDA goes on seeing the
    whole GPU; NVML counts it to the first instance.
    """
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    count = len(machine.set_mig(device, layout))
    _say(f"GPU {device} of {machine.shape}: MIG {layout} ({count} instances)")


@fault.command()
@click.argument("gpu")
@_which
@click.pass_context
def remove(ctx: click.Context, gpu: str) -> None:
    """GPU is taken out: no longer listed."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.show_device(device, False)
    _say(f"GPU {device} of {machine.shape} is taken out; add {device} puts it back")


@fault.command()
@click.argument("gpu")
@_which
@click.pass_context
def add(ctx: click.Context, gpu: str) -> None:
    """GPU is put back."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.show_device(device)
    _say(f"GPU {device} of {machine.shape} is there")


@fault.command()
@click.argument("gpu")
@_which
@click.pass_context
def asleep(ctx: click.Context, gpu: str) -> None:
    """GPU sleeps, as a laptop's does: gpuwatch must not wake it."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.set_asleep(device, True)
    _say(f"GPU {device} of {machine.shape} sleeps; awake {device} ends it")


@fault.command()
@click.argument("gpu")
@_which
@click.pass_context
def awake(ctx: click.Context, gpu: str) -> None:
    """GPU no longer sleeps."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.set_asleep(device, False)
    _say(f"GPU {device} of {machine.shape} is awake")


@fault.command("foreign-process")
@click.argument("gpu")
@click.argument("memory")
@click.option("--sm", type=FiniteRange(0, 100), default=0.0, help="Its share of the SMs, in percent.")
@click.option("--mig", "instance", type=click.IntRange(min=0), help="Index of the MIG instance that it is on.")
@_which
@click.pass_context
def foreign_process(ctx: click.Context, gpu: str, memory: str, sm: float, instance: int | None) -> None:
    """A process of another PID namespace holds MEMORY on GPU."""
    from gpuwatch.sim import faults
    from gpuwatch.sim.shape import parse_size

    machine = _machine(ctx)
    device = faults.gpu_of(machine, gpu)
    pid = faults.foreign_process(machine, device, parse_size(memory), sm, instance)
    _say(f"process {pid}, which this PID namespace does not have, holds {memory} on GPU {device} of {machine.shape}")


@fault.command()
@_which
@click.pass_context
def clear(ctx: click.Context) -> None:
    """All is well again: nothing of the above is left."""
    machine = _machine(ctx)
    machine.heal()
    _say(f"{machine.shape} is well")


@fault.command("list")
@_which
@click.pass_context
def list_faults(ctx: click.Context) -> None:
    """What is wrong with the machine now."""
    from gpuwatch.sim import faults

    machine = _machine(ctx)
    lines = faults.describe(machine)
    if not lines:
        _say(f"{machine.shape} is well")
    for line in lines:
        click.echo(line)
