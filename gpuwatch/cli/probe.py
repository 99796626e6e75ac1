"""``gpuwatch probe``: run configurations and say what each really did."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from gpuwatch.cli.choice import Choice
from gpuwatch.cli.completion import files, named
from gpuwatch.cli.keeping import keep, no_save_option
from gpuwatch.cli.options import FiniteRange, compiling_told, enter_simulation, progress_wanted, sim_option
from gpuwatch.cli.output import check_output, data, output_option, publish, redact_option
from gpuwatch.errors import EXIT_FINDING, EXIT_OK, EXIT_PROBE_BROKEN, UsageError
from gpuwatch.model.catalogue import ProbeEntry, ProbeList, RecipeList
from gpuwatch.model.codec import to_json
from gpuwatch.model.events import Event
from gpuwatch.model.run import Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.collector import Collector
from gpuwatch.probing.interpreter import FrameworkMissing, Interpreter, choose_interpreter
from gpuwatch.probing.locate import GROUPS, ProbeScript, find_probe, find_probes
from gpuwatch.probing.runner import ProbeOptions, Runner
from gpuwatch.probing.tiers import Tier

_SAMPLE_SECONDS = 0.1
_DEADLINE, _START = 180.0, 60.0
"""Seconds that a probe has at least where nobody chose, and those of them for its start."""
WORKLOADS = ("matmul", "mlp", "conv", "lstm", "copy")


@click.command()
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="NAME",
    shell_complete=named("configurations"),
    help="Configuration to run; repeatable.",
)
@click.option("--group", "groups", multiple=True, type=Choice(GROUPS), help="Every configuration of a group.")
@click.option("--all", "everything", is_flag=True, help="Every configuration.")
@click.option("--explain", is_flag=True, help="Print the settings as code to paste, and stop.")
@click.option("--list", "listing", is_flag=True, help="Name the configurations and stop.")
@click.option("--framework", type=Choice(["tensorflow", "torch"]), help="With --all: those of one framework.")
@click.option("--python", metavar="PATH", shell_complete=files, help="Interpreter in which the framework is installed.")
@click.option(
    "--seconds",
    type=FiniteRange(0.01, 3600),
    default=1.0,
    show_default=True,
    help="Time budget of each measurement.",
)
@click.option("--size", type=click.IntRange(16, 65536), help="Edge of the matrices (default: by the machine).")
@click.option("--workload", type=Choice(WORKLOADS), help="What to compute (default: the configuration's own).")
@click.option("--memory-limit", type=click.IntRange(min=1), metavar="MB", help="For configurations with a limit.")
@click.option("--fraction", type=FiniteRange(0, 1, min_open=True), help="For configurations with a fraction.")
@click.option(
    "--virtual", type=click.IntRange(min=1, max=16), help="Virtual GPUs, for the configuration that has them."
)
@click.option("--visible", metavar="LIST", help="CUDA_VISIBLE_DEVICES, for configurations that set it.")
@click.option("--gpu", metavar="UUID|INDEX,...", help="Let the probe see these GPUs only, in this order.")
@click.option(
    "--deadline",
    type=FiniteRange(1, 86400),
    show_default="180, more for long --seconds",
    help="Seconds after which a probe is killed.",
)
@click.option("--fresh", is_flag=True, help="Start every probe from nothing (default: the framework is imported once).")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout: a run, or a comparison of several.")
@output_option
@redact_option
@no_save_option
@click.option("--sim-tier", type=Choice(["driver", "plugin"]), help="How simulated GPUs reach TensorFlow.")
@sim_option
@click.pass_context
def probe(
    ctx: click.Context,
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
    memory_limit: int | None,
    fraction: float | None,
    virtual: int | None,
    visible: str | None,
    gpu: str | None,
    deadline: float | None,
    fresh: bool,
    as_json: bool,
    output: Path | None,
    redact: bool,
    no_save: bool,
    sim_tier: Tier | None,
) -> None:
    """Run small TensorFlow workloads under memory and placement settings, and report what happened."""
    if listing:
        _list(as_json)
        return
    scripts = _chosen(configs, groups, everything, framework)
    asked = {
        "workload": workload,
        "memory_limit": memory_limit,
        "fraction": fraction,
        "virtual": virtual,
        "visible": visible,
    }
    own = {name: value for name, value in asked.items() if value is not None}
    _check_options(scripts, own)
    if explain:
        from gpuwatch.probing.recipe import recipe

        recipes = {script.name: recipe(script, own) for script in scripts}
        if as_json:
            data(to_json(RecipeList(recipes=recipes)))
        else:
            click.echo("\n\n".join(recipes.values()), nl=False)
        return
    _deadline(scripts, seconds, deadline)
    check_output(output)
    enter_simulation(ctx)
    try:
        interpreters = _interpreters(scripts, python)
    except FrameworkMissing as error:
        if as_json:
            data(to_json(_not_run(scripts[0], error)))
        raise
    # One configuration alone gains nothing from a template.
    options = ProbeOptions(
        interpreters=interpreters,
        seconds=seconds,
        deadline=_deadline(scripts, seconds, deadline),
        own=own,
        fresh=fresh or len(scripts) == 1,
        tier=sim_tier,
    )
    runs: list[Run] = []
    try:
        _run_all(scripts, options, size, gpu, runs, save=not no_save)
    except KeyboardInterrupt:
        click.echo(f"gpuwatch: interrupted after {len(runs)} of {len(scripts)}", err=True)
        if runs:
            _publish(runs, as_json, output, redact=redact)
        raise
    _publish(runs, as_json, output, redact=redact)
    ctx.exit(_exit_code(runs))


def _deadline(scripts: list[ProbeScript], seconds: float, asked: float | None) -> float:
    """Seconds that each probe has; a deadline that the measurements alone would pass is refused."""
    script = max(scripts, key=lambda script: script.measurements)
    measuring = script.measurements * seconds
    ample = max(_DEADLINE, _START + 3 * measuring)
    if asked is None:
        return ample
    if measuring > asked:
        many = script.measurements > 1
        times = f"{script.measurements} measurements of --seconds {seconds:g} take" if many else "measuring takes"
        raise UsageError(
            f"{script.name} cannot end within --deadline {asked:g}: {times} {measuring:g} s",
            hint=f"use --deadline {ample:g}, or fewer --seconds",
        )
    return asked


def _interpreters(scripts: list[ProbeScript], asked: str | None) -> dict[str, Interpreter]:
    """An interpreter for each framework; one that lacks PyTorch still gets its probes, which say so."""
    found: dict[str, Interpreter] = {}
    for framework in dict.fromkeys(script.framework for script in scripts):
        try:
            found[framework] = choose_interpreter(framework, asked)
        except FrameworkMissing:
            if framework == "tensorflow" or len({script.framework for script in scripts}) == 1:
                raise
            path = asked or sys.executable
            found[framework] = Interpreter(path, framework, installed=False)
    return found


def _list(as_json: bool) -> None:
    if as_json:
        entries = tuple(
            ProbeEntry(config=s.name, group=s.group, framework=s.framework, title=s.title, summary=s.summary)
            for s in find_probes().values()
        )
        data(to_json(ProbeList(probes=entries)))
        return
    for script in find_probes().values():
        click.echo(f"{script.name:<22} {script.group:<12} {script.title}")


def _check_options(scripts: list[ProbeScript], own: Mapping[str, object]) -> None:
    """An option that nothing chosen has would be swallowed: it is said instead."""
    for name in own:
        if name != "workload" and not any(name in script.options for script in scripts):
            having = ", ".join(script.name for script in find_probes().values() if name in script.options)
            raise UsageError(
                f"--{name.replace('_', '-')} means nothing to {', '.join(script.name for script in scripts)}",
                hint=f"it is for {having}",
            )


def _chosen(
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
    scripts: list[ProbeScript],
    options: ProbeOptions,
    size: int | None,
    gpu: str | None,
    runs: list[Run],
    *,
    save: bool,
) -> None:
    """Runs the scripts one after another; ``runs`` grows as they end, and each is kept at once."""
    from gpuwatch.diagnosis.complete import complete

    collector = Collector(_SAMPLE_SECONDS)
    collector.start()
    try:
        taken = collector.wait(1, 5.0)
        machine = taken[-1] if taken else None
        chosen = msgspec.structs.replace(options, size=size or _size_for(machine), visible=_visible(gpu, machine))
        with Runner(chosen, collector) as runner:
            for number, script in enumerate(scripts, 1):
                before = collector.fresh(5.0)
                with _progress(script, number, len(scripts)) as on_event, compiling_told():
                    observed = runner.run(script, before=before, on_event=on_event)
                runs.append(complete(observed.run, observed.log, observed.before))
                # One line is enough where they cannot be kept.
                save = save and keep(runs[-1])
            for note in runner.notes:
                click.echo(f"gpuwatch: {note}", err=True)
    finally:
        collector.stop()


def _size_for(machine: Snapshot | None) -> int:
    """Large enough to measure the device, small enough for the time: one size for all runs."""
    if machine is None or not machine.devices:
        return 1024
    return 512 if machine.simulated else 4096


def _visible(gpu: str | None, machine: Snapshot | None) -> tuple[str, ...]:
    if gpu is None:
        return ()
    devices = () if machine is None else machine.devices
    chosen = []
    for wanted in gpu.split(","):
        wanted = wanted.strip()
        found = [d for d in devices if (str(d.index) == wanted if wanted.isdigit() else d.uuid.startswith(wanted))]
        if len(found) != 1 or not wanted:
            known = ", ".join(f"{d.index} {d.uuid}" for d in devices) or "none"
            raise UsageError(f"--gpu {wanted}: no such GPU", hint=f"GPUs here: {known}")
        if found[0].uuid in chosen:
            raise UsageError(f"--gpu {gpu}: GPU {found[0].index} is in it twice", hint="Name each GPU once.")
        chosen.append(found[0].uuid)
    return tuple(chosen)


@contextmanager
def _progress(script: ProbeScript, number: int, total: int) -> Iterator[Callable[[Event], None] | None]:
    """One line on a terminal that says what the probe is doing; nothing in a pipe."""
    if not progress_wanted():
        yield None
        return
    last = ""

    def show(event: Event) -> None:
        nonlocal last
        text = _doing(event)
        if text and text != last:
            last = text
            line = f"[{number}/{total}] {script.name}: {text}"
            sys.stderr.write("\r\x1b[K" + line[:100])
            sys.stderr.flush()

    sys.stderr.write(f"\r\x1b[K[{number}/{total}] {script.name}: starting the interpreter")
    sys.stderr.flush()
    try:
        yield show
    finally:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


def _doing(event: Event) -> str:
    data = event.data
    match event.kind:
        case "start":
            return "importing the framework"
        case "framework":
            return f"{data.get('name')} {data.get('version')} imported, starting the devices"
        case "devices":
            return "first step"
        case "placement":
            return f"{data.get('op')} on {str(data.get('actual', '')).rpartition('device:')[2]}, measuring"
        case "progress":
            return f"measuring, {data.get('steps')} steps in {data.get('seconds', 0):.1f} s"
        case "end":
            return "done"
    return ""


def _publish(runs: list[Run], as_json: bool, output: Path | None, *, redact: bool) -> None:
    from gpuwatch.reports.compare import compare

    document = runs[0] if len(runs) == 1 else compare(runs)
    publish(document, output, as_json=as_json, redact=redact)


def _not_run(script: ProbeScript, error: FrameworkMissing) -> Run:
    import datetime

    from gpuwatch.model.run import RunError

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


def _exit_code(runs: list[Run]) -> int:
    if any(run.verdict in ("error", "timeout") for run in runs):
        return EXIT_PROBE_BROKEN
    if any(finding.severity == "error" for run in runs for finding in run.findings):
        return EXIT_FINDING
    return EXIT_OK
