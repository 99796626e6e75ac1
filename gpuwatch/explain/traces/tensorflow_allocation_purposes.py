"""What TensorFlow's allocations were for, by the names of their ops and by the program's variables and inputs.

No group without such evidence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.memory_profile import Group
from gpuwatch.explain.size_texts import DTYPE_BYTES
from gpuwatch.explain.traces.allocation_replay import Allocation
from gpuwatch.explain.traces.tensorflow_op_names import BACKWARD, in_xla_cluster, strip_calls

_SUMMED = re.compile(r"^AddN(?:_\d+)?(?:/|$)")
"""Sum of gradients of a variable with several uses, or the program's own tf.add_n."""
_COPIES_TO_GPU = re.compile(r"^(?:_EagerConst|SameWorkerRecvDone|_HostRecv|_Recv|IteratorGetNext)(?:$|/)|^_Send input")
_ASSIGNS = re.compile(r"(?:^|/)(?:Assign|ResourceApply|ResourceScatter|ResourceSparseApply)\w*$")
_ASSIGNS_ALONE = re.compile(r"(?:^|/)Assign(?:Add|Sub)?(?:VariableOp)?(?:_\d+)?$")
"""Ops whose only allocation is a new buffer for their variable, where something else still uses the old one."""
_INITIALIZER_OP = re.compile(r"/Initializer/\w+/")
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
_GROUP_OF_KIND = {
    "weight": "weights",
    "optimizer": "optimizer state",
    "state": "other variables",
    "": "other variables",
}


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the program, which an allocation may hold."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    """``weight``, ``optimizer``, ``state`` of a layer, or empty if unknown."""

    @property
    def size(self) -> int | None:
        """Its bytes; None for a type of unknown size."""
        width = DTYPE_BYTES.get(self.dtype)
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
class AllocationPurposes:
    """Decides what allocations were for, by what was read of the program: its variables, inputs and source lines."""

    variables: Sequence[Variable] = ()
    inputs: Sequence[FunctionInput] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """The program's line that made an op, by the op's name in its graph."""
    end: int = 0
    """When the recording ended, in picoseconds."""
    _optimizer_scopes: frozenset[str] = field(default=frozenset(), init=False)
    _gradient_lines: frozenset[str] = field(default=frozenset(), init=False)
    """The program's lines that ask for gradients."""

    def __post_init__(self) -> None:
        parts = {
            variable.name.partition("/")[0]
            for variable in self.variables
            if variable.kind == "optimizer" and "/" in variable.name
        }
        self._optimizer_scopes = frozenset(parts | _OPTIMIZERS)
        self._gradient_lines = frozenset(line for op, line in self.lines.items() if line and BACKWARD.search(op))

    def purposes(self, live: Sequence[Allocation]) -> dict[int, Purpose]:
        """What each allocation that is alive was for, by ``id()``."""
        found = self._purposes_of_variables(live)
        return {id(allocation): found.get(id(allocation)) or self.purpose_by_name(allocation) for allocation in live}

    def purpose_by_name(self, allocation: Allocation) -> Purpose:
        """By its op's name alone."""
        op, region = allocation.event.op, allocation.event.region
        op_name = strip_calls(op)
        if in_xla_cluster(op):
            return Purpose()
        if _COPIES_TO_GPU.search(op_name):
            shape, dtype = self._shape_of_input(allocation)
            return Purpose("inputs" if shape else "unattributed", "", shape, dtype, "input" if shape else "")
        is_initial_value = region == "output" and _INITIALIZER_OP.search(op_name)
        if (is_initial_value or _ASSIGNS_ALONE.search(op_name)) and not self._is_optimizer_update(op_name):
            return Purpose("optimizer state" if self._is_optimizer_slot(op_name) else "other variables")
        if region == "temp":
            return Purpose("workspace")
        if BACKWARD.search(op_name):
            return Purpose("gradients")
        if _SUMMED.search(op_name):
            return Purpose("gradients" if self.lines.get(op_name) in self._gradient_lines else "unattributed")
        if self._is_optimizer_update(op_name):
            return Purpose("optimizer state" if _INITIALIZES.search(op_name) else "workspace")
        if "/" in op_name and region == "output" and not _ASSIGNS.search(op_name):
            return Purpose("activations")
        return Purpose()

    def _is_optimizer_slot(self, op_name: str) -> bool:
        """Whether a TF1 variable is an optimizer's: ``phi/Adam_1``, ``beta1_power``."""
        parts = [re.sub(r"_\d+$", "", part) for part in op_name.split("/")[:-1]]
        return not self._optimizer_scopes.isdisjoint(parts) or parts[:1] in (["beta1_power"], ["beta2_power"])

    def _is_optimizer_update(self, op_name: str) -> bool:
        """Whether an op computes an update of the optimizer."""
        scope, _, rest = op_name.partition("/")
        return bool(rest) and (scope in self._optimizer_scopes or re.sub(r"_\d+$", "", scope) in self._optimizer_scopes)

    def _shape_of_input(self, allocation: Allocation) -> tuple[str, str]:
        """Shape and type of an allocation to which an input was copied: those of the input that has its size.

        If several inputs have this size, it is the one of which most is known: ``[-1,784]`` rather than ``[-1,1]``.
        Both are empty if none fits, or more than one as well.
        """
        fitting: dict[tuple[str, str], int] = {}
        for program_input in self.inputs:
            shape = _shape_of_bytes(program_input, allocation.event.requested)
            known = allocation.event.shape
            if (
                shape is not None
                and (not known or known == _shape_text(shape))
                and allocation.event.dtype in ("", program_input.dtype)
            ):
                size = abs(math.prod(program_input.shape))
                key = (_shape_text(shape), program_input.dtype)
                if not allocation.event.dtype and -1 in program_input.shape:
                    key = (
                        _shape_text(program_input.shape).replace("-1", "?"),
                        "",
                    )  # float64 of half the length has this size, too
                fitting[key] = max(size, fitting.get(key, 0))
        best = [key for key, size in fitting.items() if size == max(fitting.values())]
        return best[0] if len(best) == 1 else ("", "")

    def _purposes_of_variables(self, live: Sequence[Allocation]) -> dict[int, Purpose]:
        """Allocations that are variables: named after one, or of its size, type and shape and long-lived.

        Where more allocations fit than there are variables, those that live longest are taken.
        """
        candidates = group_by(live, lambda allocation: allocation.event.requested)
        found: dict[int, Purpose] = {}
        for size, variables in group_by(self.variables, lambda variable: variable.size or 0).items():
            unnamed = []
            for candidate in candidates.get(size, ()) if size else ():
                named = next((v for v in variables if v.name and v.name in candidate.event.op), None)
                if named is None:
                    unnamed.append(candidate)
                else:
                    variables.remove(named)
                    found[id(candidate)] = _purpose_of_variable(named)
            self._assign_variables(unnamed, variables, found)
        return found

    def _assign_variables(
        self, unnamed: list[Allocation], variables: list[Variable], found: dict[int, Purpose]
    ) -> None:
        """Gives the allocations of one size to the variables of this size that are not found yet.

        Which variable it is, is named only where that is certain; its group always.
        """
        never = 1 << 63
        fitting = [
            allocation
            for allocation in unnamed
            if self._may_hold_variable(allocation) and any(self._fits(allocation, variable) for variable in variables)
        ]
        fitting.sort(key=lambda allocation: -allocation.life(never))
        chosen = sorted(fitting[: len(variables)], key=lambda allocation: allocation.allocated_at)
        updated = [
            allocation
            for allocation in chosen
            if _ASSIGNS.search(allocation.event.op) and self._is_optimizer_update(strip_calls(allocation.event.op))
        ]
        for allocation in updated:
            # An update of the optimizer's gives a new buffer to its own variables, in any order.
            fits = [variable for variable in variables if self._fits(allocation, variable)]
            own = [variable for variable in fits if variable.kind == "optimizer"] or fits
            if own:
                variables.remove(own[0])
                found[id(allocation)] = _purpose_of_variable(own[0], certain=len(own) == 1)
        others = [allocation for allocation in chosen if allocation not in updated]
        # As many as there are variables: both are in the order in which they were made.
        certain = len(others) == len(variables)
        for allocation in others:
            variable = next((variable for variable in variables if self._fits(allocation, variable)), None)
            if variable is not None:
                variables.remove(variable)
                found[id(allocation)] = _purpose_of_variable(variable, certain=certain)

    def _fits(self, allocation: Allocation, variable: Variable) -> bool:
        """Whether the variable may be in this buffer: type and shape fit, where they are known.

        An optimizer's variable also needs an op in a graph to be the optimizer's, an assignment or an initializer.
        """
        event, op_name = allocation.event, strip_calls(allocation.event.op)
        if event.shape not in ("", _shape_text(variable.shape)) or event.dtype not in ("", variable.dtype):
            return False
        may_make_optimizer_state = (
            self._is_optimizer_update(op_name)
            or _ASSIGNS.search(op_name)
            or _INITIALIZES.search(op_name)
            or _INITIALIZER_OP.search(op_name)
        )
        return (
            variable.kind != "optimizer"
            or bool(may_make_optimizer_state)
            or not ("/" in op_name or _SUMMED.search(op_name))
        )

    def _may_hold_variable(self, allocation: Allocation) -> bool:
        """Whether an allocation may be a variable's buffer: long-lived, and by its name nothing else."""
        rest = self.end - allocation.allocated_at
        if allocation.freed_at is not None and allocation.life(self.end) <= _MIN_VARIABLE_LIFE_SHARE * rest:
            return False
        op_name = strip_calls(allocation.event.op)
        if BACKWARD.search(op_name) or in_xla_cluster(op_name):
            return False
        return allocation.event.region != "temp" or _ASSIGNS.search(op_name) is not None


def _purpose_of_variable(variable: Variable, *, certain: bool = True) -> Purpose:
    group = _GROUP_OF_KIND.get(variable.kind, "other variables")
    return Purpose(
        group,  # type: ignore[arg-type]
        variable.name if certain else "",
        _shape_text(variable.shape),
        variable.dtype,
        "variable",
    )


def _shape_of_bytes(program_input: FunctionInput, size: int) -> tuple[int, ...] | None:
    """The shape of an input that takes so many bytes; None if it cannot."""
    width = DTYPE_BYTES.get(program_input.dtype)
    if width is None or program_input.shape.count(-1) > 1:
        return None
    width *= math.prod(part for part in program_input.shape if part != -1)
    if -1 not in program_input.shape:
        return program_input.shape if width == size else None
    if not width or size % width or not size:
        return None
    return tuple(size // width if part == -1 else part for part in program_input.shape)


def _shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
