"""The series of one sample: which there are, their labels and values. What could not be read has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from gpuwatch import __version__
from gpuwatch.core.masking.mask_secrets import mask_text
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.metrics import BY_ID, METRICS, Lane, MetricSpec
from gpuwatch.core.model.reading import Value
from gpuwatch.core.model.snapshot import BAD_STATES, UNLISTED, Device, Process, Snapshot
from gpuwatch.core.model.visible_devices import has_mig
from gpuwatch.core.safe_text import shorten
from gpuwatch.machine.sources.gpu_reservations import reservation_holders
from gpuwatch.session.free_gpus import idle_units
from gpuwatch.share import openmetrics as names
from gpuwatch.share.exporter import dcgm_series
from gpuwatch.share.exporter.process_owners import MAX_OWNERS_LISTED, memory_shares, owner_of
from gpuwatch.share.openmetrics import SampleLines

CORE = (
    "utilization.gpu_percent",
    "utilization.memory_percent",
    "memory.total_bytes",
    "memory.used_bytes",
    "memory.free_bytes",
    "temperature.gpu_celsius",
    "temperature.memory_celsius",
    "power.draw_watts",
    "power.limit_watts",
    "energy_joules",
    "clocks.sm_mhz",
    "events.power_seconds",
    "events.thermal_seconds",
    "pcie.replays",
    "ecc.corrected",
    "ecc.uncorrected",
    "remapped_rows.uncorrectable",
    "activity.sm_percent",
    "activity.tensor_percent",
    "activity.dram_percent",
)
"""The metrics of ``--metrics core``: at most 30 series a GPU with those of its identity and owners."""
_MAX_COMMAND_CHARS = 200

_LABELS = ("identity.", "mode.", "mig.")
"""Begins of metrics that are labels, though some are numbers or yes and no: they hardly ever change."""


def _is_series(spec: MetricSpec) -> bool:
    # Prometheus computes the rates of counters itself.
    return names.is_number(spec) and not spec.rate_of and not spec.id.startswith(_LABELS) and spec.id != "nvlink.links"


ALL = tuple(spec for spec in METRICS if _is_series(spec) and spec.lane is not Lane.ON_DEMAND)
_REASONS = "clocks.event_reasons"
_MODES = tuple(spec for spec in METRICS if not spec.rate_of and not _is_series(spec) and spec.id != _REASONS)
"""The metrics that are labels of :data:`names.MODES`."""
_CHOSEN = {"core": tuple(BY_ID[metric_id] for metric_id in CORE), "all": ALL}
_Families = tuple[tuple[MetricSpec, names.Family], ...]
_FAMILIES = {choice: tuple((spec, names.family_of(spec)) for spec in specs) for choice, specs in _CHOSEN.items()}
_MIG_FAMILIES = {
    choice: tuple((spec, names.family_of(spec, "mig")) for spec in specs if names.is_of_mig(spec))
    for choice, specs in _CHOSEN.items()
}


class Options(NamedTuple):
    """What an exporter shows."""

    host: str
    interval: float
    """Seconds between samples."""
    metrics: Literal["core", "all"] = "core"
    dcgm: bool = False
    """Names and labels of dcgm-exporter for what it has."""
    processes: int = 0
    """Maximum number of processes with their own series."""
    commands: bool = False


class Content(NamedTuple):
    """Input of the series: snapshot, findings and state of the collector at one moment."""

    snapshot: Snapshot | None = None
    findings: tuple[Finding, ...] = ()
    """Those that hold now."""
    answering: bool | None = None
    """Whether samples come; None before the first."""
    replaced: int = 0
    """How often the collector was replaced."""
    current: bool = True
    """False: the snapshot is too old to be shown as the state of now."""
    xids: Mapping[str, Mapping[str, int]] = {}


def series_of(content: Content, options: Options) -> SampleLines:
    """All series but the snapshot's age."""
    found = SampleLines(options.host)
    host = names.labels({"host": options.host})
    about = {"version": __version__, "metrics": options.metrics, "interval_seconds": f"{options.interval:g}"}
    found.add(names.BUILD, names.labels(about | {"host": options.host}), 1)
    found.add(names.ANSWERING, host, None if content.answering is None else float(content.answering))
    found.add(names.REPLACED, host, content.replaced)
    _finding_series(found, content)
    snapshot = content.snapshot
    if snapshot is None:
        return found
    found.add(names.SNAPSHOT_TOOK, host, snapshot.took_seconds)
    if (driver := snapshot.driver) is not None:
        versions = {"version": driver.version, "cuda_version": driver.cuda_version, "nvml_version": driver.nvml_version}
        found.add(names.DRIVER, names.labels(versions | {"host": options.host}), 1)
    own = {device.uuid: found.labels(device) for device in snapshot.devices}
    for device in snapshot.devices:
        found.add(names.INFO, found.labels(device, **names.gpu_identity(device, driver)), 1)
        counts = content.xids.get(device.uuid, {})
        if device.xids_missing is None or counts:
            found.add(names.XIDS, own[device.uuid], sum(counts.values()))
        for xid, count in counts.items():
            found.add(names.XID_ERRORS, found.labels(device, xid=xid), count)
    if content.current:
        _host_series(found, snapshot, host)
        _gpu_series(found, snapshot, content, options, own)
    return found


