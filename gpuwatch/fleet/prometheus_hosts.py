"""Builds hosts, as the dashboard shows them, from the Prometheus series of one moment."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.fleet import Holder, HostView
from gpuwatch.core.model.metrics import BY_ID, METRICS, Lane
from gpuwatch.core.model.reading import Missing, Value
from gpuwatch.core.model.snapshot import MIG_READINGS, Device, Driver, Host, MigInstance, Process, Snapshot
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.fleet.exporter_series import (
    EXPORTER_METRICS,
    NVIDIA_SMI,
    exporter_label,
    gpu_uuid,
    mig_instance_id,
    parse_reading,
    ranked_host_name,
    scrape_target,
)
from gpuwatch.fleet.prometheus_api import Sample
from gpuwatch.share import metric_families as families

_STALE_SECONDS = 30.0
"""Seconds from which a snapshot behind an exporter is old: its driver does not answer."""
_MAX_VALUE = 1e18
_MAX_AGE_SECONDS = 366 * 86_400.0
"""Seconds to which the age of data is cut, for a date to come out of it."""
_MAX_PROCESSES_PER_GPU = 64
"""Processes of one GPU that are kept."""
_PROCESS_NAME_SERIES = (families.PROCESS_INFO.sample_name, "nvidia_smi_compute_app_info")
"""Series whose labels name a process."""
_PROCESS_READINGS = {
    **{family.sample_name: (reading, 1 / scale) for family, reading, scale in families.PROCESS_FAMILIES},
    "nvidia_smi_compute_app_used_memory_bytes": ("gpu_memory_bytes", 1.0),
}
"""Metric and factor of the series of processes."""
_OWNER_SERIES = (families.GPU_OWNER_PROCESSES.sample_name, families.GPU_OWNER_MEMORY.sample_name)
_HOST_SERIES = tuple(
    family.sample_name for family in (families.HOST_CPU, families.HOST_MEMORY_USED, families.HOST_MEMORY_TOTAL)
)
INFO_SERIES = (
    *(family.sample_name for family in (families.GPU_INFO, families.MIG_INFO, families.DRIVER_INFO)),
    *("nvidia_smi_gpu_info", "nvidia_smi_mig_info"),
)
"""Series whose labels name GPUs and drivers."""
STATE_SERIES = (
    *(family.sample_name for family in (families.FINDING, families.SNAPSHOT_AGE, families.DRIVER_ANSWERING)),
    *(family.sample_name for family in (families.GPU_STATE, families.GPU_FREE, families.MIG_FREE)),
    *(*_HOST_SERIES, *_OWNER_SERIES, *_PROCESS_NAME_SERIES, *_PROCESS_READINGS),
)
"""Series that are not GPU readings: findings, owners, processes, the age of the data."""
_NOT_REPORTED = {
    spec.id: Missing("not_supported", detail="the exporter of this host does not report it, or Prometheus drops it")
    for spec in METRICS
}
_NO_HOST = (2, "")
"""Before any series named the host of a GPU: ranks below all that :func:`ranked_host_name` gives."""
_LONG_DOMAIN = re.compile(r"^0000(?=[0-9a-f]{4}:)")
"""NVML writes eight digits of a PCI domain, all others four."""


def _parse_value(text: str) -> float | None:
    """A value from 0 to 1e18; None for any other: counts, ages and sizes are."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < _MAX_VALUE else None


@dataclass(slots=True)
class _Instance:
    """Readings and identity of one MIG instance, from its series."""

    uuid: str | None = None
    profile: str | None = None
    readings: dict[str, Value] = field(default_factory=dict)


