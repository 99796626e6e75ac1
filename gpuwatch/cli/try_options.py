"""The options of ``gpuwatch try``, checked before a program is started."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuwatch.cli.shared_options import check_gpus
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import hours_minutes

if TYPE_CHECKING:
    from gpuwatch.experiment.trials.largest_value import Span
    from gpuwatch.experiment.trials.trial_plan import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """The options of one ``gpuwatch try``."""

    command: tuple[str, ...]
    configs: tuple[str, ...]
    vary: dict[str, tuple[str, ...]]
    largest: Span | None
    rounds: int
    rule: Rule
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


def checked_options(
    command: tuple[str, ...],
    *,
    vary: tuple[str, ...],
    largest: str | None,
    stop_after: str | None,
    success: str | None,
    fits: str | None,
    **given: Any,
) -> TryOptions:
    """The options, checked as far as that is possible without the machine."""
    from gpuwatch.experiment.trials import trial_plan
    from gpuwatch.experiment.trials.largest_value import parse_span
    from gpuwatch.experiment.trials.smaller_card import parse_cards
    from gpuwatch.experiment.trials.trial_settings import setting_named

    if not command or not command[0]:
        raise UsageError("no command to run", hint="for example: gpuwatch try -- python train.py")
    _check_forms(vary, stop_after, {**given, "largest": largest, "fits": fits})
    if success is not None and stop_after not in (None, "end"):
        raise UsageError("--success needs --stop-after end", hint="omit --stop-after")
    for text in given["configs"]:
        setting_named(text)
    if (largest is not None or fits is not None) and len(given["configs"]) > 1:
        form = "--fits" if largest is None else "--largest"
        raise UsageError(f"{form} takes one --config", hint="run one search per setting")
    check_gpus(given["gpu"])
    try:
        pattern = None if success is None else re.compile(success)
    except re.error as error:
        raise UsageError(f"--success {success}: not a regular expression: {error}") from error
    return TryOptions(
        command=command,
        vary=trial_plan.parse_vary(vary, command),
        largest=None if largest is None else parse_span(largest, command),
        has_stop_rule=stop_after is not None or success is not None,
        rule=trial_plan.parse_rule(stop_after or ("end" if success is not None else "steady")),
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
