"""The registry of rules: how rules and conditions are declared, and the findings that they report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from typing import Any, Literal, TypeVar

import msgspec

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Certainty, Finding, Severity

Input = Literal["evidence", "machine", "samples"]
"""What a rule takes: :class:`.evidence.Evidence`, the doctor's :class:`.doctor.check.Facts`, or samples."""
Needs = Literal["log", "run", "program", "snapshot", "system", "driver", "installation", "installed_framework"]
"""A part of the input, by its name there."""
_F = TypeVar("_F", bound=Callable[..., Iterable[Finding]])


class Rule(msgspec.Struct, frozen=True):
    """What finds causes in one kind of input."""

    name: str
    causes: tuple[str, ...]
    """Causes that it may report; none if it only has events."""
    find: Any
    """A pure function from the input to findings; over samples, a :class:`.conditions.condition.Condition`."""
    takes: Input = "evidence"
    replaces_conditions: bool = False
    """Whether it replaces conditions over time if there is only one snapshot."""
    unless: tuple[str, ...] | None = None
    """It is asked only if no finding is an error or of one of these causes. None: always."""


RULES: dict[Input, list[Rule]] = {"evidence": [], "machine": [], "samples": []}
"""By input, in the order of declaration; the imports of the engines fill them."""


def register(entry: Rule) -> None:
    """Adds a rule; its causes must be known."""
    unknown = [cause for cause in entry.causes if cause not in CAUSES]
    if unknown:
        raise ValueError(f"unknown cause ids: {unknown}")
    RULES[entry.takes].append(entry)


def rule(
    *causes: str,
    takes: Input = "evidence",
    needs: Needs | None = None,
    replaces_conditions: bool = False,
    unless: tuple[str, ...] | None = None,
) -> Callable[[_F], _F]:
    """Declares a function as a rule, with the fields of :class:`Rule`.

    ``needs``: a part of the input that is passed to the function as well; without that it is not called.
    """

    def declare(function: _F) -> _F:
        @wraps(function)
        def find(facts: Any) -> Iterable[Finding]:
            part = getattr(facts, needs or "")
            return function(facts, part) if part is not None else ()

        register(Rule(function.__name__, causes, find if needs else function, takes, replaces_conditions, unless))
        return function

    return declare


def finding(
    cause: str,
    severity: Severity,
    certainty: Certainty = "fact",
    *,
    title: str = "",
    evidence: Iterable[str] = (),
    action: str = "",
    device_uuid: str | None = None,
    pid: int | None = None,
) -> Finding:
    """A finding of a known cause, by default a fact, with the cause's title unless another one is given."""
    return Finding(
        id=cause,
        severity=severity,
        certainty=certainty,
        title=title or CAUSES[cause],
        evidence=tuple(dict.fromkeys(line for line in evidence if line)),
        action=action,
        device_uuid=device_uuid,
        pid=pid,
    )


info_finding = partial(finding, severity="info")
warning_finding = partial(finding, severity="warning")
error_finding = partial(finding, severity="error")
"""Facts with this severity."""
likely_info = partial(info_finding, certainty="likely")
likely_warning = partial(warning_finding, certainty="likely")
likely_error = partial(error_finding, certainty="likely")
"""Inferred findings with this severity."""
healthy_finding = partial(info_finding, "healthy", certainty="likely")
"""The finding that nothing is wrong."""
