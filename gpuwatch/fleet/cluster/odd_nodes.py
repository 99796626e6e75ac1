"""The odd one out: which nodes of a cluster differ from their siblings, by what they have and by how fast they are.

A fixed limit passes a GPU that is three times slower than it should be; its siblings show it. Structure comes first
(GPUs, driver, versions, settings): a difference there explains a difference in speed. Speeds are compared by median
and median absolute deviation (MAD), since a slow node moves mean and standard deviation towards itself; only among
equal GPUs with one driver, in one configuration. No node is named on what noise can do
(:func:`_nodes_with_odd_speed`).
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.cluster_nodes import OddFact
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_comparison import Comparison
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.experiment.trials.step_times import step_time_text
from gpuwatch.share.reports import comparable_runs
from gpuwatch.share.reports.report_elements import clean
from gpuwatch.share.reports.run_tables import device_map

MIN_EQUAL_NODES = 4
"""Nodes that must be equal before one of them can be odd."""
_MIN_AGREEING_SHARE = 2 / 3
"""Share of the siblings that must agree on a value before the others are odd."""

_MAD_TO_SIGMA = 1.4826
"""MAD of a normal distribution to its standard deviation."""
_MIN_RELATIVE_SIGMA = 0.005
"""Relative standard deviation below which a spread is not believed: clocks step by more."""
_MIN_SIGMAS = 6.0
_LOG_SLOWER = math.log(1.10)
"""Least difference that is worth a word, where two measurements show it."""
_LOG_MUCH_SLOWER = math.log(1.50)
"""Least difference that one measurement alone can show."""
_MAX_TAIL_EXPONENT = 3.0
"""Exponent of the lightest tail that is assumed of noise."""
_LOG_TWICE = math.log(2)
_MIN_DISTANCE_RATIO = 3.0
"""A node that is twice as slow must lie this many times farther from the median than any sibling."""
_MAX_EXPECTED_BY_CHANCE = 0.005
"""Most nodes that noise alone may be expected to put where a named one is."""
_MIN_FAST_STEP_SHARE = 0.5
"""Share of the difference that even the fast steps of a node (p10) must show: else it was disturbed now and then."""

_GPU = re.compile(r"^\d+ (.*) ((?:GPU|MIG)-\S+)$")
_UUIDS = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}")
_MODES = {
    "power.limit_watts": "power limit",
    "ecc.mode": "ECC mode",
    "mig.mode": "MIG mode",
    "mode.compute": "compute mode",
    "mode.persistence": "persistence mode",
    "pcie.max_generation": "maximum PCIe generation",
    "pcie.max_width": "maximum PCIe width",
    "pcie.width": "PCIe width",
    "nvlink.links_active": "active NVLinks",
    "clocks.sm_max_mhz": "maximum SM clock",
}
"""Readings that are equal on equal machines, whatever they do."""
_UNITS = {"power.limit_watts": " W", "clocks.sm_max_mhz": " MHz"}


@dataclass
class _Node:
    """Facts and runs of one node that are compared with its siblings."""

    name: str
    models: tuple[str, ...] | None = None
    """Its kinds of GPU, sorted; empty for none; None if not known."""
    facts: dict[str, str] = field(default_factory=dict)
    """What could differ, and its value there."""
    uuids: set[str] = field(default_factory=set)
    runs: list[Run] = field(default_factory=list)
    simulated: bool = False

    def learn(self, what: str, value: object) -> None:
        """Keeps a fact unless an earlier source told it; None is no fact."""
        if value is not None:
            self.facts.setdefault(clean(what), clean(value))


def with_odd_nodes(document: Comparison) -> Comparison:
    """The comparison with its odd nodes named, and what could not be judged.

    Runs belong to the node that they name, or else to their host; without at least two, nothing is judged.
    """
    nodes = _nodes(document)
    if len(nodes) < 2:
        return document
    odd: list[OddFact] = []
    notes = _same_machine_notes(nodes)
    if len(nodes) >= MIN_EQUAL_NODES:
        # A node without any is named by its number of GPUs.
        models_by_node = {node.name: ", ".join(node.models) for node in nodes if node.models}
        odd += _nodes_that_differ("GPU model", models_by_node, notes)
    for siblings in _siblings(nodes):
        models = siblings[0].models
        kind = "GPUs not known" if models is None else ", ".join(models) or "no GPU"
        if len(siblings) < MIN_EQUAL_NODES:
            names = _list_of_names([node.name for node in siblings])
            notes.append(f"{names} ({kind}): too few to judge; at least {MIN_EQUAL_NODES} equal nodes are needed")
            continue
        for what in dict.fromkeys(what for node in siblings for what in node.facts):
            odd += _nodes_that_differ(
                what, {node.name: node.facts[what] for node in siblings if what in node.facts}, notes
            )
    odd += _odd_speeds(nodes, notes)
    order = {node.name: number for number, node in enumerate(nodes)}
    odd.sort(key=lambda fact: (fact.kind != "structure", order[fact.node]))
    return replace(document, odd=tuple(odd), odd_notes=tuple(dict.fromkeys(notes)))


# -- what each node has ---------------------------------------------------------------------------


def _nodes(document: Comparison) -> list[_Node]:
    nodes: dict[str, _Node] = {}
    for entry in document.nodes:
        if entry.state not in ("ok", "finding"):
            continue
        node = nodes.setdefault(entry.node, _Node(entry.node))
        node.learn("gpuwatch", entry.gpuwatch_version)
        if entry.snapshot is not None:
            _learn_snapshot(node, entry.snapshot)
        if entry.doctor is not None:
            for what, version in entry.doctor.versions.items():
                node.learn(what.replace("_", " "), version)
            for check in entry.doctor.checks:
                node.learn(f"check: {check.title or check.id}", check.state)
    for run in document.runs:
        name = run.node or run.host
        if name is not None:
            node = nodes.setdefault(name, _Node(name))
            node.runs.append(run)
            node.simulated = node.simulated or run.simulated
            _learn_run(node, run)
    return list(nodes.values())


def _learn_snapshot(node: _Node, snapshot: Snapshot) -> None:
    devices = snapshot.devices
    node.simulated = node.simulated or snapshot.simulated
    node.models = tuple(sorted({clean(device.name) for device in devices}))
    node.uuids |= {device.uuid for device in devices}
    node.learn("number of GPUs", len(devices))
    if snapshot.driver is not None:
        node.learn("driver", snapshot.driver.version)
        node.learn("CUDA of the driver", snapshot.driver.cuda_version)
    if not devices:
        return
    buses = [device.pci_bus_id for device in sorted(devices, key=lambda device: device.index)]
    node.learn("order of the GPUs", "by PCI bus id" if buses == sorted(buses) else "not by PCI bus id")
    node.learn("state", _per_gpu_text(devices, {device.index: clean(device.state) for device in devices}))
    total = {device.index: size(device.number("memory.total_bytes")) for device in devices}
    if UNKNOWN not in total.values():
        node.learn("memory", _per_gpu_text(devices, total))
    for metric, what in _MODES.items():
        if all(metric in device.readings for device in devices):
            unit = _UNITS.get(metric, "")
            values = {device.index: f"{clean(device.readings[metric])}{unit}" for device in devices}
            node.learn(what, _per_gpu_text(devices, values))
    if snapshot.topology is not None and not snapshot.topology.incomplete:
        links = Counter(connection.name for connection in snapshot.topology.connections)
        if links and None not in links:
            node.learn("topology", ", ".join(f"{count} × {name}" for name, count in sorted(links.items(), key=str)))


def _per_gpu_text(devices: Iterable[Device], values: Mapping[int, str]) -> str:
    """``16`` if all GPUs have it, else what differs: ``16, GPU 3: 8``."""
    usual, _ = Counter(values[device.index] for device in devices).most_common(1)[0]
    others = [f"GPU {index}: {value}" for index, value in sorted(values.items()) if value != usual]
    return ", ".join([usual, *others])


def _learn_run(node: _Node, run: Run) -> None:
    """What a run tells, as far as no snapshot and no run before it did: a report has old runs as well."""
    found = [match for text in run.gpus if (match := _GPU.match(text)) is not None]
    if node.models is None and run.gpus and len(found) == len(run.gpus):
        node.models = tuple(sorted({clean(match[1]) for match in found}))
        node.uuids |= {match[2] for match in found}
        node.learn("number of GPUs", len(found))
    elif node.models is None and run.driver_version is None and not run.gpus:
        node.models = ()  # the driver did not answer, or there is no GPU
        node.learn("number of GPUs", 0)
    node.learn("driver", run.driver_version)
    if run.framework is not None:
        node.learn(run.framework.name, run.framework.version)
        node.learn("Python", run.framework.python_version)
    if run.verdict not in ("interrupted", "skipped"):
        node.learn(f"verdict of {run.config}", run.verdict)
    if run.device_map:
        node.learn(f"device map of {run.config}", device_map(run))
    for name, setting in run.settings.items():
        if setting.effective is not None:
            node.learn(f"{name} of {run.config}", _setting_text(setting.effective))
    for name, value in run.environment.items():
        if not _UUIDS.search(value):  # each node has its own
            node.learn(name, value)


def _setting_text(value: object) -> str:
    """A setting's value, with dictionaries in one order."""
    if isinstance(value, (dict, list)):
        value = json.dumps(value, sort_keys=True, default=str)
    return clean(_UUIDS.sub("GPU-…", value) if isinstance(value, str) else value)


