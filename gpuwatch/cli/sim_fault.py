"""``gpuwatch sim fault``: injects faults into a simulated machine that is in use in another terminal."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from gpuwatch.cli import output
from gpuwatch.cli.command_classes import LazyGroup, unknown_name_error
from gpuwatch.cli.option_types import Choice, FiniteRange
from gpuwatch.cli.shared_options import option_set
from gpuwatch.cli.sim_options import SIM_NAME_KEY, shape_option_value, sim_option
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.metrics import BY_ID
from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.machine.sources.nvidia import decode_answers
from gpuwatch.sim import faults
from gpuwatch.sim.find_machines import choose_machine
from gpuwatch.sim.machine_shape import parse_memory
from gpuwatch.sim.simulated_machine import ANY_DEVICE, FOR_EVER, SimMachine

_UNUSED_KEY = "gpuwatch.sim.unused"


def _remember_name(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[SIM_NAME_KEY] = value


_machine_options = option_set(
    sim_option,
    click.option(
        "--name", metavar="NAME", callback=_remember_name, expose_value=False, help="Use the machine called NAME."
    ),
)
"""``--sim`` and ``--name``: which machine to use if several are in use."""


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
  gpuwatch sim fault foreign-process 0 2GiB      a process in another container
  gpuwatch sim fault list
  gpuwatch sim fault clear                       remove all faults
"""


@click.group(
    cls=LazyGroup,
    noun="fault",
    no_args_is_help=False,
    epilog=_EXAMPLES,
    short_help="Inject faults into a running simulated machine.",
)
@_machine_options
def fault() -> None:
    """Inject faults into a simulated machine that is in use in another terminal.

    If several machines are in use, choose one with --sim or --name. GPU is an index or a UUID. Faults with
    SECONDS end by themselves, all others with clear.
    """


def _machine_fault(name: str | None = None) -> Callable[[Callable[..., str]], click.Command]:
    """Makes a command of a function that gets the machine, and returns what to report (empty: nothing)."""

    def declare(function: Callable[..., str]) -> click.Command:
        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            _print_result(function(_machine_in_use(), **arguments))

        return fault.command(name)(_machine_options(run))

    return declare


def _gpu_fault(name: str | None = None, **settings: Any) -> Callable[[Callable[..., str]], click.Command]:
    """The same for one GPU: the function gets its index too, and what it returns follows ``GPU 0 of 2x24GiB``."""

    def declare(function: Callable[..., str]) -> click.Command:
        @functools.wraps(function)
        def run(gpu: str, **arguments: Any) -> None:
            machine = _machine_in_use()
            device = faults.gpu_index(machine, gpu)
            _print_result(f"GPU {device} of {machine.shape} {function(machine, device, **arguments)}")

        return fault.command(name, context_settings=settings)(_machine_options(click.argument("gpu")(run)))

    return declare


def _machine_in_use() -> SimMachine:
    """The chosen machine; by default the one in use."""
    ctx = click.get_current_context()
    name = ctx.meta.get(SIM_NAME_KEY)
    chosen = choose_machine(shape_option_value(ctx), name)
    if not chosen.in_use:
        how = f": gpuwatch --sim {chosen.machine.shape}{f'@{name}' if name else ''}"
        ctx.meta[_UNUSED_KEY] = f" (not in use yet{how}; {chosen.others})"
    return chosen.machine


def _print_result(text: str) -> None:
    """Prints what was done to stderr, with a note if nobody uses the machine."""
    if text:
        output.print_line(f"gpuwatch: {text}{click.get_current_context().meta.get(_UNUSED_KEY, '')}")


_FAULT_SECONDS = FiniteRange(min=0.05, max=86_400)
_LINK_ERROR_VALUES = {
    "crc": "nvlink_crc_errors",
    "data-crc": "nvlink_data_crc_errors",
    "ecc": "nvlink_ecc_errors",
    "replay": "nvlink_replays",
    "recovery": "nvlink_recoveries",
    "failed-recovery": "nvlink_failed_recoveries",
    "receive": "nvlink_receive_errors",
    "effective": "nvlink_effective_errors",
}
_NVLINK_5 = frozenset({"failed-recovery", "receive", "effective"})
"""Counters that exist only for NVLink 5."""
_SHOWN_SOON = "; a running dashboard shows it within a minute"


