"""The checks in display order. Each is a decorated pure function from facts to an answer."""

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


Ask = Callable[[Facts], Answer | None]
_AskOfFramework = Callable[[Facts, FrameworkFacts], Answer | None]


class Entry(msgspec.Struct, frozen=True):
    """A declared check."""

    id: str
    title: str
    ask: Ask


CHECKS: list[Entry] = []


def check(check_id: str, title: str) -> Callable[[Ask], Ask]:
    """Declares a check. Its answer is None if it does not apply (no container, no WSL)."""
    if any(entry.id == check_id for entry in CHECKS) or "." not in check_id:
        raise ValueError(f"not a new dotted id: {check_id}")

    def declare(function: Ask) -> Ask:
        CHECKS.append(Entry(check_id, title, function))
        return function

    return declare


def check_of_framework(check_id: str, title: str) -> Callable[[_AskOfFramework], _AskOfFramework]:
    """Declares a check that applies if the framework is installed, which it is asked about."""

    def declare(function: _AskOfFramework) -> _AskOfFramework:
        check(check_id, title)(lambda facts: function(facts, facts.installed) if facts.installed is not None else None)
        return function

    return declare


def ask_all(facts: Facts, entries: Iterable[Entry]) -> tuple[Check, ...]:
    """The answer of each check. A check that raises is reported as failed; the others still run."""
    found = []
    for entry in entries:
        try:
            answer = entry.ask(facts)
        except Exception as error:  # noqa: BLE001 - reported as the check's answer, see above
            answer = Answer(
                "skip",
                f"gpuwatch's own check failed: {type(error).__name__}: {error}",
                "Report this as a gpuwatch bug; the other checks are complete.",
            )
        if answer is not None:
            found.append(
                Check(id=entry.id, title=entry.title, state=answer.state, detail=answer.detail, action=answer.action)
            )
    return tuple(found)


ok = partial(Answer, "pass")
"""Checked, without problems."""
warn = partial(Answer, "warn")
"""Works, but not as expected, or not permanently."""
fail = partial(Answer, "fail")
"""Keeps the framework from using its GPUs."""
skip = partial(Answer, "skip")
"""Could not be checked, for this reason."""
