"""The command line: ``gpuwatch`` and its subcommands, their errors, and what stdout and stderr can show.

Data goes to stdout, everything else to stderr. Errors are one line with what was
wrong and what to do, never a traceback for a user's mistake. The exit codes are in :mod:`gpuwatch.core.errors`.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
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
from gpuwatch.cli.command_classes import LazyCommand, LazyGroup
from gpuwatch.cli.dashboard_options import dashboard_options, loaded_preferences
from gpuwatch.cli.hosts_options import HOSTS_PARAMETERS, chosen_hosts, hosts_options
from gpuwatch.cli.option_types import FiniteRange
from gpuwatch.cli.shared_options import ALLOWED_BEFORE_COMMAND, alert_options, alerts_of, gpm_option, gpm_option_value
from gpuwatch.cli.sim_options import sim_option
from gpuwatch.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, GpuwatchError, UsageError
from gpuwatch.core.formatting.terminal_support import why_only_ascii
from gpuwatch.core.safe_text import printable

_COMMANDS = {
    "snapshot": LazyCommand("Print the GPUs and their processes once, or repeatedly with --every.", "Look"),
    "doctor": LazyCommand("Check whether TensorFlow or PyTorch can use the GPUs here.", "Look"),
    "explain": LazyCommand("Explain a TensorFlow or PyTorch log: what happened, and why.", "Look"),
    "cause": LazyCommand("Explain a cause, or list all causes.", "Look"),
    "pick": LazyCommand("Pick free GPUs, or run COMMAND on them.", "Look"),
    "run": LazyCommand("Run a program and report what it did on the GPUs.", "Try"),
    "try": LazyCommand(
        "Run a program under several settings and compare the runs.", "Try", "gpuwatch.cli.try_command:experiment"
    ),
    "probe": LazyCommand("Try memory and placement settings on small workloads.", "Try"),
    "sim": LazyCommand("Run a command on simulated GPUs.", "Try"),
    "record": LazyCommand("Record the GPUs and their processes to FILE.", "Keep"),
    "replay": LazyCommand("Open the dashboard on a recording.", "Keep"),
    "usage": LazyCommand("Sum up GPU-hours held and used.", "Keep"),
    "export": LazyCommand("Convert a recording to the format of another tool.", "Keep"),
    "exporter": LazyCommand("Serve GPU metrics for Prometheus.", "Keep"),
    "report": LazyCommand("Write a report to send to whoever helps you.", "Share"),
    "compare": LazyCommand("Compare saved runs, or snapshots of many machines, side by side.", "Share"),
    "diff": LazyCommand("Compare two machines, or two days of one: what changed?", "Share"),
    "capture": LazyCommand("Capture what the driver reports about these GPUs in a file.", "Share"),
    "mcp": LazyCommand("Serve GPU facts and causes to an assistant (MCP).", "Share"),
    "schema": LazyCommand("Print the JSON Schema of a document.", "More"),
    "completion": LazyCommand("Print a completion script for bash, zsh or fish.", "More"),
    "clean": LazyCommand("Remove what gpuwatch keeps on this machine.", "More"),
    "node": LazyCommand("", "", "gpuwatch.cli.run_on_nodes:node"),
}
"""Grouped as in the README. A test compares the summaries with the commands' own."""


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
    cls=LazyGroup,
    lazy=_COMMANDS,
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
        _replace_symbols()
        assert isinstance(ctx.command, click.Group)
        _refuse_what_has_no_effect(ctx, ctx.command, ctx.invoked_subcommand)
    elif (hosts := chosen_hosts(**{name: given.pop(name) for name in HOSTS_PARAMETERS})) is not None:
        from gpuwatch.cli.dashboard import host_list_filter_and_order, run_host_list

        # These apply to the list of hosts; the processes of a host that is opened are as in the settings file.
        order = host_list_filter_and_order(given.pop("filter_"), given.pop("sort"), descending=given.pop("descending"))
        ctx.exit(run_host_list(loaded_preferences(config_file, given), given["interval"], hosts, order))
    else:
        settings = loaded_preferences(config_file, {**given, "gpm": gpm_option_value(ctx)})
        from gpuwatch.cli.dashboard import run_dashboard

        ctx.exit(run_dashboard(ctx, settings, alerts_of(on_finding, webhook, settings.preferences.notify)))


