"""``gpuwatch sim fault``: errors of NVLinks, SRAM and the NVLink fabric."""

from __future__ import annotations

import click

from gpuwatch.cli.choice import Choice
from gpuwatch.cli.fault_machine import chosen_machine, say, which
from gpuwatch.errors import UsageError
from gpuwatch.formatting.suggest import did_you_mean

_LINK_ERRORS = {
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
_WITHIN = "; a running dashboard shows it within a minute"


@click.command()
@click.argument("gpu")
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--kind", type=Choice(_LINK_ERRORS), default="crc", show_default=True, help="Which errors.")
@which
@click.pass_context
def nvlink(ctx: click.Context, gpu: str, errors: int, kind: str) -> None:
    """GPU reports ERRORS on its NVLinks; a GPU without NVLinks gets four.

    failed-recovery, receive and effective exist only for NVLink 5, ecc and data-crc only for earlier ones: the GPU's
    NVLinks become such.
    """
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    before = machine.overrides(device)
    if not before.get("nvlink_links"):
        machine.override(device, "nvlink_links", 4)
    if kind in _NVLINK_5:
        machine.override(device, "nvlink_version", 5)
    elif kind not in ("recovery",) and before.get("nvlink_version") == 5:
        machine.override(device, "nvlink_version", None)
    machine.override(device, _LINK_ERRORS[kind], errors)
    say(f"GPU {device} of {machine.shape}: {errors} NVLink errors ({kind}){_WITHIN}")


@click.command()
@click.argument("gpu")
@click.argument("errors", type=click.IntRange(min=0))
@click.option("--threshold", is_flag=True, help="The threshold of NVIDIA's field diagnostic is exceeded.")
@which
@click.pass_context
def sram(ctx: click.Context, gpu: str, errors: int, threshold: bool) -> None:
    """GPU reports ERRORS uncorrected errors in its SRAM (caches, registers)."""
    from gpuwatch.sim import faults

    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    machine.override(device, "sram_uncorrected", errors)
    machine.override(device, "sram_threshold_exceeded", int(threshold))
    beyond = ", threshold exceeded" if threshold else ""
    say(f"GPU {device} of {machine.shape}: {errors} uncorrected SRAM errors{beyond}{_WITHIN}")


@click.command()
@click.argument("gpu")
@click.argument("troubles")
@which
@click.pass_context
def fabric(ctx: click.Context, gpu: str, troubles: str) -> None:
    """The NVLink fabric of GPU has TROUBLES, is healthy, or does not exist (off).

    Separate several by commas: degraded-bandwidth, route-recovery, route-unhealthy,
    access-timeout-recovery, and one configuration error: no-partition, insufficient-nvlinks and more.
    not-started and in-progress are states of the registration.
    """
    from gpuwatch.sim import faults
    from gpuwatch.sources.nvidia.decode import (
        FABRIC_CONFIGURATION_SHIFT,
        FABRIC_CONFIGURATIONS,
        FABRIC_STATES,
        FABRIC_TROUBLES,
    )

    states = {name: number for number, name in FABRIC_STATES.items() if number in (1, 2)}
    bits = {name: bit for bit, name in FABRIC_TROUBLES.items()}
    wrong = {name: number for number, name in FABRIC_CONFIGURATIONS.items()}
    names = [*bits, *wrong, *states, "healthy", "off"]
    wanted = troubles.split(",")
    for name in wanted:
        if name not in names or (name in (*states, "healthy", "off") and len(wanted) > 1):
            raise UsageError(
                f"there is no fabric trouble {troubles!r}{did_you_mean(name, names)}", hint=", ".join(names)
            )
    mask = sum((1 if name in wanted else 2) << bit for name, bit in bits.items())
    mask |= max((wrong[name] for name in wanted if name in wrong), default=1) << FABRIC_CONFIGURATION_SHIFT
    well = not set(wanted) & {*bits, *wrong}
    machine = chosen_machine(ctx)
    device = faults.gpu_of(machine, gpu)
    values = {
        "fabric_state": states.get(troubles, 3),
        "fabric_health_mask": mask,
        "fabric_health_summary": 1 if well else 2,
    }
    for name, value in values.items():
        machine.override(device, name, None if troubles == "off" else value)
    say(f"GPU {device} of {machine.shape}: fabric {troubles}{_WITHIN}")


COMMANDS = (nvlink, sram, fabric)
