"""Use of tf.function: functions traced again and again, run eagerly, or with large constants (as runs report them)."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.program_behavior import RetracedFunction, TraceChange
from gpuwatch.core.model.run import Run
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import info_finding, likely_info, rule, warning_finding
from gpuwatch.explain.logs.device_names import is_gpu

_MIN_TRACES = 10
"""Traces below which a function may simply have so many kinds of arguments: buckets of lengths, a last batch."""
_MIN_TRACED_SHARE = 0.3
"""Share of the calls that are traced: where kinds of arguments come back, it falls with every call."""
_MAX_FUNCTIONS = 3
_MIN_EAGER_CALLS = 5
"""Calls of a tf.function that ran eagerly, of which fewer may be a look at a mistake."""
_MIN_GROWING_SHARE = 0.2
"""Share of a session's runs before which its graph grows, from which on that is what its loop does."""
_EAGER_FUNCTIONS = "eager_functions"
"""Name of the watcher's result with the tf.functions that ran eagerly (_gpuwatch_traces.py)."""
_GRADIENT_STEPS = "gradients of a GradientTape"
"""What the watcher counts as steps of a training loop without a tf.function (_gpuwatch_steps.py)."""
_MIN_LOOP_STEPS, _MIN_LOOP_OPS = 20, 20
"""Steps, and ops a step, from which a loop's overhead is worth a word."""
_MIN_MANY_OPS, _MIN_NOTICED_SECONDS = 4000, 1.0
"""Eager ops, and seconds of them, from which a program without counted steps is worth a word."""
_SMALL_OP_SECONDS = 0.001
"""Seconds an op, with its Python, above which the ops themselves may be what takes the time."""
_PYTHON_NUMBERS = ("Python int", "Python float", "Python bool")


