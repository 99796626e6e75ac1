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

from gpuwatch.core.formatting.sentences import name_list
from gpuwatch.core.formatting.units import UNKNOWN, size
from gpuwatch.core.model.comparison import Comparison, OddFact
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.experiment.probing.step_times import step_time_text
from gpuwatch.share.reports import comparable_runs
from gpuwatch.share.reports.report_text import clean
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

_UUIDS = re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}")
_READINGS_OF_EQUAL_MACHINES = {
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
_READING_UNITS = {"power.limit_watts": " W", "clocks.sm_max_mhz": " MHz"}


@dataclass
class _Node:
    """Facts and runs of one node that are compared with its siblings."""

    name: str
    models: tuple[str, ...] | None = None
    """Its kinds of GPU, sorted; empty for none; None if not known."""
    facts: dict[str, str] = field(default_factory=dict)
    """Name and value of what is compared."""
    uuids: set[str] = field(default_factory=set)
    runs: list[Run] = field(default_factory=list)
    simulated: bool = False

    def add_fact(self, fact_name: str, value: object) -> None:
        """Adds a fact, unless an earlier source gave it; None is no fact."""
        if value is not None:
            self.facts.setdefault(clean(fact_name), clean(value))


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
    for siblings in _nodes_by_models(nodes):
        models = siblings[0].models
        kind = "GPUs not known" if models is None else ", ".join(models) or "no GPU"
        if len(siblings) < MIN_EQUAL_NODES:
            names = _list_of_names([node.name for node in siblings])
            notes.append(f"{names} ({kind}): too few to judge; at least {MIN_EQUAL_NODES} equal nodes are needed")
            continue
        for fact_name in dict.fromkeys(fact_name for node in siblings for fact_name in node.facts):
            odd += _nodes_that_differ(
                fact_name, {node.name: node.facts[fact_name] for node in siblings if fact_name in node.facts}, notes
            )
    odd += _odd_speeds(nodes, notes)
    position = {node.name: number for number, node in enumerate(nodes)}
    odd.sort(key=lambda fact: (fact.kind != "structure", position[fact.node]))
    return replace(document, odd=tuple(odd), odd_notes=tuple(dict.fromkeys(notes)))


# -- what each node has ---------------------------------------------------------------------------


def _nodes(document: Comparison) -> list[_Node]:
    nodes: dict[str, _Node] = {}
    for entry in document.nodes:
        if entry.state not in ("ok", "finding"):
            continue
        node = nodes.setdefault(entry.node, _Node(entry.node))
        node.add_fact("gpuwatch", entry.gpuwatch_version)
        if entry.snapshot is not None:
            _add_snapshot_facts(node, entry.snapshot)
        if entry.doctor is not None:
            for fact_name, version in entry.doctor.versions.items():
                node.add_fact(fact_name.replace("_", " "), version)
            for check in entry.doctor.checks:
                node.add_fact(f"check: {check.title or check.id}", check.state)
    for run in document.runs:
        name = run.node or run.host
        if name is not None:
            node = nodes.setdefault(name, _Node(name))
            node.runs.append(run)
            node.simulated = node.simulated or run.simulated
            _add_run_facts(node, run)
    return list(nodes.values())


def _add_snapshot_facts(node: _Node, snapshot: Snapshot) -> None:
    devices = snapshot.devices
    node.simulated = node.simulated or snapshot.simulated
    node.models = tuple(sorted({clean(device.name) for device in devices}))
    node.uuids |= {device.uuid for device in devices}
    node.add_fact("number of GPUs", len(devices))
    if snapshot.driver is not None:
        node.add_fact("driver", snapshot.driver.version)
        node.add_fact("CUDA of the driver", snapshot.driver.cuda_version)
    if not devices:
        return
    buses = [device.pci_bus_id for device in sorted(devices, key=lambda device: device.index)]
    node.add_fact("order of the GPUs", "by PCI bus id" if buses == sorted(buses) else "not by PCI bus id")
    node.add_fact("state", _per_gpu_text(devices, {device.index: clean(device.state) for device in devices}))
    total = {device.index: size(device.number("memory.total_bytes")) for device in devices}
    if UNKNOWN not in total.values():
        node.add_fact("memory", _per_gpu_text(devices, total))
    for metric, fact_name in _READINGS_OF_EQUAL_MACHINES.items():
        if all(metric in device.readings for device in devices):
            unit = _READING_UNITS.get(metric, "")
            values = {device.index: f"{clean(device.readings[metric])}{unit}" for device in devices}
            node.add_fact(fact_name, _per_gpu_text(devices, values))
    if snapshot.topology is not None and not snapshot.topology.incomplete:
        links = Counter(connection.name for connection in snapshot.topology.connections)
        if links and None not in links:
            node.add_fact("topology", ", ".join(f"{count} × {name}" for name, count in sorted(links.items(), key=str)))


def _per_gpu_text(devices: Iterable[Device], values: Mapping[int, str]) -> str:
    """``16`` if all GPUs have it, else what differs: ``16, GPU 3: 8``."""
    usual, _ = Counter(values[device.index] for device in devices).most_common(1)[0]
    others = [f"GPU {index}: {value}" for index, value in sorted(values.items()) if value != usual]
    return ", ".join([usual, *others])


def _add_run_facts(node: _Node, run: Run) -> None:
    """Adds the facts of a run that no snapshot and no run before it gave: a report has old runs as well."""
    matches = [match for text in run.gpus if (match := comparable_runs.GPU_OF_RUN.match(text)) is not None]
    if node.models is None and run.gpus and len(matches) == len(run.gpus):
        node.models = tuple(sorted({clean(match[1]) for match in matches}))
        node.uuids |= {match[2] for match in matches}
        node.add_fact("number of GPUs", len(matches))
    elif node.models is None and run.driver_version is None and not run.gpus:
        node.models = ()  # the driver did not answer, or there is no GPU
        node.add_fact("number of GPUs", 0)
    node.add_fact("driver", run.driver_version)
    if run.framework is not None:
        node.add_fact(run.framework.name, run.framework.version)
        node.add_fact("Python", run.framework.python_version)
    if run.verdict not in ("interrupted", "skipped"):
        node.add_fact(f"verdict of {run.config}", run.verdict)
    if run.device_map:
        node.add_fact(f"device map of {run.config}", device_map(run))
    for name, setting in run.settings.items():
        if setting.effective is not None:
            node.add_fact(f"{name} of {run.config}", _setting_text(setting.effective))
    for name, value in run.environment.items():
        if not _UUIDS.search(value):  # each node has its own
            node.add_fact(name, value)


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
        f"{_list_of_names(same_machine)} show the same GPUs: one machine under several names"
        for same_machine in names.values()
        if len(same_machine) > 1
    ]