def _duration_text(seconds: float | None) -> str:
    return "until it is cleared" if seconds is None else f"for {seconds:g} s"


@_machine_fault()
@click.argument("seconds", type=_FAULT_SECONDS, required=False)
def hang(machine: SimMachine, seconds: float | None) -> str:
    """Make every NVML call hang."""
    faults.hang(machine, seconds)
    return f"every NVML call on {machine.shape} hangs {_duration_text(seconds)}"


@_machine_fault()
@click.argument("delay", type=FiniteRange(min=0.001, max=3600))
@click.argument("seconds", type=_FAULT_SECONDS, required=False)
def slow(machine: SimMachine, delay: float, seconds: float | None) -> str:
    """Make every NVML call take DELAY seconds."""
    faults.slow(machine, delay, seconds)
    return f"every NVML call on {machine.shape} takes {delay:g} s, {_duration_text(seconds)}"


@_gpu_fault()
def lost(machine: SimMachine, device: int) -> str:
    """Lose the GPU, as if it fell off the bus."""
    faults.lose(machine, device)
    return f"is lost; to undo this: back {device}"


@_gpu_fault()
def back(machine: SimMachine, device: int) -> str:
    """Bring the GPU back: end all of its faults."""
    return "is back" if faults.bring_back(machine, device) else "had no faults"


@_machine_fault()
@click.argument("function")
@click.argument("code")
@click.argument("seconds", type=_FAULT_SECONDS, required=False)
@click.option("--gpu", metavar="GPU", help="Affect only calls about this GPU.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Affect only this many calls.")
def fail(
    machine: SimMachine, function: str, code: str, seconds: float | None, gpu: str | None, count: int | None
) -> str:
    """Make FUNCTION fail with CODE.

    FUNCTION belongs to NVML or to the CUDA driver; nvmlDeviceGet* matches several, * all of NVML. CODE is a name or
    a number of NVML (GPU_IS_LOST, 15), or a number of the CUDA driver.
    """
    name = faults.checked_function(machine, function)
    if not name.startswith("cu"):
        number = int(faults.nvml_code(code))
    elif code.isdecimal() and len(code) <= 3 and int(code):
        number = int(code)
    else:
        raise UsageError(
            f"{code!r} is not an error code of the CUDA driver", hint="a number, for example 100 (no device)"
        )
    device = ANY_DEVICE if gpu is None else faults.gpu_index(machine, gpu)
    machine.inject(name, code=number, device=device, count=count or FOR_EVER, seconds=seconds, label=faults.FAIL)
    return f"{name} on {machine.shape} fails with {code} {_duration_text(seconds)}"


@_machine_fault()
@click.argument("code")
@click.argument("seconds", type=_FAULT_SECONDS, required=False)
def init(machine: SimMachine, code: str, seconds: float | None) -> str:
    """Make NVML fail to start with CODE; open sessions end."""
    faults.fail_init(machine, faults.nvml_code(code), seconds)
    return f"NVML on {machine.shape} does not start ({code}) {_duration_text(seconds)}"


@_machine_fault()
@click.argument("seconds", type=_FAULT_SECONDS, required=False)
def mismatch(machine: SimMachine, seconds: float | None) -> str:
    """Make driver library and kernel module differ in version."""
    faults.fail_init(machine, NvmlReturn.LIB_RM_VERSION_MISMATCH, seconds)
    return f"NVML on {machine.shape} does not start (driver/library version mismatch) {_duration_text(seconds)}"