@rule("function.retraced", needs="run")
def traced_again(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """A function of a watched program with ten traces or more, in three calls of ten or more."""
    often = [entry for entry in run.retraced if entry.traces >= max(_MIN_TRACES, _MIN_TRACED_SHARE * entry.calls)]
    for retraced in sorted(often, key=lambda entry: -entry.traces)[:_MAX_FUNCTIONS]:
        reason, action = _retrace_reason(retraced)
        place = f"{printable(retraced.name)} ({printable(retraced.place)})"
        yield warning_finding(
            "function.retraced",
            title=f"TensorFlow traced {place} in {retraced.traces} of {retraced.calls} calls{reason}",
            evidence=(
                f"{count_text(retraced.traces, 'trace')} of {count_text(retraced.made, 'tf.function')}",
                *map(_changed_text, retraced.changes),
                f"called at {printable(retraced.caller)}" if retraced.caller else "",
            ),
            action=action,
        )


@rule("function.eager")
def run_eagerly(evidence: Evidence) -> Iterator[Finding]:
    """tf.functions that ran eagerly in most of their calls: TensorFlow does so only if it is told to."""
    eager_functions = [
        (name, eager, graph)
        for name, calls in evidence.result(_EAGER_FUNCTIONS, dict).items()
        if (eager := int(calls["eager"])) >= _MIN_EAGER_CALLS and eager > (graph := int(calls["graph"]))
    ][:_MAX_FUNCTIONS]
    if eager_functions:
        yield info_finding(
            "function.eager",
            title=printable(f"tf.functions ran eagerly, op by op: {', '.join(name for name, _, _ in eager_functions)}"),
            evidence=[
                printable(f"{name}: {count_text(eager, 'call')} ran eagerly, {graph} as a graph")
                for name, eager, graph in eager_functions
            ],
            action="Remove tf.config.run_functions_eagerly(True) if it was left over from debugging.",
        )


@rule("function.eager", needs="run")
def loops_eagerly(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """A training loop whose steps are many small eager ops, in no tf.function: their overhead is the step."""
    result = evidence.result("eager_loop", dict)
    if not result or run.results.get(_EAGER_FUNCTIONS) or not evidence.gpu_usable:
        return
    if run.throughput is None:
        yield from _many_eager_ops(run, int(result["ops"]), float(result.get("seconds", 0)))
        return
    steps, ops, seconds = int(result["steps"]), int(result["ops"]), run.throughput.median_step_seconds
    if run.throughput.counted != _GRADIENT_STEPS or steps < _MIN_LOOP_STEPS or ops < _MIN_LOOP_OPS * steps:
        return
    if seconds * steps > _SMALL_OP_SECONDS * ops:
        return
    yield likely_info(
        "function.eager",
        title=f"The training loop runs eagerly: about {ops // steps} small ops per step, one after another",
        evidence=[f"{ops} eager ops in {steps} steps, {seconds * steps / ops * 1e6:.0f} µs per op in the median step"],
        action="Put the step into a tf.function: it runs as one graph, without Python between its ops.",
    )


def _many_eager_ops(run: Run, ops: int, seconds: float) -> Iterator[Finding]:
    """A loop without gradients, of which no steps can be counted."""
    on_gpu = sum(placement.count for placement in run.placements if is_gpu(placement.actual))
    if ops < _MIN_MANY_OPS or seconds < _MIN_NOTICED_SECONDS or seconds > _SMALL_OP_SECONDS * ops or on_gpu < ops / 2:
        return
    yield likely_info(
        "function.eager",
        title=f"The program runs {ops} small ops eagerly, one after another, and repeats no tf.function",
        evidence=[
            f"{ops} eager ops in {seconds:.1f} s: {seconds / ops * 1e6:.0f} µs per op, including the Python around it"
        ],
        action="Put the repeated part into a tf.function, and keep its tensors on the GPU from one call to the next "
        "instead of converting to NumPy arrays (no .numpy() and tf.constant() in each step).",
    )


@rule("function.retraced")
def growing_graph(evidence: Evidence) -> Iterator[Finding]:
    """A TF1 loop that makes ops: the session prepares the whole graph anew for each run of a new one."""
    runs, grown, first, last, line = evidence.result("graph_growth", list) or (0, 0, 0, 0, "")
    if not grown or grown < _MIN_GROWING_SHARE * runs:
        return
    yield warning_finding(
        "function.retraced",
        title=f"The session's graph grew before {grown} of its {runs} runs: from {first} to {last} nodes",
        evidence=[printable(f"{line} adds nodes between two runs")] if line else [],
        action="Create every op once, before the loop, and run the same ops in it; pass what changes through a "
        "placeholder. tf.compat.v1.get_default_graph().finalize() before the loop raises an error at the line that"
        " adds one.",
    )


@rule("function.constant")
def large_constants(evidence: Evidence) -> Iterator[Finding]:
    """NumPy arrays that a tf.function closes over: each becomes part of the graph, once a trace."""
    for function, line, dtype, shape, array_bytes, graphs in evidence.result("large_constants", list):
        yield info_finding(
            "function.constant",
            title=printable(f"The graph of {function} contains a constant of {size(array_bytes)}: {dtype} {shape}"),
            evidence=[
                printable(f"used at {line}") if line else "",
                f"in {graphs} traced graphs: {size(array_bytes * graphs)}" if graphs > 1 else "in its one traced graph",
                "a graph of 2 GiB or more cannot be saved",
            ],
            action="Make it a tf.constant or tf.Variable outside the function, or pass it as an argument.",
        )


def _retrace_reason(retraced: RetracedFunction) -> tuple[str, str]:
    """The reason of most traces, as the end of a title, and what to do."""
    if 2 * retraced.made > retraced.traces:
        return (
            f": {retraced.made} tf.functions were created from it",
            "Create the tf.function once, outside the loop (for a Keras model: compile it once), and reuse it.",
        )
    if not retraced.changes or 2 * retraced.changes[0].times < retraced.traces - retraced.made:
        return "", "Check what differs between its calls: arguments, or Python objects that it uses."
    min_times = (retraced.traces - retraced.made) / 2
    reasons = [_argument_advice(change) for change in retraced.changes if change.times >= min_times]
    # Each of them alone would have it traced again.
    return f": {'; '.join(why for why, _ in reasons)}", " ".join(action for _, action in reasons)


def _argument_advice(change: TraceChange) -> tuple[str, str]:
    """What differs in one argument, and what to do."""
    name = printable(change.argument)
    if change.kind in _PYTHON_NUMBERS:
        return (
            f"its argument {name} is a Python number, a different one each time",
            f"Pass it as a tensor: tf.constant({name}), or keep it in a tf.Variable.",
        )
    if change.kind == "shape":
        return (
            f"the shape or dtype of its argument {name} differs",
            "@tf.function(reduce_retracing=True), or an input_signature with None where the size differs; or pad the"
            " batches, batch(n, drop_remainder=True).",
        )
    if change.kind in ("length", "structure", "type"):
        return f"the structure of its argument {name} differs", "Pass tensors with one structure: stack or pad them."
    text = "text" if change.kind in ("Python str", "Python bytes") else "a Python object"
    return (
        f"its argument {name} is {text}, a different one each time",
        f"Pass a tensor, or the same object again; keep parts of {name} that the graph does not need outside the "
        "function.",
    )


def _changed_text(change: TraceChange) -> str:
    last = f", last {', '.join(map(printable, change.examples))}" if change.examples else ""
    kind = "shape and dtype" if change.kind == "shape" else printable(change.kind)
    return f"argument {printable(change.argument)}, {kind}: differed {count_text(change.times, 'time')}{last}"
