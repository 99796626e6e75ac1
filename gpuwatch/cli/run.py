"""``gpuwatch run``: watch the user's own program."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.completion import files
from gpuwatch.cli.options import FiniteRange, enter_simulation, sim_option
from gpuwatch.cli.output import check_output, redact_option, to_stdout
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.formatting.terminal import file_name
from gpuwatch.model.run import Run
from gpuwatch.monitor.collector import Collector

if TYPE_CHECKING:
    from gpuwatch.probing.observe import Observed


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--placement", is_flag=True, help="Switch TensorFlow's placement logging on: which op ran where.")
@click.option(
    "--live/--no-live",
    default=None,
    help="A status line, and causes when they are recognised, on stderr.  [default: on a terminal]",
)
@click.option("--no-log", is_flag=True, help="Leave stderr to the program alone: for programs that draw the screen.")
@click.option("--interval", type=FiniteRange(0.1, 60), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--json", "as_json", is_flag=True, help="With -o: JSON, whatever the suffix.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the run to a file; the suffix gives the format."
)
@redact_option
@click.option("--no-save", is_flag=True, help="Do not keep the run for `gpuwatch report`.")
@click.option("-q", "--quiet", is_flag=True, help="No summary on stderr at the end.")
@sim_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...", shell_complete=files)
@click.pass_context
def run(
    ctx: click.Context,
    placement: bool,
    live: bool | None,
    no_log: bool,
    interval: float,
    as_json: bool,
    output: Path | None,
    redact: bool,
    no_save: bool,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND unchanged and say what it did on the GPUs: devices, memory, fallbacks, failures.

    Its output, its exit code and its end by a signal are its own; the summary comes on stderr. Every Python
    that it starts is watched, for TensorFlow, Keras and PyTorch; killing gpuwatch ends the program and all that
    it started. The run is kept from its start, as far as it came. A program that cannot be started ends with 127
    (not found) or 126, as in a shell. All that the program can see of it are GPUWATCH_WATCH and a folder in
    PYTHONPATH, in its environment.
    """
    if not command:
        raise UsageError("no command to run", hint="for example: gpuwatch run -- python train.py")
    if not command[0]:
        raise UsageError("the command to run is empty", hint="for example: gpuwatch run -- python train.py")
    if as_json and output is None:
        raise UsageError("--json needs -o FILE", hint="stdout belongs to the program")
    if output is not None:
        if to_stdout(output):
            raise UsageError(f"-o {output}: stdout belongs to the program", hint="name a file")
        check_output(output, any_suffix=as_json)
    enter_simulation(ctx, "auto")
    collector = Collector(interval)
    collector.launch()
    from gpuwatch.probing.watch import Options, watch

    keeper = _Keeper(output, as_json, keep=not no_save, redact=redact)
    terminal = sys.stderr is not None and sys.stderr.isatty()
    if terminal and not no_log and _used_by_hand(command):
        no_log = True
        click.echo(f"gpuwatch: {Path(command[0]).name} is used by hand: stderr is left to it (--no-log)", err=True)
    options = Options(
        placement=placement,
        log=not no_log,
        line=terminal and live is not False,
        speak=terminal if live is None else live,
        simulation=_tier(),
    )
    collector.start()
    try:
        before = collector.fresh(3.0)
        finished = watch(command, keeper.judge, options, source=collector, before=before, meanwhile=keeper.prepare)
    finally:
        collector.stop()
    keeper.end(finished, quiet=quiet)
    outcome = finished.outcome
    if outcome.signal is not None:
        _die_by(outcome.signal)
    ctx.exit(outcome.exit_code or 0)


_SCREENS = frozenset({"less", "more", "most", "man", "vi", "vim", "nvim", "nano", "emacs", "htop", "top", "nvtop"})
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "tmux", "screen", "script"})


def _used_by_hand(command: Sequence[str]) -> bool:
    """Whether this reads keys from the terminal that is its stderr, or gives it to the jobs that it starts.

    ``less`` and an interactive shell do; with the terminal that :mod:`gpuwatch.probing.channel` puts in its place
    they get no key, and no job control.
    """
    name = Path(command[0]).name
    if name in _SCREENS:
        return True
    # A shell with a script or a command (-c) is a program like others.
    return name in _SHELLS and all(re.fullmatch(r"--[\w-]+|-[^-c]+", word) for word in command[1:])


class _Keeper:
    """Finishes runs and writes them, where they were asked for and to the user's folder."""

    def __init__(self, output: Path | None, as_json: bool, *, keep: bool, redact: bool) -> None:
        from gpuwatch.history.runs import RunStore
        from gpuwatch.reports.writing import is_special

        self._store = RunStore() if keep else None
        self._output = output
        self._as_json = as_json
        self._redact = redact
        self._problem = ""
        # What is written to a device or a pipe cannot be replaced by a later state of the run.
        self._once = output is not None and is_special(output)

    def prepare(self) -> None:
        """Loads what judging needs, while the program starts."""
        importlib.import_module("gpuwatch.diagnosis.complete")
        if self._output is not None:
            importlib.import_module("gpuwatch.reports.registry")

    def judge(self, observed: Observed) -> Run:
        """The finished run; what cannot be written is said at the end, the program goes on."""
        from gpuwatch.diagnosis.complete import complete

        finished = complete(observed.run, observed.log, observed.before)
        self._problem = ""
        if self._store is not None:
            try:
                self._store.save(finished)
            except OSError as error:
                self._problem = f"the run is not kept: {self._store.folder}: {error.strerror or error}"
        if self._output is not None and not self._once:
            self._write(finished, self._output)
        return finished

    def _write(self, finished: Run, output: Path) -> None:
        from gpuwatch.reports.registry import write

        try:
            write(finished, output, format_name="json" if self._as_json else None, redact=self._redact)
        except GpuwatchError as error:
            self._problem = error.message

    def end(self, finished: Run, *, quiet: bool) -> None:
        """The last word, on stderr."""
        if self._output is not None and self._once:
            self._write(finished, self._output)
        if self._problem:
            click.echo(f"gpuwatch: {self._problem}", err=True)
        if quiet:
            return
        from gpuwatch.reports.registry import render

        click.echo("\n" + render(finished, "text", width=_columns()), nl=False, err=True)
        if self._output is not None and not self._problem:
            click.echo(f"written: {file_name(self._output)}", err=True)


def _columns() -> int | None:
    """Of the terminal that stderr is, where stdout, which others go by, is a file; None where stderr is none."""
    try:
        return os.get_terminal_size(2).columns if "COLUMNS" not in os.environ else None
    except OSError:
        return None


def _tier() -> str | None:
    if not os.environ.get("GPUWATCH_SIM_STATE"):
        return None
    return "plugin" if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") else "driver"


def _die_by(number: int) -> None:
    """Ends as the program did, so that a shell or scheduler sees the same."""
    import resource
    import signal

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The program has left its core already; ours would only lie on top of it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
