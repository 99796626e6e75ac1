"""How the GPUs are connected, as a matrix like that of ``nvidia-smi topo -m``."""

from __future__ import annotations

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import UNKNOWN
from gpuwatch.core.model.snapshot import Device, Snapshot, Topology
from gpuwatch.share.reports.report_elements import Content, Table
from gpuwatch.share.reports.report_text import SIMULATED_MACHINE, clean

_LEGEND = {
    "NV#": "NVLinks, directly or through a switch, and how many",
    "INT": "on one board",
    "PIX": "through one PCIe bridge",
    "PXB": "through several PCIe bridges, not the host bridge",
    "PHB": "through the host bridge (the CPU)",
    "NODE": "between host bridges of one NUMA node",
    "SYS": "between NUMA nodes",
}


def topology_content(snapshot: Snapshot) -> Content:
    """The content of a topology: its matrix and legend."""
    topology, devices = snapshot.topology, snapshot.devices
    path_names = []
    if topology is not None:
        path_names = [_path_name(topology, first, second) for first in devices for second in devices]
    used = {name.rstrip("0123456789") + ("#" if name[-1:].isdigit() else "") for name in path_names}
    legend = tuple((name, meaning) for name, meaning in _LEGEND.items() if name in used)
    tables = (topology_table(snapshot), Table("Legend", ("", "Meaning"), legend))
    return Content(
        title=clean(snapshot.host.hostname) if snapshot.host.hostname else "snapshot",
        subtitle=snapshot.taken_at.strftime("%Y-%m-%d %H:%M:%S %Z").strip(),
        state="ok" if topology is not None else "unknown",
        verdict=count_text(len(snapshot.devices), "GPU"),
        reason="" if topology is not None else "how they are connected was not read",
        simulated=SIMULATED_MACHINE if snapshot.simulated else "",
        tables=tuple(table for table in tables if table.rows),
        footer="gpuwatch",
    )


def topology_table(snapshot: Snapshot) -> Table:
    """A row and a column for each GPU, then its CPUs and NUMA nodes; no rows if nothing is known."""
    topology, devices = snapshot.topology, snapshot.devices
    heads = ("", *(f"GPU{device.index}" for device in devices), "CPUs", "NUMA")
    if topology is None:
        return Table("Topology", heads, ())
    places = {place.uuid: place for place in topology.places}
    rows = []
    for device in devices:
        place = places.get(device.uuid)
        paths = (_path_name(topology, device, other) for other in devices)
        cpus_and_numa = (clean(place.cpus), clean(place.numa_nodes)) if place else (UNKNOWN, UNKNOWN)
        rows.append((f"GPU{device.index}", *paths, *cpus_and_numa))
    reasons = sorted(
        {missing.detail for place in topology.places for missing in place.missing.values()}
        | {link.missing.detail for link in topology.connections if link.missing is not None}
    )
    return Table("Topology", heads, tuple(rows), note="; ".join(clean(reason) for reason in reasons))


def path_description(name: str) -> str:
    """``PIX, through one PCIe bridge``; ``NV4, over NVLink``."""
    return f"{name}, {'over NVLink' if name.startswith('NV') else _LEGEND[name]}"


def _path_name(topology: Topology, first: Device, second: Device) -> str:
    """``NV4``, ``PIX``, ``X`` for a GPU and itself, a dash if unknown."""
    if first.uuid == second.uuid:
        return "X"
    return topology.path(first.uuid, second.uuid) or UNKNOWN