def _same_machine_notes(nodes: Sequence[_Node]) -> list[str]:
    """Nodes that show the same GPUs: one machine under several names. Simulated GPUs are shared on purpose."""
    names: dict[frozenset[str], list[str]] = {}
    for node in nodes:
        if node.uuids and not node.simulated:
            names.setdefault(frozenset(node.uuids), []).append(node.name)
    return [
        f"{_list_of_names(same)} show the same GPUs: one machine under several names"
        for same in names.values()
        if len(same) > 1
    ]


# -- structure ------------------------------------------------------------------------------------


def _siblings(nodes: Sequence[_Node]) -> list[list[_Node]]:
    """The nodes by kind of GPU. One that shows none belongs to the kind that nearly all have, if there is one."""
    kinds: dict[tuple[str, ...], list[_Node]] = {}
    known = [node for node in nodes if node.models is not None]
    for node in known:
        kinds.setdefault(node.models or (), []).append(node)
    bare = kinds.get((), [])
    if bare and len(kinds) > 1:
        main = max((kind for kind in kinds if kind), key=lambda kind: len(kinds[kind]))
        if len(kinds[main]) > _MIN_AGREEING_SHARE * len(known):
            kinds[main] = [node for node in known if node.models in (main, ())]
            del kinds[()]
    unknown = [node for node in nodes if node.models is None and node.facts]
    return [*kinds.values(), *([unknown] if unknown else [])]


