"""Collects the events of one process: a probe, or a Python process that ``gpuwatch run`` watches."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from gpuwatch.core.model.probes import BrokenEventLine, Event, decode_event
from gpuwatch.core.model.program_behavior import PipelineStage, RetracedFunction, Standstill, ThreadStack, Waiting
from gpuwatch.core.model.run import (
    DeviceMapping,
    Devices,
    Framework,
    KilledChild,
    RunError,
    Setting,
    Throughput,
    TimedStep,
    Worker,
)
from gpuwatch.experiment.probing.device_maps import described_device
from gpuwatch.experiment.probing.memory_recording import MemoryRecordings
from gpuwatch.experiment.probing.op_placement import OpCounts
from gpuwatch.experiment.probing.step_times import speed_of_steps
from gpuwatch.explain.logs.device_names import explain_device_type

_MAX_ENTRIES = 100
_MAX_TIMES = 20_000
"""Limits for lists, so that a process that sends too much cannot fill memory."""
_MAX_LATEST_STEPS = 1000
"""Latest steps of which it is kept when they were made."""


class AppliedSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the setting that ``gpuwatch try`` applies inside a program."""

    name: str
    applied: bool | None = None
    """None if that was not observed."""
    overridden: str = ""
    """``train.py:12``: where the program makes this setting itself, so that ours is not applied."""
    reason: str = ""
    """Why it is not tried."""
    effective: dict[str, Any] = {}
    """The framework's own values after the setting."""


class StepCount(msgspec.Struct, kw_only=True):
    """The steps that a program has done."""

    counted: str = ""
    """What counts as a step, such as ``batches of Keras``; empty before the first one."""
    count: int = 0
    speed_needs: str = ""
    """What a speed needs, such as ``10 timed ones after the first 5``."""
    times: list[float] = []
    """Seconds of each step, without warm-up and tracing; averages where only a rate is known. At most 20,000."""
    validations: int | None = None
    """Validations and evaluations of Keras that have begun; None where they are not observed."""
    first_at: float | None = None
    """Monotonic time of the first and of the latest report, by the clock that all processes of the machine share."""
    last_at: float | None = None
    latest: deque[TimedStep] = msgspec.field(default_factory=lambda: deque(maxlen=_MAX_LATEST_STEPS))
    """The latest steps, oldest first, warm-up included; ``t`` is the monotonic time, by that clock."""


_REPLACED_EVENTS = {
    "framework": Framework,
    "devices": Devices,
    "applied": AppliedSetting,
    "waiting": Waiting,
    "pipeline": PipelineStage,
}
"""Events that replace the attribute of their name."""