# -- structure ------------------------------------------------------------------------------------


def _nodes_by_models(nodes: Sequence[_Node]) -> list[list[_Node]]:
    """The nodes by kind of GPU. One that shows none belongs to the kind that nearly all have, if there is one."""
    kinds: dict[tuple[str, ...], list[_Node]] = {}
    with_known_models = [node for node in nodes if node.models is not None]
    for node in with_known_models:
        kinds.setdefault(node.models or (), []).append(node)
    without_gpus = kinds.get((), [])
    if without_gpus and len(kinds) > 1:
        commonest = max((kind for kind in kinds if kind), key=lambda kind: len(kinds[kind]))
        if len(kinds[commonest]) > _MIN_AGREEING_SHARE * len(with_known_models):
            kinds[commonest] = [node for node in with_known_models if node.models in (commonest, ())]
            del kinds[()]
    unknown = [node for node in nodes if node.models is None and node.facts]
    return [*kinds.values(), *([unknown] if unknown else [])]


def _nodes_that_differ(fact_name: str, values: Mapping[str, str], notes: list[str]) -> list[OddFact]:
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
            notes.append(f"{fact_name} is divided: {parts} nodes")
        return []
    return [
        OddFact(node=name, kind="structure", what=fact_name, value=value, usual=usual, siblings=len(values) - 1)
        for name, value in values.items()
        if value != usual
    ]


