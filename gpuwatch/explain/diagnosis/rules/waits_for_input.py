"""Watched programs whose GPU waits for input, by samples of threads (from outside: conditions/input_bound.py)."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.units import percent
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.idle_and_busy_limits import MAX_STARVED_PERCENT
from gpuwatch.explain.diagnosis.rule_registry import likely_warning, rule
from gpuwatch.explain.diagnosis.rules.finding_texts import faster_input

_MIN_SECONDS = 5.0
_MIN_STEPS = 20
_MIN_NOTICED_SECONDS, _MIN_SAMPLES_OF_SHORT_RUN, _MIN_STEPS_OF_SHORT_RUN, _NEARLY_ALL_SHARE = 1.0, 20, 8, 0.9
"""What a short run needs: a time that people notice, enough looks, and fewer steps, if nearly all of it goes there."""
_MIN_WAITING_SHARE = 0.5
"""Share of the time between its first and last step in which the program waits for the next batch."""
_BETWEEN_STEPS_ACTION = (
    "Move that code out of the loop, or do it every n steps; code that prepares the batch belongs in the dataset."
)
_MIN_MEDIAN_TO_MEAN = 0.7
"""Share of the mean step that the median one takes, if what comes between steps comes before each: no validation."""
_MIN_PYTHON_SHARE = 0.8
"""Share in which a dataset runs the program's Python code, beside a GPU that has time."""
_MAX_FEW_BATCHES = 2
_MIN_OUTSIDE_BATCHES_SHARE = 0.25
"""Share of the time between them that calls of fit() or predict() spend outside of their batches."""
_KERAS_CALL_ADVICE = {
    "predict": "For a few rows, call the model itself (model(x, training=False), preferably in a tf.function), or "
    "collect rows and predict them at once.",
    "fit": "Call fit() once for many batches, or train_on_batch() for single ones.",
    "evaluate": "Evaluate many batches at once, or call test_on_batch() for single ones.",
}
_MIN_BUSY_STAGE_SHARE = 0.9
"""Share in which a stage of a dataset works: it then makes every batch later than it is asked for."""


