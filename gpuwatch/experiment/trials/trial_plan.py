"""What an experiment runs: settings and varied values, when a measurement ends, how often, and for how long."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import hours_minutes, parse_duration
from gpuwatch.core.model.try_results import configuration_name
from gpuwatch.experiment.trials.trial_settings import Setting

MIN_SECONDS = 2.0
"""Seconds of steps before a measurement can be steady: clocks and caches settle."""
SIMULATED_STEPS = 20
"""Steps of a run on simulated GPUs, whose speeds are not compared."""
STEADY_SECONDS = 20.0
"""Seconds of steps after which a measurement ends that does not get steady."""
UNCOUNTED_SECONDS = 30.0
"""Seconds on a GPU after which a measurement ends in which no step could be counted, unless the user said when."""
_STEPS = re.compile(r"(\d{1,9}) ?steps?")
_MAX_SECONDS = 1e9
"""Seconds: more, no wait of Python takes."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_MAX_CONFIGURATIONS = 64
"""Configurations of one experiment."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When the measurement of a run ends (``--stop-after``)."""

    kind: Literal["steady", "steps", "seconds", "end"]
    amount: float = 0.0
    least: float = 0.0
    """Seconds of steps that it takes at least: other processes of the program may still be starting."""
    uncounted: float | None = None
    """Seconds on a GPU after which it ends if no step could be counted; None: never."""

    def on(self, *, simulated: bool) -> Rule:
        """The rule on these GPUs: nothing has to be steady where speeds are not compared."""
        if self.kind != "steady":
            return self
        return Rule("steps", SIMULATED_STEPS, 1.0, self.uncounted) if simulated else self

    def __str__(self) -> str:
        match self.kind:
            case "steps":
                return f"after {'at least ' if self.least else ''}{self.amount:.0f} steps"
            case "seconds":
                return f"after {hours_minutes(self.amount)} of steps"
            case "end":
                return "at the end of the program"
            case _:
                return "until the step time is known to within 2 %"


@dataclass(frozen=True, slots=True)
class Configuration:
    """The program under one setting, with one value for each varied name."""

    setting: Setting
    values: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``growth``, ``growth BATCH=32``."""
        return configuration_name(self.setting.name, dict(self.values))

    @property
    def slug(self) -> str:
        return re.sub(r"[^A-Za-z0-9._]+", "-", self.name).strip("-.")[:60] or "run"


def parse_rule(text: str) -> Rule:
    """``200steps``, ``60s``, ``5min``, ``steady``, ``end``; UsageError for anything else."""
    if text in ("steady", "end"):
        return Rule("steady", uncounted=UNCOUNTED_SECONDS) if text == "steady" else Rule("end")
    if (steps := _STEPS.fullmatch(text)) is not None and int(steps[1]):
        return Rule("steps", int(steps[1]))
    if 0 < (seconds := parse_duration(text) or 0.0) < _MAX_SECONDS:
        return Rule("seconds", seconds)
    raise UsageError(f"--stop-after {text}: not understood", hint="use 200steps, 60s, 5min, steady or end")


def parse_vary(texts: Iterable[str], command: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Values by name, of ``BATCH=32,64``; UsageError for a name that the command does not have."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        values = tuple(dict.fromkeys(value.strip() for value in rest.split(",")))
        if not equals or not _NAME.fullmatch(name) or not all(values):
            raise UsageError(f"--vary {text}: not understood", hint="for example --vary BATCH=32,64,128")
        check_placeholder(name, command, f"--vary {text}")
        if name in found:
            raise UsageError(f"--vary {name}: given twice", hint=f"--vary {name}={','.join((*found[name], *values))}")
        found[name] = values
    return found


def check_placeholder(name: str, command: Sequence[str], option: str) -> None:
    """UsageError if no ``{NAME}`` in the command takes the values."""
    if name == "run":
        raise UsageError(f"{option}: {{run}} stands for the run itself", hint="use another name")
    if not any(f"{{{name}}}" in word for word in command):
        raise UsageError(
            f"{option}: the command has no {{{name}}}",
            hint=f"for example: -- {shlex.join(command[:3])} --{name.lower()} {{{name}}}",
        )


def configurations(settings: Sequence[Setting], vary: Mapping[str, Sequence[str]]) -> tuple[Configuration, ...]:
    """Every setting with every combination of values."""
    rows = [dict(zip(vary, values, strict=True)) for values in itertools.product(*vary.values())]
    if len(settings) * len(rows) > _MAX_CONFIGURATIONS:
        raise UsageError(
            f"{len(settings) * len(rows)} configurations are too many", hint=f"give at most {_MAX_CONFIGURATIONS}"
        )
    return tuple(Configuration(setting, values) for setting in settings for values in rows)


def command_with_values(command: Sequence[str], values: Mapping[str, str], run: str) -> list[str]:
    """The command with ``{NAME}`` of the varied names and ``{run}`` replaced; other braces stay."""
    known = {**values, "run": run}
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in known))
    return [pattern.sub(lambda match: known[match[0][1:-1]], word) for word in command]