@dataclass(slots=True)
class _Gpu:
    """Readings and identity of one GPU, from its series."""

    uuid: str
    index: int | None = None
    name: str = ""
    pci: str = ""
    driver: str = ""
    host: tuple[int, str] = _NO_HOST
    ranks: dict[str, int] = field(default_factory=dict)
    readings: dict[str, Value] = field(default_factory=dict)
    state: str = "ok"
    simulated: bool = False
    unified_memory: bool = False
    targets: set[str] = field(default_factory=set)
    """What Prometheus scraped it from."""
    instances: dict[str, _Instance] = field(default_factory=dict)
    """Its MIG instances by id."""

    def set_reading(self, metric: str, reading: Value, rank: int) -> None:
        """A reading; that of the exporter with the lowest rank stays."""
        if rank <= self.ranks.get(metric, NVIDIA_SMI):
            self.ranks[metric] = rank
            self.readings[metric] = reading

    def add_identity_labels(self, labels: Mapping[str, str]) -> None:
        """Takes the identity (name, index, address, host) from the labels of a series."""
        self.host = min(self.host, ranked_host_name(labels))
        self.targets.add(scrape_target(labels))
        self.simulated = self.simulated or labels.get("simulated") == "true"
        self.unified_memory = self.unified_memory or labels.get("unified_memory") == "true"
        index = labels.get("gpu") or labels.get("index") or ""
        if self.index is None and index.isascii() and index.isdecimal() and len(index) < 6:
            self.index = int(index)
        self.name = self.name or exporter_label(labels, "name") or labels.get("modelName", "")
        self.pci = self.pci or labels.get("pci_bus_id", "")
        self.driver = self.driver or labels.get("DCGM_FI_DRIVER_VERSION") or labels.get("driver_version", "")

    def device(self) -> Device:
        return Device(
            index=-1 if self.index is None else self.index,
            uuid=self.uuid,
            name=self.name or "GPU",
            pci_bus_id=_LONG_DOMAIN.sub("", self.pci.lower()),
            state=self.state,
            unified_memory=self.unified_memory,
            readings=_with_total_memory(self.readings),
            missing=_NOT_REPORTED,
            mig_instances=tuple(
                _mig_instance(number, name, instance)
                for number, (name, instance) in enumerate(sorted(self.instances.items()))
            ),
        )


def _mig_instance(number: int, name: str, instance: _Instance) -> MigInstance:
    gpu_instance, _, compute_instance = name.partition("/")
    return MigInstance(
        id=name,
        index=number,
        uuid=instance.uuid,
        gpu_instance=int(gpu_instance) if gpu_instance.isdecimal() else None,
        compute_instance=int(compute_instance) if compute_instance.isdecimal() else None,
        profile=instance.profile,
        readings=_with_total_memory(instance.readings),
        missing={reading: _NOT_REPORTED[reading] for reading in MIG_READINGS},
    )


def _with_total_memory(readings: dict[str, Value]) -> dict[str, Value]:
    """With the total memory as the sum of its parts, which is how dcgm-exporter reports it."""
    used, free = readings.get("memory.used_bytes"), readings.get("memory.free_bytes")
    if "memory.total_bytes" in readings or not isinstance(used, int) or not isinstance(free, int):
        return dict(readings)
    reserved = readings.get("memory.reserved_bytes", 0)
    return {**readings, "memory.total_bytes": used + free + (reserved if isinstance(reserved, int) else 0)}


_Owner = tuple[str | None, str | None]
"""User and job."""


