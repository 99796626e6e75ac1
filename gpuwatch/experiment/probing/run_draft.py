"""Gathers what a run reported and what NVML showed of it into a draft of the Run.

The draft has facts only; the diagnosis adds causes, fallbacks and the final verdict.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from typing import Protocol

import msgspec

from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.program_behavior import Standstill
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
from gpuwatch.experiment.probing.device_maps import joined_device_map, with_reported_ordinal
from gpuwatch.experiment.probing.op_placement import OpCounts, graph_coverage, merge_op_counts
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.experiment.probing.quoted_failures import FailureCounts, was_written_before, without_quoted_failures
from gpuwatch.experiment.probing.received_events import ReceivedEvents
from gpuwatch.experiment.probing.run_gpu_memory import DeviceMemoryTracker, MemoryTimeline
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.log_parser import LogParser
from gpuwatch.explain.logs.oom_messages import is_out_of_memory_error
from gpuwatch.explain.logs.op_placement_lines import IDLE_OPS
from gpuwatch.explain.logs.output_tail import OutputTail
from gpuwatch.sim.environment import ENV_STATE
from gpuwatch.sim.simulation_limit_messages import simulation_limit

_MAX_PROCESSES = 1024
_MAX_FEW_SAMPLES = 5
"""With more, a program that ran out of GPU memory and was never listed is one that NVML does not list."""
_MIN_WORK_SECONDS = 2.0
"""A program that ends sooner after its import of PyTorch, without a GPU, perhaps only asked for its version."""
_IN_USE_READINGS = ("memory.used_bytes", "memory.free_bytes")


class SnapshotSource(Protocol):
    """Where a run gets its snapshots from: the part of a feed that it needs."""

    def drain(self) -> list[Snapshot]:
        """Every snapshot since the last call."""
        ...


class RunDraft(msgspec.Struct, frozen=True):
    """An execution: the draft run, the facts from its log, the machine before its start."""

    run: Run
    log: LogFacts
    before: Snapshot | None
    """If no sample came in time: from a later one, without memory in use."""


class RunDraftBuilder:
    """Takes the events, log lines and snapshots of one execution."""

    def __init__(
        self,
        started: float,
        before: Snapshot | None,
        is_of_run: Callable[[int], bool] | None = None,
        *,
        started_at: datetime.datetime | None = None,
    ) -> None:
        """``started``: monotonic time of the launch; ``before``: the snapshot before it.

        ``is_of_run``: whether a pid belongs to the run; by default, those in the probe's process group do.
        ``started_at``: lines that a framework wrote before this are left out; by default none are.
        """
        self._started_at = started_at
        self._before = before
        self._machine = before
        """The snapshot that lists the GPUs: ``before``, or the first one that came."""
        self._is_of_run = is_of_run
        self._started = started
        self._own_pids: set[int] = set()
        self._other_pids_before = frozenset(row.pid for row in before.processes) if before is not None else frozenset()
        self._parser = LogParser()
        self._tail = OutputTail()
        self.received = ReceivedEvents()
        self._ledger = DeviceMemoryTracker(before)
        self._timeline = MemoryTimeline(started)
        self._sample_count = 0
        self._first_sample_seconds: float | None = None
        """Seconds from the launch to the first sample after it."""
        self.peak_bytes_by_pid: dict[int, dict[str, int]] = {}
        """Peak GPU memory in bytes, by pid of the run and device UUID."""
        self._uuid_by_ordinal: dict[int, str] = {}
        self._limits: list[str] = []
        self.pid: int | None = None

    # -- what comes in --------------------------------------------------------------------------

    def take_log_line(self, raw: bytes) -> None:
        """One line of the probe's stdout or stderr."""
        text = raw.decode("utf-8", "replace")
        if self._started_at is None or not was_written_before(text, self._started_at):
            self._parser.feed(text)
        self.add_tail_line(text)

    def add_tail_line(self, line: str) -> None:
        """Adds a line to the tail; of a progress bar, its last state."""
        self._tail.add(line)
        if (limit := simulation_limit(line)) is not None and limit not in self._limits:
            self._limits.append(limit)

    def take_event_line(self, line: bytes) -> Event | None:
        """Takes one line from the event pipe; None if it is not an event."""
        event = self.received.take_line(line)
        if self.received.pid is not None:
            self.pid = self.received.pid
        return event

    def take_snapshot(self, snapshot: Snapshot, now: float) -> None:
        """Adds a sample at monotonic time ``now``."""
        if self._machine is None or (self._before is None and self._machine.driver is None):
            self._machine = self._seen_late(snapshot)
        self._sample_count += 1
        if self._first_sample_seconds is None:
            self._first_sample_seconds = now - self._started
        bytes_by_gpu: dict[str, float] = {}
        pids: set[int] = set()
        for process in snapshot.processes:
            if not process.device_uuid or not self._belongs(process):
                continue
            pids.add(process.pid)
            process_bytes = process.number("gpu_memory_bytes")
            if process_bytes is None:
                continue
            earlier_bytes = bytes_by_gpu.get(process.device_uuid, 0)
            # A probe with two workers counts as the larger one, a user's program as the sum of its processes.
            bytes_by_gpu[process.device_uuid] = (
                earlier_bytes + process_bytes if self._is_of_run is not None else max(earlier_bytes, process_bytes)
            )
            if process.pid not in self.peak_bytes_by_pid and len(self.peak_bytes_by_pid) >= _MAX_PROCESSES:
                continue
            peaks = self.peak_bytes_by_pid.setdefault(process.pid, {})
            peaks[process.device_uuid] = max(peaks.get(process.device_uuid, 0), int(process_bytes))
        own_pids = {pid for pid in pids if self._is_of_run is not None or pid == self.pid}
        self._ledger.take_snapshot(snapshot, own_pids, pids, round(now - self._started, 3))
        self._timeline.take_snapshot(snapshot, bytes_by_gpu, self.received.allocator_bytes_now, now, pids)

    def _seen_late(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot that came after the start, without what was in use: that may be the run's own."""
        devices = tuple(
            msgspec.structs.replace(
                device,
                readings={name: value for name, value in device.readings.items() if name not in _IN_USE_READINGS},
            )
            for device in snapshot.devices
        )
        others = tuple(process for process in snapshot.processes if not self._belongs(process))
        return msgspec.structs.replace(snapshot, devices=devices, processes=others)

    def _belongs(self, process: Process) -> bool:
        if self._is_of_run is not None:
            return self._is_of_run(process.pid)
        if process.pid in self._own_pids or process.pid == self.pid:
            return True
        if process.pid in self._other_pids_before:
            return False
        try:
            is_own = self.pid is not None and os.getpgid(process.pid) == self.pid
        except OSError:
            # It has exited since the sample, or is in another PID namespace (then its start time is unknown). Count
            # exited processes as the run's: a worker that has just died must not be reported as somebody else's.
            is_own = process.create_time is not None
        if is_own:
            self._own_pids.add(process.pid)
        return is_own

    def set_device_uuids(self, known: tuple[tuple[int, str], ...]) -> None:
        """UUIDs by device number, for devices that TensorFlow logs without a PCI address."""
        if known:
            self._uuid_by_ordinal = dict(known)

    @property
    def log(self) -> LogFacts:
        return self._parser.facts

    # -- what comes out -------------------------------------------------------------------------

    def build(
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
        op_counts: tuple[OpCounts, ...] = (),
        failure_counts: FailureCounts | None = None,
    ) -> RunDraft:
        """The draft run; of a running program, what is known so far. ``failure_counts``: see :class:`FailureCounts`."""
        received, timeline = self.received, self._timeline
        timeline.prefer_devices(self._mapped_gpus(environment))
        busiest_timeline = timeline.busiest_timeline
        if outcome.exit_code is not None or outcome.signal is not None:
            self._parser.close()
        facts = without_quoted_failures(self._parser.facts, failure_counts)
        outcome = msgspec.structs.replace(outcome, ended=received.end_event_received)
        verdict, reason = self._verdict(script, outcome, facts)
        before, machine = self._before, self._machine
        limit_bytes = max((entry.granted_bytes for entry in facts.device_map if entry.granted_bytes), default=None)
        used_before_bytes = total_bytes = None
        if before is not None and (
            device := before.device(timeline.busiest_device) or next(iter(before.devices), None)
        ):
            used_before_bytes, total_bytes = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        simulated = machine.simulated if machine is not None else ENV_STATE in environment
        devices = self._ledger.result(context=simulated and simulation is not None)
        busiest_device = next((entry for entry in devices if entry.uuid == timeline.busiest_device), None)
        placements, copies = merge_op_counts(op_counts or (received.op_counts,))
        no_peak_reason = self._why_no_peak(facts, total_seconds)
        if no_peak_reason:
            devices = tuple(msgspec.structs.replace(entry, process_bytes=None) for entry in devices)
        run = Run(
            config=script.name,
            title=script.title,
            group=script.group,
            workload=str(received.options.get("workload") or script.workload),
            workload_parameters=received.options,
            simulated=simulated,
            simulation=simulation if simulated else None,
            simulation_limits=tuple(dict.fromkeys((*received.simulation_limits, *self._limits))) if simulated else (),
            started_at=started_at,
            fresh=fresh,
            pid=self.pid,
            host=None if machine is None else machine.host.hostname,
            settings=received.settings,
            environment=environment,
            framework=received.framework,
            devices=received.devices,
            device_map=self._device_map(facts),
            placements=placements or tuple(facts.placements),
            placement_coverage=graph_coverage(op_counts),
            copies=tuple(copy for copy in copies or facts.copies if copy.op not in IDLE_OPS),
            ooms=self._ooms(script, facts),
            memory=Memory(
                allocator_peak_bytes=max(received.allocator_peaks.values(), default=None),
                allocator_limit_bytes=limit_bytes,
                nvml_peak_bytes=None if no_peak_reason else busiest_timeline.process_peak,
                nvml_device_peak_bytes=None if no_peak_reason else busiest_timeline.device_peak,
                nvml_before_bytes=None if used_before_bytes is None else int(used_before_bytes),
                device_total_bytes=None if total_bytes is None else int(total_bytes),
                device_uuid=timeline.busiest_device,
                driver_reserved_bytes=busiest_device.driver_reserved_bytes if busiest_device else None,
                unexplained_bytes=busiest_device.unexplained_bytes if busiest_device else None,
                context_bytes=busiest_device.context_bytes if busiest_device else None,
                devices=devices,
                allocators=received.allocator_peaks,
                timeline=busiest_timeline.points(),
            ),
            throughput=received.throughput,
            step_times=tuple(
                msgspec.structs.replace(step, t=round(step.t - self._started, 6), seconds=round(step.seconds, 6))
                for step in received.steps.latest
            ),
            phases=Phases(
                import_seconds=received.phases.get("import"),
                device_init_seconds=received.phases.get("device_init"),
                first_step_seconds=received.phases.get("first_step"),
                total_seconds=total_seconds,
                ended_at={name: round(at - self._started, 3) for name, at in received.phase_ends.items()},
            ),
            retraced=received.retraced,
            waiting=received.waiting,
            pipeline=received.pipeline,
            standstill=self._standstill(),
            workers=tuple(map(self._with_memory, received.workers)),
            processes=processes,
            results=received.results,
            errors=tuple(received.errors),
            missing_libraries=tuple(facts.missing_libraries),
            outcome=outcome,
            verdict=verdict,
            verdict_reason=reason,
            driver_version=None if machine is None or machine.driver is None else machine.driver.version,
            gpus=() if machine is None else tuple(f"{d.index} {d.name} {d.uuid}" for d in machine.devices),
            problems=(
                *received.problems,
                *filter(None, (self._why_no_sample(), no_peak_reason, self._why_no_speed(total_seconds))),
            ),
            log_tail=self._tail.lines(),
        )
        return RunDraft(run, facts, machine)

    def build_skipped(self, script: ProbeScript, reason: str, now: datetime.datetime) -> RunDraft:
        """The draft of a probe that was not run because it does not apply here."""
        self.received.skipped = reason
        self.received.end_event_received = True
        return self.build(
            script, Outcome(), started_at=now, total_seconds=0.0, fresh=True, environment={}, simulation=None
        )

    def _standstill(self) -> Standstill | None:
        """The process's, by the run's clock."""
        standstill = self.received.standstill
        if standstill is None:
            return None
        since, until = standstill.since_seconds - self._started, standstill.until_seconds - self._started
        return msgspec.structs.replace(standstill, since_seconds=round(since, 3), until_seconds=round(until, 3))

    def _why_no_peak(self, facts: LogFacts, seconds: float) -> str:
        """Why NVML's peak is unknown; empty if it is known. Without a sample the peak is not 0."""
        allocator_peak = max(self.received.allocator_peaks.values(), default=None)
        nvml_peak = self._timeline.busiest_timeline.process_peak
        if self._is_of_run is None:
            granted = any(worker.granted_bytes for worker in self.received.workers)
            missed = granted and self._before is not None and not self._timeline.has_grown(self._before)
            return f"{NO_PEAK_PREFIX}no sample was taken while its processes held memory" if missed else ""
        if self._machine is None or self._machine.driver is None:
            return ""
        ran_out = any(oom.allocator not in HOST_ALLOCATORS for oom in facts.ooms)
        few_samples = ran_out and self._sample_count < _MAX_FEW_SAMPLES
        if allocator_peak is None and not nvml_peak and (facts.device_map or few_samples):
            return f"{NO_PEAK_PREFIX}no sample was taken while the program used its GPUs"
        if not nvml_peak and (self._first_sample_seconds is None or self._first_sample_seconds > seconds):
            return f"{NO_PEAK_PREFIX}no sample was taken while it ran"
        if (allocator_peak or 0) <= (nvml_peak or 0):
            return ""
        text = f"{NO_PEAK_PREFIX}no sample was taken while the program held the most"
        return f"{text} (allocator peak {size(allocator_peak)}, seen by NVML {size(nvml_peak)})"

    def _why_no_speed(self, total_seconds: float) -> str:
        """Why the speed of a program is unknown that made steps, or may have; empty if known, or if there were none."""
        steps, framework = self.received.steps, self.received.framework
        if framework is not None and framework.name == "jax" and not steps.count:
            return "speed: steps of JAX are not counted; gpuwatch.step(), called once per step, counts them"
        if not steps.count and self._has_pytorch_work(total_seconds):
            return (
                "speed: steps of PyTorch are counted by its optimizers, and none made a step; gpuwatch.step(), called "
                "once per step, counts others"
            )
        if self.received.throughput is not None or not steps.count or not steps.speed_needs:
            return ""
        return f"speed: too few steps ({steps.counted}: {steps.count}); it takes {steps.speed_needs}"

    def _has_pytorch_work(self, total_seconds: float) -> bool:
        """Whether a program did more with PyTorch than import it: it used a GPU, or went on for a while after that."""
        received = self.received
        if self._is_of_run is None or received.framework is None or received.framework.name != "torch":
            return False
        if received.device_mappings or received.allocator_peaks:
            return True
        imported_at, ended_at = received.framework_at, self._started + total_seconds
        return imported_at is not None and ended_at - imported_at >= _MIN_WORK_SECONDS

    def _why_no_sample(self) -> str:
        if self._before is not None or self.pid is None:
            return ""
        when = "while it ran" if self._machine is None else "before its start: memory in use then is unknown"
        return f"GPUs: no sample was taken {when}"

    def _with_memory(self, worker: Worker) -> Worker:
        peaks = self.peak_bytes_by_pid.get(worker.pid) if worker.pid is not None else None
        if worker.nvml_bytes is None and peaks:
            return msgspec.structs.replace(worker, nvml_bytes=max(peaks.values()))
        return worker

    def _device_map(self, facts: LogFacts) -> tuple[DeviceMapping, ...]:
        """The log's device map, plus devices that only the process itself reported."""
        return joined_device_map(map(self._with_uuid, facts.device_map), self.received.device_mappings)

    def _mapped_gpus(self, environment: dict[str, str]) -> set[str]:
        """UUIDs of the device map: as reported, else by PCI address, else by CUDA's device order."""
        devices = () if self._machine is None else self._machine.devices
        uuid_by_ordinal = {entry.ordinal: entry.uuid for entry in visible_to(environment, devices).map}
        uuid_by_pci_slot = {pci_slot(device.pci_bus_id): device.uuid for device in devices}
        uuids = set()
        for mapping in self._device_map(self._parser.facts):
            if mapping.uuid is not None:
                uuids.add(mapping.uuid)
            elif mapping.pci_bus_id is not None:
                uuids.add(uuid_by_pci_slot.get(pci_slot(mapping.pci_bus_id), ""))
            elif mapping.cuda_ordinal is not None:
                uuids.add(uuid_by_ordinal.get(mapping.cuda_ordinal, ""))
        return uuids - {""}

    def _with_uuid(self, mapping: DeviceMapping) -> DeviceMapping:
        mapping = with_reported_ordinal(mapping, self.received.device_mappings)
        if mapping.uuid is None and mapping.pci_bus_id is None and mapping.cuda_ordinal in self._uuid_by_ordinal:
            uuid = self._uuid_by_ordinal[mapping.cuda_ordinal]
            # Each further logical device on a GPU has its own number.
            ordinal = min(number for number, other in self._uuid_by_ordinal.items() if other == uuid)
            return msgspec.structs.replace(mapping, uuid=uuid, cuda_ordinal=ordinal)
        return mapping

    def _ooms(self, script: ProbeScript, facts: LogFacts) -> tuple[Oom, ...]:
        """OOMs in the log, marked as expected if the configuration is about them or the probe said so."""
        errors = [error for error in self.received.errors if is_out_of_memory_error(error)]
        if all(error.expected for error in errors) and (errors or script.verdict == "oom"):
            return tuple(msgspec.structs.replace(oom, expected=True) for oom in facts.ooms)
        return tuple(facts.ooms)

    def _verdict(self, script: ProbeScript, outcome: Outcome, facts: LogFacts) -> tuple[Verdict, str]:
        unexpected = [error for error in self.received.errors if not error.expected]
        if outcome.timed_out:
            return "timeout", "It was killed at its deadline."
        if any(map(is_out_of_memory_error, unexpected)) or (
            facts.ooms and (unexpected or not self.received.end_event_received)
        ):
            return "oom", "It ran out of memory."
        if outcome.signal is not None:
            return "error", f"It was {outcome.text}."
        if unexpected:
            first = unexpected[0]
            return "error", f"{first.type}: {first.message.splitlines()[0] if first.message else ''}"
        if not self.received.end_event_received:
            return "error", f"It exited early, with {outcome.text}."
        if self.received.skipped is not None:
            return "skipped", self.received.skipped
        if script.verdict == "oom" and (facts.ooms or any(map(is_out_of_memory_error, self.received.errors))):
            return "oom", "It ran out of memory, as this configuration shows."
        return "ok", ""