def _nodes_that_differ(what: str, values: Mapping[str, str], notes: list[str]) -> list[OddFact]:
    """The nodes whose value is not that of most; a note if no value is that of most."""
    if len(values) < MIN_EQUAL_NODES:
        return []
    counts = Counter(values.values())
    usual, count = counts.most_common(1)[0]
    if count == len(values):
        return []
    if count <= _MIN_AGREEING_SHARE * len(values):
        if len(counts) <= 3 and min(counts.values()) > 1:
            parts = ", ".join(f"{value} on {number}" for value, number in counts.most_common())
            notes.append(f"{what} is divided: {parts} nodes")
        return []
    return [
        OddFact(node=name, kind="structure", what=what, value=value, usual=usual, siblings=len(values) - 1)
        for name, value in values.items()
        if value != usual
    ]


# -- speed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Speed:
    """The time of a step on one node, as a logarithm: differences are shares."""

    node: str
    median: float
    fast: float
    """The same of its fast steps (p10)."""


@dataclass(frozen=True)
class _Group:
    """One configuration on equal GPUs."""

    what: str
    speeds: tuple[_Speed, ...]
    middle: float
    spread: float
    """Standard deviation by the MAD."""
    sigma: float
    """The same, never less than what can be believed."""


def _odd_speeds(nodes: Sequence[_Node], notes: list[str]) -> list[OddFact]:
    """The nodes that are slower or faster than those with the same configuration, work, GPUs and driver."""
    compared: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    simulated = False
    for node in nodes:
        for run in node.runs:
            timed = run.throughput is not None and 0 < run.throughput.median_step_seconds < math.inf
            if not timed or run.verdict not in ("ok", "fallback") or comparable_runs.device_kind(run) == "CPU":
                continue
            if run.simulated:
                simulated = True
                continue
            models, driver = ", ".join(node.models or ()), clean(run.driver_version)
            key = (clean(run.config), comparable_runs.workload(run), models, driver)
            compared.setdefault(key, {}).setdefault(node.name, []).append(run)
    if simulated:
        notes.append("Speeds of simulated GPUs are not judged: they depend on each host's CPU")
    groups: list[_Group] = []
    small: dict[str, None] = {}
    for (config, *_), runs in compared.items():
        if len(runs) < MIN_EQUAL_NODES:
            small |= dict.fromkeys(runs)
        else:
            groups.append(_group(config, [_speed(name, of_node) for name, of_node in runs.items()]))
    judged_nodes = {speed.node for group in groups for speed in group.speeds}
    if unjudged := [name for name in small if name not in judged_nodes]:
        notes.append(
            f"Speed of {_list_of_names(unjudged)}: too few to judge; at least {MIN_EQUAL_NODES} nodes with the same "
            "GPU, driver and configuration are needed"
        )
    return _nodes_with_odd_speed(groups, notes)


