"""What one process says of itself, event by event: a probe, or a Python that ``gpuwatch run`` watches."""

from __future__ import annotations

from typing import Any

import msgspec

from gpuwatch.model.events import BrokenEvent, Event, decode_event
from gpuwatch.model.run import DeviceMapping, Devices, Framework, Placement, RunError, Setting, Throughput, Worker

_MOST = 100
_MOST_OPS = 4000
"""Entries of a list that a process which says too much may fill."""


class Told:
    """The latest of everything; memory is bounded whatever comes."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self.command = ""
        self.ended = False
        self.skipped: str | None = None
        self.options: dict[str, Any] = {}
        self.environment: dict[str, str] | None = None
        """Its variables that bear on GPUs, at the time when it started its devices, or imported the framework."""
        self.framework: Framework | None = None
        self.devices = Devices()
        self.settings: dict[str, Setting] = {}
        self.placements: list[Placement] = []
        self.placed: dict[tuple[str, str, str, str | None], int] = {}
        """Op, type, device asked for and device that it ran on (None: in a graph, placed later), how often."""
        self.errors: list[RunError] = []
        self.phases: dict[str, float] = {}
        self.throughput: Throughput | None = None
        self.workers: list[Worker] = []
        self.results: dict[str, Any] = {}
        self.mappings: dict[str, DeviceMapping] = {}
        self.problems: list[str] = []
        self.allocator_now: int | None = None
        self.allocators: dict[str, int] = {}
        """Logical device to its allocator's peak in use."""
        self.ooms = 0
        """Refusals that the framework's own allocator counted."""
        self._holds: dict[str, int] = {}

    def line(self, raw: bytes) -> Event | None:
        """One line of the event descriptor; None when it was no event."""
        event = decode_event(raw)
        if isinstance(event, BrokenEvent):
            self.problem(f"the probe wrote a broken event ({event.problem}): {event.line[:120]}")
            return None
        try:
            self._take(event)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            self.problem(f"event {event.kind!r} lacks or mistypes a field: {error}")
        return event

    def problem(self, text: str) -> None:
        """What could not be observed."""
        if len(self.problems) < _MOST and text not in self.problems:
            self.problems.append(text)

    def _take(self, event: Event) -> None:
        data = event.data
        match event.kind:
            case "start":
                self.pid = int(data["pid"])
                self.options = dict(data["options"])
                self.command = str(data.get("command", ""))
            case "environment":
                self.environment = msgspec.convert(data["variables"], dict[str, str])
            case "framework":
                self.framework = msgspec.convert(data, Framework)
            case "phase":
                self.phases[str(data["name"])] = float(data["seconds"])
            case "setting":
                self.settings[str(data["name"])] = Setting(
                    asked=data["asked"], effective=data.get("effective"), note=data.get("note", "")
                )
            case "devices":
                self.devices = msgspec.convert(data, Devices)
            case "mapping":
                found = msgspec.convert(data, DeviceMapping)
                self.mappings[found.framework_device] = found
            case "placement":
                self.placements.append(msgspec.convert(data, Placement))
            case "placed":
                self._placed(data)
            case "memory":
                self._memory(data)
            case "throughput":
                self.throughput = msgspec.convert(data, Throughput)
            case "error":
                if len(self.errors) < _MOST:
                    self.errors.append(msgspec.convert(data, RunError))
            case "worker":
                self.workers.append(msgspec.convert(data, Worker))
            case "result":
                name, value = str(data["name"]), data["value"]
                self.results[name] = value
                if name.startswith("cuda:") and isinstance(value, dict):
                    self.mappings[name] = _torch_device(name, value)
            case "note":
                self.problem(str(data.get("text", "")))
            case "skip":
                self.skipped = str(data["reason"])
            case "end":
                self.ended = True
            case _:
                pass  # progress, and kinds of a newer probe

    def _placed(self, data: dict[str, Any]) -> None:
        """More of the same op, asked for the same device: counts are added up."""
        key = (str(data["op"]), str(data["dtype"]), str(data["requested"]), data["actual"])
        if key in self.placed or len(self.placed) < _MOST_OPS:
            self.placed[key] = self.placed.get(key, 0) + int(data["count"])

    def _memory(self, data: dict[str, Any]) -> None:
        if "problem" in data:
            self.problem(f"allocator of {data['device']}: {data['problem']}")
            return
        name = str(data["device"])
        self._holds[name] = int(data["current"])
        self.allocator_now = max(self._holds.values())
        self.allocators[name] = max(self.allocators.get(name, 0), int(data["peak"]))
        self.ooms = max(self.ooms, int(data.get("ooms", 0)))


def _torch_device(name: str, value: dict[str, Any]) -> DeviceMapping:
    """PyTorch logs no map; it is read from ``torch.cuda.get_device_properties``."""
    return DeviceMapping(
        framework_device=name,
        cuda_ordinal=int(name.partition(":")[2]),
        uuid=value.get("uuid"),
        pci_bus_id=value.get("pci_bus_id"),
        name=value.get("name"),
        granted_bytes=value.get("granted_bytes"),
    )
