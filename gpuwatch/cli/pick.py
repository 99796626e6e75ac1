"""``gpuwatch pick``: the GPUs that are free, as CUDA_VISIBLE_DEVICES, or runs a command on them."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.command_classes import SectionedCommand
from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.hosts_options import ChosenHosts, chosen_hosts, hosts_options
from gpuwatch.cli.option_types import Duration, Size
from gpuwatch.cli.output import print_document, print_line
from gpuwatch.cli.progress import progress
from gpuwatch.cli.replace_process import program_path, replace_process
from gpuwatch.cli.sim_options import enter_simulation, shape_option_value, sim_option
from gpuwatch.core.errors import EXIT_FAILED, GpuwatchError, UsageError
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.pick_result import HostPick, Pick, PickedGpu
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.safe_text import printable
from gpuwatch.machine.sources.gpu_reservations import HeldReservation, reservation_holders, reserve
from gpuwatch.session.free_gpus import Requirements, pick_gpus, refusal_reasons, why_impossible
from gpuwatch.session.snapshots import findings_of, take_snapshot
from gpuwatch.share.reports.topology_matrix import path_description

if TYPE_CHECKING:
    from gpuwatch.core.model.fleet import Fleet
    from gpuwatch.fleet.fleet_source import FleetSource

_EXAMPLES = """\b
Examples:
  gpuwatch pick -n 2 --free 20GiB -- python train.py
  gpuwatch pick --idle --reserve --wait 12h -- python train.py
  gpus=$(gpuwatch pick --free 20GiB) && CUDA_VISIBLE_DEVICES=$gpus python train.py
  gpuwatch pick --free 20GiB --json
  ssh $(gpuwatch pick -n 4 --idle --hosts n[01-16])
