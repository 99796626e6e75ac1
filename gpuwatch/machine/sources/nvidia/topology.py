"""How the GPUs are connected, and which CPUs are close to them; read once for a list of devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from gpuwatch.core.formatting.sentences import number_ranges
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Connection, GpuAffinity, Topology
from gpuwatch.machine.sources.nvidia import nvml_errors
from gpuwatch.machine.sources.nvidia.decode_answers import bus_id, text_of
from gpuwatch.machine.sources.nvidia.multi_call_metrics import call_newest, numa_nodes

# nvmlGpuTopologyLevel_t, as nvidia-smi topo -m names it
_LEVELS = {0: "INT", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_ANCESTOR = "nvmlDeviceGetTopologyCommonAncestor"
_CPU_WORDS = 128
"""Room for 8192 CPUs, the most that Linux has."""
_UNASKED = Missing("unknown", detail="one of the two GPUs does not answer")


class TopologyDevice(NamedTuple):
    """A device; ``handle`` is None if it does not answer or must not be woken."""

    uuid: str
    pci_bus_id: str
    handle: Any


def read_topology(lib: Any, members: Sequence[TopologyDevice]) -> Topology:
    """Places, connections of all pairs, and links to switches."""
    links: dict[tuple[str, str], int] = {}
    switches: dict[str, int] = {}
    by_pci = {member.pci_bus_id: member.uuid for member in members}
    for member in members:
        for remote in _remotes(lib, member.handle):
            if remote is None:
                switches[member.uuid] = switches.get(member.uuid, 0) + 1
            elif remote in by_pci:
                pair = (member.uuid, by_pci[remote])
                links[pair] = links.get(pair, 0) + 1
    return Topology(
        places=tuple(_place(lib, member) for member in members),
        connections=tuple(_connection(lib, a, b, links) for a, b in combinations(members, 2)),
        switch_nvlinks=switches,
    )


def _connection(lib: Any, a: TopologyDevice, b: TopologyDevice, links: dict[tuple[str, str], int]) -> Connection:
    # Both ends report a link; it counts also if only one of them does.
    count = max(links.get((a.uuid, b.uuid), 0), links.get((b.uuid, a.uuid), 0))
    level, missing = None, _UNASKED if a.handle is None or b.handle is None else None
    if missing is None:
        try:
            found = lib.nvmlDeviceGetTopologyCommonAncestor(a.handle, b.handle)
            level = _LEVELS.get(found, f"unknown ({found})")
        except lib.NVMLError as error:
            missing = nvml_errors.missing_reading(lib, error.value, _ANCESTOR)
    return Connection(first=a.uuid, second=b.uuid, level=level, nvlinks=count, missing=missing)


def _place(lib: Any, member: TopologyDevice) -> GpuAffinity:
    if member.handle is None:
        unasked = Missing("unknown", detail="the GPU does not answer")
        return GpuAffinity(uuid=member.uuid, missing={"cpus": unasked, "numa_nodes": unasked})
    missing: dict[str, Missing] = {}
    cpus = nodes = None
    try:
        words = enumerate(_cpu_words(lib, member.handle))
        cpus = number_ranges((64 * at + bit for at, word in words for bit in range(64) if word >> bit & 1), ",")
    except lib.NVMLError as error:
        missing["cpus"] = nvml_errors.missing_reading(lib, error.value, "nvmlDeviceGetCpuAffinityWithinScope")
    try:
        nodes = numa_nodes(lib, member.handle)
    except lib.NVMLError as error:
        missing["numa_nodes"] = nvml_errors.missing_reading(lib, error.value, "nvmlDeviceGetMemoryAffinity")
    return GpuAffinity(uuid=member.uuid, cpus=cpus, numa_nodes=nodes, missing=missing)


def _cpu_words(lib: Any, handle: Any) -> Any:
    def older(handle: Any, words: int, scope: int) -> Any:
        return lib.nvmlDeviceGetCpuAffinity(handle, words)

    functions = [lib.nvmlDeviceGetCpuAffinityWithinScope, older]
    return call_newest(lib, functions, handle, (_CPU_WORDS, lib.NVML_AFFINITY_SCOPE_NODE))


def _remotes(lib: Any, handle: Any) -> Iterator[str | None]:
    """The remote ends of the NVLinks that are up: PCI bus ids of GPUs, None for a switch."""
    if handle is None:
        return
    for link in range(lib.NVML_NVLINK_MAX_LINKS):
        try:
            up = lib.nvmlDeviceGetNvLinkState(handle, link)
        except lib.NVMLError:
            if link == 0:
                return  # a device without NVLinks fails for link 0
            continue
        if not up:
            continue
        try:
            kind = lib.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        except lib.NVMLError:
            kind = lib.NVML_NVLINK_DEVICE_TYPE_GPU  # not reported by drivers before 470
        if kind == lib.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            yield None
        elif kind == lib.NVML_NVLINK_DEVICE_TYPE_GPU:
            try:
                yield bus_id(text_of(lib.nvmlDeviceGetNvLinkRemotePciInfo(handle, link), "busId"))
            except lib.NVMLError:
                continue
