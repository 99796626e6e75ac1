"""Error counters of memory (ECC, remapped rows, retired pages), PCIe and NVLink: old counts and new errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from gpuwatch.core.model.findings import SEVERITY_ORDER, Finding, Severity
from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import Device
from gpuwatch.explain.diagnosis.conditions.condition_registry import Condition, condition
from gpuwatch.explain.diagnosis.conditions.occurrence import Occurrence, Sign
from gpuwatch.explain.diagnosis.conditions.sample_context import ErrorCount, SampleContext

_EVENT_GAP_SECONDS = 60.0
"""Minimum seconds between two events about one counter."""
_RETRANSMITTED = frozenset({"nvlink.crc_errors", "nvlink.receive_errors"})
"""Errors that the link retransmits. By NVIDIA they matter from 100 a second (``dcgm_gpu_hardware_limits.h`` of DCGM,
DCGM_LIMIT_MAX_NVLINK_CRC_ERROR); a count since the reset is not a rate, however large."""


class Counters(Condition):
    """Counters of one kind of error on a device. Holds while one of them is above its first reading."""

    causes = ("hardware.fault",)
    forgets = float("inf")
    words: ClassVar[Mapping[str, str]]
    """By metric."""
    old_counts: ClassVar[frozenset[str]] = frozenset()
    """Counters whose old counts are reported, too."""

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One per device. A reset starts over; a counter that cannot be read has not changed."""
        for device in context.devices.values():
            known = [count for metric in self.words if (count := _count(context, device, metric)) is not None]
            if not known:
                yield Sign(cause="hardware.fault", device=device, about=self.name, holds=None)
            elif self._bad(context, device):
                yield Sign(cause="hardware.fault", device=device, about=self.name)

    def _bad(self, context: SampleContext, device: Device) -> list[tuple[str, ErrorCount]]:
        """Counters to report, those with new errors first."""
        counters = context.memory.counters
        bad = [
            (metric, count)
            for metric in self.words
            if (count := counters.get((device.uuid, metric))) is not None
            and (count.now > count.base or (metric in self.old_counts and count.now))
        ]
        return sorted(bad, key=lambda entry: entry[1].now <= entry[1].base)

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        """Severity of one counter with errors."""
        raise NotImplementedError

    action: ClassVar[str]
    action_of_note: ClassVar[str] = ""

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """The title is about the worst of them."""
        device = occurrence.device
        bad = self._bad(context, device)
        if not bad:
            return None
        severity, metric, count = min(
            ((self.severity(metric, count), metric, count) for metric, count in bad), key=lambda e: SEVERITY_ORDER[e[0]]
        )
        return self.report(
            occurrence,
            severity,
            title=self._line(device, metric, count.now - count.base, count.now),
            evidence=(
                *(
                    f"{text}: {each.now:.0f}" + (f", {each.now - each.base:.0f} of them new" * (each.now > each.base))
                    for text, each in bad
                ),
                occurrence.lasted(context.at),
            ),
            action=self.action if severity != "info" else self.action_of_note,
        )

    def new_samples(self, occurrence: Occurrence, context: SampleContext) -> Iterable[str]:
        """Growth since the last event, at most once a minute."""
        device = occurrence.device
        for metric, count in self._bad(context, device):
            if count.now > count.in_event and context.at - count.event_at >= _EVENT_GAP_SECONDS:
                yield self._line(device, metric, count.now - count.in_event, count.now)
                count.in_event, count.event_at = count.now, context.at

    def _line(self, device: Device, metric: str, new: float, total: float) -> str:
        if not new:
            return f"GPU {device.index} {self.words[metric]}: {total:.0f} since the last reset"
        return f"GPU {device.index} {self.words[metric]}: {new:.0f} new, {total:.0f} in total"

    def ended(self, occurrence: Occurrence, finding: Finding, context: SampleContext) -> str:
        """Only a reset ends it."""
        return f"GPU {occurrence.device.index} error counters were reset"