@_gpu_fault()
@click.argument("reasons")
def throttle(machine: SimMachine, device: int, reasons: str) -> str:
    """Throttle the GPU for REASONS; off ends it.

    Separate several by commas: sw-power-cap, hw-slowdown, sync-boost, sw-thermal, hw-thermal,
    hw-power-brake. Their durations are counted as the driver does.
    """
    bits = {name: bit for bit, name in BY_ID["clocks.event_reasons"].flags.items()}
    wanted = [] if reasons == "off" else reasons.split(",")
    for reason in wanted:
        if reason not in bits:
            raise unknown_name_error("event reason", reason, bits)
    machine.override(device, "clock_event_reasons", sum({bits[reason] for reason in wanted}) if wanted else None)
    return f"is throttled: {reasons}" if wanted else "is no longer throttled"


@_gpu_fault()
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--corrected", type=click.IntRange(min=0), metavar="N", help="Also count this many corrected errors.")
def ecc(machine: SimMachine, device: int, errors: int, corrected: int | None) -> str:
    """Count ERRORS uncorrected ECC errors."""
    machine.override(device, "ecc_uncorrected", errors)
    if corrected is not None:
        machine.override(device, "ecc_corrected", corrected)
    return f"reports {count_text(errors, 'uncorrected ECC error')}"


@_gpu_fault()
@click.argument("code", type=click.IntRange(1, 999))
def xid(machine: SimMachine, device: int, code: int) -> str:
    """Report Xid CODE once, for example 79.

    999 is an unknown error. Nothing else happens to the GPU; use lost to make it fall off the bus.
    """
    machine.override(device, "xid", code)
    return f"reports Xid {code}"


@_gpu_fault()
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--kind", type=Choice(_LINK_ERROR_VALUES), default="crc", show_default=True, help="Which errors.")
def nvlink(machine: SimMachine, device: int, errors: int, kind: str) -> str:
    """Count ERRORS on the GPU's NVLinks.

    A GPU without NVLinks gets four. failed-recovery, receive and effective exist only in NVLink 5, ecc and data-crc
    only in earlier versions: the NVLinks change to a version with these errors.
    """
    before = machine.overrides(device)
    if not before.get("nvlink_links"):
        machine.override(device, "nvlink_links", 4)
    if kind in _NVLINK_5:
        machine.override(device, "nvlink_version", 5)
    elif kind != "recovery" and before.get("nvlink_version") == 5:
        machine.override(device, "nvlink_version", None)
    machine.override(device, _LINK_ERROR_VALUES[kind], errors)
    return f"reports {count_text(errors, 'NVLink error')} ({kind}){_SHOWN_SOON}"


@_gpu_fault()
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--threshold", is_flag=True, help="Exceed the threshold of NVIDIA's field diagnostic.")
def sram(machine: SimMachine, device: int, errors: int, threshold: bool) -> str:
    """Count ERRORS uncorrected errors in caches and registers."""
    machine.override(device, "sram_uncorrected", errors)
    machine.override(device, "sram_threshold_exceeded", int(threshold))
    exceeded = ", threshold exceeded" if threshold else ""
    return f"reports {count_text(errors, 'uncorrected SRAM error')}{exceeded}{_SHOWN_SOON}"


@_gpu_fault()
@click.argument("troubles")
def fabric(machine: SimMachine, device: int, troubles: str) -> str:
    """Give the GPU's NVLink fabric TROUBLES.

    Separate several by commas: degraded-bandwidth, route-recovery, route-unhealthy,
    access-timeout-recovery, and one configuration error: no-partition, insufficient-nvlinks and more.
    not-started and in-progress are states of the registration. healthy removes all troubles, off the fabric.
    """
    states = {name: number for number, name in decode_answers.FABRIC_STATES.items() if number in (1, 2)}
    bits = {name: bit for bit, name in decode_answers.FABRIC_TROUBLES.items()}
    misconfigured = {name: number for number, name in decode_answers.FABRIC_CONFIGURATIONS.items()}
    alone = (*states, "healthy", "off")
    names = [*bits, *misconfigured, *alone]
    wanted = troubles.split(",")
    for name in wanted:
        if name not in names:
            raise unknown_name_error("fabric trouble", name, names)
        if name in alone and len(wanted) > 1:
            raise UsageError(f"{name} cannot be combined with other troubles", hint=f"give only {name}")
    mask = sum((1 if name in wanted else 2) << bit for name, bit in bits.items())
    configuration = max((misconfigured[name] for name in wanted if name in misconfigured), default=1)
    mask |= configuration << decode_answers.FABRIC_CONFIGURATION_SHIFT
    values = {
        "fabric_state": states.get(troubles, 3),
        "fabric_health_mask": mask,
        "fabric_health_summary": 2 if set(wanted) & {*bits, *misconfigured} else 1,
    }
    for name, value in values.items():
        machine.override(device, name, None if troubles == "off" else value)
    return f"has NVLink fabric {troubles}{_SHOWN_SOON}"


