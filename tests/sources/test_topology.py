"""How GPUs hang together: as drivers tell it, and as they refuse to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

from gpuwatch.core.model.snapshot import Device, Host, Snapshot, Topology
from gpuwatch.machine.sources.nvidia.topology import TopologyDevice, read_topology
from gpuwatch.share.reports.topology_matrix import topology_content, topology_table
from gpuwatch.sim.simulated_machine import SimMachine
from tests.conftest import gpuwatch
from tests.every import every
from tests.sources.test_nvml_faults import CODES

MEMBERS = tuple(TopologyDevice(f"GPU-{i}", f"0000:{i + 1:02x}:00.0", i) for i in range(3))


class Library:
    """A driver with three GPUs; functions can be replaced or made to fail."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        given = self._functions.get(name)
        own = type(self).__dict__.get(f"_{name}")
        return given or (own and own.__get__(self)) or getattr(pynvml, name)

    def _nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return {(0, 1): 20, (0, 2): 40, (1, 2): 50}[a, b]

    def _nvmlDeviceGetCpuAffinityWithinScope(self, handle: int, words: int, scope: int) -> list[int]:
        return [0xFFFF0000FFFF, 1] + [0] * (words - 2)

    def _nvmlDeviceGetMemoryAffinity(self, handle: int, words: int, scope: int) -> list[int]:
        return [0b10] + [0] * (words - 1)

    def _nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def look(library: Library, members: tuple[TopologyDevice, ...] = MEMBERS) -> Topology:
    return read_topology(library, members)


def test_levels_and_places_are_named() -> None:
    found = look(Library())
    assert [(c.first, c.second, c.level) for c in found.connections] == [
        ("GPU-0", "GPU-1", "PXB"),
        ("GPU-0", "GPU-2", "NODE"),
        ("GPU-1", "GPU-2", "SYS"),
    ]
    assert [(place.cpus, place.numa_nodes) for place in found.places] == [("0-15,32-47,64", "1")] * 3
    assert not found.incomplete
    path = found.between("GPU-2", "GPU-0")
    assert path is not None
    assert path.name == "NODE"


def links(ends: dict[tuple[int, int], str | None]) -> Library:
    """NVLinks by GPU and number: the bus id at the other end, None for a switch."""

    def state(handle: int, link: int) -> int:
        if not any(gpu == handle for gpu, _ in ends):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return int((handle, link) in ends)

    return Library(
        nvmlDeviceGetNvLinkState=state,
        nvmlDeviceGetNvLinkRemoteDeviceType=lambda handle, link: 2 if ends[handle, link] is None else 0,
        nvmlDeviceGetNvLinkRemotePciInfo=lambda handle, link: SimpleNamespace(busId=ends[handle, link]),
    )


def test_nvlinks_are_counted_by_their_other_ends() -> None:
    to = {0: "00000000:01:00.0", 1: "00000000:02:00.0"}
    found = look(links({(0, 0): to[1], (0, 3): to[1], (1, 1): to[0], (1, 2): to[0], (1, 4): "00000000:99:00.0"}))
    assert [c.nvlinks for c in found.connections] == [2, 0, 0], "a link to something else is nobody's"
    assert found.connections[0].name == "NV2"
    assert found.connections[0].level == "PXB"


def test_links_to_a_switch_are_told_apart() -> None:
    found = look(links({(gpu, link): None for gpu in (0, 1) for link in range(18)}))
    assert found.switch_nvlinks == {"GPU-0": 18, "GPU-1": 18}
    assert [row[1:4] for row in topology_table(snapshot(found)).rows] == [
        ("X", "NV18", "NODE"),
        ("NV18", "X", "SYS"),
        ("NODE", "SYS", "X"),
    ]


@every(CODES)
def test_whatever_fails_is_missing_with_its_reason(code: int) -> None:
    def fail(*_: object) -> Any:
        raise pynvml.NVMLError(code)

    for call in (
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetCpuAffinityWithinScope",
        "nvmlDeviceGetMemoryAffinity",
        "nvmlDeviceGetNvLinkState",
    ):
        more = {"nvmlDeviceGetCpuAffinity": fail} if "Cpu" in call else {}
        found = look(Library(**{call: fail}, **more))
        if "Ancestor" in call:
            assert {c.level for c in found.connections} == {None}
            assert {c.missing.code for c in found.connections if c.missing} == {code}
        elif "Affinity" in call:
            key = "cpus" if "Cpu" in call else "numa_nodes"
            assert {getattr(place, key) for place in found.places} == {None}
            assert {place.missing[key].code for place in found.places} == {code}
        else:
            assert {c.nvlinks for c in found.connections} == {0}
        assert topology_content(snapshot(found)).tables


def test_an_older_driver_has_the_older_function() -> None:
    def absent(*_: object) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    found = look(
        Library(
            nvmlDeviceGetCpuAffinityWithinScope=absent, nvmlDeviceGetCpuAffinity=lambda handle, words: [6] + [0] * 127
        )
    )
    assert {place.cpus for place in found.places} == {"1-2"}


def test_a_device_that_does_not_answer_is_not_asked() -> None:
    found = look(Library(), (MEMBERS[0], MEMBERS[1]._replace(handle=None), MEMBERS[2]))
    assert [c.level for c in found.connections] == [None, "NODE", None]
    assert found.places[1].missing["cpus"].reason == "unknown"


def snapshot(found: Topology | None) -> Snapshot:
    import datetime

    return Snapshot(
        taken_at=datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC),
        took_seconds=0.1,
        simulated=False,
        driver=None,
        devices=tuple(
            Device(index=i, uuid=m.uuid, name="A", pci_bus_id=m.pci_bus_id, readings={}, missing={})
            for i, m in enumerate(MEMBERS)
        ),
        processes=(),
        host=Host(hostname="h", cpu_percent=None, cpu_count=None, memory_used_bytes=None, memory_total_bytes=None),
        topology=found,
    )


def test_nothing_read_is_no_matrix() -> None:
    content = topology_content(snapshot(None))
    assert content.tables == ()
    assert "not read" in content.reason


def test_the_matrix_at_the_command_line(sim_machine: Callable[[str], SimMachine]) -> None:
    machine = sim_machine("3x8GiB")
    for device, node in enumerate((0, 0, 1)):
        machine.override(device, "numa_node", node)
    for device in (0, 1):
        machine.override(device, "nvlink_links", 4)
    environment = machine.environment(os.environ)
    text = gpuwatch("snapshot", "--topology", environment=environment).out
    rows = [line.split() for line in text.splitlines() if line.startswith("  GPU")]
    assert [row[:4] for row in rows] == [
        ["GPU0", "X", "NV4", "SYS"],
        ["GPU1", "NV4", "X", "SYS"],
        ["GPU2", "SYS", "SYS", "X"],
    ]
    assert [row[-1] for row in rows] == ["0", "0", "1"]
    told = json.loads(gpuwatch("snapshot", "--json", environment=environment).out)["topology"]
    assert [(c["level"], c["nvlinks"]) for c in told["connections"]] == [("PHB", 4), ("SYS", 0), ("SYS", 0)]
    wrong = gpuwatch("snapshot", "--topology", "--csv")
    assert (wrong.code, wrong.out, wrong.err.count("\n")) == (2, "", 1)
