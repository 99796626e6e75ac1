"""``gpuwatch sim fault``: injects faults into a simulated machine that is in use in another terminal."""

from __future__ import annotations

import click

from gpuwatch.cli import fault_links
from gpuwatch.cli.fault_machine import chosen_machine, say, which
from gpuwatch.cli.options import FiniteRange
from gpuwatch.errors import UsageError
from gpuwatch.formatting.suggest import did_you_mean

_SECONDS = FiniteRange(min=0.05, max=86_400)

_EXAMPLES = """\b
Examples, while gpuwatch --sim 2x24GiB runs in another terminal:
  gpuwatch sim fault hang 30                     every NVML call hangs for 30 s
  gpuwatch sim fault slow 0.5 30                 ... takes half a second, for 30 s
  gpuwatch sim fault lost 1                      GPU 1 falls off the bus
  gpuwatch sim fault back 1                      ... and is there again
  gpuwatch sim fault fail nvmlDeviceGetPowerUsage NO_PERMISSION
  gpuwatch sim fault xid 1 79                    GPU 1 reports Xid 79
  gpuwatch sim fault nvlink 0 3 --kind recovery  GPU 0 counts 3 errors on its NVLinks
  gpuwatch sim fault fabric 0 route-unhealthy    ... and its NVLink fabric is unhealthy
  gpuwatch sim fault mig 0 1g,1g,-,2g            GPU 0 is partitioned, one index is unused
  gpuwatch sim fault foreign-process 0 2GiB      a process of another container
  gpuwatch sim fault list
  gpuwatch sim fault clear                       remove all faults
"""


class _Faults(click.Group):
    """The group of fault commands; suggests the closest name for a typo."""

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


def _lasting(seconds: float | None) -> str:
    return "until it is cleared" if seconds is None else f"for {seconds:g} s"


