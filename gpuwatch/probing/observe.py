"""What a run said and showed, gathered into a draft of the Run.

The draft has facts only; causes, fallbacks and the final verdict are the diagnosis's.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable

import msgspec

from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.tail import Tail
from gpuwatch.logs.tensorflow import LogParser
from gpuwatch.model.events import Event
from gpuwatch.model.run import (
    DeviceMapping,
    Memory,
    Oom,
    Outcome,
    Phases,
    Run,
    RunError,
    RunProcess,
    Verdict,
    Worker,
)
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.probing.asked import joined
from gpuwatch.probing.ledger import Ledger
from gpuwatch.probing.locate import ProbeScript
from gpuwatch.probing.timeline import Timeline
from gpuwatch.probing.told import Told

_MOST_HELD = 1024


class Observed(msgspec.Struct, frozen=True):
    """A finished execution: the draft run, what its log said, the machine before it started."""

    run: Run
    log: LogFacts
    before: Snapshot | None


class Observation:
    """Takes events, log lines and snapshots of one execution as they come."""

    def __init__(self, started: float, before: Snapshot | None, family: Callable[[int], bool] | None = None) -> None:
        """``started``: monotonic time of the launch; ``before``: the machine before it.

        ``family`` tells whether a process belongs to the run; without it, that is the group which the probe leads.
        """
        self._before = before
        self._family = family
        self._parser = LogParser()
        self._tail = Tail()
        self.told = Told()
        self._ledger = Ledger(before)
        self._timeline = Timeline(started)
        self.held: dict[int, dict[str, int]] = {}
        """Process of the run to the most that NVML showed of it on each device."""
        self._ordinals: dict[int, str] = {}
        self.pid: int | None = None

    # -- what comes in --------------------------------------------------------------------------

    def log_line(self, raw: bytes) -> None:
        """One line of the probe's stdout or stderr."""
        line = raw.decode("utf-8", "replace")
        self._parser.feed(line)
        self.tail_line(line)

    def tail_line(self, line: str) -> None:
        """Keeps a line among the last ones; of a progress bar, which overwrote itself, the last state."""
        self._tail.add(line)

    def event_line(self, raw: bytes) -> Event | None:
        """One line of the event descriptor; None when it was no event."""
        event = self.told.line(raw)
        if self.told.pid is not None:
            self.pid = self.told.pid
        return event

    def snapshot(self, snapshot: Snapshot, now: float) -> None:
        """What NVML shows of the run at monotonic time ``now``."""
        sizes: dict[str, float] = {}
        pids: set[int] = set()
        for process in snapshot.processes:
            if not process.device_uuid or not self._belongs(process.pid):
                continue
            pids.add(process.pid)
            amount = process.number("gpu_memory_bytes")
            if amount is None:
                continue
            sizes[process.device_uuid] = sizes.get(process.device_uuid, 0) + amount
            if process.pid not in self.held and len(self.held) >= _MOST_HELD:
                continue
            held = self.held.setdefault(process.pid, {})
            held[process.device_uuid] = max(held.get(process.device_uuid, 0), int(amount))
        # What a probe's helpers hold is somebody else's memory to it: that is its subject.
        own = pids if self._family is not None else {self.pid} & pids
        self._ledger.take(snapshot, [pid for pid in own if pid is not None])
        self._timeline.take(snapshot, sizes, self.told.allocator_now, now)

    def _belongs(self, pid: int) -> bool:
        return self._family(pid) if self._family is not None else _of_group(pid, self.pid)

    def ordinals(self, known: tuple[tuple[int, str], ...]) -> None:
        """Device numbers of the process with their UUIDs, where TensorFlow's lines have no address."""
        if known:
            self._ordinals = dict(known)

    @property
    def log(self) -> LogFacts:
        """What the log said so far."""
        return self._parser.facts

    # -- what comes out -------------------------------------------------------------------------

    def finish(
        self,
        script: ProbeScript,
        outcome: Outcome,
        *,
        started_at: datetime.datetime,
        total_seconds: float,
        fresh: bool,
        environment: dict[str, str],
        simulation: str | None,
        processes: tuple[RunProcess, ...] = (),
    ) -> Observed:
        """The draft run; of one that still goes on, what is known so far."""
        told, timeline = self.told, self._timeline
        if outcome.exit_code is not None or outcome.signal is not None:
            self._parser.close()
        facts = self._parser.facts
        outcome = msgspec.structs.replace(outcome, ended=told.ended)
        verdict, reason = self._verdict(script, outcome, facts)
        before = self._before
        limit = max((entry.granted_bytes for entry in facts.device_map if entry.granted_bytes), default=None)
        start = None
        total = None
        if before is not None and (device := before.device(timeline.device) or next(iter(before.devices), None)):
            start, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        simulated = bool(before is not None and before.simulated)
        held = self._ledger.result(context=simulated and simulation == "driver")
        busiest = next((entry for entry in held if entry.uuid == timeline.device), None)
        run = Run(
            config=script.name,
            title=script.title,
            group=script.group,
            workload=str(told.options.get("workload") or script.workload),
            workload_parameters=told.options,
            simulated=simulated,
            simulation=simulation if simulated else None,
            started_at=started_at,
            fresh=fresh,
            pid=self.pid,
            host=None if before is None else before.host.hostname,
            settings=told.settings,
            environment=environment,
            framework=told.framework,
            devices=told.devices,
            device_map=self._mapped(facts),
            placements=(*told.placements, *joined(told.placed, facts.placements)),
            ooms=self._ooms(script, facts),
            memory=Memory(
                allocator_peak_bytes=max(told.allocators.values(), default=None),
                allocator_limit_bytes=limit,
                nvml_peak_bytes=timeline.process_peak,
                nvml_device_peak_bytes=timeline.device_peak,
                nvml_before_bytes=None if start is None else int(start),
                device_total_bytes=None if total is None else int(total),
                device_uuid=timeline.device,
                driver_reserved_bytes=busiest.driver_reserved_bytes if busiest else None,
                unexplained_bytes=busiest.unexplained_bytes if busiest else None,
                context_bytes=busiest.context_bytes if busiest else None,
                devices=held,
                allocators=told.allocators,
                timeline=timeline.points(),
            ),
            throughput=told.throughput,
            phases=Phases(
                import_seconds=told.phases.get("import"),
                device_init_seconds=told.phases.get("device_init"),
                first_step_seconds=told.phases.get("first_step"),
                total_seconds=total_seconds,
            ),
            workers=tuple(map(self._weighed, told.workers)),
            processes=processes,
            results=told.results,
            errors=tuple(told.errors),
            missing_libraries=tuple(facts.missing_libraries),
            outcome=outcome,
            verdict=verdict,
            verdict_reason=reason,
            driver_version=None if before is None or before.driver is None else before.driver.version,
            gpus=() if before is None else tuple(f"{d.index} {d.name} {d.uuid}" for d in before.devices),
            problems=tuple(told.problems),
            log_tail=self._tail.lines(),
        )
        return Observed(run, facts, before)

    def skip(self, script: ProbeScript, reason: str, now: datetime.datetime) -> Observed:
        """A run that was not made, because its subject cannot be shown here."""
        self.told.skipped = reason
        self.told.ended = True
        return self.finish(
            script, Outcome(), started_at=now, total_seconds=0.0, fresh=True, environment={}, simulation=None
        )

    def _weighed(self, worker: Worker) -> Worker:
        held = self.held.get(worker.pid) if worker.pid is not None else None
        if worker.nvml_bytes is None and held:
            return msgspec.structs.replace(worker, nvml_bytes=max(held.values()))
        return worker

    def _mapped(self, facts: LogFacts) -> tuple[DeviceMapping, ...]:
        """The log's map is the framework's own word; what the process was asked fills in what it does not say."""
        said = [self._located(mapping) for mapping in facts.device_map]
        names = {mapping.framework_device for mapping in said}
        return (*said, *(mapping for name, mapping in self.told.mappings.items() if name not in names))

    def _located(self, mapping: DeviceMapping) -> DeviceMapping:
        if mapping.uuid is None and mapping.pci_bus_id is None and mapping.cuda_ordinal in self._ordinals:
            return msgspec.structs.replace(mapping, uuid=self._ordinals[mapping.cuda_ordinal])
        return mapping

    def _ooms(self, script: ProbeScript, facts: LogFacts) -> tuple[Oom, ...]:
        """Those of the log; expected where the configuration is about them, or the probe says so."""
        if any(_exhausted(error) and not error.expected for error in self.told.errors):
            return tuple(facts.ooms)
        if script.verdict == "oom" or any(_exhausted(error) for error in self.told.errors):
            return tuple(msgspec.structs.replace(oom, expected=True) for oom in facts.ooms)
        return tuple(facts.ooms)

    def _verdict(self, script: ProbeScript, outcome: Outcome, facts: LogFacts) -> tuple[Verdict, str]:
        unexpected = [error for error in self.told.errors if not error.expected]
        if outcome.timed_out:
            return "timeout", "it did not end before its deadline and was killed"
        if any(map(_exhausted, unexpected)) or (facts.ooms and (unexpected or not self.told.ended)):
            return "oom", "it ran out of memory"
        if outcome.signal is not None:
            return "error", f"it was killed by signal {outcome.signal}"
        if unexpected:
            first = unexpected[0]
            return "error", f"{first.type}: {first.message.splitlines()[0] if first.message else ''}"
        if not self.told.ended:
            return "error", f"it ended early, with exit code {outcome.exit_code}"
        if self.told.skipped is not None:
            return "skipped", self.told.skipped
        if script.verdict == "oom" and (facts.ooms or any(map(_exhausted, self.told.errors))):
            return "oom", "it ran out of memory, as this configuration shows"
        return "ok", ""


def _of_group(pid: int, leader: int | None) -> bool:
    if pid == leader:
        return True
    try:
        return leader is not None and os.getpgid(pid) == leader
    except OSError:  # gone, or of another PID namespace
        return False


def _exhausted(error: RunError) -> bool:
    return "ResourceExhausted" in error.type or "OutOfMemory" in error.type