@_gpu_fault("set", ignore_unknown_options=True)
@click.argument("value_name", metavar="NAME")
@click.argument("value")
def set_value(machine: SimMachine, device: int, value_name: str, value: str) -> str:
    """Report VALUE for NAME; off restores the GPU's own.

    Names: temperature_celsius, power_milliwatts, remapped_pending, pcie_replays, nvlink_links, gpm,
    numa_node and more; an unknown name lists them all.
    """
    if value_name not in (names := machine.override_names()):
        raise unknown_name_error("value", value_name, names)
    try:
        number = None if value == "off" else int(value)
    except ValueError:
        raise UsageError(f"{value!r} is not an integer", hint="or off, for the GPU's own value") from None
    machine.override(device, value_name, number)
    return f"reports {value_name} {value}"


@_gpu_fault()
@click.argument("layout")
def mig(machine: SimMachine, device: int, layout: str) -> str:
    """Partition the GPU with MIG: 1g,1g,-,2g,3g.

    Each part is an instance by its slices (1g 2g 3g 4g 7g), - leaves an index unused, 1c.2g is a compute
    instance in a larger GPU instance. on: MIG without instances; off: no MIG. Programs on simulated CUDA
    still see the whole GPU; NVML lists them on the first instance.
    """
    return f"has MIG layout {layout} ({count_text(len(machine.set_mig(device, layout)), 'instance')})"


@_gpu_fault()
def remove(machine: SimMachine, device: int) -> str:
    """Remove the GPU: it is no longer listed."""
    machine.show_device(device, False)
    return f"is removed; to undo this: add {device}"


@_gpu_fault()
def add(machine: SimMachine, device: int) -> str:
    """Add a removed GPU again."""
    machine.show_device(device)
    return "is present"


@_gpu_fault()
def asleep(machine: SimMachine, device: int) -> str:
    """Suspend the GPU, as in a laptop.

    gpuwatch must not wake it.
    """
    machine.set_asleep(device, True)
    return f"is suspended; to undo this: awake {device}"


@_gpu_fault()
def awake(machine: SimMachine, device: int) -> str:
    """Wake a suspended GPU."""
    machine.set_asleep(device, False)
    return "is awake"


@_gpu_fault("foreign-process")
@click.argument("memory")
@click.option("--sm", type=FiniteRange(0, 100), default=0.0, metavar="PERCENT", help="Its SM utilization.")
@click.option("--mig", "instance", type=click.IntRange(min=0), metavar="N", help="Index of its MIG instance.")
def foreign_process(machine: SimMachine, device: int, memory: str, sm: float, instance: int | None) -> str:
    """Let a process of another PID namespace hold MEMORY."""
    pid = faults.foreign_process(machine, device, parse_memory(memory), sm, instance)
    return f"has process {pid} of another PID namespace, which holds {memory}"


@_machine_fault()
def clear(machine: SimMachine) -> str:
    """Remove all faults."""
    machine.heal()
    return f"{machine.shape} has no faults"


@_machine_fault("list")
def list_faults(machine: SimMachine) -> str:
    """List the machine's faults."""
    lines = faults.fault_lines(machine)
    for line in lines:
        click.echo(line)
    return "" if lines else f"{machine.shape} has no faults"
