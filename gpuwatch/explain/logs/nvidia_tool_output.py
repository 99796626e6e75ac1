"""What NVIDIA's tools print into a log: the tables of nvidia-smi, the metrics of dcgm-exporter (Prometheus' text).

nvidia-smi's layouts: drivers up to 450 (no columns for MIG instances), later ones, and later ones with a table of MIG
devices, whose rows are not GPUs, between GPUs and processes; in Windows with the driver's model in place of the
persistence mode. Names and meanings of dcgm-exporter's metrics: DCGM's
field identifiers (dcgm_fields.h); reasons of throttling are NVML's bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec.structs import replace

from gpuwatch.explain.logs.device_names import pci_address
from gpuwatch.explain.logs.log_facts import LoggedGpu, SmiProcess

MAX_TABLE_LINES = 400
_MIB = 1 << 20
_QUOTES = " \t>#|`"

_FIRST_LINE = re.compile(r"NVIDIA-SMI [\d.]{1,24}.{1,60}?Driver Version: ([\d.]{1,24})")
_GPU_ROW = re.compile(
    r"\|\s{1,6}\d{1,3}\s{1,4}(\S.{0,60}?)\s{1,30}(?:On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*([0-9A-Fa-f:.]{7,20})\s"
)
_MEMORY_COLUMN = re.compile(r"\|\s*(\d{1,8})MiB\s*/\s*(\d{1,8})MiB\s*\|")
_PROCESS_ROW = re.compile(
    r"\|\s{1,6}(\d{1,3})\s{1,6}(?:\S{1,4}\s{1,6}\S{1,4}\s{1,12})?(\d{1,9})\s{1,8}([CGM+]{1,3})\s{1,4}"
    r"(\S.{0,80}?)\s{1,60}(?:(\d{1,8})MiB|N/A)\s*\|"
)


def driver_version_of_table(line: str) -> str | None:
    """The driver's version, if nvidia-smi's output begins with this line."""
    match = _FIRST_LINE.search(line)
    return match[1] if match else None


class SmiTableReader:
    """Takes the lines of one output of nvidia-smi: the GPUs with their memory, and the processes."""

    def __init__(self) -> None:
        self.gpus: list[LoggedGpu] = []
        self.processes: list[SmiProcess] = []
        self._lines = 0
        self._gpu: LoggedGpu | None = None

    def take(self, raw: str) -> bool:
        """Takes a line, which may be quoted; False if it does not belong to the table."""
        self._lines += 1
        at = next((i for i in (raw.find("|"), raw.find("+-")) if i >= 0), -1)
        if self._lines > MAX_TABLE_LINES or (at < 0 and raw.strip(_QUOTES)) or at > 60:
            return False
        line = raw[at:] if at >= 0 else ""
        if match := _PROCESS_ROW.match(line):
            held = int(match[5]) * _MIB if match[5] else None
            self.processes.append(
                SmiProcess(gpu=int(match[1]), pid=int(match[2]), type=match[3], name=match[4].strip(), held_bytes=held)
            )
        elif match := _GPU_ROW.match(line):
            self._gpu = LoggedGpu(name=match[1].strip(), pci_bus_id=pci_address(match[2]))
        elif self._gpu is not None and (match := _MEMORY_COLUMN.search(line)):
            used, total = int(match[1]) * _MIB, int(match[2]) * _MIB
            self.gpus.append(replace(self._gpu, total_bytes=total, free_bytes=max(total - used, 0)))
            self._gpu = None
        return True


DCGM_PREFIX = "DCGM_FI_"
_SAMPLE = re.compile(r"^(DCGM_FI_\w{1,60})\{(.{0,2000})\} (\d{1,20}(?:\.\d{1,10})?(?:e\+?\d{1,3})?)\b")
_BUS = re.compile(r'pci_bus_id="([\da-fA-F:.]{7,20})"')
_MIN_BLANK = 2.0**62
"""DCGM's "no value" is near the largest 64-bit integer."""
_THERMAL, _POWER = 0x20 | 0x40, 0x80
_XID_METRIC = "DCGM_FI_DEV_XID_ERRORS"
_FAULT_COUNTERS = tuple(
    f"DCGM_FI_DEV_{name}" for name in ("ECC_DBE_VOL_TOTAL", "ROW_REMAP_FAILURE", "ROW_REMAP_PENDING", "RETIRED_PENDING")
)
"""Counters that are 0 on a healthy GPU."""
_THROTTLE_REASONS = ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS")


def topics_of_dcgm_metric(line: str) -> Iterator[tuple[str, str]]:
    """The topics of a sample, each with the line that shows it; an Xid is written as the kernel writes it."""
    sample = _SAMPLE.match(line)
    if sample is None or (value := float(sample[3])) >= _MIN_BLANK:
        return
    yield "driver.answered", line
    if sample[1] == _XID_METRIC and value:
        bus = _BUS.search(sample[2])
        yield "hardware.fault", f"Xid (PCI:{bus[1] if bus else '?'}): {int(value)}, the last that {_XID_METRIC} tells"
    elif value and sample[1] in _FAULT_COUNTERS:
        yield "hardware.fault", line
    elif sample[1] in _THROTTLE_REASONS and int(value) & _THERMAL:
        yield "throttle.thermal", line
    elif sample[1] in _THROTTLE_REASONS and int(value) & _POWER:
        yield "throttle.power", line
