"""What ``gpuwatch try`` is asked to run."""

from __future__ import annotations

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.experiment.trials.trial_plan import (
    MAX_SECONDS_WITHOUT_STEPS,
    StopRule,
    command_with_values,
    hours_minutes,
    parse_stop_rule,
    parse_varied_values,
)
from tests.every import every


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("200steps", StopRule("steps", 200)),
        ("1step", StopRule("steps", 1)),
        ("60s", StopRule("seconds", 60)),
        ("5min", StopRule("seconds", 300)),
        ("1h 30min", StopRule("seconds", 5400)),
        ("steady", StopRule("steady", uncounted_seconds=MAX_SECONDS_WITHOUT_STEPS)),
        ("end", StopRule("end")),
    ],
)
def test_when_a_measurement_ends(text: str, rule: StopRule) -> None:
    assert parse_stop_rule(text) == rule


@every(["", "0steps", "0s", "steps", "200", "-5s", "nan", "1e9s", "9999w", "forever"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(UsageError, match="not understood"):
        parse_stop_rule(text)


def test_times() -> None:
    assert [hours_minutes(value) for value in (12, 600, 3900, 7200)] == ["12 s", "10 min", "65 min", "2 h 00 min"]


def test_only_declared_names_are_replaced() -> None:
    command = ["train", "--batch={BATCH}", '{"a": {}}', "{OTHER}", "out/{run}", "{BATCH}{BATCH}"]
    assert command_with_values(command, {"BATCH": "32"}, "growth-1") == [
        *("train", "--batch=32", '{"a": {}}', "{OTHER}", "out/growth-1", "3232"),
    ]


def test_a_varied_name_must_be_in_the_command() -> None:
    assert parse_varied_values(["B=1,2", "C=x"], ["a", "{B}", "{C}"]) == {"B": ("1", "2"), "C": ("x",)}
    with pytest.raises(UsageError, match=r"the command has no \{BATCH\}"):
        parse_varied_values(["BATCH=32"], ["python", "train.py"])
    for wrong in ("BATCH", "=1", "B=", "B=1,,2", "1B=1"):
        with pytest.raises(UsageError, match="not understood"):
            parse_varied_values([wrong], ["{B}"])
    with pytest.raises(UsageError, match="stands for the run"):
        parse_varied_values(["run=1"], ["{run}"])
