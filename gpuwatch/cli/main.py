"""The command line: ``gpuwatch`` and its subcommands.

Data goes to stdout, everything else to stderr. This module defines the exit codes and the form of errors: one line
with what was wrong and what to do, never a traceback for a user's mistake.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from gpuwatch import __version__
from gpuwatch.cli import early_collector, exit_signals
from gpuwatch.cli.command_group import Group, Lazy
from gpuwatch.cli.dashboard_options import dashboard_options, preferred
from gpuwatch.cli.hosts_options import HOSTS_PARAMETERS, chosen_hosts, hosts_options
from gpuwatch.cli.shared_options import (
    TAKEN_BEFORE,
    FiniteRange,
    alert_options,
    alerts_of,
    gpm_option,
    gpm_option_value,
)
from gpuwatch.cli.sim_options import sim_option
from gpuwatch.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, GpuwatchError, UsageError
from gpuwatch.core.formatting.safe_text import printable

_COMMANDS = {
    "snapshot": Lazy(
        "gpuwatch.cli.snapshot:snapshot", "Print the GPUs and their processes once, or repeatedly with --every.", "Look"
    ),
    "doctor": Lazy("gpuwatch.cli.doctor:doctor", "Check whether TensorFlow or PyTorch can use the GPUs here.", "Look"),
    "explain": Lazy(
        "gpuwatch.cli.explain:explain", "Explain a TensorFlow or PyTorch log: what happened, and why.", "Look"
    ),
    "cause": Lazy("gpuwatch.cli.cause:cause", "Explain a cause, or list all causes.", "Look"),
    "pick": Lazy("gpuwatch.cli.pick:pick", "Pick free GPUs, or run COMMAND on them.", "Look"),
    "run": Lazy("gpuwatch.cli.run:run", "Run a program and report what it did on the GPUs.", "Try"),
    "try": Lazy(
        "gpuwatch.cli.try_command:experiment", "Run a program under several settings and compare the runs.", "Try"
    ),
    "probe": Lazy("gpuwatch.cli.probe:probe", "Try memory and placement settings on small workloads.", "Try"),
    "sim": Lazy("gpuwatch.cli.sim:sim", "Run a command on simulated GPUs.", "Try"),
    "record": Lazy("gpuwatch.cli.record:record", "Record the GPUs and their processes to FILE.", "Keep"),
    "replay": Lazy("gpuwatch.cli.replay:replay", "Open the dashboard on a recording.", "Keep"),
    "usage": Lazy("gpuwatch.cli.usage:usage", "Sum up GPU-hours held and used.", "Keep"),
    "export": Lazy("gpuwatch.cli.export:export", "Convert a recording to the format of another tool.", "Keep"),
    "exporter": Lazy("gpuwatch.cli.exporter:exporter", "Serve GPU metrics for Prometheus.", "Keep"),
    "report": Lazy("gpuwatch.cli.report:report", "Write a report to send to whoever helps you.", "Share"),
    "compare": Lazy(
        "gpuwatch.cli.compare:compare", "Compare saved runs, or snapshots of many machines, side by side.", "Share"
    ),
    "diff": Lazy("gpuwatch.cli.diff:diff", "Compare two machines, or two days of one: what changed?", "Share"),
    "capture": Lazy(
        "gpuwatch.cli.capture_driver_answers:capture",
        "Capture what the driver reports about these GPUs in a file.",
        "Share",
    ),
    "mcp": Lazy("gpuwatch.cli.mcp:mcp", "Serve GPU facts and causes to an assistant (MCP).", "Share"),
    "schema": Lazy("gpuwatch.cli.schema:schema", "Print the JSON Schema of a document.", "More"),
    "completion": Lazy(
        "gpuwatch.cli.completion:completion", "Print a completion script for bash, zsh or fish.", "More"
    ),
    "clean": Lazy("gpuwatch.cli.clean:clean", "Remove what gpuwatch keeps on this machine.", "More"),
}
"""As the README groups them. A test compares the summaries with the commands' own."""


_EXAMPLES = """\b
Examples:
  gpuwatch                                    open the dashboard
  gpuwatch --sim 2x24GiB                      ... on simulated GPUs
  gpuwatch --prometheus http://server:9090    all GPU hosts that Prometheus scrapes
  gpuwatch snapshot --json                    one sample, for scripts
  gpuwatch run -- python train.py             watch your program
  gpuwatch probe --config growth              what does memory growth do here?
  gpuwatch explain train.log                  why did it fail?
  gpuwatch report -o diag.html                one file for whoever helps you
"""


