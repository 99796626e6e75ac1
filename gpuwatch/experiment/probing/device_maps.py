"""Device maps of running programs: the devices in a process's log, and those that the process itself reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from gpuwatch.core.model.run import DeviceMapping


def described_device(name: str, ordinal: int, properties: dict[str, Any]) -> DeviceMapping:
    """PyTorch does not log its devices; these come from ``torch.cuda.get_device_properties``."""
    return DeviceMapping(
        framework_device=name,
        cuda_ordinal=ordinal,
        uuid=properties.get("uuid"),
        pci_bus_id=properties.get("pci_bus_id"),
        name=properties.get("name"),
        compute_capability=properties.get("capability"),
    )


def joined_device_map(
    logged: Iterable[DeviceMapping], reported: Mapping[str, DeviceMapping]
) -> tuple[DeviceMapping, ...]:
    """The devices in a process's log, and those that only the process itself reported."""
    logged = tuple(logged)
    names = {mapping.framework_device for mapping in logged}
    return (*logged, *(mapping for name, mapping in reported.items() if name not in names))


def with_reported_ordinal(mapping: DeviceMapping, reported: Mapping[str, DeviceMapping]) -> DeviceMapping:
    """The mapping with CUDA's device number as the process reported it: a PluggableDevice logs the plug-in's."""
    known = reported.get(mapping.framework_device)
    if mapping.pci_bus_id is not None or mapping.uuid is not None or known is None or known.cuda_ordinal is None:
        return mapping
    return msgspec.structs.replace(mapping, cuda_ordinal=known.cuda_ordinal)
