"""``gpuwatch run``: runs a user's program and watches it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.command_classes import SectionedCommand
from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.option_types import FiniteRange
from gpuwatch.cli.output import (
    check_writable,
    file_unless_stdout,
    no_save_option,
    output_file_option,
    print_line,
    print_written,
    redact_option,
    with_links,
)
from gpuwatch.cli.sim_options import enter_simulation, sim_option, sim_tier_option, tier_in_use
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.machine.collector.forked_collector import fork_collector
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.share.reports.report_formats import render, write

if TYPE_CHECKING:
    from gpuwatch.core.model.run import Run
    from gpuwatch.experiment.probing.run_draft import RunDraft


_EXAMPLES = """\b
Examples:
  gpuwatch run -- python train.py
  gpuwatch run --placement -o run.html -- python train.py
  gpuwatch run --memory -o memory.html -- python train.py
  gpuwatch run --sim 2x24GiB -- torchrun --nproc-per-node 2 train.py
"""


@click.command(cls=SectionedCommand, epilog=_EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.option("--placement", is_flag=True, help="Record which op ran where, and which device was requested for it.")
@click.option("--memory", is_flag=True, help="Record what holds the memory at its peak: op, shape, layer, variable.")
@click.option(
    "--live/--no-live",
    default=None,
    help="Show a status line and recognized causes on stderr (default: on a terminal).",
)
@click.option("--no-log", is_flag=True, help="Do not read the program's stderr; for full-screen programs.")
@click.option(
    "--interval",
    type=FiniteRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between samples.",
)
@click.option("--json", "as_json", is_flag=True, help="With -o: write JSON regardless of the suffix.")
@output_file_option("Write the run to FILE, in the format of its suffix.")
@redact_option
@no_save_option
@click.option("-q", "--quiet", is_flag=True, help="Do not print a summary at the end.")
@sim_option
@sim_tier_option()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...", shell_complete=complete_files)
@click.pass_context
def run(
    ctx: click.Context,
    placement: bool,
    memory: bool,
    live: bool | None,
    no_log: bool,
    interval: float,
    as_json: bool,
    output: Path | None,
    redact: bool,
    no_save: bool,
    quiet: bool,
    tier: str,
    command: tuple[str, ...],
) -> None:
    """Run a program and report what it did on the GPUs.

    COMMAND runs unchanged; its output, exit code and signals are passed on. A summary of its devices, memory,
    fallbacks to the CPU and failures follows on stderr. Every Python process that it starts is watched for
    TensorFlow, Keras, PyTorch and JAX. The run is saved as it goes. If gpuwatch is killed, the program and all its
    processes end. The exit code is 127 if the program is not found and 126 if it cannot be executed, as in a shell.
    gpuwatch adds only GPUWATCH_WATCH and a folder in PYTHONPATH to the program's environment, and one thread to each
    Python process; a dump of all threads (faulthandler, py-spy) shows it as _gpuwatch_watcher.py.
    """
    if not command:
        raise UsageError("no command to run", hint="for example: gpuwatch run -- python train.py")
    if not command[0]:
        raise UsageError("the command is empty", hint="for example: gpuwatch run -- python train.py")
    if as_json and output is None:
        raise UsageError("--json needs -o FILE", hint="stdout belongs to the program")
    if output is not None:
        if file_unless_stdout(output) is None:
            raise UsageError(f"-o {output}: stdout belongs to the program", hint="name a file")
        check_writable(output, any_suffix=as_json)
    libraries = os.environ.get("LD_LIBRARY_PATH")
    enter_simulation(ctx, tier, command, private=True)
    # The loader reads the variable when a process starts: a fork would not find the simulated driver.
    same = os.environ.get("LD_LIBRARY_PATH") == libraries
    first = None
    if same:
        with suppress(OSError):  # no more processes: the feed reports that, and tries again
            first = fork_collector(interval)
    feed = LiveFeed(interval, first=first)
    feed.launch()
    from gpuwatch.experiment.probing.launch_program import GuardedProgram, WatchOptions

    terminal = sys.stderr is not None and sys.stderr.isatty()
    if terminal and not no_log and _is_interactive(command):
        no_log = True
        print_line(f"gpuwatch: {Path(command[0]).name} is interactive: its stderr is not read (--no-log)")
    options = WatchOptions(
        record_placement=placement,
        record_memory=memory,
        read_log=not no_log,
        status_line=terminal and live is not False,
        print_findings=terminal if live is None else live,
        simulation=tier_in_use(),
    )
    feed.start()
    try:
        before = feed.fresh(3.0)
        with GuardedProgram(command, options) as program:
            program.start()
            # While the program starts: these imports take longer than everything before.
            from gpuwatch.experiment.probing.watch_program import Watch

            run_writer = _RunWriter(output, as_json, keep=not no_save, redact=redact)
            with Watch(
                program, run_writer.finish_and_save, snapshots=feed, snapshot_before=before, sample_now=feed.sample_now
            ) as watching:
                finished = watching.run()
    finally:
        feed.stop()
    run_writer.end(finished, quiet=quiet)
    outcome = finished.outcome
    if outcome.signal is not None:
        ctx.close()  # the next call does not return
        _end_with_signal(outcome.signal)
    ctx.exit(outcome.exit_code or 0)


_FULL_SCREEN_PROGRAMS = frozenset(
    {"less", "more", "most", "man", "vi", "vim", "nvim", "nano", "emacs", "htop", "top", "nvtop"}
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "tmux", "screen", "script"})


def _is_interactive(command: Sequence[str]) -> bool:
    """Whether the program reads keys from the terminal on stderr, or passes it on to its jobs.

    ``less`` and interactive shells do; on the pseudo-terminal of
    :mod:`gpuwatch.experiment.probing.output_passthrough` they would have neither keys nor job control.
    """
    name = Path(command[0]).name
    if name in _FULL_SCREEN_PROGRAMS:
        return True
    # A shell with a script or a command (-c) is an ordinary program.
    return name in _SHELLS and all(re.fullmatch(r"--[\w-]+|-[^-c]+", word) for word in command[1:])


class _RunWriter:
    """Finishes runs and writes them to ``-o`` and to the user's folder."""

    def __init__(self, output: Path | None, as_json: bool, *, keep: bool, redact: bool) -> None:
        from gpuwatch.core.write_file import is_special
        from gpuwatch.explain.diagnosis.runs.finished_run import complete
        from gpuwatch.machine.history.saved_runs import RunStore

        self._complete = complete
        self._store = RunStore() if keep else None
        self._output = output
        self._as_json = as_json
        self._redact = redact
        self._problem = ""
        # What was written to a device or a pipe cannot be replaced later.
        self._once = output is not None and is_special(output)

    def finish_and_save(self, draft: RunDraft) -> Run:
        """The finished run. Write errors are reported at the end; the program goes on."""
        finished = self._complete(draft.run, draft.log, draft.before)
        self._problem = ""
        if self._store is not None:
            try:
                self._store.save(finished)
            except OSError as error:
                self._problem = f"cannot save the run in {self._store.folder}: {error.strerror or error}"
        if self._output is not None and not self._once:
            self._write(finished, self._output)
        return finished

    def _write(self, finished: Run, output: Path) -> None:
        try:
            write(finished, output, format_name="json" if self._as_json else None, redact=self._redact)
        except GpuwatchError as error:
            self._problem = error.message

    def end(self, finished: Run, *, quiet: bool) -> None:
        if self._output is not None and self._once:
            self._write(finished, self._output)
        if self._problem:
            print_line(f"gpuwatch: {self._problem}")
        if quiet:
            return
        text = render(finished, "text", width=_terminal_width())
        click.echo("\n" + with_links(text, sys.stderr), nl=False, err=True)
        if self._output is not None and not self._problem:
            print_written(self._output)


def _terminal_width() -> int | None:
    try:
        return os.get_terminal_size(2).columns if "COLUMNS" not in os.environ else None
    except OSError:
        return None


def _end_with_signal(number: int) -> None:
    """Exits as the program did, so that a shell or scheduler sees the same."""
    import resource
    import signal

    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    # The program has already dumped its core; ours would only replace it.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