def _host_series(found: SampleLines, snapshot: Snapshot, host: str) -> None:
    if snapshot.driver is not None:
        found.add(names.GPUS, host, len(snapshot.devices))
    machine = snapshot.host
    found.add(names.HOST_CPU, host, None if machine.cpu_percent is None else round(machine.cpu_percent / 100, 9))
    found.add(names.HOST_MEMORY_USED, host, machine.memory_used_bytes)
    found.add(names.HOST_MEMORY_TOTAL, host, machine.memory_total_bytes)
    found.add(names.HOST_LOAD, host, machine.load[0] if machine.load is not None else None)


def _finding_series(found: SampleLines, content: Content) -> None:
    certain: dict[tuple[str, str, str | None], bool] = {}
    for finding in content.findings:  # several processes may have the same problem on one GPU
        key = (finding.id, finding.severity, finding.device_uuid)
        certain[key] = certain.get(key, False) or finding.certainty == "fact"
    for (cause, severity, uuid), fact in certain.items():
        about: dict[str, object] = {"cause": cause, "severity": severity, "certainty": "fact" if fact else "likely"}
        device = content.snapshot.device(uuid) if content.snapshot is not None else None
        of = names.gpu_labels(device, found.host) if device is not None else {"uuid": uuid, "host": found.host}
        found.add(names.FINDING, names.labels(about | of), 1)


def _gpu_series(
    found: SampleLines, snapshot: Snapshot, content: Content, options: Options, own: Mapping[str, str]
) -> None:
    by_device: dict[str, list[Process]] = {uuid: [] for uuid in own}
    for row in snapshot.processes:
        if row.device_uuid is not None and row.device_uuid in own:
            by_device[row.device_uuid].append(row)
    readable = [device for device in snapshot.devices if device.state not in BAD_STATES]
    everything = options.metrics == "all"
    for device in snapshot.devices:
        found.add(names.STATE, found.labels(device, state=device.state), 1)
    # While the driver is silent nobody knows what is free, and a scheduler acts upon it at once.
    for device, instance, free in (
        idle_units(snapshot, reservation_holders(), content.findings) if content.answering else ()
    ):
        if instance is not None:
            found.add(names.MIG_FREE, found.labels(device, mig_instance=instance.id), float(free))
        elif not has_mig(device):
            found.add(names.FREE, own[device.uuid], float(free))
    for device in readable:
        _owner_series(found, device, [row for row in by_device[device.uuid] if row.type != "G"], own[device.uuid])
        if options.dcgm:
            jobs = map(owner_of, by_device[device.uuid])
            dcgm_series.add_dcgm_series(found, device, snapshot, jobs, everything=everything)
        else:
            _reading_series(found, _FAMILIES[options.metrics], device.readings, own[device.uuid])
            for instance in device.mig_instances:
                about: dict[str, object] = {"mig_instance": instance.id}
                identity = {"mig_uuid": instance.uuid, "profile": instance.profile}
                found.add(names.MIG_INFO, found.labels(device, **about, **identity), 1)
                _reading_series(found, _MIG_FAMILIES[options.metrics], instance.readings, found.labels(device, **about))
        if everything:
            _name_series(found, device)
    if options.processes:
        _process_series(found, by_device, snapshot, options)


def _reading_series(found: SampleLines, families: _Families, readings: Mapping[str, Value], own: str) -> None:
    for spec, family in families:
        reading = readings.get(spec.id)
        if reading is not None:
            found.add(family, own, names.as_number(spec, reading))


def _name_series(found: SampleLines, device: Device) -> None:
    """Series for readings that are not numbers: info and modes."""
    modes = {spec.id.replace(".", "_"): device.readings.get(spec.id) for spec in _MODES}
    found.add(names.MODES, found.labels(device, **modes), 1)
    reasons = device.readings.get(_REASONS)
    if isinstance(reasons, str) and reasons != "none":
        for reason in reasons.split("+"):
            found.add(names.CLOCK_REASON, found.labels(device, reason=reason), 1)


def _owner_series(found: SampleLines, device: Device, rows: list[Process], own: str) -> None:
    if device.missing.get("memory.unexplained_bytes") == UNLISTED:
        return
    found.add(names.PROCESSES, own, len(rows))
    owners = memory_shares(rows)
    found.add(names.OWNERS, own, len(owners))
    for share in owners[:MAX_OWNERS_LISTED]:
        about = found.labels(device, **share.owner._asdict())
        found.add(names.OWNER_PROCESSES, about, share.processes)
        found.add(names.OWNER_MEMORY, about, share.memory_bytes)


def _process_series(
    found: SampleLines, by_device: Mapping[str, list[Process]], snapshot: Snapshot, options: Options
) -> None:
    rows = [row for rows in by_device.values() for row in rows]
    rows.sort(key=lambda row: (-(row.number("gpu_memory_bytes") or 0.0), row.pid))
    shown = rows[: options.processes]
    found.add(names.LEFT_OUT, names.labels({"host": options.host}), len(rows) - len(shown))
    devices = {device.uuid: device for device in snapshot.devices}
    for row in shown:
        device, about = devices[row.device_uuid or ""], names.process_labels(row)
        command = shorten(mask_text(row.command), _MAX_COMMAND_CHARS) if options.commands and row.command else None
        details = {"name": row.name, "type": row.type, "framework": row.framework, "command": command}
        own = found.labels(device, **about)
        found.add(names.PROCESS_INFO, found.labels(device, **about | owner_of(row)._asdict() | details), 1)
        for family, reading, scale in names.PROCESS_FAMILIES:
            number = row.number(reading)
            found.add(family, own, None if number is None else round(number * scale, 9))
