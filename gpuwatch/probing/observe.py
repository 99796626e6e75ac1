"""What a run said and showed, gathered into a draft of the Run.

The draft has facts only; causes, fallbacks and the final verdict are the diagnosis's.
"""

from __future__ import annotations

import datetime
import os
from collections import deque
from typing import Any

import msgspec

from gpuwatch.logs.facts import LogFacts
from gpuwatch.logs.tensorflow import LogParser
from gpuwatch.model.events import BrokenEvent, Event, decode_event
from gpuwatch.model.run import (
    DeviceMapping,
    Devices,
    Framework,
    Memory,
    MemoryPoint,
    Oom,
    Outcome,
    Phases,
    Placement,
    Run,
    RunError,
    Setting,
    Throughput,
    Verdict,
    Worker,
)
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.probing.ledger import Ledger
from gpuwatch.probing.locate import ProbeScript

_TAIL_LINES = 80
_LONGEST = 2000
_POINTS = 600


class Observed(msgspec.Struct, frozen=True):
    """A finished execution: the draft run, what its log said, the machine before it started."""

    run: Run
    log: LogFacts
    before: Snapshot | None


class Observation:
    """Takes events, log lines and snapshots of one execution as they come."""

    def __init__(self, started: float, before: Snapshot | None) -> None:
        """``started``: monotonic time of the launch; ``before``: the machine before it."""
        self._started = started
        self._before = before
        self._parser = LogParser()
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._problems: list[str] = []
        self._settings: dict[str, Setting] = {}
        self._placements: list[Placement] = []
        self._errors: list[RunError] = []
        self._phases: dict[str, float] = {}
        self._framework: Framework | None = None
        self._devices = Devices()
        self._throughput: Throughput | None = None
        self._allocator_now: int | None = None
        self._allocators: dict[str, int] = {}
        self._ledger = Ledger(before)
        self._options: dict[str, Any] = {}
        self._timeline: list[MemoryPoint] = []
        self._process_peak: int | None = None
        self._device_peak: int | None = None
        self._device: str | None = None
        self._workers: list[Worker] = []
        self._held: dict[int, int] = {}
        """Most memory that NVML showed of each process, by pid."""
        self._results: dict[str, Any] = {}
        self._map: list[DeviceMapping] = []
        self._skipped: str | None = None
        self._ordinals: dict[int, str] = {}
        self.pid: int | None = None
        self.ended = False

    # -- what comes in --------------------------------------------------------------------------

    def log_line(self, raw: bytes) -> None:
        """One line of the probe's stdout or stderr."""
        line = raw.decode("utf-8", "replace")
        self._parser.feed(line)
        self._tail.append(line[:_LONGEST])

    def event_line(self, raw: bytes) -> Event | None:
        """One line of the event descriptor; None when it was no event."""
        event = decode_event(raw)
        if isinstance(event, BrokenEvent):
            self._problems.append(f"the probe wrote a broken event ({event.problem}): {event.line[:120]}")
            return None
        try:
            self._take(event)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            self._problems.append(f"event {event.kind!r} lacks or mistypes a field: {error}")
        return event

    def snapshot(self, snapshot: Snapshot, now: float) -> None:
        """What NVML shows of the probe at monotonic time ``now``."""
        self._ledger.take(snapshot, self.pid)
        for process in snapshot.processes:
            held = process.number("gpu_memory_bytes")
            if held is not None and process.device_uuid:
                self._held[process.pid] = max(self._held.get(process.pid, 0), int(held))
        # A probe of several processes holds what they hold together: they are of its group.
        sizes: dict[str, float] = {}
        for process in snapshot.processes:
            amount = process.number("gpu_memory_bytes")
            if process.device_uuid and amount is not None and _of_group(process.pid, self.pid):
                sizes[process.device_uuid] = sizes.get(process.device_uuid, 0) + amount
        if sizes:
            self._device = max(sizes, key=lambda uuid: sizes[uuid])
        device = snapshot.device(self._device) if self._device else next(iter(snapshot.devices), None)
        if device is None:
            return
        process_bytes = int(max(sizes.values())) if sizes else None
        used = device.number("memory.used_bytes")
        self._process_peak = _larger(self._process_peak, process_bytes)
        self._device_peak = _larger(self._device_peak, None if used is None else int(used))
        self._timeline.append(
            MemoryPoint(
                t=round(now - self._started, 3),
                device_used_bytes=None if used is None else int(used),
                process_bytes=process_bytes,
                allocator_bytes=self._allocator_now,
                gpu_percent=device.number("utilization.gpu_percent"),
            )
        )
        if len(self._timeline) > 2 * _POINTS:
            self._timeline = self._timeline[::2]

    def _take(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case "start":
                self.pid = int(data["pid"])
                self._options = dict(data["options"])
            case "framework":
                self._framework = msgspec.convert(data, Framework)
            case "phase":
                self._phases[str(data["name"])] = float(data["seconds"])
            case "setting":
                self._settings[str(data["name"])] = Setting(
                    asked=data["asked"], effective=data.get("effective"), note=data.get("note", "")
                )
            case "devices":
                self._devices = msgspec.convert(data, Devices)
            case "placement":
                self._placements.append(msgspec.convert(data, Placement))
            case "memory":
                if "problem" in data:
                    self._problems.append(f"allocator of {data['device']}: {data['problem']}")
                else:
                    self._allocator_now = int(data["current"])
                    name = str(data["device"])
                    self._allocators[name] = max(self._allocators.get(name, 0), int(data["peak"]))
            case "throughput":
                self._throughput = msgspec.convert(data, Throughput)
            case "error":
                self._errors.append(msgspec.convert(data, RunError))
            case "worker":
                self._workers.append(msgspec.convert(data, Worker))
            case "result":
                name, value = str(data["name"]), data["value"]
                self._results[name] = value
                if name.startswith("cuda:") and isinstance(value, dict):
                    self._map.append(_torch_device(name, value))
            case "skip":
                self._skipped = str(data["reason"])
            case "end":
                self.ended = True
            case _:
                pass  # progress, and kinds of a newer probe

    def ordinals(self, known: tuple[tuple[int, str], ...]) -> None:
        """Device numbers of the process with their UUIDs, where TensorFlow's lines have no address."""
        if known:
            self._ordinals = dict(known)

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
    ) -> Observed:
        """The draft run."""
        self._parser.close()
        facts = self._parser.facts
        outcome = msgspec.structs.replace(outcome, ended=self.ended)
        verdict, reason = self._verdict(script, outcome, facts)
        before = self._before
        limit = max((entry.granted_bytes for entry in facts.device_map if entry.granted_bytes), default=None)
        start = None
        total = None
        if before is not None and (device := before.device(self._device) or next(iter(before.devices), None)):
            start, total = device.number("memory.used_bytes"), device.number("memory.total_bytes")
        simulated = bool(before is not None and before.simulated)
        held = self._ledger.result(context=simulated and simulation == "driver")
        busiest = next((entry for entry in held if entry.uuid == self._device), None)
        run = Run(
            config=script.name,
            title=script.title,
            group=script.group,
            workload=str(self._options.get("workload") or script.workload),
            workload_parameters=self._options,
            simulated=simulated,
            simulation=simulation if simulated else None,
            started_at=started_at,
            fresh=fresh,
            pid=self.pid,
            host=None if before is None else before.host.hostname,
            settings=self._settings,
            environment=environment,
            framework=self._framework,
            devices=self._devices,
            device_map=(*map(self._located, facts.device_map), *self._map),
            placements=(*self._placements, *facts.placements),
            ooms=self._ooms(script, facts),
            memory=Memory(
                allocator_peak_bytes=max(self._allocators.values(), default=None),
                allocator_limit_bytes=limit,
                nvml_peak_bytes=self._process_peak,
                nvml_device_peak_bytes=self._device_peak,
                nvml_before_bytes=None if start is None else int(start),
                device_total_bytes=None if total is None else int(total),
                device_uuid=self._device,
                driver_reserved_bytes=busiest.driver_reserved_bytes if busiest else None,
                unexplained_bytes=busiest.unexplained_bytes if busiest else None,
                context_bytes=busiest.context_bytes if busiest else None,
                devices=held,
                allocators=self._allocators,
                timeline=tuple(self._timeline),
            ),
            throughput=self._throughput,
            phases=Phases(
                import_seconds=self._phases.get("import"),
                device_init_seconds=self._phases.get("device_init"),
                first_step_seconds=self._phases.get("first_step"),
                total_seconds=total_seconds,
            ),
            workers=tuple(map(self._weighed, self._workers)),
            results=self._results,
            errors=tuple(self._errors),
            missing_libraries=tuple(facts.missing_libraries),
            outcome=outcome,
            verdict=verdict,
            verdict_reason=reason,
            driver_version=None if before is None or before.driver is None else before.driver.version,
            gpus=() if before is None else tuple(f"{d.index} {d.name} {d.uuid}" for d in before.devices),
            problems=tuple(self._problems),
            log_tail=tuple(self._tail),
        )
        return Observed(run, facts, before)

    def skip(self, script: ProbeScript, reason: str, now: datetime.datetime) -> Observed:
        """A run that was not made, because its subject cannot be shown here."""
        self._skipped = reason
        self.ended = True
        return self.finish(
            script, Outcome(), started_at=now, total_seconds=0.0, fresh=True, environment={}, simulation=None
        )

    def _weighed(self, worker: Worker) -> Worker:
        if worker.nvml_bytes is None and worker.pid in self._held:
            return msgspec.structs.replace(worker, nvml_bytes=self._held[worker.pid])
        return worker

    def _located(self, mapping: DeviceMapping) -> DeviceMapping:
        if mapping.uuid is None and mapping.pci_bus_id is None and mapping.cuda_ordinal in self._ordinals:
            return msgspec.structs.replace(mapping, uuid=self._ordinals[mapping.cuda_ordinal])
        return mapping

    def _ooms(self, script: ProbeScript, facts: LogFacts) -> tuple[Oom, ...]:
        """Those of the log; expected where the configuration is about them, or the probe says so."""
        if any(_exhausted(error) and not error.expected for error in self._errors):
            return tuple(facts.ooms)
        if script.verdict == "oom" or any(_exhausted(error) for error in self._errors):
            return tuple(msgspec.structs.replace(oom, expected=True) for oom in facts.ooms)
        return tuple(facts.ooms)

    def _verdict(self, script: ProbeScript, outcome: Outcome, facts: LogFacts) -> tuple[Verdict, str]:
        unexpected = [error for error in self._errors if not error.expected]
        if outcome.timed_out:
            return "timeout", "it did not end before its deadline and was killed"
        if any(map(_exhausted, unexpected)) or (facts.ooms and (unexpected or not self.ended)):
            return "oom", "it ran out of memory"
        if outcome.signal is not None:
            return "error", f"it was killed by signal {outcome.signal}"
        if unexpected:
            first = unexpected[0]
            return "error", f"{first.type}: {first.message.splitlines()[0] if first.message else ''}"
        if not self.ended:
            return "error", f"it ended early, with exit code {outcome.exit_code}"
        if self._skipped is not None:
            return "skipped", self._skipped
        if script.verdict == "oom" and (facts.ooms or any(map(_exhausted, self._errors))):
            return "oom", "it ran out of memory, as this configuration shows"
        return "ok", ""


def _torch_device(name: str, value: dict[str, Any]) -> DeviceMapping:
    """PyTorch logs no map; a probe reads it from ``torch.cuda.get_device_properties``."""
    return DeviceMapping(
        framework_device=name,
        cuda_ordinal=int(name.partition(":")[2]),
        uuid=value.get("uuid"),
        pci_bus_id=value.get("pci_bus_id"),
        name=value.get("name"),
        granted_bytes=value.get("granted_bytes"),
    )


def _of_group(pid: int, leader: int | None) -> bool:
    if pid == leader:
        return True
    try:
        return leader is not None and os.getpgid(pid) == leader
    except OSError:  # gone, or of another PID namespace
        return False


def _exhausted(error: RunError) -> bool:
    return "ResourceExhausted" in error.type or "OutOfMemory" in error.type


def _larger(before: int | None, now: int | None) -> int | None:
    if before is None or now is None:
        return now if before is None else before
    return max(before, now)
