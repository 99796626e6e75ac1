"""What a condition is, and how one is declared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.conditions.occurrence import Occurrence, Sign
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule, finding, register


class Condition:
    """A problem that lasts: how a sample shows it, and the finding while it holds.

    ``signs`` yields a sign for each subject for which it holds, and one with ``holds=None`` if that is unknown; for
    all others it does not hold. Its onset and end are events: ``NAME.began``, ``NAME.ended``.
    """

    name: ClassVar[str]
    causes: ClassVar[tuple[str, ...]]
    looks_for: ClassVar[str] = ""
    """Named in the finding that no problems were found."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Device metrics that it needs."""
    of_processes: ClassVar[bool] = False
    """Whether it judges processes, which some sources do not report."""
    appears: ClassVar[float] = 0.0
    """Seconds for which it must hold before it is reported."""
    leaves: ClassVar[float] = 0.0
    """Seconds for which it must be gone before it ends."""
    forgets: ClassVar[float] = 900.0
    """Seconds of unknown samples after which it ends, too."""
    one_sample: ClassVar[bool] = False
    """Whether it is also reported from a single sample (``gpuwatch snapshot``)."""
    dead_devices: ClassVar[bool] = False
    """Whether it also judges GPUs that do not answer; for other conditions these are unknown."""

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """The signs of this sample."""
        raise NotImplementedError

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """The finding, whose title is also the text of the event; None if it is not worth reporting."""
        raise NotImplementedError

    def report(
        self, occurrence: Occurrence, severity: Severity, certainty: Certainty = "fact", **fields: Any
    ) -> Finding:
        """A finding with the cause, device and process of the occurrence; ``fields`` as in :func:`finding`."""
        sign = occurrence.sign
        subject = {
            "device_uuid": sign.device.uuid if sign.device is not None else None,
            "pid": sign.process.pid if sign.process is not None else None,
        }
        return finding(sign.cause, severity, certainty, **(subject | fields))

    def listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        """Whether it is a finding; otherwise it only has events."""
        return True

    def new_samples(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        """What happened since the last event; each is an event of its own."""
        return ()

    def unknown(self, sign: Sign, context: SampleContext) -> bool:
        """Whether a sample without this sign says nothing, because its GPU is asleep, lost or not listed."""
        if sign.device is None or self.dead_devices:
            return False
        device = context.devices.get(sign.device.uuid)
        return device is None or device.state != "ok"

    def ended(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """The text of the event at its end; empty for none."""
        return f"no longer: {finding.title} ({occurrence.duration})"


def condition(declared: type[Condition]) -> type[Condition]:
    """Declares a condition: a rule over samples."""
    register(Rule(declared.name, declared.causes, declared(), "samples"))
    return declared


def conditions() -> list[Condition]:
    """All conditions, in the order of their declaration."""
    return [entry.find for entry in RULES["samples"]]


def coverage_evidence(snapshot: Snapshot, observed: float, unobserved: float) -> tuple[str, ...]:
    """Evidence of coverage: what was watched, for how long, what was looked for, and what could not be judged."""
    gpus, programs = len(snapshot.devices), len({row.pid for row in snapshot.processes})
    # Without processes, memory that no process explains is not known either.
    listed = bool(programs) or not all("memory.unexplained_bytes" in d.missing for d in snapshot.devices)
    listed = listed or not any("memory.used_bytes" in d.readings for d in snapshot.devices)
    what = f"{gpus} GPU{'' if gpus == 1 else 's'}"
    what += f" and {programs} process{'' if programs == 1 else 'es'}" if listed else ""
    lines = [f"watched: {what}, for {steady_duration(observed)}"]
    if unobserved:
        lines.append(f"not observed: {steady_duration(unobserved)} without samples")
    able, unable = [], []
    for condition in filter(lambda condition: condition.looks_for, conditions()):
        lacking = next((name for name in condition.needs if all(name not in d.readings for d in snapshot.devices)), "")
        if condition.of_processes and not listed:
            unable.append(f"not judged: {condition.looks_for} (processes are not reported)")
        elif not lacking:
            able.append(condition.looks_for)
        elif snapshot.devices:
            reason = next((d.missing[lacking].reason for d in snapshot.devices if lacking in d.missing), "")
            why = f": {reason.replace('_', ' ')}" if reason else ""
            unable.append(f"not judged: {condition.looks_for} ({lacking}{why})")
    if able and snapshot.devices:
        lines.append(f"looked for: {'; '.join((*able, 'GPUs in an exclusive or prohibited compute mode'))}")
    return (*lines, *unable)


def process_gone(sign: Sign, context: SampleContext) -> bool:
    """Whether the process has exited. Unknown while its device is missing: that may come back."""
    process, device = sign.process, sign.device
    if process is None or process.device_uuid is None:
        return False
    if device is not None and (device.uuid not in context.devices or context.devices[device.uuid].state == "asleep"):
        return False
    rows = context.of.get((process.pid, process.create_time), ())
    return not rows if device is None else not any(row.device_uuid == device.uuid for row in rows)
