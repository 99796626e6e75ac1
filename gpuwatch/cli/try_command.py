"""``gpuwatch try``: runs a user's program under several settings, and compares the runs."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.completion import complete_files
from gpuwatch.cli.option_types import Duration
from gpuwatch.cli.output import Output, no_save_option, output_options, print_line, save_run
from gpuwatch.cli.run_on_nodes import NodeCommand, nodes_options, refuse_with_nodes, run_on_nodes
from gpuwatch.cli.shared_options import check_gpus, chosen_gpus
from gpuwatch.cli.sim_options import enter_simulation, sim_option, sim_tier_option, tier_in_use
from gpuwatch.core.errors import EXIT_OK, EXIT_PROBE_BROKEN, UsageError
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.masking.mask_secrets import mask_command

if TYPE_CHECKING:
    from gpuwatch.core.model.try_results import Experiment, Trial
    from gpuwatch.experiment.trials.interleaved_rounds import PilotRun
    from gpuwatch.experiment.trials.largest_value import ValueRange
    from gpuwatch.experiment.trials.trial_plan import Configuration, StopRule
    from gpuwatch.experiment.trials.trial_settings import TrialSetting
    from gpuwatch.experiment.trials.trial_setup import TrialSetup

_EXAMPLES = """\b
Examples:
  gpuwatch try -- python train.py
  gpuwatch try --plan -- python train.py
  gpuwatch try --config default --config limit=6GiB -o try.html -- python train.py
  gpuwatch try --vary BATCH=32,64,128 -- python train.py --batch {BATCH}
  gpuwatch try --memory --vary BATCH=32,64 -- python train.py --batch {BATCH}
  gpuwatch try --largest BATCH=32..4096 -- python train.py --batch {BATCH}
  gpuwatch try --recover -- python train.py
  gpuwatch try --fits 16GiB,24GiB,80GiB -- python train.py
  gpuwatch try --copies 2 --config growth -- python train.py
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options:
    """The options of one ``gpuwatch try``."""

    command: tuple[str, ...]
    configs: tuple[str, ...]
    vary: dict[str, tuple[str, ...]]
    largest: ValueRange | None
    rounds: int
    rule: StopRule
    has_stop_rule: bool
    """Whether the user said when a run ends."""
    success: re.Pattern[str] | None
    budget: float
    """Seconds that the whole may take."""
    copies: int | None
    recover: bool
    fits: tuple[tuple[str, int], ...]
    memory: bool
    plan: bool
    isolate: bool
    gpu: str | None
    share: bool
    quiet: bool

    @property
    def runs_per_setting(self) -> int:
        """How often each setting is run, if the budget allows."""
        return 1 + self.copies if self.copies else self.rounds + self.memory

    @property
    def limit_text(self) -> str:
        """``at most 10 min (--budget)``."""
        return f"at most {hours_minutes(self.budget)} (--budget)"


