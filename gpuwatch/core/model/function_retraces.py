"""Which tf.functions of a watched program TensorFlow traced again, and why."""

from __future__ import annotations

import msgspec


class TraceChange(msgspec.Struct, frozen=True, kw_only=True):
    """An argument of a tf.function that was another one than at the trace before."""

    argument: str
    """Its name, with the place in a structure: ``step``, ``batch[0]``."""
    kind: str
    """What differed: ``shape`` (or dtype), ``Python int``, ``object``, ``length``, ``type``, ``structure``."""
    times: int
    """In how many traces it was this that changed."""
    examples: tuple[str, ...] = ()
    """The latest of them; no text of the program's, which may be a secret."""


class Retraced(msgspec.Struct, frozen=True, kw_only=True):
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
    """How many tf.functions were made of it: each is traced at its first call."""
    changes: tuple[TraceChange, ...] = ()
    """Arguments that differed, the most frequent first."""
