"""The series of one sample, as the exporter serves them: which there are, their labels and values.

What could not be read has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpuwatch import __version__
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID, METRICS, Lane, MetricSpec
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import BAD_STATES, UNLISTED, Device, Process, Snapshot
from gpuwatch.core.safe_text import shorten
from gpuwatch.machine.sources.gpu_reservations import reservation_holders
from gpuwatch.session.free_gpus import idle_devices
from gpuwatch.share import metric_families as families
from gpuwatch.share.exporter.dcgm_series import dcgm_series
from gpuwatch.share.exporter.process_owners import owner_of, owner_shares
from gpuwatch.share.openmetrics_text import Family, label_text, value_text

CORE_METRICS = (
    *("utilization.gpu_percent", "utilization.memory_percent"),
    *("memory.total_bytes", "memory.used_bytes", "memory.free_bytes"),
    *("temperature.gpu_celsius", "temperature.memory_celsius"),
    *("power.draw_watts", "power.limit_watts", "energy_joules"),
    *("clocks.sm_mhz", "events.power_seconds", "events.thermal_seconds"),
    *("pcie.replays", "ecc.corrected", "ecc.uncorrected", "remapped_rows.uncorrectable"),
    *("activity.sm_percent", "activity.tensor_percent", "activity.dram_percent"),
)
"""The metrics of ``--metrics core``: at most 30 series a GPU with those of its identity and owners."""
_MAX_COMMAND_CHARS = 200
MAX_OWNERS_LISTED = 3
"""Owners a GPU that have series of their own."""

_LABEL_PREFIXES = ("identity.", "mode.", "mig.")
"""Prefixes of metrics that are labels, though some are numbers or yes and no: they hardly ever change."""


def _has_series(spec: MetricSpec) -> bool:
    # Prometheus computes the rates of counters itself.
    is_label = spec.id.startswith(_LABEL_PREFIXES) or spec.id == "nvlink.links"
    return families.has_family(spec) and not spec.rate_of and not is_label


ALL_METRICS = tuple(spec for spec in METRICS if _has_series(spec) and spec.lane is not Lane.ON_DEMAND)
_EVENT_REASONS = "clocks.event_reasons"
_MODE_METRICS = tuple(
    spec for spec in METRICS if not spec.rate_of and not _has_series(spec) and spec.id != _EVENT_REASONS
)
"""The metrics that are labels of :data:`families.GPU_MODES`."""
_CHOICES = {"core": tuple(BY_ID[metric_id] for metric_id in CORE_METRICS), "all": ALL_METRICS}
_MetricFamilies = tuple[tuple[MetricSpec, Family], ...]
_FAMILIES = {choice: tuple((spec, families.family_of(spec)) for spec in specs) for choice, specs in _CHOICES.items()}
_MIG_FAMILIES = {
    choice: tuple((spec, families.family_of(spec, "mig")) for spec in specs if families.has_mig_family(spec))
    for choice, specs in _CHOICES.items()
}


class ExporterOptions(NamedTuple):
    """What an exporter serves."""

    host: str
    interval: float
    """Seconds between samples."""
    metrics: Literal["core", "all"] = "core"
    dcgm: bool = False
    """Names and labels of dcgm-exporter for what it has."""
    processes: int = 0
    """Maximum number of processes with their own series."""
    commands: bool = False


class ScrapeContent(NamedTuple):
    """Input of the series: snapshot, findings and state of the collector at one moment."""

    snapshot: Snapshot | None = None
    findings: tuple[Finding, ...] = ()
    """Those that hold now."""
    driver_answers: bool | None = None
    """None before the first sample."""
    collector_replacements: int = 0
    current: bool = True
    """False: the snapshot is too old to be shown as the state of now."""
    xids: Mapping[str, Mapping[str, int]] = {}


class SampleLines:
    """Lines of samples of one host by family: the formats want all samples of one together."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.lines: dict[Family, list[str]] = {}

    def labels(self, device: Device, **other_labels: object) -> str:
        """The labels of a GPU with others of one series."""
        return label_text(families.gpu_labels(device, self.host) | other_labels)

    def add(self, family: Family, labels: str, number: float | None) -> None:
        """A sample; ``labels``: its labels as text. None: there is no such sample."""
        if number is not None:
            self.lines.setdefault(family, []).append(f"{family.sample_name}{labels} {value_text(float(number))}\n")

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))


