"""Made-up probes: what the Probes tab is tested and pictured with."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.run import DeviceMapping, Devices, Fallback, Framework, Placement, Run, Setting, Throughput
from gpuwatch.core.model.run_memory import Memory
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import Interpreter
from gpuwatch.experiment.probing.probe_runner import ProbeOptions
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.experiment.probing.run_draft import RunDraft, SnapshotSource
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.session.background_probes import ProbeRuns
from tests.ui import machines

GIB = machines.GIB
TENSORFLOW = Interpreter("/opt/venv/bin/python", "tensorflow", "2.21.0", True)


def run_of(script: ProbeScript, number: int = 0, **changes: Any) -> Run:
    """A run as it might have been: the catalogue's verdict, numbers that follow the name."""
    device = machines.device(0)
    limit = {"limit": GIB, "growth-and-limit": GIB}.get(script.name, int(137.9 * GIB))
    on_gpu = script.name not in ("cpu-only", "visible-invalid-first")
    speed = (412.0 if script.name == "growth" else 300.0) - len(script.name) if on_gpu else 3.1
    facts: dict[str, Any] = {
        "config": script.name,
        "title": script.title,
        "group": script.group,
        "workload": script.workload,
        "simulated": False,
        "started_at": machines.NOON + datetime.timedelta(seconds=number),
        "framework": Framework(name="tensorflow", version="2.21.0"),
        "devices": Devices(logical=("/device:CPU:0", "/device:GPU:0") if on_gpu else ("/device:CPU:0",)),
        "settings": {name: Setting(asked=value) for name, value in {**script.options, **script.environment}.items()},
        "device_map": (
            DeviceMapping(
                framework_device="/device:GPU:0",
                physical_index=0,
                uuid=device.uuid,
                pci_bus_id=device.pci_bus_id,
                name=device.name,
                granted_bytes=limit,
            ),
        )
        if on_gpu
        else (),
        "placements": (
            Placement(op="MatMul", dtype="float32", actual="/device:GPU:0" if on_gpu else "/device:CPU:0", count=20),
        ),
        "memory": Memory(nvml_peak_bytes=(GIB // 3 if "growth" in script.name else limit) if on_gpu else None),
        "throughput": Throughput(
            steps=400,
            warmup_steps=5,
            median_step_seconds=1 / speed,
            p10_step_seconds=0.999 / speed,
            p90_step_seconds=1.001 / speed,
            steps_per_second=speed,
        ),
        "verdict": script.verdict,
        "log_tail": ("I0000 gpu_device.cc: Created device /device:GPU:0",),
    }
    if script.verdict == "fallback":
        facts["fallbacks"] = (
            Fallback(op="MatMul", requested="GPU:7", actual="GPU:0", reason="placement.device-missing"),
        )
    facts.update(changes)
    return Run(**facts)


class FakeCollector:
    """Gives the same machine whenever it is asked."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.started = self.stopped = 0

    def start(self, wake: Callable[[], None] | None = None) -> None:
        self.started += 1

    def stop(self) -> None:
        self.stopped += 1

    def drain(self) -> list[Snapshot]:
        return [self.snapshot]

    def wait(self, count: int, timeout: float) -> list[Snapshot]:
        return [self.snapshot]

    def fresh(self, timeout: float) -> Snapshot | None:
        return self.snapshot


class FakeRunner:
    """Says what a probe would say. With ``gate`` it waits there, asking its source as a real one does."""

    def __init__(self, options: ProbeOptions, source: SnapshotSource, gate: threading.Event | None = None) -> None:
        self.options, self.source, self.gate = options, source, gate
        self.notes: list[str] = []
        self.ran: list[str] = []
        self.closed = False
        self.make = run_of

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True

    def run(
        self, script: ProbeScript, *, before: Snapshot | None = None, on_event: Callable[[Event], None] | None = None
    ) -> RunDraft:
        assert on_event is not None
        self.ran.append(script.name)
        events: list[tuple[str, dict[str, Any]]] = [
            ("start", {"pid": 4711, "options": {}}),
            ("framework", {"name": "tensorflow", "version": "2.21.0"}),
            ("devices", {"logical": ["/device:CPU:0", "/device:GPU:0"]}),
            ("placement", {"op": "MatMul", "actual": "/device:GPU:0"}),
            ("progress", {"steps": 20, "seconds": 0.2}),
            ("progress", {"steps": 40, "seconds": 0.4}),
        ]
        for kind, data in events:
            on_event(Event(0.0, kind, data))
        self.source.drain()
        while self.gate is not None and not self.gate.wait(0.02):
            self.source.drain()
        return RunDraft(self.make(script, len(self.ran)), LogFacts(), before)


class Bench:
    """Probe runs with their fakes in reach."""

    def __init__(self, folder: Path, snapshot: Snapshot | None = None) -> None:
        self.gate: threading.Event | None = None
        self.runners: list[FakeRunner] = []
        self.collector = FakeCollector(snapshot or machines.pair())
        self.make = run_of
        self.remarks: list[str] = []
        """Notes of the runners."""
        self.probe_runs = ProbeRuns(
            make_runner=self._runner,
            choose_interpreter=lambda framework, asked: TENSORFLOW,
            make_feed=lambda: self.collector,  # type: ignore[arg-type, return-value]
            store=RunStore(folder),
        )

    def _runner(self, options: ProbeOptions, source: SnapshotSource) -> FakeRunner:
        runner = FakeRunner(options, source, self.gate)
        runner.make = self.make
        runner.notes += self.remarks
        self.runners.append(runner)
        return runner

    def finish(self, seconds: float = 10.0) -> None:
        """Waits for the batch."""
        thread = self.probe_runs._thread
        if thread is not None:
            thread.join(seconds)
            assert not thread.is_alive()


HIDDEN = Finding(
    id="visibility.hidden",
    severity="info",
    certainty="fact",
    title="CUDA_VISIBLE_DEVICES=-1 hides every GPU",
    evidence=("the environment has CUDA_VISIBLE_DEVICES=-1",),
    action="unset CUDA_VISIBLE_DEVICES",
)
