"""Where ops ran: eager ``Executing op`` lines, placer lines, colocation reports, and lines on automatic copies.

The placer prints every node twice (stdout and stderr). The eager runtime wraps every op in a small function, whose
nodes the placer prints too. So an op that was executed eagerly is counted by executions, other nodes once each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gpuwatch.core.model.run import DeviceCopy, Placement
from gpuwatch.explain.logs.device_names import device_name
from gpuwatch.explain.logs.log_facts import ColocatedOp, ColocationReport

MAX_NODES = 50_000
"""Distinct nodes remembered; counts of larger graphs are lower bounds."""
MAX_KEYS = 2_000
"""Distinct pairs of op and device, and distinct copies, that are counted."""
MAX_MEMBERS = 50
"""Ops of a colocation report that are kept."""

IDLE_OPS = frozenset(
    {"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval", "Const", "NoOp", "_EagerConst", "_HostConst", "Placeholder"}
)
"""Ops that do no work."""
RESOURCE_OPS = re.compile(r"^(?:VarHandleOp|Variable(?:V2)?|\w*HashTable(?:V2)?|\w*Queue(?:V2)?)$")
"""Ops that make a variable, table or queue."""
# TensorFlow before 1.5 has no colon after the op's type.
_NODE = re.compile(
    r"(?<!\S)(\S+): (?:\((\w+)\):? ?)?(/(?:job:(?:[^\s/]+/)+?)?(?:device:)?(?:[cg]pu|[CG]PU|XLA_\wPU):\d+)\s*$"
)
_GLUED_PREFIX = re.compile(r"^.*[\]>:\x07]")
"""A launcher's prefix without a space: [1,0]<stdout>:a/MatMul."""
_MKL = re.compile(r"^_Mkl(?:Native)?")
_MEMBER = re.compile(r"^(\S+) \((\w+)\)\s*(/\S+)?")
_ROOT = re.compile(r"requested_device_name_='([^']*)'.{0,400}?supported_device_types_=\[([^\]]*)\]")
_EXECUTING = re.compile(r"Executing op (\S+) in device (\S+)")
_COPY = re.compile(
    r"before computing (\S+) input #(\d+) was expected to be on (\S+) but is actually on (\S+) \(operation running on"
)
"""Logged under the device policy ``warn`` (tensorflow/core/common_runtime/eager/execute.cc)."""


class PlacementCounter:
    """Counts (op, device) in eager lines and placer lines."""

    def __init__(self) -> None:
        self._eager: dict[tuple[str, str], int] = {}
        self._graph: dict[tuple[str, str], int] = {}
        self._nodes: set[int] = set()
        self._key_by_line_end: dict[str, tuple[tuple[str, str], int]] = {}
        """Key, and its hash, by what follows the node in a placer line: an op and a device."""
        self._copies: dict[tuple[str, int, str, str], int] = {}

    def take_eager_line(self, message: str) -> tuple[str, str] | None:
        """An ``Executing op`` line; returns its key for :meth:`count_again`, None if it is not counted."""
        match = _EXECUTING.search(message)
        key = _key(match[1], match[2]) if match is not None else None
        if key is not None:
            self.count_again(key)
        return key

    def count_again(self, key: tuple[str, str]) -> None:
        """Counts an eager line once more, by the key from :meth:`take_eager_line`."""
        if key in self._eager or len(self._eager) < MAX_KEYS:
            self._eager[key] = self._eager.get(key, 0) + 1

    def take_copy_line(self, message: str) -> bool:
        """Takes a line about an automatic copy of an eager op's input; False for other lines."""
        match = _COPY.search(message)
        if match is None:
            return False
        key = (op_name(match[1]), int(match[2]), device_name(match[4]), device_name(match[3]))
        if key in self._copies or len(self._copies) < MAX_KEYS:
            self._copies[key] = self._copies.get(key, 0) + 1
        return True

    def copies(self) -> list[DeviceCopy]:
        """Automatic copies between devices, most frequent first."""
        return sorted_copies(self._copies)

    def take_placer_line(self, message: str) -> bool:
        """Takes a placer line; False for other lines."""
        if self.take_known_placer_line(message):
            return True
        match = _NODE.search(message)
        if match is None or (match[2] is None and match.start() > 0):
            return False  # a sentence that ends in a device
        node = match[1]
        if ":" in node or node[0] == "[":
            node = _GLUED_PREFIX.sub("", node)
        # TensorFlow 0.x prints no op type.
        op = match[2] or node.rsplit("/", 1)[-1]
        key = _key(op, match[3])
        if key is not None:
            if match[2] and len(self._key_by_line_end) < MAX_KEYS:
                self._key_by_line_end[message[match.end(1) :]] = key, hash(key)
            self._count(hash(node) ^ hash(key), key)
        return True

    def take_known_placer_line(self, message: str) -> bool:
        """Takes a placer line of an op and device that were seen before, without a search for its parts."""
        at = message.find(": (")
        if at < 1 or (known := self._key_by_line_end.get(message[at:])) is None:
            return False
        node = message[:at]
        if ":" in node or node[0] == "[" or " " in node or not node.isprintable():
            return False
        key, of_key = known
        identity = hash(node) ^ of_key
        if identity not in self._nodes:
            self._count(identity, key)
        return True

    def _count(self, identity: int, key: tuple[str, str]) -> None:
        if identity not in self._nodes and len(self._nodes) < MAX_NODES:
            self._nodes.add(identity)
            if (count := self._graph.get(key, 0)) or len(self._graph) < MAX_KEYS:
                self._graph[key] = count + 1

    def result(self) -> list[Placement]:
        """Placements, most frequent first."""
        merged = {**self._graph, **self._eager}
        return sorted_placements(
            {Placement(op=op, actual=where, count=1): count for (op, where), count in merged.items()}
        )


