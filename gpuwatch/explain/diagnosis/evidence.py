"""The evidence that rules judge: machine, run, log and environment, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from gpuwatch.core.model.run import DeviceMapping, Framework, Run
from gpuwatch.core.model.snapshot import FAILED_ITSELF, Device, Snapshot, pci_slot
from gpuwatch.core.model.visible_devices import read_visible
from gpuwatch.explain.logs.device_names import device_name, is_gpu
from gpuwatch.explain.logs.log_facts import LogFacts

NO_LOG = LogFacts()
_Result = TypeVar("_Result", int, list[Any], dict[str, Any])


@dataclass(frozen=True, slots=True)
class Evidence:
    """The facts that rules judge. None means "not checked", which differs from "checked, found nothing"."""

    snapshot: Snapshot | None = None
    """The machine; for a run, before its start."""
    run: Run | None = None
    log: LogFacts = field(default_factory=lambda: NO_LOG)
    """Empty, :data:`NO_LOG`, if there is none."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_log_alone(self) -> bool:
        """Whether there is a log, and neither a run nor a machine."""
        return self.log is not NO_LOG and self.run is None and self.snapshot is None

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The machine's GPUs; none if it was not checked."""
        return self.snapshot.devices if self.snapshot is not None else ()

    @property
    def known_gpus(self) -> tuple[Device, ...] | None:
        """The machine's GPUs if NVML answered; None: it is not known whether a GPU exists."""
        return self.gpus if self.driver_answers else None

    @property
    def driver_answers(self) -> bool | None:
        """Whether NVML answered; None if it was not asked, also because gpuwatch itself failed."""
        if self.snapshot is None or any(problem.reason == FAILED_ITSELF for problem in self.snapshot.problems):
            return None
        return self.snapshot.driver is not None

    @property
    def device_map(self) -> tuple[DeviceMapping, ...]:
        """Framework devices, from the run, else from the log."""
        return (self.run.device_map if self.run is not None else ()) or tuple(self.log.device_map)

    @property
    def framework(self) -> Framework | None:
        """The framework as it reports itself; None if no run did."""
        return self.run.framework if self.run is not None else None

    @property
    def simulation(self) -> str | None:
        """How the GPUs of the run were simulated: ``driver`` or ``plugin``; None if they were not, or without a run."""
        return self.run.simulation if self.run is not None else None

    @property
    def gpu_usable(self) -> bool:
        """Whether the framework got at least one GPU."""
        if self.device_map:
            return True
        logical = self.run.devices.logical if self.run is not None else ()
        return any(map(is_gpu, logical))

    @property
    def program(self) -> Run | None:
        """The run, if it is of a user's program, not of a probe."""
        return self.run if self.run is not None and self.run.is_program else None

    def result(self, name: str, kind: type[_Result]) -> _Result:
        """What the watcher found, by its name; an empty one of this kind if it found nothing."""
        found = self.run.results.get(name) if self.run is not None else None
        return found if isinstance(found, kind) else kind()

    @property
    def variables(self) -> dict[str, str]:
        """The whole environment as the program saw it."""
        return {**self.environment, **(self.run.environment if self.run is not None else {})}

    def requested(self, setting: str) -> object:
        """The value of a setting that a probe requested; None for a user's program, which has its own reasons."""
        if self.run is None or setting not in self.run.settings or self.run.is_program:
            return None
        return self.run.settings[setting].asked

    @property
    def visible_devices(self) -> str | None:
        """CUDA_VISIBLE_DEVICES as the program saw it; a probe's own value wins over the inherited one."""
        requested_value = self.requested("CUDA_VISIBLE_DEVICES")
        if isinstance(requested_value, str):
            return requested_value
        value = self.variables.get("CUDA_VISIBLE_DEVICES")
        # TensorFlow prints it when cuInit fails.
        return value if value is not None else self.log.visible_devices

    @property
    def visibility_set_by_probe(self) -> bool:
        """Whether a probe set CUDA_VISIBLE_DEVICES, so that its effect is the subject of the probe."""
        return isinstance(self.requested("CUDA_VISIBLE_DEVICES"), str)

    @property
    def hides_every_gpu(self) -> bool:
        """Whether the environment hides every GPU."""
        value = self.visible_devices
        by_value = value is not None and read_visible(value, self.known_gpus).hides_all
        return by_value or self.log.hiding_visible_devices is not None

    def device_of(self, framework_device: str | None) -> Device | None:
        """The physical GPU behind ``GPU:0``; None if map or snapshot do not tell."""
        wanted = device_name(framework_device or "")
        for mapping in self.device_map:
            if device_name(mapping.framework_device) == wanted:
                return device_behind(mapping, self.gpus)
        return None


def mapped_to(mapping: DeviceMapping, device: Device) -> DeviceMapping:
    """The mapping with what NVML says of its physical GPU."""
    return msgspec.structs.replace(
        mapping,
        physical_index=device.index,
        uuid=device.uuid,
        pci_bus_id=device.pci_bus_id,
        name=device.name or mapping.name,  # plugins give every device the same name
        compute_capability=mapping.compute_capability or device.compute_capability,
    )


def device_behind(mapping: DeviceMapping, gpus: Iterable[Device]) -> Device | None:
    """The physical GPU by UUID if known, else by PCI address; never by index, which CUDA renumbers."""
    for device in gpus:
        if mapping.uuid is not None:
            if device.uuid == mapping.uuid:
                return device
        elif mapping.pci_bus_id is not None and pci_slot(device.pci_bus_id) == pci_slot(mapping.pci_bus_id):
            return device
    return None