@click.command("try", cls=NodeCommand, epilog=_EXAMPLES, context_settings={"allow_interspersed_args": False})
@click.option(
    "--config",
    "configs",
    multiple=True,
    metavar="SETTING",
    help="Try this setting; repeatable (default: those that suit the framework).",
)
@click.option(
    "--vary",
    multiple=True,
    metavar="NAME=A,B,...",
    help="Replace {NAME} in COMMAND with each of these values; repeatable.",
)
@click.option(
    "--largest",
    metavar="NAME=LOW..HIGH[:STEP]",
    help="Find the largest value for {NAME} in COMMAND that fits in GPU memory.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=3,
    show_default=True,
    metavar="N",
    help="Run each setting N times, in turn (A B C A B C).",
)
@click.option(
    "--stop-after",
    metavar="WHEN",
    help="End a run after N steps (200steps), after a time (60s), at its own exit (end), or when its step time is "
    "steady (default: steady).",
)
@click.option(
    "--success", metavar="REGEX", help="Count a run as successful, and end it, when a line of its output matches REGEX."
)
@click.option(
    "--budget",
    type=Duration(0.001, 1e9),
    default="10min",
    show_default=True,
    help="Drop rounds, then settings, to finish within this time.",
)
@click.option(
    "--copies",
    type=click.IntRange(2, 16),
    metavar="N",
    help="Run N copies at once on one GPU: how memory is shared, and how much each slows down.",
)
@click.option(
    "--recover", is_flag=True, help="If COMMAND runs out of memory, find and verify a setting that lets it finish."
)
@click.option(
    "--fits", metavar="SIZE,...", help="Find the smallest card of these sizes on which COMMAND would run: 16GiB,24GiB."
)
@click.option(
    "--memory", is_flag=True, help="Run each setting once more and record who holds the memory: op, shape, layer."
)
@click.option("--plan", is_flag=True, help="Start COMMAND once, briefly; print what would be run, and exit.")
@click.option("--isolate", is_flag=True, help="Give each run a fresh working folder and TMPDIR, removed after it.")
@click.option("--gpu", metavar="UUID|INDEX,...", help="Let COMMAND see only these GPUs, in this order.")
@click.option("--share", is_flag=True, help="Also run on GPUs that other programs use.")
@output_options("Print JSON (gpuwatch.try/1).")
@no_save_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer.")
@nodes_options
@sim_option
@sim_tier_option()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...", shell_complete=complete_files)
@click.pass_context
def experiment(
    ctx: click.Context, /, output: Output, no_save: bool, tier: str, command: tuple[str, ...], **given: Any
) -> None:
    """Run a program under several settings and compare the runs.

    COMMAND is run once for each setting and round, unchanged: settings reach it through its environment, or at its
    first use of a GPU. Each run does the same number of steps and is then stopped (SIGINT, after 5 s SIGTERM, then
    SIGKILL). Each run writes COMMAND's output files again; to keep them apart, use {run} in COMMAND or
    GPUWATCH_TRY_RUN in its environment, which name the run, or --isolate, which gives each run its own folder. The
    answer comes first: the setting that helps, as code to paste.

    Settings: default, growth, limit=6GiB, grow-to-limit=6GiB, fraction=0.5, async-allocator, mixed-float16, xla,
    visible=1, cpu-only (TensorFlow); expandable-segments, fraction=0.5, tf32 (PyTorch); no-preallocate,
    platform-allocator (JAX); VARIABLE=value. Exits with 4 if no run succeeded, no setting let it finish (--recover), or
    no card is large enough (--fits).
    """
    from gpuwatch.experiment.trials.trial_results import Interrupted

    options = _checked_options(command, **given)
    refuse_with_nodes(ctx, plan=options.plan, quiet=options.quiet)
    run_on_nodes(ctx, output)
    enter_simulation(ctx, tier, command, private=True)
    try:
        document, interrupted = _run_trials(options)
    except Interrupted as first:  # at the first start, when nothing is known yet
        ctx.exit(128 + first.number)
    if document is None:
        return
    if not no_save:
        save_run(document)
    if options.quiet and not output.as_json and output.file is None:
        click.echo(document.answer.sentence)
    else:
        output.publish(document)
    if interrupted is not None:
        ctx.exit(128 + interrupted)
    ctx.exit(EXIT_OK if _succeeded(document) else EXIT_PROBE_BROKEN)


def _checked_options(
    command: tuple[str, ...],
    *,
    vary: tuple[str, ...],
    largest: str | None,
    stop_after: str | None,
    success: str | None,
    fits: str | None,
    **given: Any,
) -> _Options:
    """The options, checked as far as that is possible without the machine."""
    from gpuwatch.experiment.trials import trial_plan
    from gpuwatch.experiment.trials.largest_value import parse_value_range
    from gpuwatch.experiment.trials.smaller_card import parse_cards
    from gpuwatch.experiment.trials.trial_settings import find_setting

    if not command or not command[0]:
        raise UsageError("no command to run", hint="for example: gpuwatch try -- python train.py")
    _check_forms(vary, stop_after, {**given, "largest": largest, "fits": fits})
    if success is not None and stop_after not in (None, "end"):
        raise UsageError("--success needs --stop-after end", hint="omit --stop-after")
    for text in given["configs"]:
        find_setting(text)
    if (largest is not None or fits is not None) and len(given["configs"]) > 1:
        form = "--fits" if largest is None else "--largest"
        raise UsageError(f"{form} takes one --config", hint="run one search per setting")
    check_gpus(given["gpu"])
    try:
        pattern = None if success is None else re.compile(success)
    except re.error as error:
        raise UsageError(f"--success {success}: not a regular expression: {error}") from error
    return _Options(
        command=command,
        vary=trial_plan.parse_varied_values(vary, command),
        largest=None if largest is None else parse_value_range(largest, command),
        has_stop_rule=stop_after is not None or success is not None,
        rule=trial_plan.parse_stop_rule(stop_after or ("end" if success is not None else "steady")),
        success=pattern,
        fits=() if fits is None else parse_cards(fits),
        **given,
    )


def _check_forms(vary: tuple[str, ...], stop_after: str | None, given: dict[str, Any]) -> None:
    """Rejects options that a form of the experiment has no use for."""
    forms = [f"--{name}" for name in ("copies", "recover", "largest", "fits") if given[name]]
    if len(forms) > 1:
        raise UsageError(f"{' and '.join(forms)} cannot be combined", hint="use only one of them")
    options = {
        "--vary": vary,
        "--config": given["configs"],
        "--stop-after": stop_after,
        "--memory": given["memory"],
        "--plan": given["plan"],
    }
    unusable = {
        "--recover": tuple(options),
        "--copies": ("--memory", "--plan"),
        "--largest": ("--vary", "--memory"),
        "--fits": ("--vary", "--memory", "--plan"),
    }
    for form in forms:
        for name in unusable[form]:
            if options[name]:
                raise UsageError(f"{name} does not apply to {form}", hint=f"omit {name}")


