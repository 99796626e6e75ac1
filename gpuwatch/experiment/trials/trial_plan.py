"""What an experiment runs: settings and varied values, when a measurement ends, how often, and for how long."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import hours_minutes, parse_duration
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.try_results import configuration_name
from gpuwatch.experiment.trials.trial_settings import TrialSetting

MIN_STEP_SECONDS = 2.0
"""Seconds of steps before a measurement can be steady: clocks and caches settle."""
SIMULATED_STEPS = 20
"""Steps of a run on simulated GPUs, whose speeds are not compared."""
MAX_SECONDS_TO_STEADY = 20.0
"""Seconds of steps after which a measurement that has not become steady ends."""
MAX_SECONDS_WITHOUT_STEPS = 30.0
"""Seconds on a GPU after which a measurement without a counted step ends, unless the user chose when it ends."""
_STEPS_PATTERN = re.compile(r"(\d{1,9}) ?steps?")
_MAX_SECONDS = 1e9
"""Seconds; Python cannot wait much longer."""
_NAME_PATTERN = re.compile(r"[A-Za-z_]\w*")
_MAX_CONFIGURATIONS = 64
"""Configurations of one experiment."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """When the measurement of a run ends (``--stop-after``)."""

    kind: Literal["steady", "steps", "seconds", "end"]
    amount: float = 0.0
    min_step_seconds: float = 0.0
    """Seconds of steps that it takes at least: other processes of the program may still be starting."""
    uncounted_seconds: float | None = None
    """Seconds on a GPU after which it ends if no step could be counted; None: never."""

    def for_gpus(self, *, simulated: bool) -> StopRule:
        """The rule on these GPUs: nothing has to be steady where speeds are not compared."""
        if self.kind != "steady":
            return self
        return StopRule("steps", SIMULATED_STEPS, 1.0, self.uncounted_seconds) if simulated else self

    def __str__(self) -> str:
        match self.kind:
            case "steps":
                return f"after {'at least ' if self.min_step_seconds else ''}{count_text(round(self.amount), 'step')}"
            case "seconds":
                return f"after {hours_minutes(self.amount)} of steps"
            case "end":
                return "at the end of the program"
            case _:
                return "until the step time is known to within 2 %"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The program under one setting, with one value for each varied name."""

    setting: TrialSetting
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``growth``, ``growth BATCH=32``."""
        return configuration_name(self.setting.name, dict(self.values))

    @property
    def slug(self) -> str:
        return re.sub(r"[^A-Za-z0-9._]+", "-", self.name).strip("-.")[:60] or "run"


def parse_stop_rule(text: str) -> StopRule:
    """``200steps``, ``60s``, ``5min``, ``steady``, ``end``; UsageError for anything else."""
    if text in ("steady", "end"):
        return StopRule("steady", uncounted_seconds=MAX_SECONDS_WITHOUT_STEPS) if text == "steady" else StopRule("end")
    if (steps := _STEPS_PATTERN.fullmatch(text)) is not None and int(steps[1]):
        return StopRule("steps", int(steps[1]))
    if 0 < (seconds := parse_duration(text) or 0.0) < _MAX_SECONDS:
        return StopRule("seconds", seconds)
    raise UsageError(f"--stop-after {text}: not understood", hint="use 200steps, 60s, 5min, steady or end")


def parse_varied_values(options: Iterable[str], command: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Values by name, of ``BATCH=32,64``; UsageError for a name that the command does not have."""
    values_by_name: dict[str, tuple[str, ...]] = {}
    for text in options:
        name, equals, listed = text.partition("=")
        values = tuple(dict.fromkeys(value.strip() for value in listed.split(",")))
        if not equals or not _NAME_PATTERN.fullmatch(name) or not all(values):
            raise UsageError(f"--vary {text}: not understood", hint="for example --vary BATCH=32,64,128")
        check_placeholder(name, command, f"--vary {text}")
        if name in values_by_name:
            all_values = ",".join((*values_by_name[name], *values))
            raise UsageError(f"--vary {name}: given twice", hint=f"--vary {name}={all_values}")
        values_by_name[name] = values
    return values_by_name


def check_placeholder(name: str, command: Sequence[str], option: str) -> None:
    """UsageError if no ``{NAME}`` in the command takes the values."""
    if name == "run":
        raise UsageError(f"{option}: {{run}} stands for the run itself", hint="use another name")
    if not any(f"{{{name}}}" in word for word in command):
        raise UsageError(
            f"{option}: the command has no {{{name}}}",
            hint=f"for example: -- {shlex.join(command[:3])} --{name.lower()} {{{name}}}",
        )


def combine_settings_and_values(
    settings: Sequence[TrialSetting], values_by_name: Mapping[str, Sequence[str]]
) -> tuple[Configuration, ...]:
    """Every setting with every combination of values."""
    value_sets = [dict(zip(values_by_name, values, strict=True)) for values in product(*values_by_name.values())]
    if (count := len(settings) * len(value_sets)) > _MAX_CONFIGURATIONS:
        raise UsageError(f"{count} configurations are too many", hint=f"give at most {_MAX_CONFIGURATIONS}")
    return tuple(Configuration(setting, values) for setting in settings for values in value_sets)


def command_with_values(command: Sequence[str], values: Mapping[str, str], run_name: str) -> list[str]:
    """The command with ``{NAME}`` of the varied names and ``{run}`` replaced; other braces stay."""
    replacements = {**values, "run": run_name}
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in replacements))
    return [pattern.sub(lambda match: replacements[match[0][1:-1]], word) for word in command]
