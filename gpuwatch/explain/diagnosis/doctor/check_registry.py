"""The checks in display order. Each is a decorated pure function from facts to an answer."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gpuwatch.core.model.doctor import Check, State
from gpuwatch.explain.diagnosis.doctor.facts import Facts


class Answer(msgspec.Struct, frozen=True):
    """The result of a check; the registry adds id and title."""

    state: State
    detail: str
    action: str = ""


Ask = Callable[[Facts], Answer | None]


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


def ask_all(facts: Facts, entries: list[Entry] | None = None) -> tuple[Check, ...]:
    """Every check's answer. A check that raises is reported as failed; the others still run."""
    found = []
    for entry in CHECKS if entries is None else entries:
        try:
            answer = entry.ask(facts)
        except Exception as error:  # noqa: BLE001 - reported as the check's answer, see above
            answer = Answer(
                "skip",
                f"gpuwatch's own check failed: {type(error).__name__}: {error}",
                "Report this as a bug of gpuwatch; the other checks are complete.",
            )
        if answer is not None:
            found.append(
                Check(id=entry.id, title=entry.title, state=answer.state, detail=answer.detail, action=answer.action)
            )
    return tuple(found)


def ok(detail: str) -> Answer:
    """Checked, without problems."""
    return Answer("pass", detail)


def warn(detail: str, action: str) -> Answer:
    """Works, but not as expected, or not permanently."""
    return Answer("warn", detail, action)


def fail(detail: str, action: str) -> Answer:
    """Keeps the framework from using its GPUs."""
    return Answer("fail", detail, action)


def skip(detail: str, action: str = "") -> Answer:
    """Could not be checked, for this reason."""
    return Answer("skip", detail, action)
