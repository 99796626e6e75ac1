"""The lab: runs probes in a thread of its own and knows every run that there is.

The dashboard reads :attr:`Lab.live`, :attr:`Lab.runs` and :attr:`Lab.earlier` on its own thread and is
woken through :meth:`Lab.watch`. Everything that a probe started dies when it is cancelled: the runner
asks its source of snapshots ten times a second, and the one that it is given raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gpuwatch.diagnosis.complete import complete
from gpuwatch.errors import GpuwatchError
from gpuwatch.history.runs import RunStore
from gpuwatch.model.events import Event
from gpuwatch.model.run import Run
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.monitor.collector import Collector
from gpuwatch.probing.interpreter import FrameworkMissing, Interpreter, choose_interpreter
from gpuwatch.probing.locate import ProbeScript, find_probes
from gpuwatch.probing.observe import Observed
from gpuwatch.probing.runner import ProbeOptions, Runner, SnapshotSource
from gpuwatch.ui.probe_events import Said, said

SAMPLE_SECONDS = 0.1
WORKLOADS = ("matmul", "mlp", "conv", "lstm", "copy")
_SAID = 200
_POINTS = 1200
_CLEARLY = 1.25
"""How much more a probe has to hold on another GPU before that one is drawn in place of the first."""
_REDRAW = 0.25
_EARLIER = 120


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the user chose for the runs; empty means the configuration's own."""

    workload: str = ""
    seconds: float = 1.0
    memory_limit: int | None = None
    fraction: float | None = None
    visible: str = ""
    """CUDA_VISIBLE_DEVICES, for configurations that set it."""
    virtual: int | None = None
    """Virtual GPUs, for the configuration that has them."""
    gpu: str = ""
    """UUID of the only GPU that probes may see."""
    python: str = ""

    @property
    def own(self) -> dict[str, Any]:
        """Options of single configurations, as the runner takes them."""
        asked = {
            "workload": self.workload or None,
            "memory_limit": self.memory_limit,
            "fraction": self.fraction,
            "visible": self.visible or None,
            "virtual": self.virtual,
        }
        return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Live:
    """The batch that runs now."""

    configs: tuple[str, ...]
    done: int = 0
    config: str = ""
    doing: str = ""
    said: tuple[Said, ...] = ()
    times: tuple[float, ...] = ()
    """Seconds since the probe's start, one per sample of memory."""
    process: tuple[float | None, ...] = ()
    device: tuple[float | None, ...] = ()
    device_total: float | None = None
    device_name: str = ""
    stopping: bool = False

    @property
    def waiting(self) -> frozenset[str]:
        """Configurations whose turn has not come."""
        return frozenset(self.configs[self.done + 1 :] if self.config else self.configs)


class OpenRunner(Protocol):
    """What the lab needs of a runner."""

    notes: list[str]

    def run(
        self, script: ProbeScript, *, before: Snapshot | None = None, on_event: Callable[[Event], None] | None = None
    ) -> Observed:
        """Executes one probe."""
        ...


MakeRunner = Callable[[ProbeOptions, SnapshotSource], AbstractContextManager[OpenRunner]]
Choose = Callable[[str, str | None], Interpreter]


class Cancelled(Exception):
    """The user does not want the rest."""


@dataclass(slots=True)
class _Problem:
    message: str = ""
    hint: str = ""


