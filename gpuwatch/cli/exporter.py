"""``gpuwatch exporter``: metrics of this machine for Prometheus."""

from __future__ import annotations

import platform
import signal
from pathlib import Path

import click

from gpuwatch.cli import exit_signals
from gpuwatch.cli.option_types import Choice, Duration
from gpuwatch.cli.output import print_line
from gpuwatch.cli.shared_options import gpm_option, gpm_option_value
from gpuwatch.cli.sim_options import enter_simulation, sim_option
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path

_EXAMPLES = """\b
Examples:
  gpuwatch exporter                                  for Prometheus on this machine
  gpuwatch exporter --listen :9836 --web-config web.yml   with TLS and users
  gpuwatch exporter --processes                      processes, too
  gpuwatch exporter --compat dcgm --listen :9400     like dcgm-exporter
  gpuwatch exporter --listen :9836 --print-unit      a systemd unit
"""
_DEFAULT_MAX_PROCESSES = 50


@click.command(epilog=_EXAMPLES)
@click.option(
    "--listen",
    default="127.0.0.1:9836",
    show_default=True,
    metavar="ADDRESS:PORT",
    help="Listen on this address; :9836 means every address of this machine.",
)
@click.option(
    "--metrics",
    type=Choice(["core", "all"]),
    default="core",
    show_default=True,
    help="core: at most 30 series per GPU; all: everything that NVML reports.",
)
@click.option(
    "--compat",
    type=Choice(["dcgm"]),
    help="Use the names and labels of NVIDIA's dcgm-exporter, for dashboards and alerts made for it.",
)
@click.option(
    "--processes",
    type=click.IntRange(min=0, max=10_000),
    is_flag=False,
    flag_value=_DEFAULT_MAX_PROCESSES,
    default=0,
    metavar="[N]",
    help=f"Also show the N processes with the most GPU memory ({_DEFAULT_MAX_PROCESSES} without a number):"
    " pid, user, name.",
)
@click.option("--commands", is_flag=True, help="Show the command lines of these processes; secrets are masked.")
@click.option(
    "--every",
    type=Duration(0.25, 60.0),
    default="5s",
    show_default=True,
    help="Time between samples, regardless of how often it is scraped.",
)
@click.option(
    "--host",
    metavar="NAME",
    help="Value of the label host (default: this machine's name). In a container, set it to the node's name.",
)
@click.option(
    "--web-config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read TLS settings, client certificates and users from FILE, the web configuration of Prometheus exporters.",
)
@click.option(
    "--max-requests",
    type=click.IntRange(min=0),
    metavar="N",
    default=40,
    show_default=True,
    help="Serve at most this many requests at once; others get 503 (0: no limit).",
)
@click.option(
    "--write-job-map",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write to DIR which Slurm jobs use which GPU, in the format that dcgm-exporter's --hpc-job-mapping-dir reads.",
)
@click.option("--print-unit", is_flag=True, help="Print a systemd unit with these options, and exit.")
@gpm_option
@sim_option
@click.pass_context
def exporter(
    ctx: click.Context,
    listen: str,
    metrics: str,
    compat: str | None,
    processes: int,
    commands: bool,
    every: float,
    host: str | None,
    web_config: Path | None,
    max_requests: int,
    write_job_map: Path | None,
    print_unit: bool,
) -> None:
    """Serve GPU metrics for Prometheus.

    Serves free and busy GPUs, their owners, findings by cause, and what NVML reports, at /metrics until Ctrl+C or
    SIGTERM. Readings that failed are absent, never 0. While the driver hangs, the last sample is served with its age;
    once it is a minute old, its readings are left out.
    """
    if commands and not processes:
        raise UsageError("--commands needs --processes")
    from gpuwatch.share.exporter.http_server import Address, MetricsServer
    from gpuwatch.share.exporter.web_config import WebConfig

    address = Address(listen)
    web = WebConfig(web_config, print_line)
    job_map = None
    if write_job_map is not None:
        from gpuwatch.share.exporter.slurm_job_map import SlurmJobMap

        job_map = SlurmJobMap(write_job_map)
        try:
            job_map.check_writable()
        except OSError as error:
            raise UsageError(f"cannot write to {printable_path(write_job_map)}: {error.strerror or error}") from None
    if print_unit:
        from gpuwatch.cli.systemd_units import exporter_unit

        click.echo(exporter_unit(ctx, loopback=address.loopback), nl=False)
        return
    enter_simulation(ctx)
    from gpuwatch.machine.collector.live_feed import LiveFeed
    from gpuwatch.share.exporter.metric_series import ExporterOptions
    from gpuwatch.share.exporter.metrics_page import PageUpdater

    options = ExporterOptions(
        host=host or platform.node() or "localhost",
        metrics="all" if metrics == "all" else "core",
        dcgm=compat == "dcgm",
        processes=processes,
        commands=commands,
        interval=every,
    )
    feed = LiveFeed(every, gpm=bool(gpm_option_value(ctx)), share=True)
    updater = PageUpdater(feed, options, job_map=job_map, log=print_line)
    server = MetricsServer(
        address, lambda: updater.page, web=web, max_requests=max_requests, plain_only=options.dcgm, log=print_line
    )

    exit_signals.handle_exit_signals(lambda number, frame: updater.stop(), signal.SIGINT)
    server.start()
    print_line(f"gpuwatch: metrics at {server.url}, a sample every {every:g} s")
    if not address.loopback and not web.settings.protected:
        shown = "GPUs, their users and jobs" + (", processes" if processes else "") + (", commands" if commands else "")
        print_line(
            f"gpuwatch: everyone who can reach this address can read it ({shown}); --web-config adds TLS and users"
        )
    try:
        updater.run(server.close_idle_connections)
    finally:
        server.stop()
