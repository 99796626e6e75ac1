"""Several copies of the program at once on one GPU: who gets what, and what sharing costs (``--copies``)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.sentences import name_list
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import Answer, Trial
from gpuwatch.experiment.probing.received_events import ReceivedEvents, StepCount
from gpuwatch.experiment.probing.step_times import slowdown_factor
from gpuwatch.experiment.trials.trial import Goal, StopCondition, ran_on_cpu, run_trial, why_on_cpu
from gpuwatch.experiment.trials.trial_plan import Configuration, StopRule
from gpuwatch.experiment.trials.trial_results import PASSED_VERDICTS, out_of_budget_reason, skipped_trial, why_failed
from gpuwatch.experiment.trials.trial_setup import Feed, TrialSetup


def run_copies(
    setup: TrialSetup,
    configurations: Sequence[Configuration],
    rule: StopRule,
    *,
    copies: int,
    budget: float,
    share: bool,
) -> None:
    """Runs each configuration alone, then ``copies`` of it at once, on one GPU; measures while all of them step.

    ``share``: even if other processes use the GPU.
    """
    experiment = setup.experiment
    experiment.rounds = 1
    budget_ends_at = time.monotonic() + budget
    visible = setup.visible({}).map
    if len(visible) > 1:
        setup.variables = {**setup.variables, "CUDA_VISIBLE_DEVICES": visible[0].uuid}
    with setup.until_interrupted():
        for index, configuration in enumerate(configurations):
            in_use = "" if share else setup.why_in_use(configuration.setting)
            remaining = budget_ends_at - time.monotonic()
            if in_use or (index and remaining <= 0):
                experiment.trials += (skipped_trial(configuration, in_use or out_of_budget_reason(budget)),)
                continue
            goal = Goal(rule, deadline=max(remaining / (2 * (len(configurations) - index)), 10.0))
            single_run = run_trial(setup, configuration, goal)
            experiment.trials += (single_run,)
            if single_run.run is not None and single_run.run.verdict in PASSED_VERDICTS:
                experiment.trials += tuple(_run_copies_at_once(setup, configuration, goal, copies))
            if setup.interrupted is not None:
                break
    experiment.answer = _copies_answer(experiment.trials, copies, configurations)


# -- at once --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _CopyGroup:
    """What the copies know of each other."""

    copies: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    stepping_copies: set[int] = field(default_factory=set)
    measured_copies: set[int] = field(default_factory=set)
    ended_copies: set[int] = field(default_factory=set)
    interrupted: bool = False

    @property
    def all_are_stepping(self) -> bool:
        """Whether every copy that still runs has begun with its steps."""
        return len(self.stepping_copies | self.ended_copies) == self.copies and len(self.ended_copies) < self.copies

    @property
    def all_are_measured(self) -> bool:
        """Whether every copy that still runs has been measured."""
        return len(self.measured_copies | self.ended_copies) == self.copies


class _SimultaneousEnd(StopCondition):
    """Counts only steps that were made while all copies stepped, and lets none end before all are measured."""

    def __init__(self, goal: Goal, group: _CopyGroup, copy_number: int) -> None:
        super().__init__(goal, lambda steps: None)
        self._group = group
        self._copy_number = copy_number
        self._counts_before: tuple[int, int] | None = None
        """Steps and timed steps before all copies stepped."""
        self._all_stepping_since: float | None = None

    def __call__(self, program: ReceivedEvents, seconds: float, others_starting: Callable[[], bool]) -> bool:
        group = self._group
        with group.lock:
            if program.steps.count:
                group.stepping_copies.add(self._copy_number)
            all_stepping = group.all_are_stepping
            if group.interrupted:
                self.reason = "interrupted"
                return True
        if all_stepping and self._counts_before is None:
            self._counts_before = (program.steps.count, len(program.steps.times))
            self._all_stepping_since = program.steps.last_at
        reached = self.succeeded or (
            all_stepping and self._goal_reached(self.counted_steps(program.steps), seconds) and not others_starting()
        )
        overdue = self.goal.deadline is not None and seconds >= self.goal.deadline
        with group.lock:
            if reached or overdue:
                group.measured_copies.add(self._copy_number)
            if not group.all_are_measured:
                return False
        self.reason = "success" if self.succeeded else "deadline" if overdue and not reached else "steps"
        return True

    def counted_steps(self, steps: StepCount) -> StepCount:
        """The steps since all copies stepped."""
        if self._counts_before is None:
            return StepCount(counted=steps.counted)
        steps_before, timed_before = self._counts_before
        return StepCount(
            counted=steps.counted,
            count=max(steps.count - steps_before, 0),
            times=steps.times[timed_before:],
            validations=steps.validations,
            first_at=self._all_stepping_since,
            last_at=steps.last_at,
        )


class _CopyFeed:
    """One copy's view of the feed, which each snapshot reaches."""

    def __init__(
        self, feed: Feed, snapshot_before: Snapshot | None, feeds: list[_CopyFeed], lock: threading.Lock
    ) -> None:
        self._feed, self._snapshot_before, self._feeds, self._lock = feed, snapshot_before, feeds, lock
        self._unread: list[Snapshot] = []
        feeds.append(self)

    def drain(self) -> list[Snapshot]:
        with self._lock:
            for snapshot in self._feed.drain():
                for feed in self._feeds:
                    feed._unread.append(snapshot)
            own, self._unread = self._unread, []
        return own

    def fresh(self, timeout: float) -> Snapshot | None:
        """The machine before any copy was started."""
        return self._snapshot_before

    def sample_now(self) -> None:
        self._feed.sample_now()