def series_lines(content: ScrapeContent, options: ExporterOptions) -> SampleLines:
    """All series but the snapshot's age."""
    lines = SampleLines(options.host)
    host_labels = label_text({"host": options.host})
    labels = {"version": __version__, "metrics": options.metrics, "interval_seconds": f"{options.interval:g}"}
    lines.add(families.EXPORTER_INFO, label_text(labels | {"host": options.host}), 1)
    lines.add(
        families.DRIVER_ANSWERING,
        host_labels,
        None if content.driver_answers is None else float(content.driver_answers),
    )
    lines.add(families.COLLECTOR_REPLACEMENTS, host_labels, content.collector_replacements)
    _finding_series(lines, content)
    snapshot = content.snapshot
    if snapshot is None:
        return lines
    lines.add(families.SNAPSHOT_DURATION, host_labels, snapshot.took_seconds)
    if (driver := snapshot.driver) is not None:
        versions = {"version": driver.version, "cuda_version": driver.cuda_version, "nvml_version": driver.nvml_version}
        lines.add(families.DRIVER_INFO, label_text(versions | {"host": options.host}), 1)
    gpu_labels = {device.uuid: lines.labels(device) for device in snapshot.devices}
    for device in snapshot.devices:
        lines.add(families.GPU_INFO, lines.labels(device, **families.gpu_identity(device, driver)), 1)
        counts = content.xids.get(device.uuid, {})
        if device.xids_missing is None or counts:
            lines.add(families.GPU_XIDS, gpu_labels[device.uuid], sum(counts.values()))
        for xid, count in counts.items():
            lines.add(families.GPU_XID_ERRORS, lines.labels(device, xid=xid), count)
    if content.current:
        _host_series(lines, snapshot, host_labels)
        _gpu_series(lines, snapshot, content, options, gpu_labels)
    return lines


def _host_series(lines: SampleLines, snapshot: Snapshot, labels: str) -> None:
    if snapshot.driver is not None:
        lines.add(families.GPUS, labels, len(snapshot.devices))
    host = snapshot.host
    lines.add(families.HOST_CPU, labels, None if host.cpu_percent is None else round(host.cpu_percent / 100, 9))
    lines.add(families.HOST_MEMORY_USED, labels, host.memory_used_bytes)
    lines.add(families.HOST_MEMORY_TOTAL, labels, host.memory_total_bytes)
    lines.add(families.HOST_LOAD, labels, host.load[0] if host.load is not None else None)


def _finding_series(lines: SampleLines, content: ScrapeContent) -> None:
    fact_by_finding: dict[tuple[str, str, str | None], bool] = {}
    for finding in content.findings:  # several processes may have the same problem on one GPU
        key = (finding.id, finding.severity, finding.device_uuid)
        fact_by_finding[key] = fact_by_finding.get(key, False) or finding.certainty == "fact"
    for (cause, severity, uuid), fact in fact_by_finding.items():
        labels: dict[str, object] = {"cause": cause, "severity": severity, "certainty": "fact" if fact else "likely"}
        device = content.snapshot.device(uuid) if content.snapshot is not None else None
        subject = families.gpu_labels(device, lines.host) if device is not None else {"uuid": uuid, "host": lines.host}
        lines.add(families.FINDING, label_text(labels | subject), 1)