def _group(config: str, speeds: Sequence[_Speed]) -> _Group:
    middle = statistics.median(speed.median for speed in speeds)
    spread = _MAD_TO_SIGMA * statistics.median(abs(speed.median - middle) for speed in speeds)
    # The MAD of few values is itself uncertain.
    sigma = max(spread, _MIN_RELATIVE_SIGMA) * (1 + 4 / len(speeds))
    return _Group(config, tuple(speeds), middle, spread, sigma)


def _speed(name: str, runs: Sequence[Run]) -> _Speed:
    medians, fast = [], []
    for run in runs:
        assert run.throughput is not None
        median, low = run.throughput.median_step_seconds, run.throughput.p10_step_seconds
        medians.append(math.log(median))
        fast.append(math.log(low if 0 < low < median else median))
    return _Speed(name, statistics.median(medians), statistics.median(fast))


def _nodes_with_odd_speed(groups: Sequence[_Group], notes: list[str]) -> list[OddFact]:
    """The nodes whose speed differs by more than noise.

    Noise of speeds has heavy tails (another tenant, a hot hour), so no fixed number of standard deviations is safe. A
    suspect is beyond :data:`_MIN_SIGMAS` of them and 10 %, and its fast steps are slow as well. It is named if all its
    measurements are suspect and as many as others have of them cannot add up to that by chance, or if at
    least half are, and one is so far off that even a heavy tail does not reach there (:func:`_far_nodes`).
    """
    suspects: dict[str, list[tuple[_Group, _Speed]]] = {}
    measured = Counter(speed.node for group in groups for speed in group.speeds)
    for group in groups:
        for speed in group.speeds:
            if _is_beyond_noise(group, speed):
                suspects.setdefault(speed.node, []).append((group, speed))
    far = {(group.what, node) for group in groups for node in _far_nodes(group)}
    odd = []
    for node, seen in suspects.items():
        count = measured[node]
        # How often a measurement of another node is suspect, and the chance that a node has this many in a row.
        rate = (sum(map(len, suspects.values())) - len(seen) + 1) / (measured.total() - count + 2)
        one_way = len({speed.median > group.middle for group, speed in seen}) == 1
        proven = one_way and count > 1 and len(seen) == count and len(measured) * rate**count < _MAX_EXPECTED_BY_CHANCE
        facts = [
            _odd_speed(group, speed, seen=len(seen), measured=count)
            for group, speed in seen
            if proven or ((group.what, node) in far and 2 * len(seen) >= count)
        ]
        odd += facts
        if not facts:
            group, speed = seen[0]
            notes.append(
                f"{node} was {_difference(group, speed)} in {len(seen)} of {count} measurements ({group.what}): not "
                "named, since noise can cause that; measure again"
            )
    return odd


