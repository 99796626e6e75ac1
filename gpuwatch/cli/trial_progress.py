"""How far ``gpuwatch try`` is: a table that grows on a terminal, a line for each trial elsewhere."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpuwatch.cli.output import print_line
from gpuwatch.cli.progress import SENDS_PROGRESS, progress, progress_wanted
from gpuwatch.core.formatting.durations import hours_minutes
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import count_rate, size
from gpuwatch.core.model.try_results import Trial
from gpuwatch.core.safe_text import printable
from gpuwatch.experiment.trials.trial_setup import Progress, StartedTrial

if TYPE_CHECKING:
    from rich.constrain import Constrain
    from rich.live import Live

_OTHER_ROWS = 5
"""Rows of the terminal for what is not a trial that is over."""
_MAX_ROWS = 20
_SPARE_COLUMNS = 4
"""Columns that stay free: a ^C that wrapped would move all that is drawn."""


def make_progress(budget: float, *, quiet: bool, simulated: bool) -> Progress:
    """The progress that suits stderr. ``budget``: seconds for all trials. ``simulated``: speeds mean nothing."""
    if quiet:
        return Progress()
    if SENDS_PROGRESS:
        return _SentProgress()
    return _TableProgress(budget, simulated) if progress_wanted() else _LineProgress(budget, simulated)


def trial_result(trial: Trial, *, simulated: bool) -> tuple[str, str, str, str]:
    """How a trial ended, its steps, steps per second and peak of GPU memory."""
    run = trial.run
    ended = "not tried" if run is None or trial.not_tried else "overridden" if trial.overridden else run.verdict
    step = None if simulated else trial.step_time
    speed = count_rate(1 / step.median_seconds) if step is not None and step.median_seconds > 0 else ""
    peak = run.memory.nvml_peak_bytes if run is not None else None
    return ended, str(trial.steps or ""), speed, size(peak) if peak else ""


def trial_name(trial: Trial | StartedTrial) -> str:
    """``growth BATCH=32, round 2``."""
    if trial.recorded:
        return f"{printable(trial.name)}, recording its memory"
    copy = f", copy {trial.copy}" if isinstance(trial, Trial) and trial.copy else ""
    return printable(trial.name) + copy + (f", round {trial.round}" if trial.round else ", framework check")


class _TimedProgress(Progress):
    """Tells from the trials so far how long the others take."""

    def __init__(self, budget: float, simulated: bool) -> None:
        self.simulated = simulated
        self.trial: StartedTrial | None = None
        self.trial_started = time.monotonic()
        self.deadline = self.trial_started + budget
        self.durations: list[float] = []

    def show_start(self, trial: StartedTrial) -> None:
        self.trial, self.trial_started = trial, time.monotonic()

    def show_end(self, trial: Trial) -> None:
        self.durations.append(time.monotonic() - self.trial_started)

    def number_text(self) -> str:
        """``3/12``: the trial that runs, of how many; empty if that is not known."""
        return (
            f"{self.trial.number}/{self.trial.planned_count} "
            if self.trial is not None and self.trial.planned_count
            else ""
        )

    def time_left_text(self) -> str:
        """``about 40 s left`` by the trials so far; by the budget, if less is left of that, ``at most 9 min left``."""
        most = max(self.deadline - time.monotonic(), 0.0)
        if self.trial is not None and self.trial.planned_count and self.durations:
            mean = sum(self.durations) / len(self.durations)
            expected = max(mean - (time.monotonic() - self.trial_started), 0.0)
            expected += mean * max(self.trial.planned_count - self.trial.number, 0)
            if expected < most:
                return f"about {hours_minutes(expected)} left"
        return f"at most {hours_minutes(most)} left"


class _LineProgress(_TimedProgress):
    """A line for each trial that is over."""

    def show_end(self, trial: Trial) -> None:
        super().show_end(trial)
        verdict, steps, speed, peak = trial_result(trial, simulated=self.simulated)
        steps_text = f"{steps} step{'s' * (steps != '1')}" if steps else ""
        parts = [verdict, steps_text, f"{speed} steps/s" if speed else "", peak]
        result = ", ".join(filter(None, parts))
        took = hours_minutes(self.durations[-1])
        print_line(f"gpuwatch: {self.number_text()}{trial_name(trial)}: {result} ({took}; {self.time_left_text()})")


class _SentProgress(Progress):
    """What another machine is sent: the line of the trial that runs."""

    def __init__(self) -> None:
        self.head = ""

    def show_note(self, text: str) -> None:
        progress(text)

    def show_start(self, trial: StartedTrial) -> None:
        number = f"[{trial.number}/{trial.planned_count}] " if trial.planned_count else ""
        self.head = f"{number}{printable(trial.name)}"
        progress(self.head)

    def show_steps(self, count: int) -> None:
        if count:
            progress(f"{self.head}: {count_text(count, 'step')}")

    def close(self) -> None:
        progress("")


class _TableProgress(_TimedProgress):
    """A table of what is over, and the trial that runs; it vanishes at the end, when the report is printed."""

    def __init__(self, budget: float, simulated: bool) -> None:
        from rich.console import Console

        super().__init__(budget, simulated)
        self.rows: list[tuple[str, ...]] = []
        self.status = ""
        self.count = 0
        self.lock = threading.Lock()
        self.running = 0
        self.console = Console(stderr=True)
        self.live: Live | None = None

    def show_note(self, text: str) -> None:
        self.status = text

    def show_start(self, trial: StartedTrial) -> None:
        """Shows it. Between trials nothing is drawn, so that others can print."""
        from rich.live import Live

        with self.lock:
            super().show_start(trial)
            self.count = 0
            self.running += 1
            if self.live is None:
                self.live = Live(
                    console=self.console,
                    get_renderable=self.renderable,
                    transient=True,
                    refresh_per_second=4,
                    redirect_stdout=False,
                    redirect_stderr=False,
                )
                self.live.start()

    def show_steps(self, count: int) -> None:
        self.count = count

    def show_end(self, trial: Trial) -> None:
        super().show_end(trial)
        self.rows.append((trial_name(trial), *trial_result(trial, simulated=self.simulated)))
        with self.lock:
            self.running -= 1
            if not self.running:
                self.close()

    def close(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            live.stop()

    def renderable(self) -> Constrain:
        """The whole, no higher than the terminal."""
        from rich.constrain import Constrain
        from rich.table import Table
        from rich.text import Text

        rows = self.rows[-max(min(self.console.height - _OTHER_ROWS, _MAX_ROWS), 1) :]
        table = Table(box=None, pad_edge=False, show_header=bool(rows), header_style="bold")
        table.add_column("RUN", no_wrap=True, overflow="ellipsis", ratio=1)
        for head in ("ENDED", "STEPS", "STEPS/S", "GPU MEMORY"):
            table.add_column(head, no_wrap=True, justify="left" if head == "ENDED" else "right")
        for row in rows:
            table.add_row(*map(Text, row))
        whole = Table.grid(expand=True)
        if rows:
            whole.add_row(table)
        whole.add_row(Text(self.status_line(), no_wrap=True, overflow="ellipsis"))
        if self.status:
            whole.add_row(Text(self.status, no_wrap=True, overflow="ellipsis", style="dim"))
        return Constrain(whole, self.console.width - _SPARE_COLUMNS)

    def status_line(self) -> str:
        """The trial that runs, its steps, and the time that is left."""
        if self.trial is None:
            return self.time_left_text()
        waited = hours_minutes(time.monotonic() - self.trial_started)
        steps = count_text(self.count, "step") if self.count else f"starting, {waited}"
        which = f"{self.number_text()}{trial_name(self.trial)}"
        return f"{which}: {steps}; {self.time_left_text()}; Ctrl+C stops and shows the results so far"
