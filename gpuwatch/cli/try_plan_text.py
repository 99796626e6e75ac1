"""What ``gpuwatch try`` says before it runs a program: how often, under which settings, and how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.masking.mask_secrets import mask_command

if TYPE_CHECKING:
    from gpuwatch.cli.try_options import TryOptions
    from gpuwatch.experiment.trials.pilot_run import PilotRun
    from gpuwatch.experiment.trials.trial_plan import Configuration, Rule
    from gpuwatch.experiment.trials.trial_settings import NotTried


def times_text(settings: int, rounds: int, times: int, *, memory: bool = False) -> str:
    """``6 times (2 settings × 3 rounds)``."""
    if times == 1:
        return "once"
    in_rounds = f" × {rounds} rounds" if rounds > 1 else ""
    recorded = ", and once each to record its memory" if memory else ""
    return f"{times} times ({settings} setting{'' if settings == 1 else 's'}{in_rounds}{recorded})"


def expected_time(times: int, rule: Rule, start: PilotRun | None) -> str:
    """``2 min to 9 min``; empty if that is not known."""

    pair = None if start is None else start.run_seconds(rule)
    if pair is None:
        return ""
    least, most = (hours_minutes(times * seconds) for seconds in pair)
    return f"about {most}" if least == most else f"{least} to {most}"


def plan_text(
    asked: TryOptions, chosen: Sequence[Configuration], missing: Sequence[NotTried], rule: Rule, start: PilotRun
) -> str:
    """What would be run, and how long that would take."""

    width = max(
        len(name)
        for name in [*(configuration.name for configuration in chosen), *(setting.name for setting in missing)]
    )
    times = times_text(len(chosen), asked.rounds, len(chosen) * asked.times, memory=asked.memory)
    lines = [f"{mask_command(asked.command)} would run {times}, each measured {rule}:", ""]
    for configuration in chosen:
        label = configuration.setting.label + (", changes results" if configuration.setting.changes_results else "")
        lines.append(f"  {configuration.name:<{width}}  {label}".rstrip())
    lines += [f"  {setting.name:<{width}}  not tried: {setting.reason}" for setting in missing]
    expected = expected_time(len(chosen) * asked.times, rule, start)
    lines += [
        "",
        f"One start took {start.took:.1f} s. In total: {expected or 'not known in advance'}, at most "
        f"{hours_minutes(asked.budget)} (--budget); to stay within it, rounds are dropped, then settings.",
    ]
    return "\n".join(lines)
