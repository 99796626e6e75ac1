"""Error counters of memory (ECC, remapped rows, retired pages), PCIe and NVLink: old counts and new errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from gpuwatch.core.model.findings import END_WORK, SEVERITY_ORDER, Finding, Severity
from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import ErrorCount, SampleContext

_EVENT_GAP_SECONDS = 60.0
"""Minimum seconds between two events about one counter."""
_RETRANSMITTED = frozenset({"nvlink.crc_errors", "nvlink.receive_errors"})
"""Errors that the link retransmits. By NVIDIA they matter from 100 a second (``dcgm_gpu_hardware_limits.h`` of DCGM,
DCGM_LIMIT_MAX_NVLINK_CRC_ERROR); a count since the reset is not a rate, however large."""


class _ErrorCounters(Condition):
    """Counters of one kind of error on a device. It holds while one of them is above its first reading."""

    causes = ("hardware.fault",)
    forget_after_seconds = float("inf")
    descriptions: ClassVar[Mapping[str, str]]
    """What each metric counts."""
    reports_old_counts: ClassVar[frozenset[str]] = frozenset()
    """Counters whose old counts are reported, too."""
    action: ClassVar[str]
    action_of_note: ClassVar[str] = ""
    """The action if the severity is info."""

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One per device. A reset starts over; a counter that cannot be read has not changed."""
        for device in context.devices.values():
            counts = [_update_count(context, device, metric) for metric in self.descriptions]
            if all(count is None for count in counts):
                yield Sign(cause="hardware.fault", device=device, variant=self.name, holds=None)
            elif self._nonzero_counters(context, device):
                yield Sign(cause="hardware.fault", device=device, variant=self.name)

    def _nonzero_counters(self, context: SampleContext, device: Device) -> list[tuple[str, ErrorCount]]:
        """Counters to report, those with new errors first."""
        counts = context.history.counters
        counters = [
            (metric, count)
            for metric in self.descriptions
            if (count := counts.get((device.uuid, metric))) is not None
            and (count.latest > count.first or (metric in self.reports_old_counts and count.latest))
        ]
        return sorted(counters, key=lambda entry: entry[1].latest <= entry[1].first)

    @abstractmethod
    def severity(self, metric: str, count: ErrorCount) -> Severity:
        """The severity of one counter that is not 0."""

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """The title is about the worst of them."""
        device = occurrence.device
        counters = self._nonzero_counters(context, device)
        if not counters:
            return None
        metric, count = min(counters, key=lambda counter: SEVERITY_ORDER[self.severity(*counter)])
        severity = self.severity(metric, count)
        return self.make_finding(
            occurrence,
            severity,
            title=self._line(device, metric, count.latest - count.first, count.latest),
            evidence=(
                *(
                    f"{text}: {each.latest:.0f}"
                    + (f", {each.latest - each.first:.0f} of them new" * (each.latest > each.first))
                    for text, each in counters
                ),
                occurrence.time_text(context.at),
            ),
            action=self.action if severity != "info" else self.action_of_note,
        )

    def new_event_texts(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        """Growth since the last event, at most once a minute."""
        device = occurrence.device
        for metric, count in self._nonzero_counters(context, device):
            if count.latest > count.in_event and context.at - count.event_at >= _EVENT_GAP_SECONDS:
                yield self._line(device, metric, count.latest - count.in_event, count.latest)
                count.in_event, count.event_at = count.latest, context.at

    def _line(self, device: Device, metric: str, new: float, total: float) -> str:
        if not new:
            return f"GPU {device.index} {self.descriptions[metric]}: {total:.0f} since the last reset"
        return f"GPU {device.index} {self.descriptions[metric]}: {new:.0f} new, {total:.0f} in total"

    def end_text(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """Only a reset ends it."""
        return f"GPU {occurrence.device.index} error counters were reset"


def _update_count(context: SampleContext, device: Device, metric: str) -> float | None:
    """The current count, remembered with its first value."""
    key, counters = (device.uuid, metric), context.history.counters
    latest = number(device.readings.get(metric))
    if latest is None:
        missing = device.missing.get(metric)
        if missing is not None and missing.reason == "not_supported":
            counters.setdefault(key, ErrorCount(0.0, 0.0, 0.0))  # all that it may count later is new
        return None
    known = counters.get(key)
    if known is None or latest < known.latest:
        counters[key] = ErrorCount(latest, latest, latest)
    else:
        known.latest = latest
    return latest


@condition
class MemoryErrors(_ErrorCounters):
    """Uncorrected errors: results since then may be wrong, or the driver ended the program."""

    name = "memory-errors"
    looks_for = "uncorrected memory errors (ECC)"
    needed_metrics = ("ecc.uncorrected",)
    reported_from_one_sample = True
    action = f"{END_WORK} this GPU and reset it (nvidia-smi -r); look for Xid 48, 63, 64, 94 or 95 in dmesg."
    descriptions: ClassVar[Mapping[str, str]] = {
        "ecc.uncorrected": "uncorrected ECC errors",
        "ecc.sram_uncorrected": "uncorrected SRAM errors",
        "remapped_rows.uncorrectable": "memory rows remapped after uncorrectable errors",
        "retired_pages.double_bit": "memory pages retired after double-bit errors",
    }
    reports_old_counts = frozenset({"ecc.uncorrected", "ecc.sram_uncorrected"})

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        return "error" if count.latest > count.first else "warning"


@condition
class RepairedMemory(_ErrorCounters):
    """Memory replaced after corrected errors: more of them are likely."""

    name = "repaired-memory"
    action = "Nothing was lost. Have the card checked if the count keeps growing."
    descriptions: ClassVar[Mapping[str, str]] = {
        "remapped_rows.correctable": "memory rows remapped after correctable errors",
        "retired_pages.single_bit": "memory pages retired after single-bit errors",
    }

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        return "warning"


@condition
class LinkErrors(_ErrorCounters):
    """NVLink errors: collectives wait or fail while a link recovers; retransmitted errors only cost time."""

    name = "nvlink-errors"
    looks_for = "NVLink errors"
    reported_from_one_sample = True
    action = (
        "Check nvidia-smi nvlink -e, and dmesg for Xid 74; reset the GPUs (nvidia-smi -r), and have the bridge, "
        "cable or NVSwitch checked if the counter grows again."
    )
    action_of_note = (
        "Nothing to do while the count does not grow: the link retransmitted. At 100 per second or more, it is faulty."
    )
    descriptions: ClassVar[Mapping[str, str]] = {
        "nvlink.failed_recoveries": "failed NVLink recoveries",
        "nvlink.recoveries": "NVLink recoveries",
        "nvlink.effective_errors": "NVLink errors left after error correction",
        "nvlink.data_crc_errors": "NVLink CRC errors in data",
        "nvlink.ecc_errors": "NVLink ECC errors",
        "nvlink.receive_errors": "NVLink packets received with errors",
        "nvlink.crc_errors": "NVLink CRC errors",
    }
    reports_old_counts = frozenset(descriptions)

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        """Old ones that the link retransmitted are a note, however many."""
        if count.latest > count.first:
            return "error" if metric == "nvlink.failed_recoveries" else "warning"
        return "info" if metric in _RETRANSMITTED else "warning"


@condition
class CorrectedErrors(_ErrorCounters):
    """Corrected or retransmitted errors: only events, which may explain something later."""

    name = "corrected-errors"
    action = ""
    descriptions: ClassVar[Mapping[str, str]] = {
        "ecc.corrected": "corrected ECC errors",
        "nvlink.replays": "NVLink replays",
        "pcie.replays": "PCIe replays",
    }

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        return "info"

    def is_listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        return False