def _count(context: SampleContext, device: Device, metric: str) -> float | None:
    """The current count, remembered with its first value."""
    key, memory = (device.uuid, metric), context.memory
    now = number(device.readings.get(metric))
    if now is None:
        lack = device.missing.get(metric)
        if lack is not None and lack.reason == "not_supported":
            memory.counters.setdefault(key, ErrorCount(0.0, 0.0, 0.0))  # all that it may count later is new
        return None
    known = memory.counters.get(key)
    if known is None or now < known.now:
        memory.counters[key] = ErrorCount(now, now, now)
    else:
        known.now = now
    return now


@condition
class MemoryErrors(Counters):
    """Uncorrected errors: results since then may be wrong, or the driver ended the program."""

    name = "memory-errors"
    looks_for = "uncorrected memory errors (ECC)"
    needs = ("ecc.uncorrected",)
    one_sample = True
    action = "End the work on this GPU and reset it (nvidia-smi -r); look for Xid 48, 63, 64, 94 or 95 in dmesg."
    words: ClassVar[Mapping[str, str]] = {
        "ecc.uncorrected": "uncorrected ECC errors",
        "ecc.sram_uncorrected": "uncorrected SRAM errors",
        "remapped_rows.uncorrectable": "memory rows remapped after uncorrectable errors",
        "retired_pages.double_bit": "memory pages retired after double-bit errors",
    }
    old_counts = frozenset({"ecc.uncorrected", "ecc.sram_uncorrected"})

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        return "error" if count.now > count.base else "warning"


@condition
class RepairedMemory(Counters):
    """Memory replaced after corrected errors: more of them are likely."""

    name = "repaired-memory"
    action = "Nothing was lost. Have the card checked if the count keeps growing."
    words: ClassVar[Mapping[str, str]] = {
        "remapped_rows.correctable": "memory rows remapped after correctable errors",
        "retired_pages.single_bit": "memory pages retired after single-bit errors",
    }

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        return "warning"


@condition
class LinkErrors(Counters):
    """NVLink errors: collectives wait or fail while a link recovers; retransmitted errors only cost time."""

    name = "nvlink-errors"
    looks_for = "NVLink errors"
    one_sample = True
    action = (
        "Check nvidia-smi nvlink -e, and dmesg for Xid 74; reset the GPUs (nvidia-smi -r), and have the bridge, "
        "cable or NVSwitch checked if the counter grows again."
    )
    action_of_note = (
        "Nothing to do while the count does not grow: the link retransmitted. At 100 per second or more, it is faulty."
    )
    words: ClassVar[Mapping[str, str]] = {
        "nvlink.failed_recoveries": "failed NVLink recoveries",
        "nvlink.recoveries": "NVLink recoveries",
        "nvlink.effective_errors": "NVLink errors left after error correction",
        "nvlink.data_crc_errors": "NVLink CRC errors in data",
        "nvlink.ecc_errors": "NVLink ECC errors",
        "nvlink.receive_errors": "NVLink packets received with errors",
        "nvlink.crc_errors": "NVLink CRC errors",
    }
    old_counts = frozenset(words)

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        """Old ones that the link retransmitted are a note, however many."""
        if count.now > count.base:
            return "error" if metric == "nvlink.failed_recoveries" else "warning"
        return "info" if metric in _RETRANSMITTED else "warning"


@condition
class Corrected(Counters):
    """Corrected or retransmitted errors: only events, which may explain something later."""

    name = "corrected-errors"
    action = ""
    words: ClassVar[Mapping[str, str]] = {
        "ecc.corrected": "corrected ECC errors",
        "nvlink.replays": "NVLink replays",
        "pcie.replays": "PCIe replays",
    }

    def severity(self, metric: str, count: ErrorCount) -> Severity:
        return "info"

    def listed(self, occurrence: Occurrence, context: SampleContext) -> bool:
        return False
