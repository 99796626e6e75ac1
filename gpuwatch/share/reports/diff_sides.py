"""One side of a diff: facts, findings and numbers of a document or recording."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import quantiles

from msgspec.structs import replace

from gpuwatch.core.formatting.metric_value_text import metric_value_text
from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.formatting.units import size
from gpuwatch.core.group_by import group_by
from gpuwatch.core.model.diagnostic_report import MACHINE_SOURCE, Diagnostic
from gpuwatch.core.model.doctor import Doctor
from gpuwatch.core.model.explanation import Explanation
from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding
from gpuwatch.core.model.machine_diff import Side, Spread
from gpuwatch.core.model.metrics import METRICS, Lane, Unit
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.snapshot import Device, Snapshot
from gpuwatch.core.parsing import word_set
from gpuwatch.core.utc_datetime import utc_datetime
from gpuwatch.machine.recording.minute_and_hour_means import HOUR, MINUTE
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.share.reports import comparable_runs, run_report
from gpuwatch.share.reports.doctor_report import CHECK_MARKS
from gpuwatch.share.reports.report_text import clean, framework_text
from gpuwatch.share.reports.run_tables import device_map, short_device

ComparableDocument = Diagnostic | Doctor | Run | Snapshot

_CONFIGURED_NUMBERS = word_set("""
    memory.total_bytes bar1.total_bytes power.limit_watts power.requested_limit_watts
    clocks.sm_max_mhz clocks.memory_max_mhz clocks.graphics_max_mhz clocks.video_max_mhz
    pcie.max_generation pcie.width pcie.max_width nvlink.links nvlink.links_active mig.instances
    ecc.uncorrected_lifetime ecc.sram_uncorrected_lifetime remapped_rows.correctable remapped_rows.uncorrectable
    retired_pages.single_bit retired_pages.double_bit
""")
"""Numbers that say how a GPU is built, set up or worn, beside those that never change."""
_LOAD_DEPENDENT_NAMES = frozenset({"clocks.event_reasons", "performance.state", "mode.display_active"})
"""Names that change with the load."""
_UNIQUE_TO_A_CARD = frozenset({"identity.serial"})
"""What no two cards share: compared if they are said to be the same machine's."""
_CONFIGURATION_METRICS = tuple(
    spec
    for spec in METRICS
    if spec.id in _CONFIGURED_NUMBERS
    or spec.lane is Lane.ONCE
    or (spec.unit is Unit.NAME and spec.id not in _LOAD_DEPENDENT_NAMES)
)
_DOCTOR_PARTS = ("Versions", "Device map", "Environment variables", "Libraries", "Distributions", "Checks")
"""Parts that every report of the doctor has."""
_REDUNDANT_METRICS = frozenset({"memory.free_bytes"})
"""What another metric says already."""
_VARYING_METRICS = tuple(
    spec
    for spec in METRICS
    if spec not in _CONFIGURATION_METRICS
    and spec.unit is not Unit.NAME
    and not spec.counter
    and spec.id not in _REDUNDANT_METRICS
)
_COUNTER_METRICS = tuple(
    spec for spec in METRICS if spec.counter and spec.unit is Unit.COUNT and spec.id not in _CONFIGURED_NUMBERS
)
"""Errors and the like."""
COUNTER_IDS = frozenset(spec.id for spec in _COUNTER_METRICS)
NUMBER_METRICS = {spec.id: spec for spec in (*_VARYING_METRICS, *_COUNTER_METRICS)}
"""The metrics of numbers of a recording; those of a run are none."""
_MAX_SECONDS_OF_SAMPLES, _MAX_SECONDS_OF_MINUTES = 3600.0, 3 * 86_400.0
"""Longest stretches of which samples, and means of minutes, are compared; of longer ones, means of hours."""


