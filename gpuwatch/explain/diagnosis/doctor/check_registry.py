"""The registry of checks, each of which is a decorated pure function from facts to an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from gpuwatch.core.model.doctor import Check, CheckState, FrameworkFacts
from gpuwatch.explain.diagnosis.doctor.doctor_facts import Facts


class Answer(msgspec.Struct, frozen=True):
    """The result of a check; the registry adds id and title."""

    state: CheckState
    detail: str
    action: str = ""


CheckFunction = Callable[[Facts], Answer | None]
_FrameworkCheckFunction = Callable[[Facts, FrameworkFacts], Answer | None]


class DeclaredCheck(msgspec.Struct, frozen=True):
    """A check with its id and title."""

    id: str
    title: str
    function: CheckFunction


CHECKS: list[DeclaredCheck] = []


def check(check_id: str, title: str) -> Callable[[CheckFunction], CheckFunction]:
    """Declares a check. Its answer is None if it does not apply (no container, no WSL)."""
    if any(declared.id == check_id for declared in CHECKS) or "." not in check_id:
        raise ValueError(f"not a new dotted id: {check_id}")

    def declare(function: CheckFunction) -> CheckFunction:
        CHECKS.append(DeclaredCheck(check_id, title, function))
        return function

    return declare


def check_of_framework(check_id: str, title: str) -> Callable[[_FrameworkCheckFunction], _FrameworkCheckFunction]:
    """Declares a check of the installed framework; it does not apply if none is."""

    def declare(function: _FrameworkCheckFunction) -> _FrameworkCheckFunction:
        check(check_id, title)(lambda facts: function(facts, facts.installed) if facts.installed is not None else None)
        return function

    return declare


def run_checks(facts: Facts, checks: Iterable[DeclaredCheck]) -> tuple[Check, ...]:
    """The answer of each check. A check that raises is reported as failed; the others still run."""
    found = []
    for declared in checks:
        try:
            answer = declared.function(facts)
        except Exception as error:  # noqa: BLE001 - reported as the check's answer, see above
            answer = Answer(
                "skip",
                f"gpuwatch's own check failed: {type(error).__name__}: {error}",
                "Report this as a gpuwatch bug; the other checks are complete.",
            )
        if answer is not None:
            found.append(Check(id=declared.id, title=declared.title, **msgspec.structs.asdict(answer)))
    return tuple(found)


ok = partial(Answer, "pass")
"""Checked, without problems."""
warn = partial(Answer, "warn")
"""Works, but not as expected, or not permanently."""
fail = partial(Answer, "fail")
"""Keeps the framework from using its GPUs."""
skip = partial(Answer, "skip")
"""Could not be checked, for this reason."""
