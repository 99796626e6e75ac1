"""Runs probes in a thread, and keeps all runs.

A front end reads :attr:`ProbeRuns.live`, :attr:`ProbeRuns.runs` and :attr:`ProbeRuns.earlier` on its own thread, and is
notified through :meth:`ProbeRuns.watch`. Cancelling a probe ends everything that it started: the runner asks for
samples ten times a second, and then gets an exception.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuwatch.core import private_folders
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.experiment.probing.interpreter import (
    ChooseInterpreter,
    Interpreter,
    choose_interpreter,
    find_interpreters,
)
from gpuwatch.experiment.probing.probe_scripts import MEASUREMENT_SECONDS, ProbeScript, find_probes, sufficient_deadline
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.history.saved_runs import RunStore
from gpuwatch.session.probe_batch import (
    MakeRunner,
    ProbeBatch,
    make_feed,
    make_runner,
)

_MAX_EVENTS = 200
_MAX_POINTS = 1200
_CLEARLY_MORE_FACTOR = 1.25
"""Factor by which a probe must hold more memory on another GPU before the graph switches to that one."""
_REDRAW_SECONDS = 0.25
_MAX_EARLIER_RUNS = 120


@dataclass(frozen=True, slots=True)
class ProbeParameters:
    """The user's choices; empty means the configuration's default."""

    workload: str = ""
    seconds: float = MEASUREMENT_SECONDS
    memory_limit: int | None = None
    fraction: float | None = None
    visible: str = ""
    """CUDA_VISIBLE_DEVICES, for configurations that set it."""
    virtual: int | None = None
    """Virtual GPUs, for the configuration that has them."""
    gpu: str = ""
    """UUID of the only GPU that probes may use; empty: all."""
    python: str = ""

    @property
    def config_options(self) -> dict[str, Any]:
        """Options of single configurations, as the runner takes them."""
        names = ("workload", "memory_limit", "fraction", "visible", "virtual")
        return {name: value for name in names if (value := getattr(self, name)) not in ("", None)}


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """State of the running batch."""

    configs: tuple[str, ...]
    done: int = 0
    config: str = ""
    step: str = ""
    """The current step before the probe sends events."""
    events: tuple[tuple[float, Event], ...] = ()
    """The probe's events with their seconds since its start; of consecutive progress reports, the last."""
    times: tuple[float, ...] = ()
    """Times of the memory samples, in seconds since the probe's start."""
    process_bytes: tuple[float | None, ...] = ()
    """GPU memory of the probe at these times."""
    device_bytes: tuple[float | None, ...] = ()
    """Memory used on its device by all owners."""
    device_total: float | None = None
    device_name: str = ""
    stopping: bool = False

    @property
    def waiting(self) -> frozenset[str]:
        return frozenset(self.configs[self.done + 1 :] if self.config else self.configs)


class Cancelled(Exception):
    """Raised when the user has stopped the batch."""


