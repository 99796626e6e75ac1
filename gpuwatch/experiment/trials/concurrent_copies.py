"""Several copies of the program at once on one GPU: who gets what, and what sharing costs (``--copies``)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.core.model.try_results import Answer, Trial
from gpuwatch.experiment.probing.received_events import ReceivedEvents, StepCount
from gpuwatch.experiment.trials.gpus_in_use import why_in_use
from gpuwatch.experiment.trials.settings_comparison import listed, why_failed
from gpuwatch.experiment.trials.speed_comparison import slowdown_factor
from gpuwatch.experiment.trials.trial import Goal, Stop, run_trial
from gpuwatch.experiment.trials.trial_plan import Configuration, Rule
from gpuwatch.experiment.trials.trial_setup import Feed, TrialSetup
from gpuwatch.experiment.trials.trial_summary import PASSED
from gpuwatch.experiment.trials.try_result import TryResult, out_of_budget, trial_not_run


def run_copies(
    setup: TrialSetup, chosen: Sequence[Configuration], rule: Rule, *, copies: int, budget: float, share: bool
) -> TryResult:
    """Runs each configuration alone, then ``copies`` of it at once, on one GPU; measures while all of them step."""
    found = TryResult(rounds=1)
    until = time.monotonic() + budget
    visible = setup.visible({}).map
    if len(visible) > 1:
        setup.variables = {**setup.variables, "CUDA_VISIBLE_DEVICES": visible[0].uuid}
    with found.until_interrupted():
        for index, configuration in enumerate(chosen):
            in_use = "" if share else why_in_use(setup, configuration.setting)
            left = until - time.monotonic()
            if in_use or (index and left <= 0):
                found.trials.append(trial_not_run(configuration, in_use or out_of_budget(budget)))
                continue
            goal = Goal(rule, deadline=max(left / (2 * (len(chosen) - index)), 10.0))
            alone = run_trial(setup, configuration, goal)
            found.trials.append(alone)
            if alone.run is not None and alone.run.verdict in PASSED:
                found.trials += _run_together(setup, configuration, goal, copies, found)
            if found.interrupted is not None:
                break
    found.answer = _answer(
        found.trials, copies, {configuration.setting.name: configuration.setting.code for configuration in chosen}
    )
    return found


# -- at once --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Group:
    """What the copies know of each other."""

    copies: int
    lock: threading.Lock = field(default_factory=threading.Lock)
    stepping: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    interrupted: bool = False

    @property
    def all_step(self) -> bool:
        """Whether every copy that still runs has begun with its steps."""
        return len(self.stepping | self.ended) == self.copies and len(self.ended) < self.copies

    @property
    def all_done(self) -> bool:
        """Whether every copy that still runs has been measured."""
        return len(self.done | self.ended) == self.copies


class _TogetherStop(Stop):
    """Counts only steps that were made while all copies stepped, and lets none end before all are measured."""

    def __init__(self, goal: Goal, group: _Group, number: int) -> None:
        super().__init__(goal, lambda steps: None)
        self._group = group
        self._number = number
        self._skipped: tuple[int, int] | None = None
        """Steps and timed steps before all copies stepped."""
        self._since: float | None = None

    def __call__(self, state: ReceivedEvents, seconds: float, starting: Callable[[], bool]) -> bool:
        group = self._group
        with group.lock:
            if state.steps.count:
                group.stepping.add(self._number)
            together = group.all_step
            if group.interrupted:
                self.why = "interrupted"
                return True
        if together and self._skipped is None:
            self._skipped = (state.steps.count, len(state.steps.times))
            self._since = state.steps.last_at
        reached = self.succeeded or (
            together and self._goal_reached(self.counted(state.steps), seconds) and not starting()
        )
        late = self.goal.deadline is not None and seconds >= self.goal.deadline
        with group.lock:
            if reached or late:
                group.done.add(self._number)
            if not group.all_done:
                return False
        self.why = "success" if self.succeeded else "deadline" if late and not reached else "steps"
        return True

    def counted(self, steps: StepCount) -> StepCount:
        """The steps since all copies stepped."""
        if self._skipped is None:
            return StepCount(counted=steps.counted)
        count, timed = self._skipped
        return StepCount(
            counted=steps.counted,
            count=max(steps.count - count, 0),
            times=steps.times[timed:],
            validations=steps.validations,
            first_at=self._since,
            last_at=steps.last_at,
        )


class _CopyFeed:
    """One copy's view of the feed, which each snapshot reaches."""

    def __init__(self, feed: Feed, before: Snapshot | None, feeds: list[_CopyFeed], lock: threading.Lock) -> None:
        self._feed, self._before, self._feeds, self._lock = feed, before, feeds, lock
        self._unread: list[Snapshot] = []
        feeds.append(self)

    def drain(self) -> list[Snapshot]:
        with self._lock:
            for snapshot in self._feed.drain():
                for feed in self._feeds:
                    feed._unread.append(snapshot)
            mine, self._unread = self._unread, []
        return mine

    def fresh(self, timeout: float) -> Snapshot | None:
        """The machine before any copy was started."""
        return self._before

    def sample_now(self) -> None:
        self._feed.sample_now()


