"""The samples of a scrape, as lines of text."""

from __future__ import annotations

from gpuwatch.core.model.snapshot import Device
from gpuwatch.share.metric_families import gpu_labels
from gpuwatch.share.openmetrics_text import Family, label_text, value_text


class SampleLines:
    """Lines of samples of one host by family: the formats want all samples of one together."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.lines: dict[Family, list[str]] = {}

    def labels(self, device: Device, **other_labels: object) -> str:
        """The labels of a GPU with others of one series."""
        return label_text(gpu_labels(device, self.host) | other_labels)

    def add(self, family: Family, labels: str, number: float | None) -> None:
        """A sample; ``labels``: its labels as text. None: there is no such sample."""
        if number is not None:
            self.lines.setdefault(family, []).append(f"{family.sample_name}{labels} {value_text(float(number))}\n")

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))