@dataclass
class DiffSide:
    """One side. Keys of facts are part and name."""

    side: Side
    simulated: bool
    facts: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Shown text and compared value of each fact, by part and name."""
    unknown: set[tuple[str, str]] = field(default_factory=set)
    """Facts that could not be read."""
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    """By cause."""
    findings_of_machine: dict[str, list[Finding]] | None = None
    """Those of the machine itself, of a report that has findings of programs and of the doctor too."""
    devices: dict[str, int] = field(default_factory=dict)
    """Index by UUID."""
    numbers: dict[tuple[str, str], Spread] = field(default_factory=dict)
    """By GPU (``GPU 0``), or ``Run``, and id of the metric."""
    run: Run | None = None
    examined: frozenset[str] = frozenset()
    """Parts that were looked at, even if nothing was found in them."""
    holders: dict[tuple[str, str, str, str, str], tuple[int, int]] = field(default_factory=dict)
    """Allocations and bytes by device, group, line, layer and op, of a file of a program's memory."""

    @property
    def parts(self) -> set[str]:
        """The parts of which it has facts, or knows that there are none."""
        return {part for part, _ in self.facts} | self.examined

    def where(self, cause: str) -> str:
        known = {self.devices.get(finding.device_uuid or "") for finding in self.findings.get(cause, ())}
        indices = {index for index in known if index is not None}
        return gpu_list_text(indices) if indices else ""

    def add_fact(self, part: str, name: str, value: str | None, key: str | None = None) -> None:
        """None: it could not be read. ``key``: what is compared, if not the value itself."""
        if value is None:
            self.unknown.add((part, name))
        else:
            self.facts[part, name] = (clean(value), value if key is None else key)


