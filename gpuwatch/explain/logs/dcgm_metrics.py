"""Lines of dcgm-exporter (Prometheus' text): Xids, ECC errors, failed remapping, throttling.

Names and meanings: DCGM's field identifiers (dcgm_fields.h); reasons of throttling are NVML's bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PREFIX = "DCGM_FI_"
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


def topics_of(line: str) -> Iterator[tuple[str, str]]:
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