def _run_trials(options: _Options) -> tuple[Experiment | None, int | None]:
    """Runs the trials: the document (None after ``--plan``), and the signal that broke them off."""
    from msgspec.structs import replace

    from gpuwatch.cli.trial_progress import make_progress
    from gpuwatch.experiment.trials.trial_setup import open_setup, remove_output_files

    began = time.monotonic()
    quiet, simulation = options.quiet or options.plan, tier_in_use()
    with open_setup(
        options.command,
        simulation=simulation,
        success=options.success,
        isolate=options.isolate,
        progress=make_progress(options.budget, quiet=quiet, simulated=simulation is not None),
    ) as setup:
        if options.gpu is not None:
            setup.variables = {"CUDA_VISIBLE_DEVICES": ",".join(chosen_gpus(options.gpu, setup.machine))}
        rule, document = options.rule.for_gpus(simulated=setup.simulated), setup.experiment
        document.rule = str(rule)
        if options.largest is None:
            _run_experiment(setup, options, rule)
        else:
            _try_largest(setup, options, options.largest)
        # In a search for a border, failures are what is looked for.
        keeps_output = _trial_failed if document.needed_bytes is None else lambda trial: False
        remove_output_files(setup.folder, document.trials, keeps_output)
    document.took_seconds = time.monotonic() - began
    document.trials = tuple(trial if keeps_output(trial) else replace(trial, output="") for trial in document.trials)
    return None if options.plan and not document.trials else document, setup.interrupted


def _succeeded(document: Experiment) -> bool:
    """Whether a setting makes it pass, a card fits, or else a run passed."""
    if document.recover:
        return any(recovery.verified for recovery in document.recover)
    if document.fits:
        return any(fit.fits for fit in document.fits)
    return any(trial.run is not None and not _trial_failed(trial) for trial in document.trials)


def _trial_failed(trial: Trial) -> bool:
    from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS

    return trial.run is not None and trial.run.verdict not in (*PASSED_VERDICTS, "interrupted")


def _run_experiment(setup: TrialSetup, options: _Options, rule: StopRule) -> None:
    """Runs the trials, or says what would be run (``--plan``)."""
    from gpuwatch.core.model.try_results import Trial
    from gpuwatch.experiment.trials.concurrent_copies import run_copies
    from gpuwatch.experiment.trials.interleaved_rounds import conclude_from_pilot, run_in_rounds, run_pilot
    from gpuwatch.experiment.trials.oom_recovery import find_recovery
    from gpuwatch.experiment.trials.smaller_card import find_smaller_card
    from gpuwatch.experiment.trials.trial_plan import combine_settings_and_values
    from gpuwatch.experiment.trials.trial_settings import default_settings, find_setting, why_not_simulated

    if options.recover or options.fits:
        _check_free(setup, options, {})
        if not options.quiet:
            condition = "several times, with less and less memory"
            if options.recover:
                condition = "until it runs out of memory, then with each setting that might help, up to three times"
            print_line(f"gpuwatch: {mask_command(options.command)} runs {condition}; {options.limit_text}")
        if options.recover:
            find_recovery(setup, budget=options.budget, share=options.share)
            return
        setting = _usable_setting(options.configs[0] if options.configs else "default", setup)
        (configuration,) = combine_settings_and_values([setting], {})
        find_smaller_card(setup, configuration, options.fits, rule, budget=options.budget)
        return
    began = time.monotonic()
    start = None
    if options.plan or not (options.configs or options.vary):
        _check_free(setup, options, {})
        if not options.quiet:
            print_line(f"gpuwatch: starting {mask_command(options.command)} once to see which framework it loads")
        start = run_pilot(setup, options.budget)
    if len(options.configs) == 1 or (options.configs and options.copies):
        settings = [(_usable_setting(text, setup), "") for text in options.configs]
    elif options.configs:
        settings = [(named, why_not_simulated(named, setup.simulation)) for named in map(find_setting, options.configs)]
    elif options.vary or start is None:
        settings = [(find_setting("default"), "")]
    else:
        settings = default_settings(start.frameworks, setup.gpus, setup.simulation)
    chosen = combine_settings_and_values([setting for setting, reason in settings if not reason], options.vary)
    not_tried = [Trial(asked=setting.name, not_tried=reason) for setting, reason in settings if reason]
    if start is not None and (start.failed or (start.on_cpu and not (options.configs or options.vary))):
        conclude_from_pilot(setup.experiment, start.trial)
        return
    if options.plan:
        assert start is not None
        click.echo(_plan_text(options, chosen, not_tried, rule, start))
        return
    if not options.quiet:
        _print_announcement(options, len(chosen), rule, start)
    seconds_left = max(options.budget - (time.monotonic() - began), 1.0)
    if options.copies:
        run_copies(setup, chosen, rule, copies=options.copies, budget=seconds_left, share=options.share)
        return
    run_in_rounds(
        setup,
        chosen,
        not_tried,
        rule,
        rounds=options.rounds,
        budget=seconds_left,
        share=options.share,
        memory=options.memory,
    )


