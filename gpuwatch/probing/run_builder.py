"""What a run said and showed, gathered into a draft of the Run.

The draft has facts only; causes, fallbacks and the final verdict are the diagnosis's.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping

import msgspec

from gpuwatch.formatting.units import size
from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.log_parser import LogParser
from gpuwatch.logs.placement import NOISE
from gpuwatch.logs.placer_runs import MAX_NODES
from gpuwatch.logs.tail import Tail
from gpuwatch.model.events import Event
from gpuwatch.model.run import (
    DeviceMapping,
    Memory,
    Oom,
    Outcome,
    Phases,
    Placement,
    PlacementCoverage,
    Run,
    RunError,
    RunProcess,
    Verdict,
    Worker,
)
from gpuwatch.model.snapshot import Process, Snapshot, pci_slot
from gpuwatch.model.visibility import visible_devices
from gpuwatch.probing.event_state import EventState
from gpuwatch.probing.locate import ProbeScript
from gpuwatch.probing.memory_ledger import MemoryLedger
from gpuwatch.probing.placement_join import Traced, joined, plumbing
from gpuwatch.probing.timeline import Timeline
from gpuwatch.sim.limits import limit_of
from gpuwatch.sim.sysfs import ENV_STATE

_MOST_HELD = 1024
_IN_USE = ("memory.used_bytes", "memory.free_bytes")


class RunDraft(msgspec.Struct, frozen=True):
    """A finished execution: the draft run, what its log said, the machine before it started."""

    run: Run
    log: LogFacts
    before: Snapshot | None
    """From a sample that came after the start where none came in time: then without amounts of memory."""


class RunBuilder:
    """Takes events, log lines and snapshots of one execution as they come."""

    def __init__(self, started: float, before: Snapshot | None, family: Callable[[int], bool] | None = None) -> None:
        """``started``: monotonic time of the launch; ``before``: the machine before it.

        ``family`` tells whether a process belongs to the run; without it, that is the group which the probe leads.
        """
        self._before = before
        self._machine = before
        """Which GPUs there are: as before the start, or in the first sample that came."""
        self._family = family
        self._started = started
        self._known: set[int] = set()
        self._strangers = frozenset(process.pid for process in before.processes) if before is not None else frozenset()
        self._parser = LogParser()
        if family is not None:
            self._parser.keep_placer_runs()
        self._tail = Tail()
        self.state = EventState()
        self._ledger = MemoryLedger(before)
        self._timeline = Timeline(started)
        self.held: dict[int, dict[str, int]] = {}
        """Process of the run to the most that NVML showed of it on each device."""
        self._ordinals: dict[int, str] = {}
        self._limits: list[str] = []
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
        if (limit := limit_of(line)) is not None and limit not in self._limits:
            self._limits.append(limit)

    def event_line(self, raw: bytes) -> Event | None:
        """One line of the event descriptor; None when it was no event."""
        event = self.state.line(raw)
        if self.state.pid is not None:
            self.pid = self.state.pid
        return event

    def snapshot(self, snapshot: Snapshot, now: float) -> None:
        """What NVML shows of the run at monotonic time ``now``."""
        if self._machine is None or (self._before is None and self._machine.driver is None):
            self._machine = self._seen_late(snapshot)
        sizes: dict[str, float] = {}
        pids: set[int] = set()
        for process in snapshot.processes:
            if not process.device_uuid or not self._belongs(process):
                continue
            pids.add(process.pid)
            amount = process.number("gpu_memory_bytes")
            if amount is None:
                continue
            before = sizes.get(process.device_uuid, 0)
            # Two workers of a probe are two processes: the most that one of them holds is the number of "the process".
            sizes[process.device_uuid] = before + amount if self._family is not None else max(before, amount)
            if process.pid not in self.held and len(self.held) >= _MOST_HELD:
                continue
            held = self.held.setdefault(process.pid, {})
            held[process.device_uuid] = max(held.get(process.device_uuid, 0), int(amount))
        own = pids if self._family is not None else {self.pid} & pids
        self._ledger.take(snapshot, {pid for pid in own if pid is not None}, pids, round(now - self._started, 3))
        self._timeline.take(snapshot, sizes, self.state.allocator_now, now)

    def _seen_late(self, snapshot: Snapshot) -> Snapshot:
        """The machine in a sample that came after the start: no word on what was in use before it."""
        devices = tuple(
            msgspec.structs.replace(
                device, readings={name: value for name, value in device.readings.items() if name not in _IN_USE}
            )
            for device in snapshot.devices
        )
        others = tuple(process for process in snapshot.processes if not self._belongs(process))
        return msgspec.structs.replace(snapshot, devices=devices, processes=others)

    def _belongs(self, process: Process) -> bool:
        if self._family is not None:
            return self._family(process.pid)
        if process.pid in self._known or process.pid == self.pid:
            return True
        if process.pid in self._strangers:
            return False
        try:
            own = self.pid is not None and os.getpgid(process.pid) == self.pid
        except OSError:
            # Gone since the sample, or of another PID namespace: NVML listed the latter without a start time. Of the
            # former nobody can tell whose it was, and a worker that has just died must not be called somebody else.
            own = process.create_time is not None
        if own:
            self._known.add(process.pid)
        return own

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
        traced: tuple[Traced, ...] = (),
    ) -> RunDraft:
        """The draft run; of one that still goes on, what is known so far."""
        state, timeline = self.state, self._timeline
        timeline.prefer(self._mapped_gpus(environment))
        if outcome.exit_code is not None or outcome.signal is not None:
            self._parser.close()
        facts = self._parser.facts
        outcome = msgspec.structs.replace(outcome, ended=state.ended)
        verdict, reason = self._verdict(script, outcome, facts)
        before, machine = self._before, self._machine
        limit = max((entry.granted_bytes for entry in facts.device_map if entry.granted_bytes), default=None)
        start = None
        total = None
        if before is not None and (device := before.device(timeline.device) or next(iter(before.devices), None)):
            start, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        simulated = machine.simulated if machine is not None else ENV_STATE in environment
        held = self._ledger.result(context=simulated and simulation is not None)
        busiest = next((entry for entry in held if entry.uuid == timeline.device), None)
        placements, coverage = self._placed(traced, facts)
        missed = self._missed(facts)
        if missed:
            held = tuple(msgspec.structs.replace(entry, process_bytes=None) for entry in held)
        run = Run(
            config=script.name,
            title=script.title,
            group=script.group,
            workload=str(state.options.get("workload") or script.workload),
            workload_parameters=state.options,
            simulated=simulated,
            simulation=simulation if simulated else None,
            simulation_limits=tuple(dict.fromkeys((*state.limits, *self._limits))) if simulated else (),
            started_at=started_at,
            fresh=fresh,
            pid=self.pid,
            host=None if machine is None else machine.host.hostname,
            settings=state.settings,
            environment=environment,
            framework=state.framework,
            devices=state.devices,
            device_map=self._mapped(facts),
            placements=(*state.placements, *placements),
            placement_coverage=coverage,
            copies=tuple(copy for copy in facts.copies if copy.op not in NOISE and not plumbing(copy.op)),
            ooms=self._ooms(script, facts),
            memory=Memory(
                allocator_peak_bytes=max(state.allocators.values(), default=None),
                allocator_limit_bytes=limit,
                nvml_peak_bytes=None if missed else timeline.process_peak,
                nvml_device_peak_bytes=None if missed else timeline.device_peak,
                nvml_before_bytes=None if start is None else int(start),
                device_total_bytes=None if total is None else int(total),
                device_uuid=timeline.device,
                driver_reserved_bytes=busiest.driver_reserved_bytes if busiest else None,
                unexplained_bytes=busiest.unexplained_bytes if busiest else None,
                context_bytes=busiest.context_bytes if busiest else None,
                devices=held,
                allocators=state.allocators,
                timeline=timeline.points(),
            ),
            throughput=state.throughput,
            phases=Phases(
                import_seconds=state.phases.get("import"),
                device_init_seconds=state.phases.get("device_init"),
                first_step_seconds=state.phases.get("first_step"),
                total_seconds=total_seconds,
            ),
            workers=tuple(map(self._weighed, state.workers)),
            processes=processes,
            results=state.results,
            errors=tuple(state.errors),
            missing_libraries=tuple(facts.missing_libraries),
            outcome=outcome,
            verdict=verdict,
            verdict_reason=reason,
            driver_version=None if machine is None or machine.driver is None else machine.driver.version,
            gpus=() if machine is None else tuple(f"{d.index} {d.name} {d.uuid}" for d in machine.devices),
            problems=(*state.problems, *self._not_kept(), *self._not_seen(), *([missed] if missed else [])),
            log_tail=self._tail.lines(),
        )
        return RunDraft(run, facts, machine)

    def skip(self, script: ProbeScript, reason: str, now: datetime.datetime) -> RunDraft:
        """A run that was not made, because its subject cannot be shown here."""
        self.state.skipped = reason
        self.state.ended = True
        return self.finish(
            script, Outcome(), started_at=now, total_seconds=0.0, fresh=True, environment={}, simulation=None
        )

    def _placed(
        self, traced: tuple[Traced, ...], facts: LogFacts
    ) -> tuple[tuple[Placement, ...], PlacementCoverage | None]:
        """Of a program that tells what it asks for, by node; else as the log has it."""
        runs = self._parser.placer_runs
        if runs is None or not traced:
            return tuple(facts.placements), None
        return joined(traced, self._parser.eager_placements(), runs.result())

    def _missed(self, facts: LogFacts) -> str:
        """Why NVML's peak is not known; empty where it is. What nobody looked at is not 0."""
        allocated, seen = max(self.state.allocators.values(), default=None), self._timeline.process_peak
        if self._family is None or self._machine is None or self._machine.driver is None:
            return ""
        if allocated is None and not seen and facts.device_map:
            return "NVML's peak: no look at NVML fell into the time in which the program had its GPUs"
        if (allocated or 0) <= (seen or 0):
            return ""
        text = "NVML's peak: no look at NVML fell into the time in which the program held most"
        return f"{text} (its allocator held {size(allocated)}, NVML showed {size(seen)})"

    def _not_seen(self) -> Iterator[str]:
        if self._before is None and self.pid is not None:
            when = "while it ran" if self._machine is None else "before its start: what was in use then is not known"
            yield f"GPUs: no sample came {when}"

    def _not_kept(self) -> Iterator[str]:
        runs = self._parser.placer_runs
        if runs is not None and runs.left_out:
            yield f"placement: {runs.left_out} nodes of graphs, beyond the first {MAX_NODES}, are not counted"

    def _weighed(self, worker: Worker) -> Worker:
        held = self.held.get(worker.pid) if worker.pid is not None else None
        if worker.nvml_bytes is None and held:
            return msgspec.structs.replace(worker, nvml_bytes=max(held.values()))
        return worker

    def _mapped(self, facts: LogFacts) -> tuple[DeviceMapping, ...]:
        """The log's map is the framework's own word; what the process was asked fills in what it does not say."""
        logged = [self._located(mapping) for mapping in facts.device_map]
        names = {mapping.framework_device for mapping in logged}
        return (*logged, *(mapping for name, mapping in self.state.mappings.items() if name not in names))

    def _mapped_gpus(self, environment: dict[str, str]) -> set[str]:
        """UUIDs behind the device map: as the framework or the simulation told, by bus address, by CUDA's order."""
        devices = () if self._machine is None else self._machine.devices
        order, listed = environment.get("CUDA_DEVICE_ORDER"), environment.get("CUDA_VISIBLE_DEVICES")
        ordinals = {entry.ordinal: entry.uuid for entry in visible_devices(listed, order, devices).map}
        slots = {pci_slot(device.pci_bus_id): device.uuid for device in devices}
        found = set()
        for mapping in self._mapped(self._parser.facts):
            if mapping.uuid is not None:
                found.add(mapping.uuid)
            elif mapping.pci_bus_id is not None:
                found.add(slots.get(pci_slot(mapping.pci_bus_id), ""))
            elif mapping.cuda_ordinal is not None:
                found.add(ordinals.get(mapping.cuda_ordinal, ""))
        return found - {""}

    def _located(self, mapping: DeviceMapping) -> DeviceMapping:
        mapping = own_ordinal(mapping, self.state.mappings)
        if mapping.uuid is None and mapping.pci_bus_id is None and mapping.cuda_ordinal in self._ordinals:
            uuid = self._ordinals[mapping.cuda_ordinal]
            # A further logical device on the same GPU has a number of its own there.
            ordinal = min(number for number, other in self._ordinals.items() if other == uuid)
            return msgspec.structs.replace(mapping, uuid=uuid, cuda_ordinal=ordinal)
        return mapping

    def _ooms(self, script: ProbeScript, facts: LogFacts) -> tuple[Oom, ...]:
        """Those of the log; expected where the configuration is about them, or the probe says so."""
        if any(_exhausted(error) and not error.expected for error in self.state.errors):
            return tuple(facts.ooms)
        if script.verdict == "oom" or any(_exhausted(error) for error in self.state.errors):
            return tuple(msgspec.structs.replace(oom, expected=True) for oom in facts.ooms)
        return tuple(facts.ooms)

    def _verdict(self, script: ProbeScript, outcome: Outcome, facts: LogFacts) -> tuple[Verdict, str]:
        unexpected = [error for error in self.state.errors if not error.expected]
        if outcome.timed_out:
            return "timeout", "it did not end before its deadline and was killed"
        if any(map(_exhausted, unexpected)) or (facts.ooms and (unexpected or not self.state.ended)):
            return "oom", "it ran out of memory"
        if outcome.signal is not None:
            return "error", f"it was killed by signal {outcome.signal}"
        if unexpected:
            first = unexpected[0]
            return "error", f"{first.type}: {first.message.splitlines()[0] if first.message else ''}"
        if not self.state.ended:
            return "error", f"it ended early, with exit code {outcome.exit_code}"
        if self.state.skipped is not None:
            return "skipped", self.state.skipped
        if script.verdict == "oom" and (facts.ooms or any(map(_exhausted, self.state.errors))):
            return "oom", "it ran out of memory, as this configuration shows"
        return "ok", ""


def own_ordinal(mapping: DeviceMapping, reported: Mapping[str, DeviceMapping]) -> DeviceMapping:
    """A PluggableDevice's line in the log has a number of its plug-in's; the process itself tells CUDA's."""
    known = reported.get(mapping.framework_device)
    if mapping.pci_bus_id is not None or mapping.uuid is not None or known is None or known.cuda_ordinal is None:
        return mapping
    return msgspec.structs.replace(mapping, cuda_ordinal=known.cuda_ordinal)


def _exhausted(error: RunError) -> bool:
    return "ResourceExhausted" in error.type or "OutOfMemory" in error.type
