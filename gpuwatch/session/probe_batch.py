"""A batch of probes, for command and Probes tab: choice of GPUs, and running and diagnosing one probe after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec

from gpuwatch.core.model.probes import Event
from gpuwatch.core.model.process_activity import MIN_IN_USE_PERCENT
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device, Process, Snapshot
from gpuwatch.experiment.probing.probe_scripts import ProbeScript
from gpuwatch.machine.collector.live_feed import LiveFeed

if TYPE_CHECKING:
    from gpuwatch.experiment.probing.probe_runner import ProbeOptions, ProbeRunner
    from gpuwatch.experiment.probing.run_draft import SnapshotSource

_SET_VISIBLE_IN_CODE = frozenset({"visible-late"})
"""Configurations that set CUDA_VISIBLE_DEVICES to a GPU in their own code."""
SAMPLE_SECONDS = 0.1
_FIRST_SAMPLE_SECONDS = 5.0
"""Seconds to wait for a sample before a probe runs without one."""
MakeRunner = Callable[["ProbeOptions", "SnapshotSource"], AbstractContextManager["ProbeRunner"]]


@dataclass(frozen=True, slots=True)
class Preflight:
    """A batch of probes before its start."""

    configs: tuple[str, ...]
    devices: tuple[Device, ...]
    """GPUs the probes can use; empty if there are none."""
    busy_devices: tuple[Device, ...]
    """Busy GPUs that are left alone because others are idle."""
    compute_processes: tuple[Process, ...]
    """Compute processes on these GPUs, largest first."""
    visible: tuple[str, ...]
    """UUIDs to make visible to the probes; empty: all."""
    sets_visible_itself: tuple[str, ...]
    """Configurations that set CUDA_VISIBLE_DEVICES themselves and ignore ``visible``."""

    @property
    def held_bytes(self) -> float | None:
        """GPU memory of the tenants, in bytes; None if it is unknown for one of them."""
        amounts = [process.number("gpu_memory_bytes") for process in self.compute_processes]
        known = [amount for amount in amounts if amount is not None]
        return sum(known) if len(known) == len(amounts) else None


def plan_preflight(scripts: Sequence[ProbeScript], snapshot: Snapshot | None, gpu: str) -> Preflight:
    """The GPUs to use, and the programs on them. ``gpu``: UUID of the only GPU to use; empty prefers idle ones."""
    devices = tuple(device for device in snapshot.devices if device.state == "ok") if snapshot is not None else ()
    processes = (
        [process for process in snapshot.processes if process.type != "G" and process.device_uuid]
        if snapshot is not None
        else []
    )
    busy_devices: tuple[Device, ...] = ()
    visible: tuple[str, ...] = (gpu,) if gpu else ()
    set_visible_themselves = tuple(
        script.name
        for script in scripts
        if script.name in _SET_VISIBLE_IN_CODE
        or not script.environment.get("CUDA_VISIBLE_DEVICES", "-1").startswith("-")
    )
    if gpu and not set_visible_themselves:
        devices = tuple(device for device in devices if device.uuid == gpu)
    elif not set_visible_themselves:
        used_uuids = {process.device_uuid for process in processes}
        used_uuids |= {
            device.uuid for device in devices if (device.number("utilization.gpu_percent") or 0.0) >= MIN_IN_USE_PERCENT
        }
        idle = tuple(device for device in devices if device.uuid not in used_uuids)
        gpus_needed = max((script.gpus for script in scripts), default=0)
        if idle and len(idle) >= min(gpus_needed, len(devices)):
            busy_devices = tuple(device for device in devices if device not in idle)
            devices = idle
            visible = tuple(device.uuid for device in idle) if busy_devices else ()
    device_uuids = {device.uuid for device in devices}
    processes = [process for process in processes if process.device_uuid in device_uuids]
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0.0))
    configs = tuple(script.name for script in scripts)
    return Preflight(configs, devices, busy_devices, tuple(processes), visible, set_visible_themselves)


def make_runner(options: ProbeOptions, source: SnapshotSource) -> ProbeRunner:
    """The real runner; imported late because it imports the log parsers."""
    from gpuwatch.experiment.probing.probe_runner import ProbeRunner

    return ProbeRunner(options, source)


def make_feed() -> LiveFeed:
    """A feed that samples often enough to see peaks."""
    return LiveFeed(SAMPLE_SECONDS)


class ProbeBatch:
    """Runs and diagnoses probes, with a feed of its own. A context manager that ends everything it started.

    ``on_samples`` is called ten times a second while a probe runs, with the new samples (perhaps none). An exception
    from it ends the probe and leaves :meth:`run`.
    """

    def __init__(
        self,
        on_samples: Callable[[list[Snapshot]], None] = lambda taken: None,
        *,
        make_feed: Callable[[], LiveFeed] = make_feed,
        make_runner: MakeRunner = make_runner,
    ) -> None:
        self._on_samples = on_samples
        self._feed = make_feed()
        self._make_runner = make_runner
        self._runner: ProbeRunner | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.callback(self._feed.stop)
        self._feed.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def machine(self) -> Snapshot | None:
        """The machine before any probe; None if the driver does not answer in time."""
        samples = self._feed.wait(1, _FIRST_SAMPLE_SECONDS)
        return samples[-1] if samples else None

    def open(self, options: ProbeOptions, *, machine: Snapshot | None, size: int | None = None) -> None:
        """Sets the options; ``size`` None: a matrix size that suits ``machine``, the same for all probes."""
        options = msgspec.structs.replace(options, size=size or _matrix_size(machine))
        self._runner = self._stack.enter_context(self._make_runner(options, self))

    def drain(self) -> list[Snapshot]:
        """The samples since the last call, for the runner."""
        samples = self._feed.drain()
        self._on_samples(samples)
        return samples

    def run(self, script: ProbeScript, on_event: Callable[[Event], None] | None = None) -> Run:
        """Runs one probe; returns the run with its findings."""
        from gpuwatch.explain.diagnosis.runs.finished_run import complete  # brings every rule

        assert self._runner is not None
        before = self._feed.fresh(_FIRST_SAMPLE_SECONDS)
        self._on_samples([])
        draft = self._runner.run(script, before=before, on_event=on_event)
        return complete(draft.run, draft.log, draft.before)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why probes were not forked and took longer, one sentence each."""
        return tuple(dict.fromkeys(self._runner.notes)) if self._runner is not None else ()


def _matrix_size(machine: Snapshot | None) -> int:
    """Matrix size: large enough to measure the device, small enough for the time budget."""
    if machine is None or not machine.devices:
        return 1024
    return 512 if machine.simulated else 4096