# -- speed ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Speed:
    """The time of a step on one node, as a logarithm: differences are shares."""

    node: str
    median: float
    p10: float
    """The same of its fast steps, the 10th percentile."""


@dataclass(frozen=True)
class _SpeedGroup:
    """One configuration on equal GPUs."""

    config: str
    speeds: tuple[_Speed, ...]
    median: float
    spread: float
    """Standard deviation, estimated from the MAD."""
    sigma: float
    """The same, never less than what can be believed."""


def _odd_speeds(nodes: Sequence[_Node], notes: list[str]) -> list[OddFact]:
    """The nodes that are slower or faster than those with the same configuration, work, GPUs and driver."""
    runs_by_key: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    simulated = False
    for node in nodes:
        for run in node.runs:
            is_timed = run.throughput is not None and 0 < run.throughput.median_step_seconds < math.inf
            if not is_timed or run.verdict not in ("ok", "fallback") or comparable_runs.device_kind(run) == "CPU":
                continue
            if run.simulated:
                simulated = True
                continue
            models, driver = ", ".join(node.models or ()), clean(run.driver_version)
            key = (clean(run.config), comparable_runs.workload(run), models, driver)
            runs_by_key.setdefault(key, {}).setdefault(node.name, []).append(run)
    if simulated:
        notes.append("Speeds of simulated GPUs are not judged: they depend on each host's CPU")
    groups: list[_SpeedGroup] = []
    too_few: dict[str, None] = {}
    for (config, *_), runs in runs_by_key.items():
        if len(runs) < MIN_EQUAL_NODES:
            too_few |= dict.fromkeys(runs)
        else:
            groups.append(_speed_group(config, [_node_speed(name, node_runs) for name, node_runs in runs.items()]))
    judged_nodes = {speed.node for group in groups for speed in group.speeds}
    if unjudged := [name for name in too_few if name not in judged_nodes]:
        notes.append(
            f"Speed of {_list_of_names(unjudged)}: too few to judge; at least {MIN_EQUAL_NODES} nodes with the same "
            "GPU, driver and configuration are needed"
        )
    return _nodes_with_odd_speed(groups, notes)


def _speed_group(config: str, speeds: Sequence[_Speed]) -> _SpeedGroup:
    median = statistics.median(speed.median for speed in speeds)
    spread = _MAD_TO_SIGMA * statistics.median(abs(speed.median - median) for speed in speeds)
    # The MAD of few values is itself uncertain.
    sigma = max(spread, _MIN_RELATIVE_SIGMA) * (1 + 4 / len(speeds))
    return _SpeedGroup(config, tuple(speeds), median, spread, sigma)


def _node_speed(name: str, runs: Sequence[Run]) -> _Speed:
    medians, p10s = [], []
    for run in runs:
        assert run.throughput is not None
        median, p10 = run.throughput.median_step_seconds, run.throughput.p10_step_seconds
        medians.append(math.log(median))
        p10s.append(math.log(p10 if 0 < p10 < median else median))
    return _Speed(name, statistics.median(medians), statistics.median(p10s))