def _run_together(
    setup: TrialSetup, configuration: Configuration, goal: Goal, copies: int, found: TryResult
) -> list[Trial]:
    group, trials, problems = _Group(copies), dict[int, Trial](), list[GpuwatchError]()
    before, lock = setup.feed.fresh(3.0), threading.Lock()
    feeds: list[_CopyFeed] = []

    def run(number: int, feed: _CopyFeed) -> None:
        try:
            trials[number] = run_trial(
                setup, configuration, goal, copy=number, stop=_TogetherStop(goal, group, number), feed=feed
            )
        except GpuwatchError as error:
            problems.append(error)
        finally:
            with group.lock:
                group.ended.add(number)

    setup.progress.says(f"{configuration.name}: {copies} at once")
    threads = [
        threading.Thread(target=run, args=(number, _CopyFeed(setup.feed, before, feeds, lock)), name=f"copy-{number}")
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
            found.interrupted = signal.SIGINT
    if problems:
        raise problems[0]
    return [trials[number] for number in sorted(trials)]


# -- the answer -----------------------------------------------------------------------------------


def _answer(trials: Sequence[Trial], copies: int, codes: dict[str, str]) -> Answer:
    """Which settings let the copies run at once: first the one under which they hold least."""
    fine: list[tuple[int, str, Trial, list[Trial]]] = []
    bad: list[str] = []
    for name in dict.fromkeys(trial.name for trial in trials if trial.run is not None):
        alone, *beside = (trial for trial in trials if trial.name == name and trial.run is not None)
        runs = ((trial.copy, trial.run) for trial in (alone, *beside) if trial.run is not None)
        copy, failed = next(((copy, run) for copy, run in runs if run.verdict not in PASSED), (0, None))
        if failed is not None and failed.verdict == "interrupted":
            bad.append(f"{name}: not finished, it was interrupted")
        elif failed is not None:
            which = f"copy {copy} of {copies} fails" if copy else "it fails even when run alone"
            bad.append(f"{name}: {which} ({why_failed(failed)})")
        elif len(beside) == copies:
            fine.append((max(_held_each(beside), default=0), name, alone, beside))
    if not fine:
        return Answer(sentence="; ".join(bad) or "Nothing was run")
    fine.sort(key=lambda entry: entry[0])  # in the order of the configurations where they hold the same
    _, name, alone, beside = fine[0]
    sentence = f"{name}: {copies} copies run at once on one GPU{_cost(alone, beside)}"
    rest = [f"{other}: they also run{_cost(trial, two)}" for _, other, trial, two in fine[1:]]
    code = codes.get(alone.asked, "").rstrip()
    return Answer(sentence="; ".join([sentence, *rest, *bad]), best=name, code=tuple(code.splitlines()))


def _held_each(beside: Sequence[Trial]) -> list[int]:
    return [amount for trial in beside if trial.run is not None and (amount := trial.run.memory.nvml_peak_bytes)]


def _cost(alone: Trial, beside: Sequence[Trial]) -> str:
    """`` (130 MiB each, up to 1.92 times the step time of a single copy)``; empty if nothing is known."""
    amounts = list(dict.fromkeys(map(size, sorted(_held_each(beside), reverse=True))))
    simulated = any(trial.run is not None and trial.run.simulated for trial in beside)
    slower = slowdown_factor(alone.step_time, beside, simulated=simulated)
    facts = (
        "" if not amounts else f"{amounts[0]} each" if len(amounts) == 1 else listed(amounts),
        "" if slower is None else f"up to {slower:.2f} times the step time of a single copy",
    )
    known = ", ".join(filter(None, facts))
    return f" ({known})" if known else ""