@dataclass(slots=True)
class Lab:
    """One per app. ``make_runner``, ``choose``, ``make_collector`` and ``store`` are for tests."""

    make_runner: MakeRunner = Runner
    choose: Choose = choose_interpreter
    make_collector: Callable[[], Collector] = field(default=lambda: Collector(SAMPLE_SECONDS))
    store: RunStore = field(default_factory=RunStore)
    parameters: Parameters = Parameters()
    chosen: set[str] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    """The latest run of this session, by configuration."""
    earlier: tuple[Run, ...] = ()
    """Runs of earlier sessions, newest first."""
    problem: _Problem = field(default_factory=_Problem)
    """Why the last batch could not run, and what to do; empty when it could."""
    notes: tuple[str, ...] = ()
    interpreter: Interpreter | None = None
    live: Live | None = None
    _scripts: dict[str, ProbeScript] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _cancel: threading.Event = field(default_factory=threading.Event)
    _wake: Callable[[], object] | None = None
    _loading: bool = False
    _woken: float = 0.0

    # On the dashboard's thread

    @property
    def scripts(self) -> dict[str, ProbeScript]:
        """Every configuration, in the order of the catalogue."""
        if self._scripts is None:
            self._scripts = find_probes()
        return self._scripts

    def watch(self, wake: Callable[[], object]) -> None:
        """``wake`` is called, from another thread, when something changed; loads the earlier runs once."""
        self._wake = wake
        if not self._loading:
            self._loading = True
            threading.Thread(target=self._load, name="gpuwatch-runs", daemon=True).start()

    def choose_gpu(self, uuid: str) -> None:
        """Probes are to see this GPU only."""
        self.parameters = replace(self.parameters, gpu=uuid)

    def start(self, configs: Sequence[str]) -> bool:
        """Runs configurations one after another; False when a batch runs already or nothing was named."""
        if self.live is not None or not configs:
            return False
        self.problem, self.notes = _Problem(), ()
        self._cancel.clear()
        self.live = Live(tuple(configs), doing="looking for the framework")
        scripts = [self.scripts[config] for config in configs]
        self._thread = threading.Thread(
            target=self._work, args=(scripts, self.parameters), name="gpuwatch-probes", daemon=True
        )
        self._thread.start()
        return True

    def cancel(self) -> bool:
        """Ends the running probe and leaves out the rest; False when nothing runs."""
        if self.live is None:
            return False
        self._cancel.set()
        self._change(stopping=True)
        return True

    def stop(self) -> None:
        """The app is left: nothing may stay behind."""
        self._wake = None
        self._cancel.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def run_of(self, config: str) -> Run | None:
        """The newest run of a configuration: of this session, else of an earlier one."""
        own = self.runs.get(config)
        return own or next((run for run in self.earlier if run.config == config), None)

    @property
    def known(self) -> list[Run]:
        """Every run, newest first."""
        own = sorted(self.runs.values(), key=lambda run: run.started_at, reverse=True)
        return [*own, *self.earlier]

    # On the threads

    def _load(self) -> None:
        runs = self.store.latest(_EARLIER)
        with self._lock:
            fresh = {id(run) for run in self.runs.values()}
            times = {run.started_at for run in self.runs.values()}
            self.earlier = tuple(run for run in runs if id(run) not in fresh and run.started_at not in times)
        self._notify()

    def _notify(self, *, soon: bool = True) -> None:
        now = time.monotonic()
        if self._wake is not None and (soon or now - self._woken >= _REDRAW):
            self._woken = now
            self._wake()

    def _change(self, *, soon: bool = True, **changes: Any) -> None:
        with self._lock:
            if self.live is not None:
                self.live = replace(self.live, **changes)
        self._notify(soon=soon)

    def _work(self, scripts: list[ProbeScript], parameters: Parameters) -> None:
        try:
            self._batch(scripts, parameters)
        except Cancelled:
            self.notes = (*self.notes, "stopped: what ran was ended, the rest was left out")
        except GpuwatchError as error:
            self.problem = _Problem(error.message, error.hint)
        except Exception as error:  # noqa: BLE001  (a thread that dies silently would look like a hang)
            self.problem = _Problem(f"the run broke off: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self.live = None
            self._notify()

    def _batch(self, scripts: list[ProbeScript], parameters: Parameters) -> None:
        collector = self.make_collector()
        collector.start()
        try:
            interpreters = self._interpreters(scripts, parameters.python or None)
            machine = _last(collector.wait(1, 5.0))
            options = ProbeOptions(
                interpreters=interpreters,
                seconds=parameters.seconds,
                size=_size_for(machine),
                visible=(parameters.gpu,) if parameters.gpu else (),
                own=parameters.own,
                fresh=len(scripts) == 1,
            )
            source = _Watched(collector, self, parameters.gpu)
            with self.make_runner(options, source) as runner:
                for number, script in enumerate(scripts):
                    source.begin()
                    self._change(
                        done=number,
                        config=script.name,
                        doing="starting the interpreter",
                        said=(),
                        times=(),
                        process=(),
                        device=(),
                    )
                    before = _last(collector.wait(1, 5.0))
                    source.check()
                    observed = runner.run(script, before=before, on_event=source.take)
                    self._keep(complete(observed.run, observed.log, observed.before))
                    self.notes = tuple(dict.fromkeys(runner.notes))
        finally:
            collector.stop()

    def _interpreters(self, scripts: list[ProbeScript], asked: str | None) -> dict[str, Interpreter]:
        found: dict[str, Interpreter] = {}
        frameworks = dict.fromkeys(script.framework for script in scripts)
        for framework in frameworks:
            try:
                found[framework] = self.choose(framework, asked)
            except FrameworkMissing:
                # One that lacks PyTorch still gets its probes, which say so.
                if framework == "tensorflow" or not found:
                    raise
                found[framework] = next(iter(found.values()))
        self.interpreter = next(iter(found.values()))
        return found

    def _keep(self, run: Run) -> None:
        with self._lock:
            before = self.runs.get(run.config)
            if before is not None:
                self.earlier = (before, *self.earlier)
            # A new dictionary: the dashboard's thread may be going through the old one.
            self.runs = {**self.runs, run.config: run}
        try:
            self.store.save(run)
        except OSError as error:
            self.notes = (f"runs are not kept: {self.store.folder}: {error.strerror or error}",)
        self._notify()


class _Watched:
    """The runner's source of snapshots: shows them on the way, and raises when the user wants no more."""

    def __init__(self, collector: Collector, lab: Lab, gpu: str) -> None:
        self._collector = collector
        self._lab = lab
        self._gpu = gpu
        self.begin()

    def begin(self) -> None:
        """The next probe starts."""
        self._pid: int | None = None
        self._uuid = self._gpu
        """The device that is drawn."""
        self._began = time.monotonic()

    def check(self) -> None:
        """Raises when the user has cancelled."""
        if self._lab._cancel.is_set():
            raise Cancelled

    def drain(self) -> list[Snapshot]:
        """For the runner, ten times a second."""
        self.check()
        taken = self._collector.drain()
        if taken:
            self._show(taken[-1])
        return taken

    def take(self, event: Event) -> None:
        """An event of the running probe."""
        if event.kind == "start":
            pid = event.data.get("pid")
            self._pid = pid if isinstance(pid, int) else None
        told = said(event, time.monotonic() - self._began)
        live = self._lab.live
        if told is not None and live is not None:
            kept = live.said if told.kind == "progress" and live.said and live.said[-1].kind == "progress" else None
            lines = (*(kept[:-1] if kept is not None else live.said), told)[-_SAID:]
            self._lab._change(said=lines, doing=told.text, soon=told.kind != "progress")

    def _show(self, snapshot: Snapshot) -> None:
        live = self._lab.live
        if live is None:
            return
        mine = {
            process.device_uuid: process.number("gpu_memory_bytes")
            for process in snapshot.processes
            if process.pid == self._pid and process.device_uuid
        }
        busiest = max(mine, key=lambda uuid: mine[uuid] or 0.0) if mine else self._uuid
        if (mine.get(busiest) or 0.0) <= _CLEARLY * (mine.get(self._uuid) or 0.0):
            busiest = self._uuid  # of two that hold as much, the one that is drawn already
        device = snapshot.device(busiest) or next(iter(snapshot.devices), None)
        if device is None:
            return
        if device.uuid != self._uuid:
            # What was drawn is of another device: its values would be taken for those of this one.
            self._uuid = device.uuid
            live = replace(live, times=(), process=(), device=())
        self._lab._change(
            soon=False,
            times=(*live.times, time.monotonic() - self._began)[-_POINTS:],
            process=(*live.process, mine.get(device.uuid))[-_POINTS:],
            device=(*live.device, device.number("memory.used_bytes"))[-_POINTS:],
            device_total=device.number("memory.total_bytes"),
            device_name=f"GPU {device.index}",
        )


def _last(taken: Sequence[Snapshot]) -> Snapshot | None:
    return taken[-1] if taken else None


def _size_for(machine: Snapshot | None) -> int:
    """Large enough to measure the device, small enough for the time: one size for all runs."""
    if machine is None or not machine.devices:
        return 1024
    return 512 if machine.simulated else 4096
