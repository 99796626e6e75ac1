"""Error counters of the memory that grow while somebody watches."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.overtime.look import Look
from gpuwatch.diagnosis.overtime.registry import LastingRule, lasting
from gpuwatch.diagnosis.overtime.stretch import Sign, Stretch
from gpuwatch.diagnosis.overtime.words import lasted
from gpuwatch.diagnosis.registry import finding
from gpuwatch.diagnosis.rules.words import seen_as
from gpuwatch.model.findings import Finding

_UNCORRECTED = ("ecc.uncorrected", "remapped_rows.uncorrectable", "retired_pages.double_bit")
_WORDS = {
    "ecc.uncorrected": "memory errors that ECC could not correct",
    "remapped_rows.uncorrectable": "memory rows remapped after uncorrectable errors",
    "retired_pages.double_bit": "memory pages retired after double-bit errors",
}


@lasting
class Growing(LastingRule):
    """An error that the counters did not have when the watch began."""

    causes = ("hardware.fault",)
    looks_for = "memory errors that ECC could not correct"
    needs = ("ecc.uncorrected",)
    appears = 0.0
    leaves = 0.0
    forgets = float("inf")

    def signs(self, look: Look) -> Iterator[Sign]:
        """It holds for as long as the counter stands above its first reading; a reset device starts anew."""
        first = look.memory.counters
        for uuid, device in look.devices.items():
            for metric in _UNCORRECTED:
                count = device.number(metric)
                if count is None:
                    yield Sign(cause="hardware.fault", device=device, about=metric, holds=None)
                    continue
                began = first.setdefault((uuid, metric), count)
                if count < began:
                    first[uuid, metric] = count
                elif count > began:
                    yield Sign(
                        cause="hardware.fault",
                        device=device,
                        about=metric,
                        numbers={"count": count, "new": count - began},
                    )

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """What the program computed since may be wrong, or it was ended by the driver."""
        device, new, count = stretch.sign.device, stretch.figure("new"), stretch.figure("count")
        assert device is not None
        if new is None or count is None:
            return None
        return finding(
            "hardware.fault",
            "error",
            "fact",
            title=f"{seen_as(device)} has new {_WORDS[stretch.sign.about]}",
            evidence=(f"{stretch.sign.about}: {count.last:.0f}, {new.last:.0f} of them new", lasted(stretch, look.at)),
            action="Look for Xid 48, 63, 64, 94 or 95 in dmesg, end the work on this GPU and reset it (nvidia-smi -r).",
            device_uuid=device.uuid,
        )
