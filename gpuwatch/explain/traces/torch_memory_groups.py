"""What PyTorch's allocations were for: their stacks, and how long they lived.

What was allocated before a history begins has no stack there. Where it was freed tells of some; of what lives until
the end, the weights are those that have a gradient of the same size.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.memory_profile import Group
from gpuwatch.explain.traces.allocation_stacks import NO_STACK, Role, Stack

_BY_ROLE: dict[Role, Group] = {
    "workspace": "workspace",
    "backward": "gradients",
    "gradients": "gradients",
    "state": "optimizer state",
    "weights": "weights",
    "cache": "caches",
    "forward": "activations",
    "inputs": "inputs",
    "created": "created",
}
_FREED_BY: dict[Role, Group] = {
    "workspace": "workspace",
    "zero_grad": "gradients",
    "optimizer": "optimizer state",
    "state": "optimizer state",
    "backward": "activations",
    "forward": "activations",
    "cache": "caches",
}
"""What had been allocated before the history began, by the part of the program that freed it."""
_AFTER_BACKWARD: frozenset[Role] = frozenset({"zero_grad", "optimizer", "state"})
"""What follows the backward pass."""
_PASSES: frozenset[Role] = frozenset({"forward", "backward", "computed"})
_CUBLAS_WORKSPACE_BYTES = frozenset({32 << 20, 8320 << 10})
"""Bytes of the workspace that PyTorch gives cuBLAS in each thread that multiplies matrices, and keeps: on compute
capability 9.0, and on others (``parseChosenWorkspaceSize`` in ATen/cuda/CublasHandlePool.cpp)."""


@dataclass(eq=False, slots=True)
class MemoryChange:
    """An allocation or a free, in the order of time."""

    at: int
    """Picoseconds since the history began."""
    is_free: bool
    address: int
    block_bytes: int
    """Size of the block: what was requested, rounded up; 0 of a free."""
    requested_bytes: int
    stack: Stack
    before_history: bool = False
    """Allocated before the history began."""
    group: Group = "unattributed"
    freed_at: int | None = None
    """Index of its free among the changes."""
    freed_by: Stack = NO_STACK


def assign_groups(changes: Sequence[MemoryChange], *, failed: bool) -> None:
    """Sets the group, the free and who freed it of every allocation. ``failed``: a request was refused at the end."""
    _match_frees(changes)
    roles = _roles_by_index(changes)
    trains = "forward" in roles.values() or "backward" in roles.values()
    for index, change in enumerate(changes):
        if change.is_free:
            continue
        role = roles[index]
        change.group = _BY_ROLE.get(role, "unattributed")
        if role == "computed":
            change.group = "activations" if trains else "created"
        elif not role and change.stack.line:
            change.group = "created"
    _assign_optimizer_state(changes, roles, failed=failed)
    _assign_cublas_workspaces(changes, roles)
    _assign_earlier_allocations(changes, roles)


def _match_frees(changes: Sequence[MemoryChange]) -> None:
    live: dict[int, MemoryChange] = {}
    for index, change in enumerate(changes):
        allocation = live.pop(change.address, None)
        if allocation is not None:
            allocation.freed_at, allocation.freed_by = index, change.stack if change.is_free else NO_STACK
        if not change.is_free:
            live[change.address] = change


def _roles_by_index(changes: Sequence[MemoryChange]) -> dict[int, Role]:
    """The role of each allocation, by its index.

    Where stacks have no C++ frames, what has no line of the program is of a thread of PyTorch's own: in a program
    that trains, of the backward pass.
    """
    roles = {index: change.stack.role for index, change in enumerate(changes) if not change.is_free}
    in_history = [index for index in roles if not changes[index].before_history]
    trains = any(change.stack.role in ("optimizer", "state", "zero_grad", "backward") for change in changes)
    if trains and not any(changes[index].stack.native for index in in_history):
        roles.update({index: "backward" for index in in_history if not (changes[index].stack.line or roles[index])})
    return roles


def _assign_optimizer_state(changes: Sequence[MemoryChange], roles: dict[int, Role], *, failed: bool) -> None:
    """What an optimizer allocates and keeps when the program goes on is its state; what it frees, workspace."""
    optimizer_allocations: list[MemoryChange] = []
    for index, role in roles.items():
        if role == "optimizer":
            optimizer_allocations.append(changes[index])
            changes[index].group = "workspace"
        elif optimizer_allocations and role not in ("state", "workspace"):
            _assign_if_kept(optimizer_allocations, index)
            optimizer_allocations = []
    if not failed:
        _assign_if_kept(optimizer_allocations, len(changes))


def _assign_if_kept(optimizer_allocations: Iterable[MemoryChange], index: int) -> None:
    for change in optimizer_allocations:
        if _outlives(change, index):
            change.group = "optimizer state"


def _assign_cublas_workspaces(changes: Sequence[MemoryChange], roles: dict[int, Role]) -> None:
    """A workspace has the stack of the op that needed it first; ops of that line made their results again without it.

    What the line keeps of each step is there more than once, and its results are freed.
    """
    passes = ((changes[index], role) for index, role in roles.items() if role in _PASSES)
    for allocations in group_by(passes, lambda pair: (pair[0].stack.line, pair[0].stack.layer_line, pair[1])).values():
        of_line = [change for change, _ in allocations]
        sizes = [change.requested_bytes for change in of_line]
        workspaces = [index for index, size in enumerate(sizes) if size in _CUBLAS_WORKSPACE_BYTES]
        if len(workspaces) == 1 and _outlives(of_line[workspaces[0]], _last_pass(roles)):
            change, later = of_line[workspaces[0]], set(sizes[workspaces[0] + 1 :])
            if later & set(sizes[: workspaces[0]]) or (change.before_history and later):
                change.group = "workspace"


def _last_pass(roles: dict[int, Role]) -> int:
    return max((index for index, role in roles.items() if role in _PASSES), default=-1)


def _outlives(change: MemoryChange, end: int) -> bool:
    """Whether it is kept beyond the index ``end``."""
    return change.freed_at is None or change.freed_at > end


def _phases(changes: Sequence[MemoryChange], roles: dict[int, Role]) -> list[Role]:
    """At each change whether the program was in its forward or backward pass, by what it allocated last."""
    phases: list[Role] = []
    phase: Role = ""
    for index, change in enumerate(changes):
        role = roles.get(index, "")
        if role and not change.before_history:
            phase = role if role in ("backward", "forward") else ""
        phases.append(phase)
    return phases


def _assign_earlier_allocations(changes: Sequence[MemoryChange], roles: dict[int, Role]) -> None:
    if all(change.before_history for change in changes):
        return  # no history
    before = [change for change in changes if change.before_history and not change.is_free and not change.stack.known]
    phases, end = _phases(changes, roles), _last_pass(roles)
    _assign_trained_weights(changes, roles)
    for change in before:
        if change.freed_at is not None:
            freed_by = change.freed_by.role if change.freed_by.known else phases[change.freed_at]
            change.group = _FREED_BY.get(freed_by, "unattributed")
    # What is freed after the last pass is freed as the program ends: who freed it does not say what it was for.
    lasting = [change for change in before if _outlives(change, end) and change.group == "unattributed"]
    _assign_by_size(
        [change for change in before if change.group == "unattributed" and not _outlives(change, end)], changes
    )
    counts, steps = _count_gradients(changes, roles), any(change.stack.role in _AFTER_BACKWARD for change in changes)
    known_weights = Counter(change.requested_bytes for change in changes if change.group == "weights")
    for size, same_size in group_by(lasting, lambda change: change.requested_bytes).items():
        gradient_count = counts[size]
        weights = max(gradient_count - known_weights[size], 0)
        for index, change in enumerate(sorted(same_size, key=lambda change: change.address)):
            if index < weights:
                change.group = "weights"
            elif gradient_count and steps and index < weights + 2 * gradient_count:
                change.group = "optimizer state"
            elif size in _CUBLAS_WORKSPACE_BYTES and counts:
                change.group = "workspace"  # nothing that is trained has this size
            else:
                change.group = "weights and caches"


def _assign_trained_weights(changes: Sequence[MemoryChange], roles: dict[int, Role]) -> None:
    """What the program created itself and keeps is its weights where as many gradients have the same size."""
    counts = _count_gradients(changes, roles)
    for change in changes:
        if change.group == "weights" and not change.is_free and change.freed_at is None:
            counts[change.requested_bytes] -= 1
    for change in changes:
        if (
            change.group in ("created", "unattributed")
            and not (change.is_free or change.before_history)
            and change.freed_at is None
        ):
            counts[change.requested_bytes] -= 1
            if counts[change.requested_bytes] >= 0:
                change.group = "weights"


def _assign_by_size(unknown: Iterable[MemoryChange], changes: Sequence[MemoryChange]) -> None:
    """Allocations freed by the program itself take the group of all others of their size, if it is one group."""
    groups: dict[int, set[Group]] = defaultdict(set)
    for change in changes:
        if not change.is_free and not change.before_history:
            groups[change.requested_bytes].add(change.group)
    for change in unknown:
        same_size_groups = groups.get(change.requested_bytes, set())
        if len(same_size_groups) == 1:
            (change.group,) = same_size_groups


def _count_gradients(changes: Sequence[MemoryChange], roles: dict[int, Role]) -> Counter[int]:
    """How many gradients of each size a backward pass leaves to the optimizer, or to the next step."""
    counts: Counter[int] = Counter()
    pending: list[MemoryChange] = []
    for index, change in enumerate(changes):
        role = roles.get(index, "")
        if role == "backward":
            pending.append(change)
        elif pending and (
            change.stack.role in _AFTER_BACKWARD if change.is_free else role not in ("workspace", "forward")
        ):
            counts |= Counter(gradient.requested_bytes for gradient in pending if _outlives(gradient, index - 1))
            pending = []
    return counts
