"""The rules over time, in the order in which they were declared. Filled by imports in :mod:`.watch`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpuwatch.diagnosis.overtime.look import Look
from gpuwatch.diagnosis.overtime.stretch import Sign, Stretch
from gpuwatch.model.findings import CAUSES, Finding


class LastingRule:
    """One condition: what a sample says about it, and what is told once it has lasted.

    ``signs`` yields where the condition holds, and signs with ``holds=None`` where the sample cannot tell;
    of everything else it is taken that it does not hold. Both methods are pure functions of what they get.
    """

    causes: ClassVar[tuple[str, ...]]
    looks_for: ClassVar[str]
    """In a few words, for the sentence that says that nothing was found."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Device metrics without which it cannot judge."""
    appears: ClassVar[float]
    """Seconds for which the condition must hold before it is told."""
    leaves: ClassVar[float]
    """Seconds for which it must be gone before it is past."""
    forgets: ClassVar[float] = 900.0
    """Seconds without a sample that can tell, after which it is past as well."""

    def signs(self, look: Look) -> Iterator[Sign]:
        """What this sample says."""
        raise NotImplementedError

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """The finding; None while it is not worth a word."""
        raise NotImplementedError


LASTING: list[LastingRule] = []


def lasting(rule: type[LastingRule]) -> type[LastingRule]:
    """Declares a rule over time."""
    unknown = [cause for cause in rule.causes if cause not in CAUSES]
    if unknown or not rule.causes:
        raise ValueError(f"unknown cause ids: {unknown}")
    LASTING.append(rule())
    return rule