class HostsBuilder:
    """Takes the series of one moment one by one, and builds the hosts from them."""

    def __init__(self) -> None:
        self.gpus: dict[str, _Gpu] = {}
        self.targets: set[str] = set()
        """Scrape targets (``job host:port``) that have data."""
        self.driver_versions: dict[str, str] = {}
        """By target."""
        self.ages: dict[str, float] = {}
        """Seconds since the snapshot, by target."""
        self.silent_targets: set[str] = set()
        """Targets that say that the driver does not answer."""
        self.host_readings: dict[tuple[str, str], float] = {}
        """Readings of the host, by target and name."""
        self.findings: dict[str, list[Finding]] = {}
        self.processes: dict[str, dict[int, Process]] = {}
        self.owners: dict[str, dict[_Owner, Holder]] = {}
        self.free: dict[str, bool] = {}

    def gpu(self, labels: Mapping[str, str]) -> _Gpu | None:
        """The GPU that a series is of; None without a UUID."""
        uuid = gpu_uuid(labels)
        if not uuid or uuid.startswith("MIG-"):
            return None
        gpu = self.gpus.get(uuid)
        if gpu is None:
            gpu = self.gpus[uuid] = _Gpu(uuid)
        return gpu

    def add_reading(self, sample: Sample) -> None:
        reported = EXPORTER_METRICS.get(sample.metric.get("__name__", ""))
        gpu = self.gpu(sample.metric) if reported is not None else None
        if reported is None or gpu is None:
            return
        gpu.add_identity_labels(sample.metric)
        self.targets.add(scrape_target(sample.metric))
        reading = parse_reading(reported, sample.value[1])
        mig_id = mig_instance_id(sample.metric)
        if mig_id:
            instance = gpu.instances.setdefault(mig_id, _Instance())
            instance.profile = instance.profile or sample.metric.get("GPU_I_PROFILE")
            if reading is not None and reported.metric_id in MIG_READINGS:
                instance.readings[reported.metric_id] = reading
                return
            if BY_ID[reported.metric_id].lane is Lane.GPM:
                return  # the activity of the instance alone
        # dcgm-exporter also gives what is of the whole GPU, such as its temperature, with each instance.
        if reading is not None:
            gpu.set_reading(reported.metric_id, reading, reported.rank)

    def add_identity(self, labels: Mapping[str, str]) -> None:
        """Adds what an info series says of a driver, a GPU or a MIG instance."""
        if labels.get("__name__") == families.DRIVER_INFO.sample_name:
            self.driver_versions[scrape_target(labels)] = labels.get("version", "")
        elif (gpu := self.gpus.get(gpu_uuid(labels))) is not None:
            gpu.add_identity_labels(labels)
            mig_id = mig_instance_id(labels)
            if mig_id in gpu.instances:
                instance = gpu.instances[mig_id]
                instance.uuid = instance.uuid or labels.get("mig_uuid")
                instance.profile = instance.profile or labels.get("profile")

    def add_state(self, sample: Sample) -> None:
        """Adds a series that is not a GPU reading: a finding, an owner, a process, the age of the data."""
        labels, name = sample.metric, sample.metric.get("__name__", "")
        number = _parse_value(sample.value[1])
        if number is None:
            return
        if name == families.FINDING.sample_name:
            if number == 1:
                self._add_finding(labels)
        elif name == families.SNAPSHOT_AGE.sample_name:
            self.ages[scrape_target(labels)] = min(number, _MAX_AGE_SECONDS)
        elif name == families.DRIVER_ANSWERING.sample_name:
            if number == 0:
                self.silent_targets.add(scrape_target(labels))
        elif name == families.GPU_FREE.sample_name:
            self.free[gpu_uuid(labels)] = number == 1
        elif name == families.MIG_FREE.sample_name:
            self.free[f"{gpu_uuid(labels)} {labels.get('mig_instance', '')}"] = number == 1
        elif name in _HOST_SERIES:
            self.host_readings[scrape_target(labels), name] = number
        elif name == families.GPU_STATE.sample_name:
            gpu = self.gpu(labels) if number == 1 else None
            if gpu is not None:
                gpu.add_identity_labels(labels)
                gpu.state = labels.get("state", "ok")
        elif name in _OWNER_SERIES:
            self._add_holder(labels, name, number)
        else:
            self._add_process(labels, _PROCESS_READINGS.get(name), number)

    def _add_finding(self, labels: Mapping[str, str]) -> None:
        cause, severity = labels.get("cause", ""), labels.get("severity", "")
        if cause not in CAUSES or severity not in ("error", "warning"):
            return
        self.findings.setdefault(scrape_target(labels), []).append(
            Finding(
                id=cause,
                severity="error" if severity == "error" else "warning",
                certainty="fact" if labels.get("certainty") == "fact" else "likely",
                title=CAUSES[cause],
                device_uuid=gpu_uuid(labels) or None,
                action="Run gpuwatch on this host for the evidence.",
            )
        )

    def _add_holder(self, labels: Mapping[str, str], name: str, number: float) -> None:
        uuid = gpu_uuid(labels)
        job = exporter_label(labels, "slurm_job")
        pod, container = exporter_label(labels, "pod"), exporter_label(labels, "container")
        owner = (exporter_label(labels, "user") or None, f"job {job}" if job else pod or container or None)
        holders = self.owners.setdefault(uuid, {})
        if owner not in holders and len(holders) >= _MAX_PROCESSES_PER_GPU:
            return
        previous = holders.get(owner) or Holder(user=owner[0], job=owner[1])
        if name == families.GPU_OWNER_PROCESSES.sample_name:
            holders[owner] = replace(previous, processes=round(number))
        else:
            holders[owner] = replace(previous, memory_bytes=number)

    def add_owner(self, labels: Mapping[str, str]) -> None:
        """Adds the pod or job that a scheduler allocated a GPU to."""
        job, pod = exporter_label(labels, "hpc_job"), exporter_label(labels, "pod")
        name = f"job {job}" if job else f"{exporter_label(labels, 'namespace')}/{pod}".lstrip("/") if pod else ""
        if name:
            self.owners.setdefault(gpu_uuid(labels), {}).setdefault((None, name), Holder(job=name))

    def _add_process(self, labels: Mapping[str, str], reading: tuple[str, float] | None, number: float) -> None:
        uuid, pid = gpu_uuid(labels), labels.get("pid", "")
        if not (pid.isascii() and pid.isdecimal() and len(pid) < 10):
            return
        processes = self.processes.setdefault(uuid, {})
        process = processes.get(int(pid))
        if process is None:
            if len(processes) >= _MAX_PROCESSES_PER_GPU:
                return
            process = Process(
                pid=int(pid), create_time=None, user=None, command=None, type="C", device_uuid=uuid, readings={}
            )
        values = None
        if reading is not None:
            name, scale = reading
            values = {name: round(number) if scale == 1 else number * scale}
        program = exporter_label(labels, "name") or labels.get("process_name")
        processes[process.pid] = replace(
            process,
            user=process.user or exporter_label(labels, "user") or None,
            name=process.name or (program.rpartition("/")[2] if program else None),
            command=process.command or labels.get("command"),
            framework=process.framework or labels.get("framework"),
            container=process.container or exporter_label(labels, "pod") or exporter_label(labels, "container") or None,
            readings=process.readings if values is None else {**process.readings, **values},
        )

    def hosts(self, at: float) -> dict[str, HostView]:
        """The hosts that have data, by name."""
        by_host: dict[str, list[_Gpu]] = {}
        for gpu in self.gpus.values():
            if gpu.readings or gpu.instances or gpu.state != "ok":
                by_host.setdefault(gpu.host[1], []).append(gpu)
        for name, gpus in list(by_host.items()):
            indices = [gpu.index for gpu in gpus if gpu.index is not None]
            if len(set(indices)) < len(indices):  # machines that call themselves the same
                del by_host[name]
                for gpu in gpus:
                    target_address = min(gpu.targets).partition(" ")[2]
                    by_host.setdefault(f"{name} ({target_address})" if target_address else name, []).append(gpu)
        return {name: self._host_view(name, gpus, at) for name, gpus in by_host.items()}

    def _host_view(self, name: str, gpus: list[_Gpu], at: float) -> HostView:
        for gpu in gpus:
            if not self.processes.get(gpu.uuid):  # without processes this would say that there are none
                gpu.readings.pop("memory.unexplained_bytes", None)
        devices = sorted((gpu.device() for gpu in gpus), key=lambda device: (device.index, device.uuid))
        uuids = [device.uuid for device in devices]
        targets = sorted(set[str]().union(*(gpu.targets for gpu in gpus)))
        age = self.age(targets)
        versions = [*(self.driver_versions.get(target) for target in targets), *(gpu.driver for gpu in gpus)]
        snapshot = Snapshot(
            taken_at=utc_datetime(at - (age or 0.0)),
            took_seconds=0.0,
            simulated=any(gpu.simulated for gpu in gpus),
            driver=Driver(version=next(filter(None, versions), None), cuda_version=None, nvml_version=None),
            devices=tuple(devices),
            processes=tuple(
                replace(process, device_index=device.index)
                for device in devices
                for process in self.processes.get(device.uuid, {}).values()
            ),
            host=self._host(name, targets),
            findings=tuple(finding for target in targets for finding in self.findings.get(target, ())),
        )
        return HostView(
            name=name,
            snapshot=snapshot,
            holders={uuid: tuple(self.owners[uuid].values()) for uuid in uuids if uuid in self.owners},
            free={
                key: self.free[key]
                for device in devices
                for key in (device.uuid, *(f"{device.uuid} {instance.id}" for instance in device.mig_instances))
                if key in self.free
            },
            age_seconds=age,
            reason=self.driver_problem(targets),
        )

    def _host(self, name: str, targets: Collection[str]) -> Host:
        readings = {family: number for (target, family), number in self.host_readings.items() if target in targets}
        used = readings.get(families.HOST_MEMORY_USED.sample_name)
        total = readings.get(families.HOST_MEMORY_TOTAL.sample_name)
        cpu_ratio = readings.get(families.HOST_CPU.sample_name)
        return Host(
            hostname=name,
            cpu_percent=None if cpu_ratio is None else cpu_ratio * 100,
            cpu_count=None,
            memory_used_bytes=None if used is None else round(used),
            memory_total_bytes=None if total is None else round(total),
        )

    def age(self, targets: Iterable[str]) -> float | None:
        """How old the data behind the exporters are; None if none says so."""
        return max((self.ages[target] for target in targets if target in self.ages), default=None)

    def driver_problem(self, targets: Collection[str]) -> str:
        """That the driver behind these exporters does not answer; empty if it does."""
        age = self.age(targets)
        if self.silent_targets.isdisjoint(targets) and (age is None or age <= _STALE_SECONDS):
            return ""
        return "no answer from the driver" + (f" for {age:.0f} s" if age is not None and age >= 1 else "")