def _try_largest(setup: TrialSetup, options: _Options, span: ValueRange) -> None:
    """Runs the search of ``--largest``, or says what would be run (``--plan``)."""
    from gpuwatch.experiment.trials.largest_value import find_largest_value

    setting = _usable_setting(options.configs[0] if options.configs else "default", setup)
    _check_free(setup, options, setting.variables)
    runs = (
        f"at most {span.max_runs} times with values of {span.name} from {span.low} to {span.high} ({setting.name}), in"
        f" {options.limit_text}"
    )
    if options.plan:
        click.echo(f"{mask_command(options.command)} would run {runs}.")
        return
    if not options.quiet:
        print_line(f"gpuwatch: {mask_command(options.command)} runs {runs}")
    find_largest_value(setup, setting, span, options.rule if options.has_stop_rule else None, budget=options.budget)


def _usable_setting(text: str, setup: TrialSetup) -> TrialSetting:
    """The setting of this name. UsageError if it cannot be tried on these GPUs."""
    from gpuwatch.experiment.trials.trial_settings import find_setting, why_not_simulated

    setting = find_setting(text)
    if reason := why_not_simulated(setting, setup.simulation):
        raise UsageError(f"--config {text}: {reason}", hint="choose another setting")
    return setting


def _check_free(setup: TrialSetup, options: _Options, variables: Mapping[str, str]) -> None:
    """Raises UsageError if others use the GPUs that the program would see, without ``--share``."""
    if not options.share and (in_use := setup.describe_gpu_users(variables)):
        raise UsageError(in_use, hint="--gpu chooses other GPUs; --share runs there anyway")


def _print_announcement(options: _Options, setting_count: int, rule: StopRule, start: PilotRun | None) -> None:
    """Says how often the program will run, before it does."""
    run_count = setting_count * options.runs_per_setting
    note = ""
    if run_count > 1 and not options.isolate:
        note = f"; its output files are written {run_count} times (see --isolate, {{run}})"
    expected = _expected_time(run_count, rule, start)
    print_line(
        f"gpuwatch: {mask_command(options.command)} runs {_times_text(options, setting_count)},"
        f" in {f'{expected}, ' if expected else ''}{options.limit_text}{note}"
    )


def _plan_text(
    options: _Options, chosen: Sequence[Configuration], not_tried: Sequence[Trial], rule: StopRule, start: PilotRun
) -> str:
    """What would be run, and how long that would take."""
    width = max(len(name) for name in (*(c.name for c in chosen), *(trial.name for trial in not_tried)))
    run_count = len(chosen) * options.runs_per_setting
    command, often = mask_command(options.command), _times_text(options, len(chosen))
    lines = [f"{command} would run {often}, each measured {rule}:", ""]
    for configuration in chosen:
        label = configuration.setting.label + (", changes results" if configuration.setting.changes_results else "")
        lines.append(f"  {configuration.name:<{width}}  {label}".rstrip())
    lines += [f"  {trial.name:<{width}}  not tried: {trial.not_tried}" for trial in not_tried]
    expected = _expected_time(run_count, rule, start) or "not known in advance"
    lines += [
        "",
        f"One start took {start.seconds:.1f} s. In total: {expected}, {options.limit_text}; to stay within it, rounds "
        "are dropped, then settings.",
    ]
    return "\n".join(lines)


def _times_text(options: _Options, setting_count: int) -> str:
    """``6 times (2 settings × 3 rounds)``."""
    run_count = setting_count * options.runs_per_setting
    if run_count == 1:
        return "once"
    rounds = f" × {options.rounds} rounds" if options.rounds > 1 and not options.copies else ""
    recorded = ", and once each to record its memory" if options.memory else ""
    return f"{run_count} times ({count_text(setting_count, 'setting')}{rounds}{recorded})"


def _expected_time(run_count: int, rule: StopRule, start: PilotRun | None) -> str:
    """``2 min to 9 min``; empty if that is not known."""
    pair = None if start is None else start.run_seconds(rule)
    if pair is None:
        return ""
    least, most = (hours_minutes(run_count * seconds) for seconds in pair)
    return f"about {most}" if least == most else f"{least} to {most}"