@click.group(
    cls=_Faults,
    no_args_is_help=False,
    epilog=_EXAMPLES,
    short_help="Inject faults into a running simulated machine.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@which
def fault() -> None:
    """Inject faults into a simulated machine that is in use in another terminal.

    If several machines are in use, choose one by --sim or --name. GPU is an index or a UUID. Faults with
    SECONDS end by themselves, all others with clear.
    """


@fault.command()
@click.argument("seconds", type=_SECONDS, required=False)
@which
@click.pass_context
def hang(ctx: click.Context, seconds: float | None) -> None:
    """Every NVML call hangs."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    faults.hang(machine, seconds)
    say(f"every NVML call on {machine.shape} hangs {_lasting(seconds)}")


@fault.command()
@click.argument("delay", type=FiniteRange(min=0.001, max=3600))
@click.argument("seconds", type=_SECONDS, required=False)
@which
@click.pass_context
def slow(ctx: click.Context, delay: float, seconds: float | None) -> None:
    """Every NVML call takes DELAY seconds."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    faults.slow(machine, delay, seconds)
    say(f"every NVML call on {machine.shape} takes {delay:g} s, {_lasting(seconds)}")


@fault.command()
@click.argument("gpu")
@which
@click.pass_context
def lost(ctx: click.Context, gpu: str) -> None:
    """GPU is lost, as if it had fallen off the bus."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    faults.lose(machine, device)
    say(f"GPU {device} of {machine.shape} is lost; to end it: back {device}")


@fault.command()
@click.argument("gpu")
@which
@click.pass_context
def back(ctx: click.Context, gpu: str) -> None:
    """GPU is back: all of its faults end."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    count = faults.bring_back(machine, device)
    say(f"GPU {device} of {machine.shape} is back" if count else f"GPU {device} of {machine.shape} had no faults")


@fault.command()
@click.argument("function")
@click.argument("code")
@click.argument("seconds", type=_SECONDS, required=False)
@click.option("--gpu", help="Only calls about this GPU.")
@click.option("--count", type=click.IntRange(min=1), help="Only this many calls.")
@which
@click.pass_context
def fail(
    ctx: click.Context, function: str, code: str, seconds: float | None, gpu: str | None, count: int | None
) -> None:
    """FUNCTION fails with CODE, an NVML error by name or number (GPU_IS_LOST, 15).

    FUNCTION belongs to NVML or to the CUDA driver; nvmlDeviceGet* matches several, * all of NVML.
    """
    from gpuwatch.sim import faults
    from gpuwatch.sim.machine import ANY_DEVICE, FOR_EVER

    machine = chosen_machine(ctx)
    name = faults.function_of(machine, function)
    number = _cuda_code(code) if name.startswith("cu") else _nvml_code(code)
    device = ANY_DEVICE if gpu is None else faults.gpu_of(machine, gpu)
    machine.inject(name, code=number, device=device, count=count or FOR_EVER, seconds=seconds, label=faults.FAIL)
    say(f"{name} on {machine.shape} fails with {code} {_lasting(seconds)}")


def _nvml_code(text: str) -> int:
    from gpuwatch.sim import faults

    try:
        return faults.code_of(text)
    except UsageError as error:
        raise UsageError(error.message + did_you_mean(text, faults.CODES), hint=error.hint) from None


def _cuda_code(text: str) -> int:
    if text.isdecimal() and len(text) <= 3 and int(text):
        return int(text)
    raise UsageError(f"{text!r} is not an error code of the CUDA driver", hint="a number, 100 (no device) for example")


@fault.command()
@click.argument("code")
@click.argument("seconds", type=_SECONDS, required=False)
@which
@click.pass_context
def init(ctx: click.Context, code: str, seconds: float | None) -> None:
    """NVML fails to start with CODE. Open sessions end."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    faults.fail_init(machine, _nvml_code(code), seconds)
    say(f"NVML on {machine.shape} does not start ({code}) {_lasting(seconds)}")


@fault.command()
@click.argument("seconds", type=_SECONDS, required=False)
@which
@click.pass_context
def mismatch(ctx: click.Context, seconds: float | None) -> None:
    """Library and kernel module have different versions, as after an upgrade."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    faults.fail_init(machine, faults.MISMATCH, seconds)
    say(f"NVML on {machine.shape} does not start (driver/library version mismatch) {_lasting(seconds)}")


@fault.command()
@click.argument("gpu")
@click.argument("reasons")
@which
@click.pass_context
def throttle(ctx: click.Context, gpu: str, reasons: str) -> None:
    """GPU is throttled for REASONS, or no longer (off).

    Separate several by commas: sw-power-cap, hw-slowdown, sync-boost, sw-thermal, hw-thermal,
    hw-power-brake. Their durations are counted as the driver does.
    """
    from gpuwatch.model.metrics import BY_ID
    from gpuwatch.sim import faults

    bits = {name: bit for bit, name in BY_ID["clocks.event_reasons"].flags.items()}
    wanted = [] if reasons == "off" else reasons.split(",")
    for reason in wanted:
        if reason not in bits:
            raise UsageError(f"there is no event reason {reason!r}{did_you_mean(reason, bits)}", hint=", ".join(bits))
    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "clock_event_reasons", sum({bits[reason] for reason in wanted}) if wanted else None)
    say(f"GPU {device} of {machine.shape}: event reasons {reasons}")