def _run_copies_at_once(setup: TrialSetup, configuration: Configuration, goal: Goal, copies: int) -> list[Trial]:
    group, trials, errors = _CopyGroup(copies), dict[int, Trial](), list[GpuwatchError]()
    snapshot_before, feeds_lock = setup.feed.fresh(3.0), threading.Lock()
    feeds: list[_CopyFeed] = []

    def run(number: int, feed: _CopyFeed) -> None:
        try:
            trials[number] = run_trial(
                setup, configuration, goal, copy=number, stop=_SimultaneousEnd(goal, group, number), feed=feed
            )
        except GpuwatchError as error:
            errors.append(error)
        finally:
            with group.lock:
                group.ended_copies.add(number)

    setup.progress.show_note(f"{configuration.name}: {copies} at once")
    threads = [
        threading.Thread(
            target=run, args=(number, _CopyFeed(setup.feed, snapshot_before, feeds, feeds_lock)), name=f"copy-{number}"
        )
        for number in range(1, copies + 1)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            for thread in threads:
                thread.join(0.1)
        except KeyboardInterrupt:
            group.interrupted = True
            setup.interrupted = signal.SIGINT
    if errors:
        raise errors[0]
    return [trials[number] for number in sorted(trials)]


# -- the answer -----------------------------------------------------------------------------------


def _copies_answer(trials: Sequence[Trial], copies: int, configurations: Sequence[Configuration]) -> Answer:
    """Which settings let the copies run at once: first the one under which they hold least."""
    working: list[tuple[int, str, Trial, list[Trial]]] = []
    failures: list[str] = []
    for name in dict.fromkeys(trial.name for trial in trials if trial.run is not None):
        single_run, *copies_at_once = (trial for trial in trials if trial.name == name and trial.run is not None)
        runs = ((trial.copy, trial.run) for trial in (single_run, *copies_at_once) if trial.run is not None)
        copy, failed = next(((copy, run) for copy, run in runs if run.verdict not in PASSED_VERDICTS), (0, None))
        if failed is not None and failed.verdict == "interrupted":
            failures.append(f"{name}: not finished, it was interrupted")
        elif failed is not None:
            which = f"copy {copy} of {copies} fails" if copy else "it fails even when run alone"
            failures.append(f"{name}: {which} ({why_failed(failed)})")
        elif len(copies_at_once) == copies:
            working.append((max(_peak_bytes_of_each(copies_at_once), default=0), name, single_run, copies_at_once))
    if not working:
        return Answer(sentence="; ".join(failures) or "Nothing was run")
    working.sort(key=lambda entry: entry[0])  # in the order of the configurations where they hold the same
    _, name, single_run, copies_at_once = working[0]
    where = "on one GPU"
    if single_run.run is not None and ran_on_cpu(single_run.run):
        where = f"on the CPU ({why_on_cpu(single_run.run)})"
    sentence = f"{name}: {copies} copies run at once {where}{_sharing_cost(single_run, copies_at_once)}"
    other_sentences = [
        f"{other}: they also run{_sharing_cost(alone, at_once)}" for _, other, alone, at_once in working[1:]
    ]
    code = next((each.setting.code_lines for each in configurations if each.setting.name == single_run.asked), ())
    return Answer(sentence="; ".join([sentence, *other_sentences, *failures]), best=name, code=code)


def _peak_bytes_of_each(copies_at_once: Sequence[Trial]) -> list[int]:
    return [peak for trial in copies_at_once if trial.run is not None and (peak := trial.run.memory.nvml_peak_bytes)]


def _sharing_cost(single_run: Trial, copies_at_once: Sequence[Trial]) -> str:
    """`` (130 MiB each, up to 1.92 times the step time of a single copy)``; empty if nothing is known."""
    size_texts = list(dict.fromkeys(map(size, sorted(_peak_bytes_of_each(copies_at_once), reverse=True))))
    simulated = any(trial.run is not None and trial.run.simulated for trial in copies_at_once)
    slowdown = slowdown_factor(single_run.step_time, copies_at_once, simulated=simulated)
    facts = (
        "" if not size_texts else f"{size_texts[0]} each" if len(size_texts) == 1 else name_list(size_texts),
        "" if slowdown is None else f"up to {slowdown:.2f} times the step time of a single copy",
    )
    known_facts = ", ".join(filter(None, facts))
    return f" ({known_facts})" if known_facts else ""