"""
_POLL_SECONDS = 5.0
"""Seconds between looks while waiting."""
_MAX_ATTEMPTS = 10
"""Attempts to reserve, where others are faster each time."""
_RETRY_SECONDS = 0.1
"""Seconds within which a reservation that failed is given back."""
_MAX_WAIT_SECONDS = 30 * 86_400.0
_WAIT_HINT = "--wait 1h waits for them"


@click.command(cls=SectionedCommand, epilog=_EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.option("-n", "--count", type=click.IntRange(min=1), default=1, show_default=True, help="Number of GPUs.")
@click.option("--free", type=Size(1), help="Only GPUs with this much free memory, for example 20GiB.")
@click.option("--idle", is_flag=True, help="Only idle GPUs: no process computes on them.")
@click.option(
    "--reserve",
    "reserve_gpus",
    is_flag=True,
    help="Reserve them for COMMAND while it runs. Only gpuwatch pick respects this: other programs are not kept out.",
)
@click.option(
    "--wait", type=Duration(0.0, _MAX_WAIT_SECONDS), help="If too few are free, wait up to this long for them."
)
@click.option(
    "--index", is_flag=True, help="Print NVML's indices instead of UUIDs; they need CUDA_DEVICE_ORDER=PCI_BUS_ID."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (gpuwatch.pick/1), with the reason for each refusal.")
@click.option(
    "--deadline",
    type=Duration(0.5, 3600.0),
    default="10s",
    show_default=True,
    help="Wait this long for the driver, or for hosts.",
)
@hosts_options
@sim_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_files)
@click.pass_context
def pick(
    ctx: click.Context,
    /,
    count: int,
    free: int | None,
    idle: bool,
    reserve_gpus: bool,
    wait: float | None,
    index: bool,
    as_json: bool,
    deadline: float,
    command: tuple[str, ...],
    **fleet_given: Any,
) -> None:
    """Pick free GPUs, or run COMMAND on them.

    Prints their UUIDs for CUDA_VISIBLE_DEVICES, or runs COMMAND with it set. GPUs without processes come first, then
    those that are not busy; among equals, those with the fastest connections between them (NVLink, then PCIe), then
    those with the most free memory. If CUDA_VISIBLE_DEVICES is set, only its GPUs are considered. Exits with 1 if
    there are too few; then only --json prints something. With --prometheus or --hosts, prints the host to log in to.
    """
    requirements = Requirements(count, free, idle)
    hosts = chosen_hosts(**fleet_given)
    if hosts is not None:
        if command or reserve_gpus or index:
            what = "a command" if command else "--reserve" if reserve_gpus else "--index"
            raise UsageError(f"{what} works on one machine only", hint="ssh to the host that this prints")
        _pick_host(ctx, hosts, requirements, deadline, wait or 0.0, as_json=as_json)
        return
    if reserve_gpus and not command:
        raise UsageError(
            "--reserve needs a command, which holds the reservation", hint="gpuwatch pick --reserve -- CMD"
        )
    if as_json and command:
        raise UsageError("--json cannot be combined with a command")
    program = program_path(command[0]) if command else ""  # an error before anything is waited for
    enter_simulation(ctx, command=command)
    picked, reservation = _pick_until(requirements, deadline, wait or 0.0, reserve_gpus=reserve_gpus)
    progress("")
    if as_json:
        print_document(to_json(picked))
        ctx.exit(0 if picked.chosen else EXIT_FAILED)
    if not picked.chosen:
        fitting = f"{picked.spare or 'none'} {'fit' if picked.spare > 1 else 'fits'}"
        reason = refusal_reasons(picked)
        message = f"wanted {requirements}, but {fitting}{f': {reason}' if reason else ''}"
        raise GpuwatchError(message, hint="" if wait else _WAIT_HINT)
    if sys.stderr.isatty() or command:
        for gpu in picked.chosen:
            instance = f" MIG {gpu.mig_instance}" if gpu.mig_instance else ""
            with_others = f", shared with {count_text(gpu.processes, 'process')}" if gpu.processes else ""
            unreservable = reservation is not None and gpu.uuid in reservation.unreservable
            note = "; not reserved: another user has reserved it over the per-user limit" if unreservable else ""
            print_line(f"gpuwatch: GPU {gpu.index}{instance} ({gpu.name}{_free_text(gpu)}{with_others}){note}")
        if picked.connection is not None:
            print_line(f"gpuwatch: slowest connection between them: {path_description(picked.connection)}")
    listed = ",".join(str(gpu.index) if index and not gpu.mig_instance else gpu.uuid for gpu in picked.chosen)
    if not command:
        click.echo(listed)
        return
    if reservation is not None:
        reservation.keep_across_exec()
    variables = {"CUDA_VISIBLE_DEVICES": listed} | ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if index else {})
    replace_process(ctx, program, command, shape_option_value(ctx), variables=variables)


def _pick_until(
    requirements: Requirements, deadline: float, wait: float, *, reserve_gpus: bool
) -> tuple[Pick, HeldReservation | None]:
    """The choice, reserved if ``reserve_gpus``; looks again until ``wait`` seconds are over."""
    until = time.monotonic() + wait
    lost_races = 0
    progress("reading the GPUs")
    while True:
        machine, answered = take_snapshot(deadline, hint_end="; to wait longer: --deadline")
        seconds_left = until - time.monotonic()
        if not answered and seconds_left > 0:  # a driver that hangs for a while ends no wait of hours
            progress("waiting for the driver")
            continue
        if machine.driver is None or not machine.devices:
            problem = machine.problems[0] if machine.problems else None
            raise GpuwatchError(
                problem.detail if problem else "there are no GPUs", hint=problem.hint if problem else ""
            )
        if reason := why_impossible(machine, requirements):
            raise GpuwatchError(reason)
        picked = _pick_now(machine, requirements)
        if picked.chosen and not reserve_gpus:
            return picked, None
        if picked.chosen:
            try:
                reservation = reserve([gpu.uuid for gpu in picked.chosen])
            except OSError as error:
                raise GpuwatchError(f"--reserve needs Unix sockets, which fail here: {error.strerror}") from error
            if reservation is not None:
                return picked, reservation
            lost_races += 1
            if lost_races >= _MAX_ATTEMPTS:
                raise GpuwatchError("other users kept reserving these GPUs first", hint="try again")
            continue
        if seconds_left <= 0:
            return picked, None
        _wait_for_gpus(requirements, refusal_reasons(picked), seconds_left)


def _wait_for_gpus(requirements: Requirements, reason: str, seconds_left: float) -> None:
    """Waits until the GPUs are looked at again, at most ``seconds_left`` seconds."""
    progress(f"waiting for {requirements}; {reason}"[: shutil.get_terminal_size().columns - 3])
    time.sleep(min(_POLL_SECONDS, seconds_left))


def _pick_now(machine: Snapshot, requirements: Requirements) -> Pick:
    """The choice; looks twice at reservations, since one that wants several GPUs may hold some for a moment in vain."""
    found, holders = findings_of(machine), reservation_holders()
    picked = pick_gpus(machine, requirements, os.environ, holders, found)
    if picked.chosen or not holders:
        return picked
    time.sleep(_RETRY_SECONDS)
    return pick_gpus(machine, requirements, os.environ, reservation_holders(), found)


def _free_text(gpu: PickedGpu) -> str:
    return f", {size(gpu.memory_free_bytes)} free" if gpu.memory_free_bytes is not None else ""


def _pick_host(
    ctx: click.Context, hosts: ChosenHosts, requirements: Requirements, deadline: float, wait: float, *, as_json: bool
) -> None:
    """Prints the host to log in to; exits with 1 if none has enough GPUs."""
    from gpuwatch.fleet.host_with_free_gpus import hosts_refusal_reasons

    source = hosts.source(_POLL_SECONDS)
    changed = threading.Event()
    source.start(changed.set)
    if hosts.server is not None:  # which is read in one go
        progress(f"querying {source.name}")
    try:
        picked = _pick_host_until(source, changed, requirements, deadline, wait)
    finally:
        source.stop()
    progress("")
    if as_json:
        print_document(to_json(picked))
        ctx.exit(0 if picked.host is not None else EXIT_FAILED)
    if picked.host is None:
        reason = hosts_refusal_reasons(picked)
        raise GpuwatchError(
            f"no host has {requirements}{f': {reason}' if reason else ''}", hint="" if wait else _WAIT_HINT
        )
    if sys.stderr.isatty():
        for gpu in picked.chosen:
            print_line(f"gpuwatch: {picked.host}: GPU {gpu.index} ({gpu.name}{_free_text(gpu)})")
        print_line("gpuwatch: nothing is reserved; on that host, use gpuwatch pick --reserve")
    click.echo(printable(picked.host))


def _pick_host_until(
    source: FleetSource, changed: threading.Event, requirements: Requirements, deadline: float, wait: float
) -> HostPick:
    from gpuwatch.fleet.host_with_free_gpus import hosts_refusal_reasons, pick_host

    until = time.monotonic() + wait
    while True:
        fleet = _wait_for_answers(source, changed, deadline)
        seconds_left = until - time.monotonic()
        if fleet.problem and seconds_left <= 0:
            raise GpuwatchError(fleet.problem, hint=fleet.hint)
        picked = pick_host(fleet, requirements)
        if picked.host is not None or seconds_left <= 0:
            return picked
        _wait_for_gpus(requirements, fleet.problem or hosts_refusal_reasons(picked), seconds_left)


def _wait_for_answers(source: FleetSource, changed: threading.Event, deadline: float) -> Fleet:
    """All hosts, once each has answered or cannot be reached, within ``deadline`` seconds."""
    until = time.monotonic() + deadline
    while True:
        fleet = source.read()
        pending = sum(host.pending for host in fleet.hosts)
        seconds_left = until - time.monotonic()
        if not pending or seconds_left <= 0:
            return fleet
        progress(f"waiting for {pending} of {len(fleet.hosts)} hosts")
        changed.wait(min(seconds_left, 0.5))
        changed.clear()
