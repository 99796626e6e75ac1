"""What all trials of an experiment share: command, feed, GPUs and who uses them, output, progress, results."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gpuwatch.core.formatting.sentences import and_more
from gpuwatch.core.formatting.units import memory
from gpuwatch.core.group_by import group_by
from gpuwatch.core.masking.mask_secrets import mask_command
from gpuwatch.core.model.snapshot import Process, Snapshot
from gpuwatch.core.model.try_results import Answer, Experiment, Trial
from gpuwatch.core.model.visible_devices import VisibleMap, visible_to
from gpuwatch.core.safe_text import shorten
from gpuwatch.experiment.probing.run_draft import SnapshotSource
from gpuwatch.experiment.trials.trial_results import Interrupted
from gpuwatch.experiment.trials.trial_settings import TrialSetting
from gpuwatch.machine.collector.live_feed import LiveFeed

_SAMPLE_SECONDS = 0.2
_FIRST_SAMPLE_SECONDS = 5.0
_MAX_COMMAND_CHARS = 60
_MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class StartedTrial:
    """A trial that begins."""

    name: str
    number: int
    """Number of the trial among all, from 1."""
    planned_count: int
    """How many there will be at most; 0 if that is not known."""
    round: int = 0
    """0 for a start that only shows which framework the program loads."""
    copy: int = 0
    recorded: bool = False


class Progress:
    """Called by the trials, by copies that run at once from several threads. This one tells nothing."""

    def show_note(self, text: str) -> None:
        """Something that is done between trials, or is known so far."""

    def show_start(self, trial: StartedTrial) -> None:
        """A trial begins."""

    def show_steps(self, count: int) -> None:
        """Steps of the trial that runs."""

    def show_end(self, trial: Trial) -> None:
        """A trial is over."""

    def close(self) -> None:
        """The experiment is over, or was interrupted."""


class Feed(SnapshotSource, Protocol):
    """What a trial needs of a feed."""

    def fresh(self, timeout: float) -> Snapshot | None: ...

    def sample_now(self) -> None: ...


@dataclass(slots=True)
class TrialSetup:
    """What all trials of an experiment share."""

    command: tuple[str, ...]
    feed: Feed
    folder: Path
    """Takes a file of output for each trial; only this user may read it."""
    experiment: Experiment
    """What the trials showed so far."""
    machine: Snapshot | None = None
    """The machine before the first trial; None if the driver did not answer in time."""
    simulation: str | None = None
    """Tier of the simulated GPUs; None: the GPUs are real."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every trial."""
    success: re.Pattern[str] | None = None
    """A line of output that matches means success."""
    isolate: bool = False
    """Give each trial a fresh working folder and TMPDIR."""
    progress: Progress = field(default_factory=Progress)
    started_count: int = 0
    """Trials that were started."""
    planned_count: int = 0
    """Trials that there will be at most; 0 if that is not known."""
    interrupted: int | None = None
    """Number of the signal that interrupted the experiment; None if none did."""

    @contextmanager
    def until_interrupted(self) -> Iterator[None]:
        """Ctrl+C ends what is within: the trial that it cut short is kept, and ``interrupted`` says which signal."""
        try:
            yield
        except Interrupted as interruption:
            self.experiment.trials += (interruption.trial,) if interruption.trial is not None else ()
            self.interrupted = interruption.number
        except KeyboardInterrupt:
            self.interrupted = signal.SIGINT

    @property
    def simulated(self) -> bool:
        """Whether the GPUs are simulated: speeds are not compared then."""
        return self.simulation is not None

    @property
    def gpus(self) -> tuple[int, ...]:
        """Total memory in bytes of each GPU that the program can use as it is."""
        devices = () if self.machine is None else self.machine.devices
        uuids = {entry.uuid for entry in self.visible({}).map}
        return tuple(int(device.number("memory.total_bytes") or 0) for device in devices if device.uuid in uuids)

    def visible(self, variables: Mapping[str, str]) -> VisibleMap:
        """The GPUs of a trial with these variables."""
        devices = () if self.machine is None else self.machine.devices
        return visible_to({**os.environ, **self.variables, **variables}, devices)

    def why_in_use(self, setting: TrialSetting) -> str:
        """Why a setting is not run on GPUs that others use (without ``--share``); empty if nobody does."""
        used = self.describe_gpu_users(setting.variables)
        return f"{used} (--share runs there anyway)" if used else ""

    def describe_gpu_users(self, variables: Mapping[str, str]) -> str:
        """``GPU 0 is used by python serve.py (pid 12, alice, 12.1 GiB)``; empty if nobody is on the program's GPUs.

        ``variables``: what the program gets besides those of the setup. Graphics (a desktop) does not count.
        """
        devices = () if self.machine is None else self.machine.devices
        visible = self.visible(variables)
        uuids = {device.uuid for device in devices} if visible.why_unsure else {entry.uuid for entry in visible.map}
        compute = [] if self.machine is None else [row for row in self.machine.processes if row.type != "G"]
        processes_by_gpu = group_by(compute, lambda process: process.device_uuid)
        return "; ".join(
            f"GPU {device.index} is used by {_describe_processes(processes_by_gpu[device.uuid])}"
            for device in devices
            if device.uuid in uuids and device.uuid in processes_by_gpu
        )


@contextmanager
def running_feed(environment: dict[str, str] | None = None) -> Iterator[LiveFeed]:
    """A feed that samples as often as trials need. ``environment``: that of other simulated GPUs."""
    feed = LiveFeed(_SAMPLE_SECONDS, environment=environment)
    feed.start()
    try:
        yield feed
    finally:
        feed.stop()


@contextmanager
def open_setup(
    command: Sequence[str],
    *,
    simulation: str | None,
    success: re.Pattern[str] | None = None,
    isolate: bool = False,
    progress: Progress | None = None,
) -> Iterator[TrialSetup]:
    """A setup with its feed running and a fresh folder, which :func:`remove_output_files` removes."""
    progress = progress or Progress()
    experiment = Experiment(
        command=mask_command(command),
        started_at=datetime.datetime.now(datetime.UTC),
        took_seconds=0.0,
        rule="",
        answer=Answer(sentence="Nothing was run"),
    )
    with running_feed() as feed:
        folder = Path(tempfile.mkdtemp(prefix="gpuwatch-try-"))
        machine = feed.fresh(_FIRST_SAMPLE_SECONDS)
        try:
            yield TrialSetup(
                *(tuple(command), feed, folder, experiment, machine, simulation),
                success=success,
                isolate=isolate,
                progress=progress,
            )
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            progress.close()


def remove_output_files(folder: Path, trials: Sequence[Trial], is_kept: Callable[[Trial], bool]) -> None:
    """Removes the files of output of trials that are not ``is_kept``, and the folder if none is."""
    for trial in trials:
        if trial.output and not is_kept(trial):
            Path(trial.output).unlink(missing_ok=True)
    if not any(trial.output and is_kept(trial) for trial in trials):
        shutil.rmtree(folder, ignore_errors=True)


def _describe_processes(processes: list[Process]) -> str:
    processes.sort(key=lambda process: -(process.number("gpu_memory_bytes") or 0))
    descriptions = []
    for process in processes[:_MAX_NAMED]:
        held_bytes = process.number("gpu_memory_bytes")
        facts = (f"pid {process.pid}", process.user, None if held_bytes is None else memory(held_bytes))
        command = shorten(process.command or process.name or "a process", _MAX_COMMAND_CHARS)
        descriptions.append(f"{command} ({', '.join(filter(None, facts))})")
    return ", ".join(descriptions) + and_more(len(processes) - _MAX_NAMED)