def _gpu_series(
    lines: SampleLines,
    snapshot: Snapshot,
    content: ScrapeContent,
    options: ExporterOptions,
    gpu_labels: Mapping[str, str],
) -> None:
    by_device: dict[str, list[Process]] = {uuid: [] for uuid in gpu_labels}
    for process in snapshot.processes:
        if process.device_uuid is not None and process.device_uuid in gpu_labels:
            by_device[process.device_uuid].append(process)
    readable = [device for device in snapshot.devices if device.state not in BAD_STATES]
    all_metrics = options.metrics == "all"
    for device in snapshot.devices:
        lines.add(families.GPU_STATE, lines.labels(device, state=device.state), 1)
    # While the driver is silent nobody knows what is free, and a scheduler acts upon it at once.
    devices_and_use = idle_devices(snapshot, reservation_holders(), content.findings) if content.driver_answers else ()
    for device, instance, free in devices_and_use:
        if instance is not None:
            lines.add(families.MIG_FREE, lines.labels(device, mig_instance=instance.id), float(free))
        elif not device.has_mig:
            lines.add(families.GPU_FREE, gpu_labels[device.uuid], float(free))
    for device in readable:
        computing = [process for process in by_device[device.uuid] if process.type != "G"]
        _owner_series(lines, device, computing, gpu_labels[device.uuid])
        if options.dcgm:
            owners = map(owner_of, by_device[device.uuid])
            for series in dcgm_series(device, snapshot, options.host, owners, all_metrics=all_metrics):
                lines.add(*series)
        else:
            _reading_series(lines, _FAMILIES[options.metrics], device.readings, gpu_labels[device.uuid])
            for instance in device.mig_instances:
                identity = {"mig_uuid": instance.uuid, "profile": instance.profile}
                lines.add(families.MIG_INFO, lines.labels(device, mig_instance=instance.id, **identity), 1)
                labels = lines.labels(device, mig_instance=instance.id)
                _reading_series(lines, _MIG_FAMILIES[options.metrics], instance.readings, labels)
        if all_metrics:
            _mode_series(lines, device)
    if options.processes:
        _process_series(lines, by_device, snapshot, options)


def _reading_series(
    lines: SampleLines, metric_families: _MetricFamilies, readings: Mapping[str, Value], labels: str
) -> None:
    for spec, family in metric_families:
        reading = readings.get(spec.id)
        if reading is not None:
            lines.add(family, labels, families.as_family_value(spec, reading))


def _mode_series(lines: SampleLines, device: Device) -> None:
    """Series for readings that are not numbers: info and modes."""
    modes = {spec.id.replace(".", "_"): device.readings.get(spec.id) for spec in _MODE_METRICS}
    lines.add(families.GPU_MODES, lines.labels(device, **modes), 1)
    reasons = device.readings.get(_EVENT_REASONS)
    if isinstance(reasons, str) and reasons != "none":
        for reason in reasons.split("+"):
            lines.add(families.GPU_CLOCK_REASON, lines.labels(device, reason=reason), 1)


def _owner_series(lines: SampleLines, device: Device, processes: list[Process], labels: str) -> None:
    if device.missing.get("memory.unexplained_bytes") == UNLISTED:
        return
    lines.add(families.GPU_PROCESSES, labels, len(processes))
    owners = owner_shares(processes)
    lines.add(families.GPU_OWNERS, labels, len(owners))
    for share in owners[:MAX_OWNERS_LISTED]:
        owner_labels = lines.labels(device, **share.owner._asdict())
        lines.add(families.GPU_OWNER_PROCESSES, owner_labels, share.processes)
        lines.add(families.GPU_OWNER_MEMORY, owner_labels, share.memory_bytes)


def _process_series(
    lines: SampleLines, by_device: Mapping[str, list[Process]], snapshot: Snapshot, options: ExporterOptions
) -> None:
    processes = [process for processes in by_device.values() for process in processes]
    processes.sort(key=lambda process: (-(process.number("gpu_memory_bytes") or 0.0), process.pid))
    shown = processes[: options.processes]
    lines.add(families.PROCESSES_LEFT_OUT, label_text({"host": options.host}), len(processes) - len(shown))
    devices = {device.uuid: device for device in snapshot.devices}
    for process in shown:
        device, process_labels = devices[process.device_uuid or ""], families.process_labels(process)
        details = {"name": process.name, "type": process.type, "framework": process.framework}
        if options.commands and process.command:
            details["command"] = shorten(mask_text(process.command), _MAX_COMMAND_CHARS)
        info_labels = lines.labels(device, **process_labels | owner_of(process)._asdict() | details)
        lines.add(families.PROCESS_INFO, info_labels, 1)
        labels = lines.labels(device, **process_labels)
        for family, reading, scale in families.PROCESS_FAMILIES:
            number = process.number(reading)
            lines.add(family, labels, None if number is None else round(number * scale, 9))
