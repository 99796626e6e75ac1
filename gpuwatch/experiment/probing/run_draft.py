"""Gathers what a run reported and what NVML showed of it into a draft of the Run.

The draft has facts only; the diagnosis adds causes, fallbacks and the final verdict.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping

import msgspec

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.probe_events import Event
from gpuwatch.core.model.program_waits import Standstill
from gpuwatch.core.model.run import (
    HOST_ALLOCATORS,
    DeviceMapping,
    Oom,
    Outcome,
    Phases,
    Run,
    RunProcess,
    Verdict,
    Worker,
)
from gpuwatch.core.model.run_memory import NO_PEAK_PREFIX, Memory
from gpuwatch.core.model.snapshot import Process, Snapshot, pci_slot
from gpuwatch.core.model.visible_devices import visible_to
from gpuwatch.experiment.probing.op_placement import OpCounts, graph_coverage, merge_op_counts
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.experiment.probing.received_events import ReceivedEvents
from gpuwatch.experiment.probing.reprinted_lines import FailureCounts, is_older, without_printed
from gpuwatch.experiment.probing.run_gpu_memory import MemoryLedger, Timeline
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import LogParser
from gpuwatch.explain.logs.oom_collector import is_out_of_memory_error
from gpuwatch.explain.logs.op_placement_lines import IDLE_OPS
from gpuwatch.explain.logs.output_tail import OutputTail
from gpuwatch.sim.simulated_sysfs import ENV_STATE
from gpuwatch.sim.unsupported_messages import simulation_limit

_MAX_PROCESSES = 1024
_MAX_FEW_SAMPLES = 5
"""With more, a program that ran out of GPU memory and was never listed is one that NVML does not list."""
_IN_USE = ("memory.used_bytes", "memory.free_bytes")


class RunDraft(msgspec.Struct, frozen=True):
    """An execution: the draft run, the facts from its log, the machine before its start."""

    run: Run
    log: LogFacts
    before: Snapshot | None
    """If no sample came in time: from a later one, without memory in use."""


class RunBuilder:
    """Takes the events, log lines and snapshots of one execution."""

    def __init__(
        self,
        started: float,
        before: Snapshot | None,
        in_run: Callable[[int], bool] | None = None,
        *,
        started_at: datetime.datetime | None = None,
    ) -> None:
        """``started``: monotonic time of the launch; ``before``: the snapshot before it.

        ``in_run``: whether a pid belongs to the run; by default, those in the probe's process group do.
        ``started_at``: lines that a framework wrote before this are left out; by default none are.
        """
        self._started_at = started_at
        self._before = before
        self._machine = before
        """The snapshot that lists the GPUs: ``before``, or the first one that came."""
        self._in_run = in_run
        self._started = started
        self._known: set[int] = set()
        self._strangers = frozenset(process.pid for process in before.processes) if before is not None else frozenset()
        self._parser = LogParser()
        self._tail = OutputTail()
        self.state = ReceivedEvents()
        self._ledger = MemoryLedger(before)
        self._timeline = Timeline(started)
        self._samples = 0
        self._first_sample: float | None = None
        """Seconds from the launch to the first sample after it."""
        self.held: dict[int, dict[str, int]] = {}
        """Peak GPU memory in bytes, by pid of the run and device UUID."""
        self._ordinals: dict[int, str] = {}
        self._limits: list[str] = []
        self.pid: int | None = None

    # -- what comes in --------------------------------------------------------------------------

    def log_line(self, raw: bytes) -> None:
        """One line of the probe's stdout or stderr."""
        line = raw.decode("utf-8", "replace")
        if self._started_at is None or not is_older(line, self._started_at):
            self._parser.feed(line)
        self.tail_line(line)

    def tail_line(self, line: str) -> None:
        """Adds a line to the tail; of a progress bar, its last state."""
        self._tail.add(line)
        if (limit := simulation_limit(line)) is not None and limit not in self._limits:
            self._limits.append(limit)

    def event_line(self, raw: bytes) -> Event | None:
        """Takes one line from the event pipe; None if it is not an event."""
        event = self.state.line(raw)
        if self.state.pid is not None:
            self.pid = self.state.pid
        return event

    def snapshot(self, snapshot: Snapshot, now: float) -> None:
        """Adds a sample at monotonic time ``now``."""
        if self._machine is None or (self._before is None and self._machine.driver is None):
            self._machine = self._seen_late(snapshot)
        self._samples += 1
        if self._first_sample is None:
            self._first_sample = now - self._started
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
            # A probe with two workers counts as the larger one, a user's program as the sum of its processes.
            sizes[process.device_uuid] = before + amount if self._in_run is not None else max(before, amount)
            if process.pid not in self.held and len(self.held) >= _MAX_PROCESSES:
                continue
            held = self.held.setdefault(process.pid, {})
            held[process.device_uuid] = max(held.get(process.device_uuid, 0), int(amount))
        own = pids if self._in_run is not None else {self.pid} & pids
        self._ledger.take(snapshot, {pid for pid in own if pid is not None}, pids, round(now - self._started, 3))
        self._timeline.take(snapshot, sizes, self.state.allocator_now, now, pids)

    def _seen_late(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot that came after the start, without what was in use: that may be the run's own."""
        devices = tuple(
            msgspec.structs.replace(
                device, readings={name: value for name, value in device.readings.items() if name not in _IN_USE}
            )
            for device in snapshot.devices
        )
        others = tuple(process for process in snapshot.processes if not self._belongs(process))
        return msgspec.structs.replace(snapshot, devices=devices, processes=others)

    def _belongs(self, process: Process) -> bool:
        if self._in_run is not None:
            return self._in_run(process.pid)
        if process.pid in self._known or process.pid == self.pid:
            return True
        if process.pid in self._strangers:
            return False
        try:
            own = self.pid is not None and os.getpgid(process.pid) == self.pid
        except OSError:
            # It has exited since the sample, or is in another PID namespace (then its start time is unknown). Count
            # exited processes as the run's: a worker that has just died must not be reported as somebody else's.
            own = process.create_time is not None
        if own:
            self._known.add(process.pid)
        return own

    def ordinals(self, known: tuple[tuple[int, str], ...]) -> None:
        """UUIDs by device number, for devices that TensorFlow logs without a PCI address."""
        if known:
            self._ordinals = dict(known)

    @property
    def log(self) -> LogFacts:
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
        placed: tuple[OpCounts, ...] = (),
        failure_counts: FailureCounts | None = None,
    ) -> RunDraft:
        """The draft run; of a running program, what is known so far. ``failure_counts``: see :class:`FailureCounts`."""
        state, timeline = self.state, self._timeline
        timeline.prefer(self._mapped_gpus(environment))
        shown = timeline.shown
        if outcome.exit_code is not None or outcome.signal is not None:
            self._parser.close()
        facts = without_printed(self._parser.facts, failure_counts)
        outcome = msgspec.structs.replace(outcome, ended=state.ended)
        verdict, reason = self._verdict(script, outcome, facts)
        before, machine = self._before, self._machine
        limit = max((entry.granted_bytes for entry in facts.device_map if entry.granted_bytes), default=None)
        start = total = None
        if before is not None and (device := before.device(timeline.device) or next(iter(before.devices), None)):
            start, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        simulated = machine.simulated if machine is not None else ENV_STATE in environment
        held = self._ledger.result(context=simulated and simulation is not None)
        busiest = next((entry for entry in held if entry.uuid == timeline.device), None)
        placements, copies = merge_op_counts(placed or (state.placed,))
        missed = self._why_no_peak(facts, total_seconds)
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
            device_map=self._device_map(facts),
            placements=placements or tuple(facts.placements),
            placement_coverage=graph_coverage(placed),
            copies=tuple(copy for copy in copies or facts.copies if copy.op not in IDLE_OPS),
            ooms=self._ooms(script, facts),
            memory=Memory(
                allocator_peak_bytes=max(state.allocators.values(), default=None),
                allocator_limit_bytes=limit,
                nvml_peak_bytes=None if missed else shown.process_peak,
                nvml_device_peak_bytes=None if missed else shown.device_peak,
                nvml_before_bytes=None if start is None else int(start),
                device_total_bytes=None if total is None else int(total),
                device_uuid=timeline.device,
                driver_reserved_bytes=busiest.driver_reserved_bytes if busiest else None,
                unexplained_bytes=busiest.unexplained_bytes if busiest else None,
                context_bytes=busiest.context_bytes if busiest else None,
                devices=held,
                allocators=state.allocators,
                timeline=shown.points(),
            ),
            throughput=state.throughput,
            step_times=tuple(
                msgspec.structs.replace(step, t=round(step.t - self._started, 6), seconds=round(step.seconds, 6))
                for step in state.steps.latest
            ),
            phases=Phases(
                import_seconds=state.phases.get("import"),
                device_init_seconds=state.phases.get("device_init"),
                first_step_seconds=state.phases.get("first_step"),
                total_seconds=total_seconds,
                ended_at={name: round(at - self._started, 3) for name, at in state.phase_ends.items()},
            ),
            retraced=state.retraced,
            waiting=state.waiting,
            pipeline=state.pipeline,
            standstill=self._standstill(),
            workers=tuple(map(self._with_memory, state.workers)),
            processes=processes,
            results=state.results,
            errors=tuple(state.errors),
            missing_libraries=tuple(facts.missing_libraries),
            outcome=outcome,
            verdict=verdict,
            verdict_reason=reason,
            driver_version=None if machine is None or machine.driver is None else machine.driver.version,
            gpus=() if machine is None else tuple(f"{d.index} {d.name} {d.uuid}" for d in machine.devices),
            problems=(*state.problems, *filter(None, (self._why_no_sample(), missed))),
            log_tail=self._tail.lines(),
        )
        return RunDraft(run, facts, machine)

    def skip(self, script: ProbeScript, reason: str, now: datetime.datetime) -> RunDraft:
        """The draft of a probe that was not run because it does not apply here."""
        self.state.skipped = reason
        self.state.ended = True
        return self.finish(
            script, Outcome(), started_at=now, total_seconds=0.0, fresh=True, environment={}, simulation=None
        )

    def _standstill(self) -> Standstill | None:
        """The process's, by the run's clock."""
        found = self.state.standstill
        if found is None:
            return None
        since, until = found.since_seconds - self._started, found.until_seconds - self._started
        return msgspec.structs.replace(found, since_seconds=round(since, 3), until_seconds=round(until, 3))

    def _why_no_peak(self, facts: LogFacts, seconds: float) -> str:
        """Why NVML's peak is unknown; empty if it is known. Without a sample the peak is not 0."""
        allocated, seen = max(self.state.allocators.values(), default=None), self._timeline.shown.process_peak
        if self._in_run is None or self._machine is None or self._machine.driver is None:
            return ""
        refused = self._samples < _MAX_FEW_SAMPLES and any(oom.allocator not in HOST_ALLOCATORS for oom in facts.ooms)
        if allocated is None and not seen and (facts.device_map or refused):
            return f"{NO_PEAK_PREFIX}no sample was taken while the program used its GPUs"
        if not seen and (self._first_sample is None or self._first_sample > seconds):
            return f"{NO_PEAK_PREFIX}no sample was taken while it ran"
        if (allocated or 0) <= (seen or 0):
            return ""
        text = f"{NO_PEAK_PREFIX}no sample was taken while the program held the most"
        return f"{text} (allocator peak {size(allocated)}, seen by NVML {size(seen)})"

    def _why_no_sample(self) -> str:
        if self._before is not None or self.pid is None:
            return ""
        when = "while it ran" if self._machine is None else "before its start: memory in use then is unknown"
        return f"GPUs: no sample was taken {when}"

    def _with_memory(self, worker: Worker) -> Worker:
        held = self.held.get(worker.pid) if worker.pid is not None else None
        if worker.nvml_bytes is None and held:
            return msgspec.structs.replace(worker, nvml_bytes=max(held.values()))
        return worker

    def _device_map(self, facts: LogFacts) -> tuple[DeviceMapping, ...]:
        """The log's device map, plus devices that only the process itself reported."""
        logged = [self._with_uuid(mapping) for mapping in facts.device_map]
        names = {mapping.framework_device for mapping in logged}
        return (*logged, *(mapping for name, mapping in self.state.mappings.items() if name not in names))

    def _mapped_gpus(self, environment: dict[str, str]) -> set[str]:
        """UUIDs of the device map: as reported, else by PCI address, else by CUDA's device order."""
        devices = () if self._machine is None else self._machine.devices
        ordinals = {entry.ordinal: entry.uuid for entry in visible_to(environment, devices).map}
        slots = {pci_slot(device.pci_bus_id): device.uuid for device in devices}
        found = set()
        for mapping in self._device_map(self._parser.facts):
            if mapping.uuid is not None:
                found.add(mapping.uuid)
            elif mapping.pci_bus_id is not None:
                found.add(slots.get(pci_slot(mapping.pci_bus_id), ""))
            elif mapping.cuda_ordinal is not None:
                found.add(ordinals.get(mapping.cuda_ordinal, ""))
        return found - {""}

    def _with_uuid(self, mapping: DeviceMapping) -> DeviceMapping:
        mapping = own_ordinal(mapping, self.state.mappings)
        if mapping.uuid is None and mapping.pci_bus_id is None and mapping.cuda_ordinal in self._ordinals:
            uuid = self._ordinals[mapping.cuda_ordinal]
            # Each further logical device on a GPU has its own number.
            ordinal = min(number for number, other in self._ordinals.items() if other == uuid)
            return msgspec.structs.replace(mapping, uuid=uuid, cuda_ordinal=ordinal)
        return mapping

    def _ooms(self, script: ProbeScript, facts: LogFacts) -> tuple[Oom, ...]:
        """OOMs in the log, marked as expected if the configuration is about them or the probe said so."""
        if any(is_out_of_memory_error(error) and not error.expected for error in self.state.errors):
            return tuple(facts.ooms)
        if script.verdict == "oom" or any(is_out_of_memory_error(error) for error in self.state.errors):
            return tuple(msgspec.structs.replace(oom, expected=True) for oom in facts.ooms)
        return tuple(facts.ooms)

    def _verdict(self, script: ProbeScript, outcome: Outcome, facts: LogFacts) -> tuple[Verdict, str]:
        unexpected = [error for error in self.state.errors if not error.expected]
        if outcome.timed_out:
            return "timeout", "It was killed at its deadline."
        if any(map(is_out_of_memory_error, unexpected)) or (facts.ooms and (unexpected or not self.state.ended)):
            return "oom", "It ran out of memory."
        if outcome.signal is not None:
            return "error", f"It was {outcome.text}."
        if unexpected:
            first = unexpected[0]
            return "error", f"{first.type}: {first.message.splitlines()[0] if first.message else ''}"
        if not self.state.ended:
            return "error", f"It exited early, with {outcome.text}."
        if self.state.skipped is not None:
            return "skipped", self.state.skipped
        if script.verdict == "oom" and (facts.ooms or any(map(is_out_of_memory_error, self.state.errors))):
            return "oom", "It ran out of memory, as this configuration shows."
        return "ok", ""


def own_ordinal(mapping: DeviceMapping, reported: Mapping[str, DeviceMapping]) -> DeviceMapping:
    """The mapping with CUDA's device number as the process reported it: a PluggableDevice logs the plug-in's."""
    known = reported.get(mapping.framework_device)
    if mapping.pci_bus_id is not None or mapping.uuid is not None or known is None or known.cuda_ordinal is None:
        return mapping
    return msgspec.structs.replace(mapping, cuda_ordinal=known.cuda_ordinal)
