"""``gpuwatch pick --prometheus URL`` and ``--hosts a,b,c``: the host to log in to."""

from __future__ import annotations

import shutil
import sys
import threading
import time

import click

from gpuwatch.cli.hosts_options import ChosenHosts
from gpuwatch.cli.output import print_document, print_line
from gpuwatch.cli.progress import progress
from gpuwatch.core.errors import EXIT_FAILED, GpuwatchError
from gpuwatch.core.formatting.safe_text import printable
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.fleet import Fleet
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.pick_result import HostPick
from gpuwatch.fleet.host_choice import pick_host, refusal_reasons
from gpuwatch.fleet.host_poller import FleetSource
from gpuwatch.session.free_gpus import Conditions

_POLL_SECONDS = 5.0
"""Seconds between looks while waiting."""


def pick_on_hosts(
    ctx: click.Context,
    chosen: ChosenHosts,
    conditions: Conditions,
    deadline: float,
    wait: float,
    *,
    as_json: bool,
) -> None:
    """Prints the host; exits with 1 if none has enough GPUs."""
    source = chosen.source(_POLL_SECONDS)
    news = threading.Event()
    source.start(news.set)
    if chosen.server is not None:  # which is read in one go
        progress(f"querying {source.name}")
    try:
        picked = _pick_until(source, news, conditions, deadline, wait)
    finally:
        source.stop()
    progress("")
    if as_json:
        print_document(to_json(picked))
        ctx.exit(0 if picked.host is not None else EXIT_FAILED)
    if picked.host is None:
        why = refusal_reasons(picked)
        hint = "" if wait else "--wait 1h waits for them"
        raise GpuwatchError(f"no host has {conditions}{f': {why}' if why else ''}", hint=hint)
    if sys.stderr.isatty():
        for gpu in picked.chosen:
            free = f", {size(gpu.memory_free_bytes)} free" if gpu.memory_free_bytes is not None else ""
            print_line(f"gpuwatch: {picked.host}: GPU {gpu.index} ({gpu.name}{free})")
        print_line("gpuwatch: nothing is reserved; on that host, use gpuwatch pick --reserve")
    click.echo(printable(picked.host))


def _pick_until(
    source: FleetSource, news: threading.Event, conditions: Conditions, deadline: float, wait: float
) -> HostPick:
    began = time.monotonic()
    while True:
        fleet = _wait_for_answers(source, news, deadline)
        if fleet.problem and time.monotonic() - began >= wait:
            raise GpuwatchError(fleet.problem, hint=fleet.hint)
        picked = pick_host(fleet, conditions)
        left = began + wait - time.monotonic()
        if picked.host is not None or left <= 0:
            return picked
        text = f"waiting for {conditions}; {fleet.problem or refusal_reasons(picked)}"
        progress(text[: shutil.get_terminal_size().columns - 3])
        time.sleep(min(_POLL_SECONDS, left))


def _wait_for_answers(source: FleetSource, news: threading.Event, deadline: float) -> Fleet:
    """All hosts, once each has answered or cannot be reached, within ``deadline`` seconds."""
    until = time.monotonic() + deadline
    while True:
        fleet = source.read()
        pending = sum(host.pending for host in fleet.hosts)
        left = until - time.monotonic()
        if not pending or left <= 0:
            return fleet
        progress(f"waiting for {pending} of {len(fleet.hosts)} hosts")
        news.wait(min(left, 0.5))
        news.clear()