def _by_cause(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    """The findings that are more than information, by cause; the most severe of each first."""
    not_information = [finding for finding in findings if finding.severity != "info"]
    not_information.sort(key=lambda finding: SEVERITY_ORDER[finding.severity])
    return group_by(not_information, lambda finding: finding.id)


def side_of_document(document: ComparableDocument, name: str, *, with_card_ids: bool) -> DiffSide:
    """What a saved document says. ``with_card_ids``: also what no two cards share, such as serial numbers."""
    kinds = {Diagnostic: "diagnostic", Doctor: "doctor", Run: "run", Snapshot: "snapshot"}
    at = document.started_at if isinstance(document, Run) else document.taken_at
    host = document.host.hostname if isinstance(document, Snapshot) else document.host
    source = Side(name=name, kind=kinds[type(document)], host=host, begin=at, end=at, samples=1)
    side = DiffSide(source, document.simulated)
    if isinstance(document, Snapshot):
        _add_snapshot(side, document, with_card_ids)
    elif isinstance(document, Run):
        _add_run(side, document)
    else:
        doctor = document if isinstance(document, Doctor) else document.doctor
        if doctor is not None:
            _add_doctor(side, doctor)
        if isinstance(document, Diagnostic) and document.snapshot is not None:
            _add_snapshot(side, document.snapshot, with_card_ids)  # its findings are among those of the report
    side.findings = _by_cause(document.findings)
    if isinstance(document, Diagnostic):
        side.findings_of_machine = _by_cause(
            finding for finding in document.findings if MACHINE_SOURCE in finding.sources
        )
    return side


def side_of_recording(
    recording: Recording, begin: float, end: float, name: str, snapshot: Snapshot, step: int, *, with_card_ids: bool
) -> DiffSide:
    """What a stretch of a recording says; ``snapshot``: :func:`last_sample_of` it. ``step``: :func:`step_for`."""
    numbers, samples = _recording_numbers(recording, begin, end, step)
    host = snapshot.host.hostname
    source = Side(
        name=name, kind="recording", host=host, begin=utc_datetime(begin), end=utc_datetime(end), samples=samples
    )
    side = DiffSide(source, snapshot.simulated)
    _add_snapshot(side, snapshot, with_card_ids)
    side.findings = _by_cause(snapshot.findings)
    for (uuid, metric), metric_spread in numbers.items():
        if uuid in side.devices:
            side.numbers[f"GPU {side.devices[uuid]}", metric] = metric_spread
    return side


def last_sample_of(recording: Recording, begin: float, end: float) -> Snapshot | None:
    """The last sample of a stretch, with all findings of the stretch; None if none can be read."""
    sample = recording.at(end)
    if sample is None:
        return None
    findings = tuple(finding.finding for finding in recording.findings(begin, end))
    return replace(sample.snapshot, findings=findings)


def step_for(seconds: float) -> int:
    """Seconds of the means to compare, for the longer of two stretches; 0: the samples themselves."""
    return 0 if seconds <= _MAX_SECONDS_OF_SAMPLES else MINUTE if seconds <= _MAX_SECONDS_OF_MINUTES else HOUR


# A snapshot


def _add_snapshot(side: DiffSide, snapshot: Snapshot, with_card_ids: bool) -> None:
    side.devices = {device.uuid: device.index for device in snapshot.devices}
    driver = snapshot.driver
    machine: dict[str, str | None] = {
        "driver": driver.version if driver else None,
        "CUDA version of the driver": driver.cuda_version if driver else None,
        "NVML": driver.nvml_version if driver else None,
        "GPUs": str(len(snapshot.devices)),
        "CPUs": None if snapshot.host.cpu_count is None else str(snapshot.host.cpu_count),
        "host memory": size(snapshot.host.memory_total_bytes) if snapshot.host.memory_total_bytes else None,
        "container": snapshot.host.container or "none",
    }
    for name, value in machine.items():
        side.add_fact("Machine", name, value)
    for device in snapshot.devices:
        _add_device(side, device, with_card_ids)


def _add_device(side: DiffSide, device: Device, with_card_ids: bool) -> None:
    part = f"GPU {device.index}"
    side.add_fact(part, "name", device.name)
    side.add_fact(part, "compute capability", device.compute_capability)
    state = f"{device.state}: {device.state_detail}" if device.state_detail else device.state
    side.add_fact(part, "state", state, device.state)
    if with_card_ids:
        side.add_fact(part, "UUID", device.uuid)
        side.add_fact(part, "PCI bus id", device.pci_bus_id)
    layout = ", ".join(instance.profile or "unknown profile" for instance in device.mig_instances)
    side.add_fact(part, "MIG layout", layout or "none")
    for spec in _CONFIGURATION_METRICS:
        if spec.id in _UNIQUE_TO_A_CARD and not with_card_ids:
            continue
        value = device.get(spec.id)
        if not isinstance(value, Missing):
            side.add_fact(part, spec.title, metric_value_text(spec, value), str(value))
        elif value.reason == "not_supported":
            side.add_fact(part, spec.title, "not supported", "not supported")
        else:
            side.unknown.add((part, spec.title))


# A report


def _add_doctor(side: DiffSide, doctor: Doctor) -> None:
    """Versions, device map, environment and the like. Texts with times and sizes, which always differ, have keys."""
    side.examined = frozenset(_DOCTOR_PARTS)
    for name, value in doctor.versions.items():
        side.add_fact("Versions", name.replace("_", " "), clean(value))
    if doctor.framework is not None:
        side.add_fact("Versions", "built with CUDA", clean(doctor.framework.gpu_build))
        side.add_fact("Versions", "interpreter", clean(doctor.framework.interpreter))
    for mapping in doctor.device_map:
        if mapping.framework_device:
            mapped_gpu = f"GPU {clean(mapping.physical_index)} {clean(mapping.name)}, {size(mapping.granted_bytes)}"
            key = f"{mapping.physical_index} {mapping.name}"
            side.add_fact("Device map", short_device(mapping.framework_device), mapped_gpu, key)
    for name, value in doctor.environment.items():
        side.add_fact("Environment variables", clean(name), clean(value))
    for library in doctor.libraries:
        facts = (library.state, library.version, f"from {library.origin}" if library.origin else None)
        side.add_fact("Libraries", clean(library.name), " ".join(clean(fact) for fact in facts if fact))
    for entry in doctor.distributions:
        side.add_fact("Distributions", clean(entry.name), clean(entry.version))
    for check in doctor.checks:
        state_and_detail = f"{CHECK_MARKS[check.state]}: {clean(check.detail)}"
        side.add_fact("Checks", clean(check.title or check.id), state_and_detail, check.state)


# A run


def _add_run(side: DiffSide, run: Run) -> None:
    side.run = run
    facts: dict[str, str | None] = {
        "configuration": run.config,
        "verdict": run.verdict,
        "framework": framework_text(run.framework),
        "GPUs": comparable_runs.gpu_models_text(run),
        "command" if comparable_runs.is_user_program(run) else "workload": comparable_runs.workload(run),
        "device map": device_map(run),
        "memory granted": run_report.granted_text(run),
        "fell back to the CPU": run_report.fallback_text(run),
    }
    for name, value in facts.items():
        side.add_fact("Run", name, value)
    side.add_fact("Machine", "driver", run.driver_version)
    for name, setting in run.settings.items():
        if run_report.is_requested(setting):
            side.add_fact("Settings", name, clean(setting.asked))
    for name, value in run.environment.items():
        side.add_fact("Environment variables", name, value)
    if (throughput := run.throughput) is not None:
        low, median, high = throughput.p10_step_seconds, throughput.median_step_seconds, throughput.p90_step_seconds
        side.numbers["Run", "median_step_seconds"] = Spread(median=median, low=low, high=high, points=throughput.steps)
    for name in ("nvml_peak_bytes", "allocator_peak_bytes"):
        value = getattr(run.memory, name)
        if value is not None:
            side.numbers["Run", name] = Spread(median=value, low=value, high=value, points=1)


# A recording


def _recording_numbers(
    recording: Recording, begin: float, end: float, step: int
) -> tuple[Mapping[tuple[str, str], Spread], int]:
    """The spread of each moving metric of each device, and the number of samples."""
    values: dict[tuple[str, str], array[float]] = {}
    counter_growth: dict[tuple[str, str], tuple[float, float]] = {}
    """First value of a counter, and its growth: a counter that is reset begins again."""
    last: dict[tuple[str, str], float] = {}
    samples = 0
    for points, columns in _recorded_values(recording, begin, end, step):
        samples += points
        for key, column in columns:
            if key[1] in COUNTER_IDS:
                for value in column:
                    previous = last.get(key, value)
                    first, growth = counter_growth.get(key, (value, 0.0))
                    counter_growth[key] = (first, growth + (value - previous if value >= previous else value))
                    last[key] = value
            else:
                values.setdefault(key, array("d")).extend(column)
    spreads = {key: _spread(numbers) for key, numbers in values.items() if numbers}
    hours = (end - begin) / 3600
    if hours:
        for key, (_, growth) in counter_growth.items():
            rate = growth / hours
            spreads[key] = Spread(median=rate, low=rate, high=rate, points=1)
    return spreads, samples


_Columns = Iterator[tuple[tuple[str, str], list[float]]]


def _recorded_values(recording: Recording, begin: float, end: float, step: int) -> Iterator[tuple[int, _Columns]]:
    names = frozenset(spec.id for spec in (*_VARYING_METRICS, *_COUNTER_METRICS))
    if not step:
        for times, columns in recording.numbers(begin, end, names):
            known = ((key, [value for value in column if value is not None]) for key, column in columns.items())
            yield len(times), known
        return
    at = begin
    while at <= end:
        chunk_end = min(at + 24 * step, end)
        for summaries in recording.summaries(step, at, chunk_end, names).values():
            samples = max((summary.samples for summary in summaries.values()), default=0)
            means = ((key, [entry.most if key[1] in COUNTER_IDS else entry.mean]) for key, entry in summaries.items())
            yield samples, means
        at = chunk_end + 1e-3 if chunk_end < end else end + 1


def _spread(values: array[float] | list[float]) -> Spread:
    """Median and quartiles of at least one value."""
    if len(values) < 2:
        return Spread(median=values[0], low=values[0], high=values[0], points=1)
    low, median, high = quantiles(values, n=4, method="inclusive")
    return Spread(median=median, low=low, high=high, points=len(values))


# The memory of a program


def memory_side(document: Explanation, name: str) -> DiffSide:
    """What a snapshot or profile of a program's memory says: the memory of each device, and its holders."""
    end_times = [profile.ended_at for profile in document.memory_profiles if profile.ended_at is not None]
    at = max(end_times, default=None)
    side = DiffSide(Side(name=name, kind=document.kind, host=None, begin=at, end=at, samples=1), simulated=False)
    for profile in document.memory_profiles:
        device = clean(profile.device)
        numbers: dict[str, int | None] = {
            "alive_bytes": profile.ending_bytes,
            "peak_bytes": profile.peak_bytes if profile.has_history else None,
            "pool_bytes": sum(segment.reserved_bytes for segment in profile.segments) or None,
        }
        for metric, amount in numbers.items():
            if amount is not None:
                side.numbers[device, metric] = Spread(median=amount, low=amount, high=amount, points=1)
        for holder in profile.ending or profile.holders:
            name = holder.variable or holder.op
            # Memory without a stack or a name may be weights in one recording and caches in the other.
            group = "weights and caches" if holder.group == "weights" and not (holder.source or name) else holder.group
            key = device, group, holder.source, holder.layer, name
            count, held_bytes = side.holders.get(key, (0, 0))
            side.holders[key] = count + holder.count, held_bytes + holder.allocated_bytes
    return side
