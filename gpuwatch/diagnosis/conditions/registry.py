"""The conditions, in the order in which they were declared. Filled by imports in :mod:`..condition_engine`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from gpuwatch.diagnosis.conditions.durations import duration
from gpuwatch.diagnosis.conditions.hysteresis import Occurrence, Sign
from gpuwatch.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.model.findings import CAUSES, Finding


class Condition:
    """Something that is wrong for a while: what a sample says about it, and the finding while it holds.

    ``signs`` yields where the condition holds, and signs with ``holds=None`` where the sample cannot tell;
    everywhere else it does not hold. Its beginning and its end are events: ``NAME.began``, ``NAME.ended``.
    """

    name: ClassVar[str]
    causes: ClassVar[tuple[str, ...]]
    looks_for: ClassVar[str] = ""
    """In a few words, for the sentence that says that nothing was found."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Device metrics without which it cannot judge."""
    appears: ClassVar[float]
    """Seconds for which it must hold before it is reported."""
    leaves: ClassVar[float]
    """Seconds for which it must be gone before it has ended."""
    forgets: ClassVar[float] = 900.0
    """Seconds without a sample that can tell, after which it has ended as well."""
    one_sample: ClassVar[bool] = False
    """Whether one sample alone is reported too, where there is no other (``gpuwatch snapshot``)."""
    dead_devices: ClassVar[bool] = False
    """Whether it judges GPUs that do not answer, too; for the others such a GPU is unknown."""

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """What this sample says."""
        raise NotImplementedError

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """The finding, its title the words of the event too; None while it is not worth a word."""
        raise NotImplementedError

    def listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        """Whether it is among the findings; else its events are all there is of it."""
        return True

    def news(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        """What came to it since the last event, each an event of its own."""
        return ()

    def unknown(self, sign: Sign, context: SampleContext) -> bool:
        """Whether a sample that has no such sign says nothing, as its GPU is asleep, lost, or not listed."""
        if sign.device is None or self.dead_devices:
            return False
        device = context.devices.get(sign.device.uuid)
        return device is None or device.state != "ok"

    def ended(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """The words of the event at its end; empty for none."""
        return f"no longer: {finding.title} ({duration(occurrence)})"


CONDITIONS: list[Condition] = []


def condition(declared: type[Condition]) -> type[Condition]:
    """Declares a condition."""
    unknown = [cause for cause in declared.causes if cause not in CAUSES]
    if unknown or not declared.causes:
        raise ValueError(f"unknown cause ids: {unknown}")
    CONDITIONS.append(declared())
    return declared
