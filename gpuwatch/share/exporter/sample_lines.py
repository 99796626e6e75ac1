"""Lines of samples, gathered by family: the formats want all samples of one together."""

from __future__ import annotations

from gpuwatch.share.openmetrics import Family, value


class SampleLines:
    """Lines by family, in the order in which the families came."""

    def __init__(self) -> None:
        self.lines: dict[Family, list[str]] = {}

    def add(self, family: Family, own: str, number: float | None) -> None:
        """A sample; ``own``: its labels as text. None: there is no such sample."""
        if number is not None:
            self.lines.setdefault(family, []).append(f"{family.sample}{own} {value(float(number))}\n")

    @property
    def count(self) -> int:
        return sum(map(len, self.lines.values()))
