"""What TensorFlow's op names say: layer, and what an allocation was for. No group without such evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.memory_profile import Group
from gpuwatch.explain.traces.allocation_replay import Allocation

_CALLS = re.compile(r"^(?:(?:Stateful)?PartitionedCall(?:_\d+)?/)+")
_BACKWARD = re.compile(r"^(?:gradient_tape|gradients(?:_\d+)?)/|/(?:gradient_tape|gradients(?:_\d+)?)/")
_SUMMED = re.compile(r"^AddN(?:_\d+)?(?:/|$)")
"""Sum of gradients of a variable with several uses, or the program's own tf.add_n."""
_COPIED_IN = re.compile(r"^(?:_EagerConst|SameWorkerRecvDone|_HostRecv|_Recv|IteratorGetNext)(?:$|/)|^_Send input")
_ASSIGNS = re.compile(r"(?:^|/)(?:Assign|ResourceApply|ResourceScatter|ResourceSparseApply)\w*$")
_ASSIGNS_ALONE = re.compile(r"(?:^|/)Assign(?:Add|Sub)?(?:VariableOp)?(?:_\d+)?$")
"""Ops whose only allocation is a new buffer for their variable, where something else still uses the old one."""
_CLUSTER = re.compile(r"(?:^|/)(?:cluster_\d|_?Xla(?:Run|Launch|LocalLaunch|CompileOnDemand))|^xla_")
_INITIAL = re.compile(r"/Initializer/\w+/")
"""TF1 initializer: its result's buffer becomes the variable's own, but a constant is copied."""
_INITIALIZES = re.compile(r"/Initializer/\w+$")
_OPTIMIZERS = frozenset(
    {
        *("adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "ftrl", "lamb", "lion", "muon", "nadam"),
        *("rmsprop", "sgd", "SGD", "Adam", "RMSprop"),
    }
)
"""Name scopes of Keras's optimizers; those of the program's own are known by their variables."""
_MIN_VARIABLE_LIFE_SHARE = 0.5
"""Share of the rest of the recording for which a variable's buffer lives at least."""
_STATE = {"weight": "weights", "optimizer": "optimizer state", "state": "other variables", "": "other variables"}
_BYTES = {
    "float64": 8, "int64": 8, "uint64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4, "uint32": 4,
    "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1, "float8_e5m2": 1,
    "float8_e4m3fn": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the program."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    """``weight``, ``optimizer``, ``state`` of a layer, or empty if unknown."""

    @property
    def size(self) -> int | None:
        """Its bytes; None for a type of unknown size."""
        width = _BYTES.get(self.dtype)
        return None if width is None or any(part < 0 for part in self.shape) else width * math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class FunctionInput:
    """An input of a function of the program; -1 is a length that varies."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Purpose:
    """Purpose of an allocation, as far as op names show it."""

    group: Group = "unattributed"
    variable: str = ""
    shape: str = ""
    dtype: str = ""
    shape_from: str = ""


@dataclass(slots=True)
class OpNames:
    """Variables and inputs of the program, as far as they were read."""

    variables: Sequence[Variable] = ()
    inputs: Sequence[FunctionInput] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """The program's line that made an op, by the op's name in its graph."""
    end: int = 0
    """When the recording ended, in picoseconds."""
    _scopes: frozenset[str] = field(default=frozenset(), init=False)
    _backward: frozenset[str] = field(default=frozenset(), init=False)
    """The program's lines that ask for gradients."""

    def __post_init__(self) -> None:
        parts = {
            variable.name.partition("/")[0]
            for variable in self.variables
            if variable.kind == "optimizer" and "/" in variable.name
        }
        self._scopes = frozenset(parts | _OPTIMIZERS)
        self._backward = frozenset(line for op, line in self.lines.items() if line and _BACKWARD.search(op))

    def meanings(self, live: Sequence[Allocation]) -> dict[int, Purpose]:
        """What each allocation that is alive was for, by ``id()``."""
        found = self._of_variables(live)
        return {id(one): found.get(id(one)) or self.by_name(one) for one in live}

    def by_name(self, allocation: Allocation) -> Purpose:
        """By its op's name alone."""
        op, region = allocation.event.op, allocation.event.region
        inner = strip_calls(op)
        if _CLUSTER.search(op):
            return Purpose()
        if _COPIED_IN.search(inner):
            shape, dtype = self._input(allocation)
            return Purpose("inputs" if shape else "unattributed", "", shape, dtype, "input" if shape else "")
        value = region == "output" and _INITIAL.search(inner)
        if (value or _ASSIGNS_ALONE.search(inner)) and not self._updates(inner):
            return Purpose("optimizer state" if self._is_slot(inner) else "other variables")
        if region == "temp":
            return Purpose("workspace")
        if _BACKWARD.search(inner):
            return Purpose("gradients")
        if _SUMMED.search(inner):
            return Purpose("gradients" if self.lines.get(inner) in self._backward else "unattributed")
        if self._updates(inner):
            return Purpose("optimizer state" if _INITIALIZES.search(inner) else "workspace")
        if "/" in inner and region == "output" and not _ASSIGNS.search(inner):
            return Purpose("activations")
        return Purpose()

    def _is_slot(self, inner: str) -> bool:
        """Whether a TF1 variable is an optimizer's: ``phi/Adam_1``, ``beta1_power``."""
        parts = [re.sub(r"_\d+$", "", part) for part in inner.split("/")[:-1]]
        return not self._scopes.isdisjoint(parts) or parts[:1] in (["beta1_power"], ["beta2_power"])

    def _updates(self, inner: str) -> bool:
        """Whether an op computes an update of the optimizer."""
        scope, _, rest = inner.partition("/")
        return bool(rest) and (scope in self._scopes or re.sub(r"_\d+$", "", scope) in self._scopes)

    def _input(self, allocation: Allocation) -> tuple[str, str]:
        """Shape and type of a copied input: of the one input of the program that has its size, or its shape too.

        Where several have, the one with the most that is known: ``[-1,784]`` rather than ``[-1,1]``, whose length
        may be any.
        """
        fitting: dict[tuple[str, str], int] = {}
        for given in self.inputs:
            shape = _fitted(given, allocation.event.requested)
            known = allocation.event.shape
            if (
                shape is not None
                and (not known or known == _text(shape))
                and allocation.event.dtype in ("", given.dtype)
            ):
                size = abs(math.prod(given.shape))
                key = (_text(shape), given.dtype)
                if not allocation.event.dtype and -1 in given.shape:
                    key = (_text(given.shape).replace("-1", "?"), "")  # float64 of half the length has this size, too
                fitting[key] = max(size, fitting.get(key, 0))
        best = [key for key, size in fitting.items() if size == max(fitting.values())]
        return best[0] if len(best) == 1 else ("", "")

    def _of_variables(self, live: Sequence[Allocation]) -> dict[int, Purpose]:
        """Allocations that are variables: named after one, or of its size, type and shape and long-lived.

        Where more allocations fit than there are variables, those that live longest are taken.
        """
        candidates = group_by(live, lambda allocation: allocation.event.requested)
        found: dict[int, Purpose] = {}
        for size, free in group_by(self.variables, lambda variable: variable.size or 0).items():
            left = []
            for candidate in candidates.get(size, ()) if size else ():
                named = next((v for v in free if v.name and v.name in candidate.event.op), None)
                if named is None:
                    left.append(candidate)
                else:
                    free.remove(named)
                    found[id(candidate)] = _as_variable(named)
            self._matched(left, free, found)
        return found

    def _matched(self, left: list[Allocation], free: list[Variable], found: dict[int, Purpose]) -> None:
        """Gives the allocations of one size to the variables of this size that are not found yet.

        Which variable it is, is named only where that is certain; its group always.
        """
        never = 1 << 63
        fitting = [
            allocation
            for allocation in left
            if self._may_hold(allocation) and any(self._fits(allocation, variable) for variable in free)
        ]
        fitting.sort(
            key=lambda allocation: allocation.began - (never if allocation.freed is None else allocation.freed)
        )
        chosen = sorted(fitting[: len(free)], key=lambda allocation: allocation.began)
        updated = [
            allocation
            for allocation in chosen
            if _ASSIGNS.search(allocation.event.op) and self._updates(strip_calls(allocation.event.op))
        ]
        for allocation in updated:
            # An update of the optimizer's gives a new buffer to its own variables, in any order.
            fits = [variable for variable in free if self._fits(allocation, variable)]
            own = [variable for variable in fits if variable.kind == "optimizer"] or fits
            if own:
                free.remove(own[0])
                found[id(allocation)] = _as_variable(own[0], certain=len(own) == 1)
        others = [allocation for allocation in chosen if allocation not in updated]
        # As many as there are variables: both are in the order in which they were made.
        certain = len(others) == len(free)
        for allocation in others:
            variable = next((variable for variable in free if self._fits(allocation, variable)), None)
            if variable is not None:
                free.remove(variable)
                found[id(allocation)] = _as_variable(variable, certain=certain)

    def _fits(self, allocation: Allocation, variable: Variable) -> bool:
        """By type and shape; an optimizer's own ops or initializers give its state a buffer, of those in a graph."""
        event, inner = allocation.event, strip_calls(allocation.event.op)
        if event.shape not in ("", _text(variable.shape)) or event.dtype not in ("", variable.dtype):
            return False
        made = self._updates(inner) or _ASSIGNS.search(inner) or _INITIALIZES.search(inner) or _INITIAL.search(inner)
        return variable.kind != "optimizer" or bool(made) or not ("/" in inner or _SUMMED.search(inner))

    def _may_hold(self, allocation: Allocation) -> bool:
        """Whether an allocation may be a variable's buffer: long-lived, and by its name nothing else."""
        if allocation.freed is not None and allocation.freed - allocation.began <= _MIN_VARIABLE_LIFE_SHARE * (
            self.end - allocation.began
        ):
            return False
        inner = strip_calls(allocation.event.op)
        if _BACKWARD.search(inner) or in_xla_cluster(inner):
            return False
        return allocation.event.region != "temp" or _ASSIGNS.search(inner) is not None


def strip_calls(op: str) -> str:
    """The op's name without the calls of functions that it is in."""
    return _CALLS.sub("", op)


def layer_of(op: str) -> str:
    """The name scope of an op: ``sequential/dense_1`` of ``StatefulPartitionedCall/sequential/dense_1/MatMul``."""
    inner = _BACKWARD.sub("", strip_calls(op))
    return inner.rpartition("/")[0]


def in_xla_cluster(op: str) -> bool:
    """Whether it belongs to a cluster that XLA compiled, which allocates one buffer for all of its ops."""
    return _CLUSTER.search(op) is not None


def _as_variable(variable: Variable, *, certain: bool = True) -> Purpose:
    group = _STATE.get(variable.kind, "other variables")
    return Purpose(
        group,  # type: ignore[arg-type]
        variable.name if certain else "",
        _text(variable.shape),
        variable.dtype,
        "variable",
    )


def _fitted(given: FunctionInput, size: int) -> tuple[int, ...] | None:
    """The shape of an input that takes so many bytes; None if it cannot."""
    width = _BYTES.get(given.dtype)
    if width is None or given.shape.count(-1) > 1:
        return None
    width *= math.prod(part for part in given.shape if part != -1)
    if -1 not in given.shape:
        return given.shape if width == size else None
    if not width or size % width or not size:
        return None
    return tuple(size // width if part == -1 else part for part in given.shape)


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