@fault.command()
@click.argument("gpu")
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--corrected", type=click.IntRange(min=0), help="Also count this many corrected errors.")
@which
@click.pass_context
def ecc(ctx: click.Context, gpu: str, errors: int, corrected: int | None) -> None:
    """GPU reports ERRORS uncorrected ECC errors."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "ecc_uncorrected", errors)
    if corrected is not None:
        machine.override(device, "ecc_corrected", corrected)
    say(f"GPU {device} of {machine.shape}: {errors} uncorrected ECC errors")


@fault.command()
@click.argument("gpu")
@click.argument("code", type=click.IntRange(1, 999))
@which
@click.pass_context
def xid(ctx: click.Context, gpu: str, code: int) -> None:
    """The driver reports Xid CODE of GPU once, 79 for example; 999 is an unknown error.

    Nothing else happens to the GPU; lost makes it fall off the bus.
    """
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "xid", code)
    say(f"GPU {device} of {machine.shape} reports Xid {code}")


for command in fault_links.COMMANDS:
    fault.add_command(command)


@fault.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("gpu")
@click.argument("value_name", metavar="NAME")
@click.argument("value")
@which
@click.pass_context
def set_value(ctx: click.Context, gpu: str, value_name: str, value: str) -> None:
    """GPU reports VALUE for NAME; off restores its own value.

    Names: temperature_celsius, power_milliwatts, remapped_pending, pcie_replays, nvlink_links, gpm,
    numa_node and more; an unknown name lists them all.
    """
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    names = machine.override_names()
    if value_name not in names:
        raise UsageError(
            f"a simulated GPU has no value {value_name!r}{did_you_mean(value_name, names)}", hint=", ".join(names)
        )
    try:
        number = None if value == "off" else int(value)
    except ValueError:
        raise UsageError(f"{value!r} is not an integer", hint="or off, for the GPU's own value") from None
    machine.override(device, value_name, number)
    say(f"GPU {device} of {machine.shape}: {value_name} {value}")


@fault.command()
@click.argument("gpu")
@click.argument("layout")
@which
@click.pass_context
def mig(ctx: click.Context, gpu: str, layout: str) -> None:
    """GPU is partitioned by MIG: 1g,1g,-,2g,3g.

    Each part is an instance by its slices (1g 2g 3g 4g 7g), - leaves an index unused, 1c.2g is a compute
    instance in a larger GPU instance. on: MIG without instances; off: no MIG. Programs on simulated CUDA
    still see the whole GPU; NVML lists them on the first instance.
    """
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    count = len(machine.set_mig(device, layout))
    say(f"GPU {device} of {machine.shape}: MIG {layout} ({count} instances)")


@fault.command()
@click.argument("gpu")
@which
@click.pass_context
def remove(ctx: click.Context, gpu: str) -> None:
    """GPU is removed: it is no longer listed."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.show_device(device, False)
    say(f"GPU {device} of {machine.shape} is removed; to undo it: add {device}")


@fault.command()
@click.argument("gpu")
@which
@click.pass_context
def add(ctx: click.Context, gpu: str) -> None:
    """GPU is added again."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.show_device(device)
    say(f"GPU {device} of {machine.shape} is present")


@fault.command()
@click.argument("gpu")
@which
@click.pass_context
def asleep(ctx: click.Context, gpu: str) -> None:
    """GPU is suspended, as in a laptop: gpuwatch must not wake it."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.set_asleep(device, True)
    say(f"GPU {device} of {machine.shape} is suspended; to end it: awake {device}")


@fault.command()
@click.argument("gpu")
@which
@click.pass_context
def awake(ctx: click.Context, gpu: str) -> None:
    """GPU is no longer suspended."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.set_asleep(device, False)
    say(f"GPU {device} of {machine.shape} is awake")


@fault.command("foreign-process")
@click.argument("gpu")
@click.argument("memory")
@click.option("--sm", type=FiniteRange(0, 100), default=0.0, help="Its SM utilization, in percent.")
@click.option("--mig", "instance", type=click.IntRange(min=0), help="Index of its MIG instance.")
@which
@click.pass_context
def foreign_process(ctx: click.Context, gpu: str, memory: str, sm: float, instance: int | None) -> None:
    """A process of another PID namespace holds MEMORY on GPU."""
    from gpuwatch.sim import faults
    from gpuwatch.sim.shape import parse_size

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    pid = faults.foreign_process(machine, device, parse_size(memory), sm, instance)
    say(f"process {pid} of another PID namespace holds {memory} on GPU {device} of {machine.shape}")


@fault.command()
@which
@click.pass_context
def clear(ctx: click.Context) -> None:
    """Remove all faults."""
    machine = chosen_machine(ctx)
    machine.heal()
    say(f"{machine.shape} is well")


@fault.command("list")
@which
@click.pass_context
def list_faults(ctx: click.Context) -> None:
    """List the machine's faults."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    lines = faults.describe(machine)
    if not lines:
        say(f"{machine.shape} is well")
    for line in lines:
        click.echo(line)
