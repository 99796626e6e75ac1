"""Stalls of a watched program: it waits for its input or tasks of its cluster, calls Keras too often, or steps no more.

Seen from inside, by samples of its threads; from outside: conditions/input_bound.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import takewhile

from gpuwatch.core.formatting.units import percent
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import MIN_MEASURED_STEPS, Run, signal_name
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.input_bound import MAX_STARVED_PERCENT, faster_input_advice
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import likely_warning, rule, warning_finding

_MIN_STANDSTILL_SECONDS = 15.0
"""Seconds without a step."""
_SAME_LINE_SECONDS = 10.0
"""Seconds for which the thread of the steps must stand at one line."""
_MIN_PAUSE_RATIO = 3.0
"""How many times longer than the longest pause between two steps before."""
_MIN_BUSY_CORE_SHARE = 0.2
"""Share of a core above which the process computes something, if no steps."""
_MIN_BUSY_GPU_PERCENT = 5.0
"""Percent of utilization above which a GPU computes: one step may be long."""
_WAITING_FOR_TASKS = re.compile(r"\] Waiting for ([1-9]\d*)/(\d+) tasks to connect\.")
_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)\s*")
_TIMEOUT = re.compile(r"Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!")
_DUMP_LINE_STARTS = ("  ", "Thread 0x", "Current thread 0x")
"""Beginnings of the lines of faulthandler's dump after that (CPython's Modules/faulthandler.c)."""
_MIN_SECONDS = 5.0
_MIN_NOTICED_SECONDS, _MIN_SAMPLES_OF_SHORT_RUN, _MIN_STEPS_OF_SHORT_RUN, _NEARLY_ALL_SHARE = 1.0, 20, 8, 0.9
"""What a short run needs: a time that people notice, enough looks, and fewer steps, if nearly all of it goes there."""
_MIN_WAITING_SHARE = 0.5
"""Share of the time between its first and last step in which the program waits for the next batch."""
_BETWEEN_STEPS_ACTION = (
    "Move that code out of the loop, or do it every n steps; code that prepares the batch belongs in the dataset."
)
_MIN_PYTHON_SHARE = 0.8
"""Share in which a dataset runs the program's Python code, beside a GPU that has time."""
_MIN_CALLS, _MAX_FEW_BATCHES = 20, 2
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