def _nodes_with_odd_speed(groups: Sequence[_SpeedGroup], notes: list[str]) -> list[OddFact]:
    """The nodes whose speed differs by more than noise.

    Noise of speeds has heavy tails (another tenant, a hot hour), so no fixed number of standard deviations is safe. A
    suspect is beyond :data:`_MIN_SIGMAS` of them and 10 %, and its fast steps are slow as well. It is named if all its
    measurements are suspect and as many as others have of them cannot add up to that by chance, or if at
    least half are, and one is so far off that even a heavy tail does not reach there (:func:`_far_nodes`).
    """
    suspects: dict[str, list[tuple[_SpeedGroup, _Speed]]] = {}
    measurements = Counter(speed.node for group in groups for speed in group.speeds)
    for group in groups:
        for speed in group.speeds:
            if _is_beyond_noise(group, speed):
                suspects.setdefault(speed.node, []).append((group, speed))
    far_nodes = {(group.config, node) for group in groups for node in _far_nodes(group)}
    odd = []
    for node, suspect_speeds in suspects.items():
        count = measurements[node]
        # How often a measurement of another node is suspect, and the chance that a node has this many in a row.
        rate = (sum(map(len, suspects.values())) - len(suspect_speeds) + 1) / (measurements.total() - count + 2)
        same_direction = len({speed.median > group.median for group, speed in suspect_speeds}) == 1
        is_improbable = count > 1 and len(measurements) * rate**count < _MAX_EXPECTED_BY_CHANCE
        is_consistent = same_direction and len(suspect_speeds) == count and is_improbable
        facts = [
            _speed_fact(group, speed, suspect_count=len(suspect_speeds), measurements=count)
            for group, speed in suspect_speeds
            if is_consistent or ((group.config, node) in far_nodes and 2 * len(suspect_speeds) >= count)
        ]
        odd += facts
        if not facts:
            group, speed = suspect_speeds[0]
            notes.append(
                f"{node} was {_difference(group, speed)} in {len(suspect_speeds)} of {count} measurements "
                f"({group.config}): not named, since noise can cause that; measure again"
            )
    return odd


def _far_nodes(group: _SpeedGroup) -> list[str]:
    """The nodes of which one measurement is enough.

    The tail of the others' distances is taken for a power law (Hill's estimate of its exponent, never more than
    Student's t with three degrees of freedom has), and extrapolated. Without that, a node must be twice as slow and
    far beyond every other. The farthest nodes are judged together, as several slow ones would hide each other.
    """
    by_distance = sorted(group.speeds, key=lambda speed: -abs(speed.median - group.median))
    distances = [max(abs(speed.median - group.median), group.sigma) for speed in by_distance]
    for count in range(len(distances) // 4, 0, -1):
        distance, others = distances[count - 1], distances[count:]
        if distance < _LOG_MUCH_SLOWER:
            continue
        tail_size = max(len(others) // 8, 2)
        edge = others[tail_size]  # the largest of those that are not in the tail
        exponent = tail_size / max(sum(math.log(value / edge) for value in others[:tail_size]), 1e-9)
        chance = (tail_size / len(others)) * (edge / distance) ** min(exponent, _MAX_TAIL_EXPONENT)
        twice_as_slow = distance >= _LOG_TWICE and distance > _MIN_DISTANCE_RATIO * others[0]
        if twice_as_slow or len(distances) * chance < _MAX_EXPECTED_BY_CHANCE:
            return [speed.node for speed in by_distance[:count] if _is_beyond_noise(group, speed)]
    return []


def _is_beyond_noise(group: _SpeedGroup, speed: _Speed) -> bool:
    distance = speed.median - group.median
    if abs(distance) < max(_LOG_SLOWER, _MIN_SIGMAS * group.sigma):
        return False
    return distance < 0 or speed.p10 - group.median > _MIN_FAST_STEP_SHARE * distance


def _speed_fact(group: _SpeedGroup, speed: _Speed, *, suspect_count: int, measurements: int) -> OddFact:
    others = f"its siblings vary by {100 * (math.exp(group.spread) - 1):.1f} %"
    return OddFact(
        node=speed.node,
        kind="speed",
        what=f"speed of {group.config}",
        value=f"{step_time_text(math.exp(speed.median))} per step",
        usual=f"{step_time_text(math.exp(group.median))} per step",
        siblings=len(group.speeds) - 1,
        detail=f"{_difference(group, speed)}; {others}; in {suspect_count} of {measurements} measurements",
    )


def _difference(group: _SpeedGroup, speed: _Speed) -> str:
    """``12 % slower``, ``2.3 times faster``: than the middle of the group."""
    factor = math.exp(abs(speed.median - group.median))
    amount = f"{factor:.1f} times" if factor >= 2 else f"{100 * (factor - 1):.0f} %"
    return f"{amount} {'slower' if speed.median > group.median else 'faster'}"


# -- words ----------------------------------------------------------------------------------------


def _list_of_names(names: Sequence[str]) -> str:
    return name_list([clean(name) for name in names])