@click.group(
    cls=Group,
    lazy=_COMMANDS,
    unlisted={"node": "gpuwatch.cli.node:node"},
    invoke_without_command=True,
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="gpuwatch")
@click.option(
    "--interval",
    type=FiniteRange(0.25, 60.0),
    metavar="SECONDS",
    help="Seconds between samples (default: 1).",
)
@hosts_options
@dashboard_options
@alert_options
@gpm_option
@sim_option
@click.pass_context
def cli(
    ctx: click.Context, /, config_file: Path | None, on_finding: str | None, webhook: str | None, **given: Any
) -> None:
    """Monitor NVIDIA GPUs, and find out by experiment what TensorFlow and PyTorch do on them.

    Without a command, gpuwatch opens the dashboard. Options override the settings file, which the key w
    saves in the dashboard.
    """
    if ctx.invoked_subcommand is not None:
        from gpuwatch.cli.ascii_output import prepare_output

        prepare_output()
        assert isinstance(ctx.command, click.Group)
        _refuse_what_has_no_effect(ctx, ctx.command, ctx.invoked_subcommand)
    elif (asked := chosen_hosts(**{name: given.pop(name) for name in HOSTS_PARAMETERS})) is not None:
        from gpuwatch.cli import fleet_dashboard

        # In a list of hosts these are of hosts; the processes of an opened one are as in the settings file.
        listed = fleet_dashboard.host_list_order(
            given.pop("filter_"), given.pop("sort"), descending=given.pop("descending")
        )
        ctx.exit(fleet_dashboard.run_fleet(preferred(config_file, given), given["interval"], asked, listed))
    else:
        settings = preferred(config_file, {**given, "gpm": gpm_option_value(ctx)})
        from gpuwatch.cli.dashboard import run_dashboard

        ctx.exit(run_dashboard(ctx, settings, alerts_of(on_finding, webhook, settings.preferences.notify)))


def _refuse_what_has_no_effect(ctx: click.Context, group: click.Group, name: str) -> None:
    """Rejects dashboard options before a command, except those that the command accepts there."""
    command = group.get_command(ctx, name)
    own = {option for parameter in command.params for option in parameter.opts} if command is not None else set()
    lost, elsewhere = [], []
    for parameter in group.params:
        given = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        option = parameter.opts[0]
        if given and option not in own:
            off = ctx.params.get(parameter.name or "") is False and parameter.secondary_opts
            lost.append(parameter.secondary_opts[0] if off else option)
        elif given and option not in TAKEN_BEFORE:
            elsewhere.append(option)
    if lost or elsewhere:
        hints = [f"leave {' and '.join(lost)} out"] if lost else []
        hints += [f"write gpuwatch {name} {' '.join(elsewhere)} ..."] if elsewhere else []
        raise UsageError(
            f"{' and '.join([*lost, *elsewhere])} before {name} would have no effect", hint="; ".join(hints)
        )


def main() -> NoReturn:
    """Entry point of the program."""
    exit_signals.end_by_signals()
    _prepare_output()
    try:
        code = cli.main(prog_name="gpuwatch", standalone_mode=False)
        sys.stdout.flush()
    except GpuwatchError as error:
        _print_error(error.message, error.hint)
        code = error.exit_code
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "gpuwatch"
        _print_error(" ".join(error.format_message().rstrip(".").split()), f"see {where} --help")
        code = EXIT_USAGE
    except click.ClickException as error:
        _print_error(error.format_message())
        code = EXIT_FAILED
    except (click.Abort, KeyboardInterrupt):
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        code = _give_up_output(128 + signal.SIGPIPE)
    except SystemExit as ending:
        # click catches a closed pipe itself, and marks stdout with a wrapper of its own.
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        code = 128 + signal.SIGPIPE if ending.code == 1 else ending.code
    except Exception as error:  # noqa: BLE001  # one line here, the traceback in a file
        exit_signals.exit_if_signalled()  # a terminal that is closed cannot be written to either
        code = EXIT_FAILED
        if isinstance(error, OSError) and _raised_by_stdout(error):
            why = "stdout is closed" if error.errno == errno.EBADF else error.strerror or error
            _print_error(f"cannot write the output: {why}")
            code = _give_up_output(code)
        else:
            from gpuwatch.machine.history.crash_files import describe_error

            _print_error(*describe_error(error))
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _raised_by_stdout(error: OSError) -> bool:
    """Whether it was raised as stdout was written: by click or a command, without the name of a file."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = f"{frame.f_globals.get('__name__', '')}."
    return error.filename is None and module.startswith(("click.", "gpuwatch.cli."))


def _prepare_output() -> None:
    """Closed output, or a character that it cannot show, must not cause a traceback."""
    if sys.stdout is None:
        # Writes fail, since the data would be lost.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")


def _give_up_output(code: int) -> int:
    """Writes nothing more to stdout, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _print_error(message: str, hint: str = "") -> None:
    from gpuwatch.cli.ascii_output import prepare_output
    from gpuwatch.cli.progress import progress

    early_collector.undo_start()  # the message must be visible
    prepare_output()
    with suppress(OSError):  # stderr may be closed
        progress("")
        click.echo(printable(f"gpuwatch: {message}" + (f" ({hint})" if hint else "")), err=True)