@rule("input.bound", needs="run")
def waits_for_input(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Time at the input against all time between the first and the last step, with a GPU that has time.

    Evaluations, checkpoints, prints and compilations are other time: they make the share smaller. Other code of the
    program between steps may be its input only if each step waits for it.
    """
    if run.waiting is None or not evidence.gpu_usable:
        return
    seconds, by = run.waiting.looked_seconds, "up to the last step, from samples of its threads"
    waiting, steps = run.waiting, run.throughput.steps if run.throughput is not None else 0
    too_few_samples = seconds < 2 * _MIN_NOTICED_SECONDS and waiting.looks < _MIN_SAMPLES_OF_SHORT_RUN
    if seconds < _MIN_NOTICED_SECONDS or too_few_samples or steps < _MIN_STEPS_OF_SHORT_RUN:
        return
    is_even = len(run.step_times) >= _MIN_STEPS and mean_of_uneven_steps(run) is None
    is_short = seconds < _MIN_SECONDS or steps < _MIN_STEPS
    busy = busy_while_stepping(run)
    if busy is not None and busy > MAX_STARVED_PERCENT:
        return
    parts = (waiting.input_seconds, waiting.feeding_seconds, waiting.between_seconds)
    waited, feeding, between = (part / seconds for part in parts)
    min_feeding = _NEARLY_ALL_SHARE if seconds < 2 * _MIN_NOTICED_SECONDS else _MIN_PYTHON_SHARE
    action = faster_input(run.framework.name if run.framework else "")
    if waited >= (_NEARLY_ALL_SHARE if is_short else _MIN_WAITING_SHARE):
        share, places, state = waited, waiting.places, "is starved for input: the program waits for its next batch"
    elif busy is None:
        return
    elif feeding >= min_feeding:
        share, places = feeding, waiting.feeds
        state = "is starved for input: the dataset runs Python code for the next batch"
    elif not is_short and waited + between >= _MIN_WAITING_SHARE and is_even:
        share, places, action = waited + between, (*waiting.places, *waiting.between)[:3], _BETWEEN_STEPS_ACTION
        state = "waits between steps: the program runs its own Python code"
    elif not is_short and _dataset_share(run) >= _MIN_BUSY_STAGE_SHARE and run.pipeline is not None:
        share, places = _dataset_share(run), ()
        state = f"is starved for input: the dataset's stage {printable(run.pipeline.stage)} works"
        seconds, by = run.pipeline.seconds, "by TensorFlow's measurement of the dataset"
    else:
        return
    yield likely_warning(
        "input.bound",
        title=f"The GPU {state} {percent(100 * share)} of the time",
        evidence=(
            f"{share * seconds:.1f} of {seconds:.1f} s {by}",
            f"mostly at {', '.join(map(printable, places))}" if places else "",
            f"utilization {percent(busy)} on average meanwhile" if busy is not None else "",
            f"median step {run.throughput.median_step_seconds * 1000:.0f} ms, input included" if run.throughput else "",
        ),
        action=action,
    )


@rule("input.bound")
def calls_keras_for_few_batches(evidence: Evidence) -> Iterator[Finding]:
    """A host loop of predict(), fit() or evaluate() on a batch or two each: every call makes a data set and callbacks.

    By the median call and the time in its batches, against the time from the first call to the end of the last.
    """
    result = evidence.result("keras_calls", dict)
    if not result or not evidence.gpu_usable:
        return
    short_calls = {
        name: (count, batches, line, seconds, in_batches)
        for name, (count, batches, line, seconds, in_batches) in result["calls"].items()
        if count >= _MIN_STEPS and batches <= _MAX_FEW_BATCHES * count and in_batches <= _MIN_WAITING_SHARE * seconds
    }
    seconds_outside = sum(count * (seconds - in_batches) for count, _, _, seconds, in_batches in short_calls.values())
    total = result["seconds"]
    if seconds_outside < max(_MIN_NOTICED_SECONDS, _MIN_OUTSIDE_BATCHES_SHARE * total):
        return
    calls = " and ".join(f"{count} calls of {name}()" for name, (count, *_) in short_calls.items())
    yield likely_warning(
        "input.bound",
        title=printable(f"The GPU waits for {calls}, most of each outside its batch"),
        evidence=[
            printable(f"{f'{line}: ' if line else ''}{name}() ×{count} for {batches} batches,")
            + f" {seconds * 1000:.0f} ms per call, {in_batches * 1000:.0f} ms of it in batches (medians)"
            for name, (count, batches, line, seconds, in_batches) in short_calls.items()
        ]
        + [f"about {seconds_outside:.1f} s outside batches, of {total:.1f} s from the first call to the last"],
        action=" ".join(_KERAS_CALL_ADVICE[name] for name in short_calls if name in _KERAS_CALL_ADVICE),
    )


def _dataset_share(run: Run) -> float:
    """Share of the time in which the busiest stage of the dataset works: a stage that is ahead of the steps rests."""
    pipeline = run.pipeline
    return (
        pipeline.busy_seconds / pipeline.seconds if pipeline is not None and pipeline.seconds >= _MIN_SECONDS else 0.0
    )


def mean_of_uneven_steps(run: Run) -> float | None:
    """Seconds of the average step if most steps are much shorter, so that the median is not their speed; else None.

    PyTorch's steps only queue work for the GPU, until one waits for all of it.
    """
    if run.throughput is None or len(run.step_times) < _MIN_STEPS:
        return None
    times = [step for step in run.step_times if step.number > run.throughput.warmup_steps]
    mean = sum(step.seconds for step in times) / max(sum(step.steps for step in times), 1)
    return mean if run.throughput.median_step_seconds < _MIN_MEDIAN_TO_MEAN * mean else None


def busy_while_stepping(run: Run) -> float | None:
    """Mean utilization in percent between the first and the last step that are known; None without a sample."""
    if not run.step_times:
        return None
    begin, end = run.step_times[0].t, run.step_times[-1].t
    known = [point.gpu_percent for point in run.memory.timeline if begin <= point.t <= end]
    percents = [value for value in known if value is not None]
    return sum(percents) / len(percents) if percents else None