class ReceivedEvents:
    """The latest value of everything that was sent; its size is bounded."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.command = ""
        self.end_event_received = False
        self.skipped: str | None = None
        self.options: dict[str, Any] = {}
        self.environment: dict[str, str] | None = None
        """GPU-related variables when it started its devices, or before that when it imported the framework."""
        self.environment_lines: dict[str, str] = {}
        """``train.py:12``: the lines of the program that set such variables, by name."""
        self.framework: Framework | None = None
        self.framework_at: float | None = None
        """Monotonic time of the first report of a framework, by the clock that all processes of the machine share."""
        self.devices = Devices()
        self.settings: dict[str, Setting] = {}
        self.op_counts = OpCounts()
        """Ops of a probe's work; with ``--placement`` the program's, with the devices that it requested."""
        self.errors: list[RunError] = []
        self.phases: dict[str, float] = {}
        self.phase_ends: dict[str, float] = {}
        """Monotonic time of the end of each phase, by the clock that all processes of the machine share."""
        self.throughput: Throughput | None = None
        self.workers: list[Worker] = []
        self.results: dict[str, Any] = {}
        self.device_mappings: dict[str, DeviceMapping] = {}
        self.problems: list[str] = []
        self.simulation_limits: list[str] = []
        """What the program asked for and simulated GPUs cannot do."""
        self.allocator_bytes_now: int | None = None
        self.allocator_peaks: dict[str, int] = {}
        """Peak of each logical device's allocator, in bytes."""
        self.allocator_ooms = 0
        """Failed allocations, as counted by the framework's own allocator."""
        self._allocated_bytes: dict[str, int] = {}
        self.applied: AppliedSetting | None = None
        self.steps = StepCount()
        self.memory_records = MemoryRecordings()
        self.retraced: tuple[RetracedFunction, ...] = ()
        self.waiting: Waiting | None = None
        self.pipeline: PipelineStage | None = None
        self.standstill: Standstill | None = None
        """With monotonic times, by the clock that all processes of the machine share."""
        self.killed_children: list[KilledChild] = []
        self.used_no_gpu = False
        """It said at its end that it could not use a GPU."""
        self.failed_allocations: int | None = None
        self.other_failures: int | None = None
        """Failed requests for memory and other failed ops, as counted inside until the end; None if not counted."""
        self.children: dict[int, int | None] = {}
        """Children that may have loaded a framework; -1 for forks of unknown pids."""

    def take_line(self, line: bytes) -> Event | None:
        """Takes one line from the event pipe; None if it is not an event."""
        event = decode_event(line)
        if isinstance(event, BrokenEventLine):
            self.note_problem(f"the probe wrote a broken event ({event.problem}): {event.line[:120]}")
            return None
        try:
            self._take_event(event)
        except (LookupError, TypeError, ValueError, ArithmeticError, msgspec.ValidationError) as error:
            self.note_problem(f"event {event.kind!r} has a missing or invalid field: {error}")
        return event

    def note_problem(self, text: str) -> None:
        """Notes something that could not be observed."""
        if len(self.problems) < _MAX_ENTRIES and text not in self.problems:
            self.problems.append(text)

    def _take_event(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case "start":
                self.pid = int(data["pid"])
                self.options = dict(data["options"])
                self.command = str(data.get("command", ""))
            case "environment":
                self.environment = msgspec.convert(data["variables"], dict[str, str])
                self.environment_lines = msgspec.convert(data.get("places", {}), dict[str, str])
            case "framework" | "devices" | "applied" | "waiting" | "pipeline":
                setattr(self, event.kind, msgspec.convert(data, _REPLACED_EVENTS[event.kind]))
                if event.kind == "framework" and self.framework_at is None:
                    self.framework_at = event.t
            case "phase":
                name = str(data["name"])
                self.phases[name] = float(data["seconds"])
                self.phase_ends[name] = event.t
            case "setting":
                self.settings[str(data["name"])] = Setting(
                    asked=data["asked"],
                    effective=data.get("effective"),
                    note=data.get("note", ""),
                    source=str(data.get("source", "")),
                )
            case "mapping":
                found = msgspec.convert(data, DeviceMapping)
                self.device_mappings[found.framework_device] = found
            case "placement":
                self.op_counts.add_placement(data)
            case "copied":
                self.op_counts.add_copies(data)
            case "placement_coverage":
                self.op_counts.graph_nodes, self.op_counts.unclear_nodes = int(data["nodes"]), int(data["unclear"])
            case "memory":
                self._take_memory(data)
            case "throughput":
                self.throughput = msgspec.convert(data, Throughput)
                self.phase_ends["steps"] = event.t
            case "error":
                if len(self.errors) < _MAX_ENTRIES:
                    error = msgspec.convert(data, RunError)
                    self.errors.append(msgspec.structs.replace(error, message=explain_device_type(error.message)))
            case "worker":
                self.workers.append(msgspec.convert(data, Worker))
            case "result":
                name, value = str(data["name"]), data["value"]
                self.results[name] = value
                if name.startswith("cuda:") and isinstance(value, dict):
                    self.device_mappings[name] = described_device(name, int(name.partition(":")[2]), value)
            case "limit":
                if len(self.simulation_limits) < _MAX_ENTRIES:
                    self.simulation_limits.append(str(data["text"]))
            case "steps":
                self._take_steps(data, event.t)
            case "retraced":
                self.retraced = msgspec.convert(data["functions"], tuple[RetracedFunction, ...])
            case "standing":
                self.standstill = None if data["since"] is None else _standstill(data)
            case "child_killed":
                if len(self.killed_children) < _MAX_ENTRIES:
                    self.killed_children.append(msgspec.convert(data, KilledChild))
            case "note":
                self.note_problem(str(data.get("text", "")))
            case "skip":
                self.skipped = str(data["reason"])
            case "end":
                self.end_event_received = True
                self.failed_allocations, self.other_failures = data.get("exhausted"), data.get("failures")
                if data.get("forks"):
                    self.children[-1] = None
            case "quiet":
                self.used_no_gpu = True
            case "child":
                if len(self.children) < _MAX_ENTRIES:
                    self.children[int(data["pid"])] = int(data["code"])
            case "memory_begin" | "memory_file" | "memory_note" | "memory_names" | "memory_end":
                self.memory_records.take_event(event.kind, data)
            case _:
                pass  # such as progress: only of interest while it runs

    def _take_steps(self, data: dict[str, Any], received_at: float) -> None:
        counted = str(data["counted"])
        if counted != self.steps.counted:
            self.steps = StepCount(counted=counted, first_at=received_at)
        self.steps.count = int(data["count"])
        self.steps.speed_needs = str(data.get("speed_needs", ""))
        self.steps.last_at = received_at
        validations = data.get("validations")
        self.steps.validations = None if validations is None else int(validations)
        warm_up = int(data["warm_up"])
        for end, seconds, number, steps in msgspec.convert(data["times"], list[tuple[float, float, int, int]]):
            self.steps.latest.append(TimedStep(t=end, seconds=seconds, number=number, steps=steps))
            if number - steps >= warm_up and len(self.steps.times) < _MAX_TIMES:
                self.steps.times.append(seconds / steps)
        timed = [step.seconds / step.steps for step in self.steps.latest if step.number - step.steps >= warm_up]
        if data["has_speed"] and timed:
            self.throughput = speed_of_steps(counted, self.steps.count, warm_up, timed)
            self.phase_ends["steps"] = received_at

    def _take_memory(self, data: dict[str, Any]) -> None:
        if "problem" in data:
            self.note_problem(f"allocator of {data['device']}: {data['problem']}")
            return
        name = str(data["device"])
        self._allocated_bytes[name] = int(data["current"])
        self.allocator_bytes_now = max(self._allocated_bytes.values())
        self.allocator_peaks[name] = max(self.allocator_peaks.get(name, 0), int(data["peak"]))
        self.allocator_ooms = max(self.allocator_ooms, int(data.get("ooms", 0)))


def _standstill(data: dict[str, Any]) -> Standstill:
    return Standstill(
        since_seconds=float(data["since"]),
        until_seconds=float(data["seen"]),
        stood_seconds=float(data["seen"]) - float(data["stood"]),
        cpu_seconds=float(data["cpu_seconds"]),
        steps=int(data["steps"]),
        threads=msgspec.convert(data["threads"], tuple[ThreadStack, ...]),
    )
