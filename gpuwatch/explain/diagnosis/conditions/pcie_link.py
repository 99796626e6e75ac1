"""A PCIe link below its maximum speed or width, judged only under load."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Finding
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import MIN_UNDER_LOAD_PERCENT, SampleContext

# Bytes per second of one lane and direction, by generation: transfers per second and line code of the PCI
# Express base specifications (2.5 and 5 GT/s with 8b/10b; 8, 16 and 32 GT/s with 128b/130b; 64 GT/s in flits).
_LANE_BYTES_PER_SECOND = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_MIN_SHARE_FOR_NOTE = 0.6
"""Share of the maximum bandwidth from which the finding is a note. One generation or half of the lanes less is half."""


@condition
class PcieLink(Condition):
    """Fewer lanes, or an older generation, than device and slot support together.

    NVML's maxima are those "possible with this device and system", so they include the slot.
    """

    name = "pcie-link"
    causes = ("pcie.degraded",)
    looks_for = "PCIe links below their maximum, under load"
    needed_metrics = ("pcie.generation", "pcie.width", "pcie.max_generation", "pcie.max_width")
    # The generation is read every few seconds, and utilization is an average: one sample may combine a busy device
    # with the link state from before.
    report_after_seconds = 20.0
    end_after_seconds = 20.0

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """Unknown when idle: the link then runs slowly to save power."""
        for device in context.devices.values():
            busy = device.number("utilization.gpu_percent")
            generation, width, max_generation, max_width = (device.number(metric) for metric in self.needed_metrics)
            if busy is None or busy < MIN_UNDER_LOAD_PERCENT or None in (generation, width, max_generation, max_width):
                yield Sign(cause="pcie.degraded", device=device, holds=None)
            elif (generation or 0) < (max_generation or 0) or (width or 0) < (max_width or 0):
                yield Sign(cause="pcie.degraded", device=device, numbers={"busy": busy})

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A warning if about half of the bandwidth or more is missing."""
        device = occurrence.device
        generation, width, max_generation, max_width = (device.number(metric) or 0.0 for metric in self.needed_metrics)
        lane, best = _LANE_BYTES_PER_SECOND.get(int(generation)), _LANE_BYTES_PER_SECOND.get(int(max_generation))
        share = lane * width / (best * max_width) if lane and best and max_width else None
        return self.make_finding(
            occurrence,
            "info" if share is not None and share >= _MIN_SHARE_FOR_NOTE else "warning",
            title=f"GPU {device.index}'s PCIe link runs below its maximum",
            evidence=(
                f"generation {generation:.0f} x{width:.0f}, card and slot support"
                f" {max_generation:.0f} x{max_width:.0f}",
                f"about {lane * width / 1e9:.1f} of {best * max_width / 1e9:.1f} GB/s" if lane and best else "",
                f"under load {occurrence.time_text(context.at)}",
                f"utilization {occurrence.mean_text('busy', '%')} meanwhile: an idle link would be slow by design",
            ),
            action="Reseat the card; check the riser and the slot's lanes in the firmware settings.",
        )