def _refuse_what_has_no_effect(ctx: click.Context, group: click.Group, name: str) -> None:
    """Rejects dashboard options before a command, except those that the command accepts there."""
    command = group.get_command(ctx, name)
    accepted = {option for parameter in command.params for option in parameter.opts} if command is not None else set()
    without_effect, elsewhere = [], []
    for parameter in group.params:
        given = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
        option = parameter.opts[0]
        if given and option not in accepted:
            off = ctx.params.get(parameter.name or "") is False and parameter.secondary_opts
            without_effect.append(parameter.secondary_opts[0] if off else option)
        elif given and option not in ALLOWED_BEFORE_COMMAND:
            elsewhere.append(option)
    if without_effect or elsewhere:
        hints = [f"leave {' and '.join(without_effect)} out"] if without_effect else []
        hints += [f"write gpuwatch {name} {' '.join(elsewhere)} ..."] if elsewhere else []
        raise UsageError(
            f"{' and '.join([*without_effect, *elsewhere])} before {name} would have no effect", hint="; ".join(hints)
        )


def main() -> NoReturn:
    """Runs the command line; exits with its code, after one line on stderr for an error."""
    exit_signals.handle_exit_signals()
    _replace_closed_streams()
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
        code = _discard_output(128 + signal.SIGPIPE)
    except SystemExit as ending:
        # click catches a closed pipe itself, and marks stdout with a wrapper of its own.
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        code = 128 + signal.SIGPIPE if ending.code == 1 else ending.code
    except Exception as error:  # noqa: BLE001  # one line here, the traceback in a file
        exit_signals.exit_if_signaled()  # a terminal that is closed cannot be written to either
        code = EXIT_FAILED
        if isinstance(error, OSError) and _raised_by_stdout(error):
            reason = "stdout is closed" if error.errno == errno.EBADF else error.strerror or error
            _print_error(f"cannot write the output: {reason}")
            code = _discard_output(code)
        else:
            from gpuwatch.core.crash_files import describe_error

            _print_error(*describe_error(error))
    sys.exit(code if isinstance(code, int) else EXIT_OK)


def _raised_by_stdout(error: OSError) -> bool:
    """Whether it was raised as stdout was written: by click or a command, without the name of a file."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    module = f"{frame.f_globals.get('__name__', '')}."
    return error.filename is None and module.startswith(("click.", "gpuwatch.cli."))


def _replace_closed_streams() -> None:
    """Keeps a closed stdout or stderr, or a character that it cannot show, from causing a traceback."""
    if sys.stdout is None:
        # Writes fail, since the data would be lost.
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not (stream.encoding or "").lower().startswith("utf"):
            stream.reconfigure(errors="backslashreplace")


def _discard_output(code: int) -> int:
    """Writes nothing more to stdout, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _print_error(message: str, hint: str = "") -> None:
    from gpuwatch.cli.progress import progress

    early_collector.undo_early_start()  # the message must be visible
    _replace_symbols()
    with suppress(OSError):  # stderr may be closed
        progress("")
        click.echo(printable(f"gpuwatch: {message}" + (f" ({hint})" if hint else "")), err=True)


_SYMBOL_ERRORS = "gpuwatch.signs"
_ASCII = "gpuwatch-ascii"
"""Another name of ASCII: click replaces streams with the encoding "ascii" by its own UTF-8 streams."""
_UNDECODABLE_BYTE = re.compile("[\udc80-\udcff]")
"""An undecodable byte of a file name (PEP 383)."""


def _replace_symbols() -> None:
    """Replaces in stdout and stderr what their locale or terminal cannot show, as on the dashboard.

    Documents for programs (JSON, CSV, HTML) are not written this way: they are always UTF-8.
    """
    codecs.register(_find_codec)
    codecs.register_error(_SYMBOL_ERRORS, _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue
        encoding = stream.encoding or "ascii"
        if why_only_ascii(os.environ, encoding, terminal=stream.isatty()):
            # The letters of another 8-bit locale stay; only symbols are replaced.
            new_encoding = _ASCII if encoding.lower().startswith(("utf", "ascii", "us-ascii", "ansi")) else encoding
            stream.reconfigure(encoding=new_encoding, errors=_SYMBOL_ERRORS)


def _find_codec(name: str) -> codecs.CodecInfo | None:
    if name.replace("_", "-") != _ASCII:
        return None
    codec = codecs.lookup("ascii")
    return codecs.CodecInfo(
        *codec, incrementalencoder=codec.incrementalencoder, incrementaldecoder=codec.incrementaldecoder, name=_ASCII
    )


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    from gpuwatch.ui.drawing.glyphs import to_ascii

    text = error.object[error.start : error.end]
    return to_ascii(_UNDECODABLE_BYTE.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)), error.end