@dataclass(slots=True)
class ProbeRuns:
    """The user's choices, the running batch, and the runs of this and earlier sessions.

    ``make_runner``, ``choose_interpreter``, ``make_feed`` and ``store`` are for tests.
    """

    make_runner: MakeRunner = make_runner
    choose_interpreter: ChooseInterpreter = choose_interpreter
    make_feed: Callable[[], LiveFeed] = make_feed
    store: RunStore = field(default_factory=RunStore)
    parameters: ProbeParameters = ProbeParameters()
    selected: set[str] = field(default_factory=set)
    runs: dict[str, Run] = field(default_factory=dict)
    """This session's latest run of each configuration."""
    earlier: tuple[Run, ...] = ()
    """Runs of earlier sessions, newest first."""
    problem: GpuwatchError | None = None
    """Why the last batch could not run; None if it could."""
    notes: tuple[str, ...] = ()
    interpreter: Interpreter | None = None
    live: RunningBatch | None = None
    _scripts: dict[str, ProbeScript] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None
    _cancel: threading.Event = field(default_factory=threading.Event)
    _on_change: Callable[[], object] | None = None
    _is_loading: bool = False
    _has_loaded: bool = False
    _notified_at: float = 0.0

    # On the thread of the front end

    @property
    def scripts(self) -> dict[str, ProbeScript]:
        if self._scripts is None:
            self._scripts = find_probes()
        return self._scripts

    def watch(self, wake: Callable[[], object]) -> None:
        """Calls ``wake`` from another thread whenever something changes; loads earlier runs once."""
        self._on_change = wake
        self._begin_loading()

    @property
    def why_earlier_unread(self) -> str:
        """Why earlier runs are not read; empty if they are. Once that has been mended, they are loaded."""
        if self._has_loaded and self.store.why_untrusted and not private_folders.why_untrusted(self.store.folder):
            self._is_loading = self._has_loaded = False
            self._begin_loading()
        return f"earlier runs are not read: {self.store.why_untrusted}" if self.store.why_untrusted else ""

    def _begin_loading(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            threading.Thread(target=self._load, name="gpuwatch-runs", daemon=True).start()

    def choose_gpu(self, uuid: str) -> None:
        self.parameters = replace(self.parameters, gpu=uuid)

    def start(self, configs: Sequence[str], visible: Sequence[str] = ()) -> bool:
        """Starts a batch; False if one is running or ``configs`` is empty.

        ``visible``: UUIDs of the GPUs that probes may use; empty leaves the environment unchanged.
        """
        if self.live is not None or not configs:
            return False
        self.problem, self.notes = None, ()
        self._cancel.clear()
        self.live = RunningBatch(tuple(configs), step="searching for the framework")
        scripts = [self.scripts[config] for config in configs]
        self._thread = threading.Thread(
            target=self._run_batch, args=(scripts, self.parameters, tuple(visible)), name="gpuwatch-probes", daemon=True
        )
        self._thread.start()
        return True

    def cancel(self) -> bool:
        """Ends the running probe and skips the rest; False if nothing is running."""
        if self.live is None:
            return False
        self._cancel.set()
        self._update(stopping=True)
        return True

    def stop(self) -> None:
        """Ends what is running, and waits for it."""
        self._on_change = None
        self._cancel.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    @property
    def all_runs(self) -> list[Run]:
        """All runs, newest first."""
        own = sorted(self.runs.values(), key=lambda run: run.started_at, reverse=True)
        return [*own, *self.earlier]

    # On threads of its own

    def _load(self) -> None:
        runs = self.store.latest(_MAX_EARLIER_RUNS)
        with self._lock:
            times = {run.started_at for run in self.runs.values()}
            self.earlier = tuple(run for run in runs if run.started_at not in times)
            self._has_loaded = True
        self._notify()

    def _notify(self, *, at_once: bool = True) -> None:
        now = time.monotonic()
        if self._on_change is not None and (at_once or now - self._notified_at >= _REDRAW_SECONDS):
            self._notified_at = now
            self._on_change()

    def _update(self, *, at_once: bool = True, **changes: Any) -> None:
        with self._lock:
            if self.live is not None:
                self.live = replace(self.live, **changes)
        self._notify(at_once=at_once)

    def _run_batch(self, scripts: list[ProbeScript], parameters: ProbeParameters, visible: tuple[str, ...]) -> None:
        try:
            self._run_probes(scripts, parameters, visible)
        except Cancelled:
            self._add_notes("stopped: the running probe was ended, queued ones were skipped")
        except GpuwatchError as error:
            self.problem = error
        except Exception as error:  # noqa: BLE001  (a thread that dies silently would look like a hang)
            self.problem = GpuwatchError(f"the run failed: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self.live = None
            self._notify()

    def _run_probes(self, scripts: list[ProbeScript], parameters: ProbeParameters, visible: tuple[str, ...]) -> None:
        # It imports the log parsers, which the tab does not need.
        from gpuwatch.experiment.probing.probe_runner import ProbeOptions

        progress = _BatchProgress(self, visible[0] if visible else "")
        with ProbeBatch(progress.watch, make_feed=self.make_feed, make_runner=self.make_runner) as batch:
            interpreters = find_interpreters(
                (script.framework for script in scripts), parameters.python or None, self.choose_interpreter
            )
            self.interpreter = next(iter(interpreters.values()))
            options = ProbeOptions(
                interpreters=interpreters,
                seconds=parameters.seconds,
                deadline=sufficient_deadline(scripts, parameters.seconds),
                visible_uuids=visible,
                config_options=parameters.config_options,
                always_fresh=len(scripts) == 1,
            )
            batch.open(options, machine=batch.machine())
            for number, script in enumerate(scripts):
                progress.begin(number, script.name)
                self._save(batch.run(script, progress.take))
                self._add_notes(*batch.notes)

    def _save(self, run: Run) -> None:
        with self._lock:
            before = self.runs.get(run.config)
            if before is not None:
                self.earlier = (before, *self.earlier)
            # A new dictionary: the front end's thread may be iterating over the old one.
            self.runs = {**self.runs, run.config: run}
        try:
            self.store.save(run)
        except OSError as error:
            self._add_notes(f"runs are not saved: {self.store.folder}: {error.strerror or error}")
        self._notify()

    def _add_notes(self, *notes: str) -> None:
        self.notes = tuple(dict.fromkeys((*self.notes, *notes)))


class _BatchProgress:
    """Updates :attr:`ProbeRuns.live`; raises if the user has stopped the batch."""

    def __init__(self, runs: ProbeRuns, gpu: str) -> None:
        self._runs = runs
        self._gpu = gpu
        self._pid: int | None = None
        self._uuid = gpu
        """UUID of the device in the graph."""
        self._started_at = time.monotonic()

    def begin(self, number: int, config: str) -> None:
        self._pid, self._uuid, self._started_at = None, self._gpu, time.monotonic()
        self._runs._update(
            done=number,
            config=config,
            step="starting the interpreter",
            events=(),
            times=(),
            process_bytes=(),
            device_bytes=(),
        )

    def watch(self, taken: list[Snapshot]) -> None:
        """Takes new samples; :class:`Cancelled` if the user has stopped the batch."""
        if self._runs._cancel.is_set():
            raise Cancelled
        if taken:
            self._show(taken[-1])

    def take(self, event: Event) -> None:
        if event.kind == "start":
            pid = event.data.get("pid")
            self._pid = pid if isinstance(pid, int) else None
        batch = self._runs.live
        if batch is not None:
            replaces_last = event.kind == "progress" and bool(batch.events) and batch.events[-1][1].kind == "progress"
            events_before = batch.events[:-1] if replaces_last else batch.events
            events = (*events_before, (time.monotonic() - self._started_at, event))[-_MAX_EVENTS:]
            self._runs._update(events=events, at_once=event.kind != "progress")

    def _show(self, snapshot: Snapshot) -> None:
        batch = self._runs.live
        if batch is None:
            return
        own_bytes = {
            process.device_uuid: process.number("gpu_memory_bytes")
            for process in snapshot.processes
            if process.pid == self._pid and process.device_uuid
        }
        busiest_uuid = max(own_bytes, key=lambda uuid: own_bytes[uuid] or 0.0) if own_bytes else self._uuid
        if (own_bytes.get(busiest_uuid) or 0.0) <= _CLEARLY_MORE_FACTOR * (own_bytes.get(self._uuid) or 0.0):
            busiest_uuid = self._uuid  # do not switch between devices with about the same memory
        device = snapshot.device(busiest_uuid) or next(iter(snapshot.devices), None)
        if device is None:
            return
        if device.uuid != self._uuid:
            # Do not mix values of two devices in one graph.
            self._uuid = device.uuid
            batch = replace(batch, times=(), process_bytes=(), device_bytes=())
        self._runs._update(
            at_once=False,
            times=(*batch.times, time.monotonic() - self._started_at)[-_MAX_POINTS:],
            process_bytes=(*batch.process_bytes, own_bytes.get(device.uuid))[-_MAX_POINTS:],
            device_bytes=(*batch.device_bytes, device.number("memory.used_bytes"))[-_MAX_POINTS:],
            device_total=device.number("memory.total_bytes"),
            device_name=f"GPU {device.index}",
        )
