"""What a condition is, how one is declared, and which of them the readings of a machine allow to judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.units import count_text
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.conditions.occurrence import Occurrence, Sign
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule, finding, register


class Condition(ABC):
    """A problem that lasts: how a sample shows it, and the finding while it holds.

    ``signs`` yields a sign for each subject for which it holds, and one with ``holds=None`` if that is unknown; for
    all others it does not hold. Its onset and end are events: ``NAME.began``, ``NAME.ended``.
    """

    name: ClassVar[str]
    causes: ClassVar[tuple[str, ...]]
    looks_for: ClassVar[str] = ""
    """Named in the finding that no problems were found."""
    needed_metrics: ClassVar[tuple[str, ...]] = ()
    """Device metrics without which it cannot be judged."""
    judges_processes: ClassVar[bool] = False
    """Whether it judges processes, which some sources do not report."""
    report_after_seconds: ClassVar[float] = 0.0
    """Seconds for which it must hold before it is reported."""
    end_after_seconds: ClassVar[float] = 0.0
    """Seconds for which it must be gone before it ends."""
    forget_after_seconds: ClassVar[float] = 900.0
    """Seconds of unknown samples after which it ends, too."""
    reported_from_one_sample: ClassVar[bool] = False
    """Whether it is also reported from a single sample (``gpuwatch snapshot``)."""
    judges_lost_gpus: ClassVar[bool] = False
    """Whether it also judges GPUs that do not answer; for other conditions these are unknown."""

    @abstractmethod
    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """The signs of this sample."""

    @abstractmethod
    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """The finding, whose title is also the text of the event; None if it is not worth reporting."""

    def make_finding(
        self, occurrence: Occurrence, severity: Severity, certainty: Certainty = "fact", **fields: Any
    ) -> Finding:
        """A finding with the cause, device and process of the occurrence; ``fields`` as in :func:`finding`."""
        sign = occurrence.sign
        subject = {
            "device_uuid": sign.device.uuid if sign.device is not None else None,
            "pid": sign.process.pid if sign.process is not None else None,
        }
        return finding(sign.cause, severity, certainty, **(subject | fields))

    def is_listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        """Whether it is a finding; otherwise it only has events."""
        return True

    def new_event_texts(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        """Texts of what happened since the last event; each becomes an event of its own."""
        return ()

    def is_unknown(self, sign: Sign, context: SampleContext) -> bool:
        """Whether a sample without this sign says nothing, because its GPU is asleep, lost or not listed."""
        if sign.device is None or self.judges_lost_gpus:
            return False
        device = context.devices.get(sign.device.uuid)
        return device is None or device.state != "ok"

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """The text of the event at its end; empty for none."""
        return f"no longer: {finding.title} ({occurrence.duration_text})"


def condition(declared: type[Condition]) -> type[Condition]:
    """Declares a condition: a rule over samples."""
    register(Rule(declared.name, declared.causes, declared(), "samples"))
    return declared


def conditions() -> list[Condition]:
    """All conditions, by module and in the order of their declaration there, whichever module was imported first."""
    return sorted((entry.find for entry in RULES["samples"]), key=lambda condition: type(condition).__module__)


def coverage_evidence(snapshot: Snapshot, observed: float, unobserved: float) -> tuple[str, ...]:
    """What was watched, for how long (seconds), what was looked for, and what could not be judged."""
    gpus, programs = len(snapshot.devices), len({row.pid for row in snapshot.processes})
    # Without processes, memory that no process explains is not known either.
    listed = bool(programs) or not all("memory.unexplained_bytes" in d.missing for d in snapshot.devices)
    listed = listed or not any("memory.used_bytes" in d.readings for d in snapshot.devices)
    what = count_text(gpus, "GPU")
    what += f" and {count_text(programs, 'process', 'processes')}" if listed else ""
    lines = [f"watched: {what}, for {steady_duration(observed)}"]
    if unobserved:
        lines.append(f"not observed: {steady_duration(unobserved)} without samples")
    judged, not_judged = [], []
    for condition in filter(lambda condition: condition.looks_for, conditions()):
        missing_metric = next(
            (name for name in condition.needed_metrics if all(name not in d.readings for d in snapshot.devices)), ""
        )
        if condition.judges_processes and not listed:
            not_judged.append(f"not judged: {condition.looks_for} (processes are not reported)")
        elif not missing_metric:
            judged.append(condition.looks_for)
        elif snapshot.devices:
            reason = next(
                (d.missing[missing_metric].reason for d in snapshot.devices if missing_metric in d.missing), ""
            )
            why = f": {reason.replace('_', ' ')}" if reason else ""
            not_judged.append(f"not judged: {condition.looks_for} ({missing_metric}{why})")
    if judged and snapshot.devices:
        lines.append(f"looked for: {'; '.join((*judged, 'GPUs in an exclusive or prohibited compute mode'))}")
    return (*lines, *not_judged)
