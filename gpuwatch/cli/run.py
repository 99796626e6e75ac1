"""``gpuwatch run``: watch the user's own program."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from gpuwatch.cli.completion import files
from gpuwatch.cli.options import FiniteRange, enter_simulation, sim_option
from gpuwatch.errors import UsageError
from gpuwatch.model.codec import to_json
from gpuwatch.model.run import Run
from gpuwatch.monitor.collector import Collector
from gpuwatch.probing.watch import watch


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--placement", is_flag=True, help="Switch TensorFlow's placement logging on.")
@click.option("--interval", type=FiniteRange(0.1, 60), default=0.5, show_default=True, help="Seconds between looks.")
@click.option("--json", "as_json", is_flag=True, help="With -o: JSON, whatever the suffix.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Write the run to a file; the suffix gives the format."
)
@click.option("-q", "--quiet", is_flag=True, help="No summary on stderr at the end.")
@sim_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...", shell_complete=files)
@click.pass_context
def run(
    ctx: click.Context,
    placement: bool,
    interval: float,
    as_json: bool,
    output: Path | None,
    quiet: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND unchanged and say what it did on the GPUs: devices, memory, fallbacks, failures.

    Its stdin, stdout and exit code are its own; the summary comes on stderr at the end.
    """
    if not command:
        raise UsageError("no command to run", hint="for example: gpuwatch run -- python train.py")
    if as_json and output is None:
        raise UsageError("--json needs -o FILE", hint="stdout belongs to the program")
    if shutil.which(command[0]) is None:
        raise UsageError(f"{command[0]}: there is no such program")
    if output is not None:
        from gpuwatch.cli.probe import check_output

        check_output(output, any_suffix=as_json)
    enter_simulation(ctx, "auto")
    from gpuwatch.diagnosis.complete import complete

    collector = Collector(interval)
    collector.start()
    try:
        before = collector.fresh(5.0)
        observed = watch(command, source=collector, before=before, placement=placement, simulation=_tier())
    finally:
        collector.stop()
    finished = complete(observed.run, observed.log, observed.before)
    _publish(finished, as_json, output, quiet)
    outcome = finished.outcome
    if outcome.signal is not None:
        _die_by(outcome.signal)
    ctx.exit(outcome.exit_code or 0)


def _tier() -> str | None:
    if not os.environ.get("GPUWATCH_SIM_STATE"):
        return None
    return "plugin" if os.environ.get("TF_PLUGGABLE_DEVICE_LIBRARY_PATH") else "driver"


def _publish(finished: Run, as_json: bool, output: Path | None, quiet: bool) -> None:
    from gpuwatch.reports.registry import render, write, write_text

    if output is not None:
        if as_json:
            from gpuwatch.reports.masking import masked

            write_text(to_json(masked(finished)), output)
        else:
            write(finished, output)
    if not quiet:
        click.echo("\n" + render(finished, "text"), nl=False, err=True)
        if output is not None:
            click.echo(f"written: {output}", err=True)


def _die_by(number: int) -> None:
    """Ends as the program did, so that a shell or scheduler sees the same."""
    import signal

    signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
    os.kill(os.getpid(), number)