@rule("program.stalled", needs="run")
def no_more_steps(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """Not of a program that ended by itself, nor of one that computes: it may evaluate, save or make one long step."""
    found = run.standstill
    if found is None:
        return
    timeout_line = _faulthandler_timeout(run)
    if not (timeout_line or run.verdict == "interrupted" or run.outcome.signal is not None):
        return
    seconds_without_step = (run.phases.total_seconds or found.until_seconds) - found.since_seconds
    longest = max((step.seconds for step in run.step_times), default=0.0)
    min_seconds = max(_SAME_LINE_SECONDS if timeout_line else _MIN_STANDSTILL_SECONDS, _MIN_PAUSE_RATIO * longest)
    busy = [point.gpu_percent or 0.0 for point in run.memory.timeline if point.t > found.since_seconds + 2]
    computes = max(busy, default=0.0) > _MIN_BUSY_GPU_PERCENT
    computes = computes or found.cpu_seconds > _MIN_BUSY_CORE_SHARE * found.stood_seconds
    if seconds_without_step < min_seconds or found.stood_seconds < _SAME_LINE_SECONDS or computes:
        return
    place = next((thread.place for thread in found.threads[:1] if thread.place), "")
    yield warning_finding(
        "program.stalled",
        title=f"The program made no step in its last {seconds_without_step:.0f} s"
        + (f": it is at {printable(place)}" if place else ""),
        evidence=(
            *([f"its faulthandler ended it: {timeout_line}"] if timeout_line else ()),
            f"its last step, number {found.steps}, was {found.since_seconds:.0f} s after the start",
            f"seen {found.until_seconds:.0f} s after the start: at one line for {found.stood_seconds:.0f} s,"
            f" with {found.cpu_seconds:.2f} s of CPU time",
            *(f"{printable(thread.name)}: {' < '.join(map(printable, thread.frames))}" for thread in found.threads),
        ),
        action="Find out what that line waits for: a queue that nothing fills, a lock, a file, a process or rank that"
        " has ended. While it hangs, py-spy dump --pid PID shows the same for every process.",
    )


@rule("program.stalled", needs="run")
def cluster_incomplete(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """TensorFlow's coordination service waits for a task of the cluster that never connected.

    From its own lines: each task that connects is logged, and after that how many are still missing.
    """
    if run.verdict in ("ok", "fallback") or run.throughput is not None or run.step_times:
        return
    lines = run.log_tail
    first_line = max((at + 1 for at, line in enumerate(lines) if line.startswith("… ")), default=0)
    searched = [(at, _WAITING_FOR_TASKS.search(line)) for at, line in enumerate(lines) if at >= first_line]
    waits = [(at, match) for at, match in searched if match]
    if not waits or any(" has connected to coordination service" in line for line in lines[waits[-1][0] :]):
        return
    last_wait_line, match = waits[-1]
    task_lines = takewhile(_TASK.fullmatch, lines[last_wait_line + 2 : last_wait_line + 12])
    tasks = [f"{task[1]} {task[2]}" for line in task_lines if (task := _TASK.fullmatch(line))]
    tasks_text = f": {', '.join(tasks)}" if tasks else ""
    yield warning_finding(
        "program.stalled",
        title=f"The cluster waited until the end for {match[1]} of {match[2]} tasks that never connected{tasks_text}",
        evidence=[
            printable(lines[last_wait_line].strip()),
            *(f"TF_CONFIG: {task} is {printable(address)}" for task, address in _addresses(run) if task in tasks),
            *(
                f"process {process.pid} was ended by {signal_name(-process.exit_code)}"
                for process in run.processes
                if process.exit_code is not None and process.exit_code < 0
            ),
        ],
        action="Start every task that TF_CONFIG names, each with its own index and an address that the others can "
        "reach, or name only tasks that are started: TensorFlow waits for all of them.",
    )


def _addresses(run: Run) -> Iterator[tuple[str, str]]:
    """``worker 1`` and its address, of the first process with a cluster."""
    configs = (process.environment.get("TF_CONFIG") for process in run.processes)
    text = next((config for config in configs if config is not None), "{}")
    try:
        jobs = json.loads(text)["cluster"]
        yield from ((f"{job} {at}", str(address)) for job, names in jobs.items() for at, address in enumerate(names))
    except (ValueError, KeyError, TypeError, AttributeError):
        return


def _faulthandler_timeout(run: Run) -> str:
    """The line of ``faulthandler.dump_traceback_later(…, exit=True)``, after which only its dump came; else empty."""
    lines = [line.rstrip() for line in run.log_tail] if run.outcome.exit_code == 1 and not run.errors else []
    timeout_at = max((at for at, line in enumerate(lines) if _TIMEOUT.fullmatch(line)), default=len(lines))
    only_dump = all(not line or line.startswith(_DUMP_LINE_STARTS) for line in lines[timeout_at + 1 :])
    return lines[timeout_at] if timeout_at < len(lines) and only_dump else ""


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
    is_even = len(run.step_times) >= MIN_MEASURED_STEPS and run.mean_of_uneven_steps is None
    is_short = seconds < _MIN_SECONDS or steps < MIN_MEASURED_STEPS
    busy = _busy_while_stepping(run)
    if busy is not None and busy > MAX_STARVED_PERCENT:
        return
    parts = (waiting.input_seconds, waiting.feeding_seconds, waiting.between_seconds)
    waited, feeding, between = (part / seconds for part in parts)
    min_feeding = _NEARLY_ALL_SHARE if seconds < 2 * _MIN_NOTICED_SECONDS else _MIN_PYTHON_SHARE
    action = faster_input_advice(run.framework.name if run.framework else "")
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
        if count >= _MIN_CALLS and batches <= _MAX_FEW_BATCHES * count and in_batches <= _MIN_WAITING_SHARE * seconds
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
    return pipeline.busy_seconds / pipeline.seconds if pipeline and pipeline.seconds >= _MIN_SECONDS else 0.0


def _busy_while_stepping(run: Run) -> float | None:
    """Mean utilization in percent between the first and the last step that are known; None without a sample."""
    if not run.step_times:
        return None
    begin, end = run.step_times[0].t, run.step_times[-1].t
    known = [point.gpu_percent for point in run.memory.timeline if begin <= point.t <= end]
    percents = [value for value in known if value is not None]
    return sum(percents) / len(percents) if percents else None