def _key(op: str, where: str) -> tuple[str, str] | None:
    return None if op in IDLE_OPS else (op_name(op) if op[:1] == "_" else op, device_name(where))


def sorted_placements(counts: Mapping[Placement, int]) -> list[Placement]:
    """Placements with their counts, most frequent first."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0].op, item[0].dtype or "", item[0].actual))
    return [msgspec.structs.replace(key, count=count) for key, count in ordered]


def sorted_copies(counts: Mapping[tuple[str, int, str, str], int]) -> list[DeviceCopy]:
    """By op, number of its input, source and destination; most frequent first."""
    return [
        DeviceCopy(op=op, input=number, source=source, destination=destination, count=count)
        for (op, number, source, destination), count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def op_name(op: str) -> str:
    """``MatMul`` of ``_MklMatMul``; ``train_step`` of ``__inference_train_step_1234``."""
    if op.startswith("__"):
        for prefix in ("__inference_", "__forward_", "__backward_", "__wrapped__"):
            if op.startswith(prefix):
                name = op[len(prefix) :]
                start, _, serial = name.rpartition("_")
                return start if start and serial.isdecimal() else name
        return op
    return (_MKL.sub("", op) or op) if op.startswith("_") else op


class ColocationReader:
    """Reads one ``Colocation Debug Info`` block."""

    def __init__(self, *, failed: bool) -> None:
        self.failed = failed
        self._members: list[ColocatedOp] = []
        self._supported: tuple[str, ...] | None = None
        self._types: dict[str, set[str]] = {}
        self._requested: str | None = None
        self._in_member_list = False
        self._lines = 0

    def take(self, line: str) -> bool:
        """Takes a cleaned line; False if the block has ended."""
        self._lines += 1
        if self._lines > 4 * MAX_MEMBERS:
            return False
        if line.startswith("Root Member("):
            if match := _ROOT.search(line):
                self._requested = device_name(match[1]) if match[1] else None
                self._supported = tuple(part.strip() for part in match[2].split(",") if part.strip())
            return True
        if line.startswith(("Colocation members", "/job:", "See below", "Colocation ")) or not line:
            self._in_member_list = self._in_member_list or line.startswith("Colocation members")
            return not (self._members and not line)
        if self._in_member_list:
            match = _MEMBER.match(line)
            if match is None:
                return not self._members
            if len(self._members) < MAX_MEMBERS:
                self._members.append(ColocatedOp(match[1], match[2], device_name(match[3]) if match[3] else ""))
            return True
        name, colon, kinds = line.partition(": ")
        if colon and name.isidentifier():
            self._types[name] = set(kinds.split())
            return True
        return False

    def result(self) -> ColocationReport:
        """The colocation report as far as it was read."""
        supported = self._supported
        if supported is None:
            common = set.intersection(*self._types.values()) if self._types else set()
            supported = tuple(sorted(common))
        requested = self._requested or next((m.requested for m in self._members if m.requested), None)
        kind = (requested or "").partition(":")[0]
        return ColocationReport(
            members=tuple(self._members),
            requested=requested,
            supported=supported,
            lacking=tuple(name for name, kinds in self._types.items() if kind and kind not in kinds),
            failed=self.failed,
        )
