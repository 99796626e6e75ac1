"""``gpuwatch probe``: runs configurations and reports what each one did."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from gpuwatch.cli.completion import complete_names
from gpuwatch.cli.option_types import Choice, Duration, FiniteRange
from gpuwatch.cli.output import Output, no_save_option, output_options, print_document, print_line, save_run
from gpuwatch.cli.progress import compile_notice, progress, progress_wanted
from gpuwatch.cli.run_on_nodes import NodeCommand, nodes_options, refuse_with_nodes, run_on_nodes
from gpuwatch.cli.shared_options import check_gpus, chosen_gpus, python_option
from gpuwatch.cli.sim_options import enter_simulation, offer_simulation, sim_option, sim_tier_option
from gpuwatch.core.errors import EXIT_FINDING, EXIT_OK, EXIT_PROBE_BROKEN, UsageError
from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.model.json_codec import to_json
from gpuwatch.core.model.probes import Event, ProbeEntry, ProbeList, RecipeList
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import FrameworkMissing, find_interpreters, resolve_python
from gpuwatch.experiment.probing.probe_runner import ProbeOptions
from gpuwatch.experiment.probing.probe_scripts import (
    DEADLINE_SECONDS,
    GROUPS,
    MEASUREMENT_SECONDS,
    WORKLOADS,
    ProbeScript,
    find_probe,
    find_probes,
    sufficient_deadline,
)
from gpuwatch.session.probe_batch import ProbeBatch, plan_preflight

_EXAMPLES = """\b
Examples:
  gpuwatch probe --list
  gpuwatch probe --config default --config growth
  gpuwatch probe --group memory -o memory.html
  gpuwatch probe --config growth --explain
  gpuwatch probe --config default --on slurm:gpu -o cluster.html
