"""What ``gpuwatch try`` is asked to run."""

from __future__ import annotations

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.experiment.trials.trial_plan import (
    UNCOUNTED_SECONDS,
    Rule,
    command_with_values,
    hours_minutes,
    parse_rule,
    parse_vary,
)
from tests.every import every


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("200steps", Rule("steps", 200)),
        ("1step", Rule("steps", 1)),
        ("60s", Rule("seconds", 60)),
        ("5min", Rule("seconds", 300)),
        ("1h 30min", Rule("seconds", 5400)),
        ("steady", Rule("steady", uncounted=UNCOUNTED_SECONDS)),
        ("end", Rule("end")),
    ],
)
def test_when_a_measurement_ends(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@every(["", "0steps", "0s", "steps", "200", "-5s", "nan", "1e9s", "9999w", "forever"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(UsageError, match="not understood"):
        parse_rule(text)


def test_times() -> None:
    assert [hours_minutes(value) for value in (12, 600, 3900, 7200)] == ["12 s", "10 min", "65 min", "2 h 00 min"]


def test_only_declared_names_are_replaced() -> None:
    command = ["train", "--batch={BATCH}", '{"a": {}}', "{OTHER}", "out/{run}", "{BATCH}{BATCH}"]
    assert command_with_values(command, {"BATCH": "32"}, "growth-1") == [
        *("train", "--batch=32", '{"a": {}}', "{OTHER}", "out/growth-1", "3232"),
    ]


def test_a_varied_name_must_be_in_the_command() -> None:
    assert parse_vary(["B=1,2", "C=x"], ["a", "{B}", "{C}"]) == {"B": ("1", "2"), "C": ("x",)}
    with pytest.raises(UsageError, match=r"the command has no \{BATCH\}"):
        parse_vary(["BATCH=32"], ["python", "train.py"])
    for wrong in ("BATCH", "=1", "B=", "B=1,,2", "1B=1"):
        with pytest.raises(UsageError, match="not understood"):
            parse_vary([wrong], ["{B}"])
    with pytest.raises(UsageError, match="stands for the run"):
        parse_vary(["run=1"], ["{run}"])
