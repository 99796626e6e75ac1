"""How a watched program behaved: where it waited or stood still, and which tf.functions TensorFlow traced again."""

from __future__ import annotations

import msgspec


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Where the thread that makes the steps of a program waited, from samples of its stack a few times a second."""

    looked_seconds: float
    """Sampled time: from after the first steps to the last one."""
    looks: int = 0
    """Number of samples."""
    input_seconds: float
    """Of it, waiting for the next batch: in an iterator of a framework, or in a generator of the program."""
    feeding_seconds: float
    """Of it, while a dataset of TensorFlow ran Python code of the program for the next element, in another thread."""
    places: tuple[str, ...] = ()
    """Lines of the program at which it waited longest for a batch: ``train.py:12 in batches``."""
    feeds: tuple[str, ...] = ()
    """Lines of the dataset's Python code that took longest."""
    between_seconds: float = 0.0
    """Of ``looked_seconds``, in Python code of the program between its steps: not in a framework, not saving."""
    between: tuple[str, ...] = ()
    """Lines of the code between steps that took longest."""


class PipelineStage(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the busiest stage of a tf.data pipeline was: TensorFlow measures it for its autotuning."""

    seconds: float
    """Measured time: after the first steps."""
    busy_seconds: float
    """Of it, in which the stage worked on elements, all its parallel calls at once."""
    stage: str
    """``ParallelMapV2``."""


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """A Python thread of the program."""

    name: str
    place: str = ""
    """The innermost line of the program itself."""
    frames: tuple[str, ...]
    """Innermost lines first, then the program's own: ``queue.py:171 in get``."""


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """A program that made no more steps while it ran."""

    since_seconds: float
    """Its last step, in seconds since the start of the run."""
    until_seconds: float
    """When its threads were last seen."""
    stood_seconds: float
    """How long the thread of the steps stood at the same line of the program."""
    cpu_seconds: float
    """CPU time of the process meanwhile."""
    steps: int
    threads: tuple[ThreadStack, ...] = ()
    """That of the steps first."""


class TraceChange(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a tf.function that was another one than at the trace before."""

    argument: str
    """Its name, with the place in a structure: ``step``, ``batch[0]``."""
    kind: str
    """What differed: ``shape`` (or dtype), ``Python int``, ``object``, ``length``, ``type``, ``structure``."""
    times: int
    """Number of traces before which this argument changed."""
    examples: tuple[str, ...] = ()
    """The latest of them; no text of the program's, which may be a secret."""


class RetracedFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A Python function that tf.functions of a program traced several times."""

    name: str
    place: str
    """``train.py:12``, where it is defined."""
    caller: str = ""
    """``train.py:30``, the program's own line that called it first, if a library defines it."""
    traces: int
    """How often TensorFlow traced it."""
    calls: int
    """Calls outside of other tf.functions, with those that were traced."""
    made: int
    """How many tf.functions were created from it: each is traced at its first call."""
    changes: tuple[TraceChange, ...] = ()
    """Arguments that differed, the most frequent first."""