"""


@click.command(cls=NodeCommand, epilog=_EXAMPLES)
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_names("config"),
    help="Run this configuration; repeatable.",
)
@click.option("--group", "groups", multiple=True, type=Choice(GROUPS), help="Run all configurations of a group.")
@click.option("--all", "everything", is_flag=True, help="Run every configuration.")
@click.option("--explain", is_flag=True, help="Print the settings as code to paste, and exit.")
@click.option("--list", "listing", is_flag=True, help="List the configurations, and exit.")
@click.option(
    "--framework",
    type=Choice(["tensorflow", "torch"]),
    help="With --all or --group: only configurations of this framework.",
)
@python_option
@click.option(
    "--seconds",
    type=FiniteRange(0.01, 3600),
    default=MEASUREMENT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Measure for this long.",
)
@click.option(
    "--size",
    type=click.IntRange(16, 65536),
    metavar="N",
    help="Use N x N matrices (default: chosen for the machine).",
)
@click.option("--workload", type=Choice(WORKLOADS), help="Run this workload (default: the configuration's own).")
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1),
    metavar="MB",
    help="Set this memory limit, in configurations that set one.",
)
@click.option(
    "--fraction",
    type=FiniteRange(0, 1, min_open=True),
    metavar="F",
    help="Set this memory fraction, in configurations that set one.",
)
@click.option("--virtual", type=click.IntRange(min=1, max=16), metavar="N", help="Set the number of virtual GPUs.")
@click.option("--visible", metavar="LIST", help="Set CUDA_VISIBLE_DEVICES, in configurations that set it.")
@click.option("--gpu", metavar="UUID|INDEX,...", help="Let probes see only these GPUs, in this order.")
@click.option(
    "--deadline",
    type=Duration(1.0, 86_400.0),
    help=f"Kill a probe after this long (default: {DEADLINE_SECONDS:g}s, more for long --seconds).",
)
@click.option(
    "--fresh", is_flag=True, help="Start a new interpreter for every probe (default: import the framework once)."
)
@output_options("Print JSON: a run, or a comparison of several.")
@no_save_option
@nodes_options
@sim_tier_option()
@sim_option
@click.pass_context
def probe(
    ctx: click.Context,
    /,
    configs: tuple[str, ...],
    groups: tuple[str, ...],
    everything: bool,
    explain: bool,
    listing: bool,
    framework: str | None,
    python: str | None,
    seconds: float,
    size: int | None,
    workload: str | None,
    gpu: str | None,
    deadline: float | None,
    fresh: bool,
    output: Output,
    no_save: bool,
    tier: str,
    **settings: Any,
) -> None:
    """Try memory and placement settings on small workloads.

    Reports for each configuration what was requested, what was granted, what ran where, what failed, and how fast it
    was, and compares several configurations. Exits with 4 if a probe failed or reached its deadline, and with 3 if a
    finding is an error.
    """
    refuse_with_nodes(ctx, list=listing, explain=explain)
    if listing:
        _list(output.as_json)
        return
    scripts = _chosen_scripts(configs, groups, everything, framework)
    values = {name: value for name, value in {"workload": workload, **settings}.items() if value is not None}
    _check_options(scripts, values)
    _check_workload(scripts, configs, workload)
    if explain:
        from gpuwatch.experiment.probing.probe_scripts import example_code

        recipes = {script.name: example_code(script, values) for script in scripts}
        if output.as_json:
            print_document(to_json(RecipeList(recipes=recipes)))
        else:
            click.echo("\n\n".join(recipes.values()), nl=False)
        return
    deadline = _probe_deadline(scripts, seconds, deadline)
    check_gpus(gpu)
    run_on_nodes(ctx, output)
    if python is not None:
        resolve_python(python)
    enter_simulation(ctx, "driver" if tier == "auto" else tier, private=True)
    try:
        interpreters = find_interpreters((script.framework for script in scripts), python)
    except FrameworkMissing as error:
        if output.as_json:
            print_document(to_json(_run_not_started(scripts[0], error)))
        raise
    # A template interpreter does not pay for one configuration.
    options = ProbeOptions(
        interpreters=interpreters,
        seconds=seconds,
        deadline=deadline,
        config_options=values,
        always_fresh=fresh or len(scripts) == 1,
        tier=None if tier == "auto" else "driver" if tier == "driver" else "plugin",
    )
    runs: list[Run] = []
    try:
        _run_all(scripts, options, size, gpu, runs, save=not no_save)
    except KeyboardInterrupt:
        print_line(f"gpuwatch: interrupted after {len(runs)} of {len(scripts)}")
        if runs:
            _publish(runs, output)
        raise
    _publish(runs, output)
    offer_simulation(ctx)
    if any(run.verdict in ("error", "timeout") for run in runs):
        ctx.exit(EXIT_PROBE_BROKEN)
    bad = any(finding.severity == "error" for run in runs for finding in run.findings)
    ctx.exit(EXIT_FINDING if bad else EXIT_OK)


def _probe_deadline(scripts: list[ProbeScript], seconds: float, deadline: float | None) -> float:
    """The deadline of each probe in seconds; UsageError if the measurements alone would take longer."""
    script = max(scripts, key=lambda script: script.measurements)
    measuring = script.measurements * seconds
    ample = sufficient_deadline(scripts, seconds)
    if deadline is None:
        return ample
    if measuring > deadline:
        many = script.measurements > 1
        times = f"{script.measurements} measurements of --seconds {seconds:g} take" if many else "measuring takes"
        raise UsageError(
            f"{script.name} cannot finish within --deadline {deadline:g}: {times} {measuring:g} s",
            hint=f"use --deadline {ample:g}, or fewer --seconds",
        )
    return deadline


def _list(as_json: bool) -> None:
    if as_json:
        entries = tuple(
            ProbeEntry(config=s.name, group=s.group, framework=s.framework, title=s.title, summary=s.summary)
            for s in find_probes().values()
        )
        print_document(to_json(ProbeList(probes=entries)))
        return
    for script in find_probes().values():
        click.echo(f"{script.name:<22} {script.group:<12} {script.title}")


def _check_options(scripts: list[ProbeScript], values: Mapping[str, object]) -> None:
    """Rejects an option that no chosen configuration has."""
    for name in values:
        if name != "workload" and not any(name in script.options for script in scripts):
            having = ", ".join(script.name for script in find_probes().values() if name in script.options)
            raise UsageError(
                f"--{name.replace('_', '-')} does not apply to {', '.join(script.name for script in scripts)}",
                hint=f"it applies to {having}",
            )


def _check_workload(scripts: list[ProbeScript], named: tuple[str, ...], workload: str | None) -> None:
    """Rejects a workload that a named configuration cannot do; for members of a group it prints a note."""
    fixed = [script for script in scripts if script.own_work and workload not in (None, script.workload)]
    refused = [script for script in fixed if script.name in named]
    if refused:
        works = ", ".join(f"{script.name} ({script.workload})" for script in refused)
        raise UsageError(
            f"--workload {workload} does not apply to configurations with their own work: {works}",
            hint="omit --workload; other configurations, such as default or limit, run any workload",
        )
    if fixed:
        names = ", ".join(script.name for script in fixed)
        print_line(f"gpuwatch: --workload {workload} does not apply to configurations with their own work: {names}")


def _chosen_scripts(
    configs: tuple[str, ...], groups: tuple[str, ...], everything: bool, framework: str | None
) -> list[ProbeScript]:
    chosen = {name: find_probe(name) for name in configs}
    for script in find_probes().values():
        if (everything or script.group in groups) and framework in (None, script.framework):
            chosen.setdefault(script.name, script)
    if not chosen:
        raise UsageError(
            "nothing to run", hint="name a configuration: --config growth, --group memory, --all or --list"
        )
    return list(chosen.values())


def _run_all(
    scripts: list[ProbeScript], options: ProbeOptions, size: int | None, gpu: str | None, runs: list[Run], *, save: bool
) -> None:
    """Runs the scripts one after another; each run is saved and added to ``runs`` as it ends."""
    with ProbeBatch() as batch:
        machine = batch.machine()
        visible = _idle_gpus(scripts, machine) if gpu is None else chosen_gpus(gpu, machine)
        batch.open(msgspec.structs.replace(options, visible_uuids=visible), machine=machine, size=size)
        for number, script in enumerate(scripts, 1):
            with _show_progress(script, number, len(scripts)) as on_event, compile_notice():
                runs.append(batch.run(script, on_event))
            # If saving fails, report it once.
            save = save and save_run(runs[-1])
        for note in batch.notes:
            print_line(f"gpuwatch: {note}")


def _idle_gpus(scripts: list[ProbeScript], machine: Snapshot | None) -> tuple[str, ...]:
    """UUIDs of the idle GPUs if they are enough for the probes; empty for all GPUs, or if the user chose."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return ()
    plan = plan_preflight(scripts, machine, "")
    if plan.busy_devices:
        skipped = gpu_list_text(device.index for device in plan.busy_devices)
        every = ",".join(map(str, sorted(device.index for device in (*plan.busy_devices, *plan.devices))))
        print_line(f"gpuwatch: {skipped} skipped: in use (--gpu {every} uses all)")
    return plan.visible


@contextmanager
def _show_progress(script: ProbeScript, number: int, total: int) -> Iterator[Callable[[Event], None] | None]:
    """Shows the probe's latest event on a terminal, in one line; in a pipe that it runs."""
    head = f"[{number}/{total}] {script.name}: "

    def show(event: Event) -> None:
        from gpuwatch.ui.details.probe_descriptions import event_span

        text, _ = event_span(event)
        if text:
            progress((head + text)[:98])

    progress(f"{head}starting the interpreter")
    try:
        yield show if progress_wanted() else None
    finally:
        progress("")


def _publish(runs: list[Run], output: Output) -> None:
    from gpuwatch.share.reports.runs_side_by_side import compare

    output.publish(runs[0] if len(runs) == 1 else compare(runs))


def _run_not_started(script: ProbeScript, error: FrameworkMissing) -> Run:
    import datetime

    from gpuwatch.core.model.run import RunError

    return Run(
        config=script.name,
        title=script.title,
        group=script.group,
        workload=script.workload,
        simulated=False,
        started_at=datetime.datetime.now(datetime.UTC),
        verdict="error",
        verdict_reason=f"{error.message}; {error.hint}",
        errors=(RunError(type="ModuleNotFoundError", message=error.message),),
    )