def _far_nodes(group: _Group) -> list[str]:
    """The nodes of which one measurement is enough.

    The tail of the others' distances is taken for a power law (Hill's estimate of its exponent, never more than
    Student's t with three degrees of freedom has), and extrapolated. Without that, a node must be twice as slow and
    far beyond every other. The farthest nodes are judged together, as several slow ones would hide each other.
    """
    by_distance = sorted(group.speeds, key=lambda speed: -abs(speed.median - group.middle))
    distances = [max(abs(speed.median - group.middle), group.sigma) for speed in by_distance]
    for count in range(len(distances) // 4, 0, -1):
        distance, rest = distances[count - 1], distances[count:]
        if distance < _LOG_MUCH_SLOWER:
            continue
        top = max(len(rest) // 8, 2)
        edge = rest[top]  # the largest of those that are not in the tail
        slope = top / max(sum(math.log(value / edge) for value in rest[:top]), 1e-9)
        beyond = (top / len(rest)) * (edge / distance) ** min(slope, _MAX_TAIL_EXPONENT)
        twice_as_slow = distance >= _LOG_TWICE and distance > _MIN_DISTANCE_RATIO * rest[0]
        if twice_as_slow or len(distances) * beyond < _MAX_EXPECTED_BY_CHANCE:
            return [speed.node for speed in by_distance[:count] if _is_beyond_noise(group, speed)]
    return []


def _is_beyond_noise(group: _Group, speed: _Speed) -> bool:
    distance = speed.median - group.middle
    if abs(distance) < max(_LOG_SLOWER, _MIN_SIGMAS * group.sigma):
        return False
    return distance < 0 or speed.fast - group.middle > _MIN_FAST_STEP_SHARE * distance


def _odd_speed(group: _Group, speed: _Speed, *, seen: int, measured: int) -> OddFact:
    others = f"its siblings vary by {100 * (math.exp(group.spread) - 1):.1f} %"
    return OddFact(
        node=speed.node,
        kind="speed",
        what=f"speed of {group.what}",
        value=f"{step_time_text(math.exp(speed.median))} per step",
        usual=f"{step_time_text(math.exp(group.middle))} per step",
        siblings=len(group.speeds) - 1,
        detail=f"{_difference(group, speed)}; {others}; in {seen} of {measured} measurements",
    )


def _difference(group: _Group, speed: _Speed) -> str:
    """``12 % slower``, ``2.3 times faster``: than the middle of the group."""
    factor = math.exp(abs(speed.median - group.middle))
    amount = f"{factor:.1f} times" if factor >= 2 else f"{100 * (factor - 1):.0f} %"
    return f"{amount} {'slower' if speed.median > group.middle else 'faster'}"


# -- words ----------------------------------------------------------------------------------------


def _list_of_names(names: Sequence[str]) -> str:
    shown = [clean(name) for name in names[:4]]
    if len(names) > len(shown):
        return f"{', '.join(shown)} and {len(names) - len(shown)} more"
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
