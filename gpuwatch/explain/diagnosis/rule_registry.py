"""Rules as they are declared, by input: evidence (the imports in :mod:`.engine` fill it) or the doctor's facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from gpuwatch.core.model.findings import CAUSES, Certainty, Finding, Severity

RuleFunction = Callable[[Any], Iterable[Finding]]
"""Of :class:`Evidence`, or of the doctor's facts."""
_F = TypeVar("_F", bound=RuleFunction)


class Rule(msgspec.Struct, frozen=True):
    """A pure function from what is known to findings, and the causes that it may report."""

    name: str
    causes: tuple[str, ...]
    find: RuleFunction
    single_look: bool = False
    """Whether it replaces conditions over time if there is only one snapshot."""


RULES: list[Rule] = []


def rule(*causes: str, single_look: bool = False, among: list[Rule] = RULES) -> Callable[[_F], _F]:
    """Declares a rule; ``causes`` are the cause ids that it may report, ``among``: the rules on the same input."""
    unknown = [cause for cause in causes if cause not in CAUSES]
    if unknown or not causes:
        raise ValueError(f"unknown cause ids: {unknown}")

    def declare(function: _F) -> _F:
        among.append(Rule(function.__name__, causes, function, single_look))
        return function

    return declare


def finding(
    cause: str,
    severity: Severity,
    certainty: Certainty,
    *,
    title: str = "",
    evidence: Iterable[str] = (),
    action: str = "",
    device_uuid: str | None = None,
    pid: int | None = None,
) -> Finding:
    """A finding of a known cause, with the cause's title unless another one is given."""
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
