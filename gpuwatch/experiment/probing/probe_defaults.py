"""How long a probe measures, and when it is killed, unless options say otherwise."""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.experiment.probing.probe_scripts import ProbeScript

MEASUREMENT_SECONDS = 1.0
"""Default length of a measurement."""
DEADLINE_SECONDS = 180.0
"""Seconds after which a probe is killed; more if its measurements are long (:func:`sufficient_deadline`)."""
_START_SECONDS = 60.0
"""Those of them for its start."""


def sufficient_deadline(scripts: Iterable[ProbeScript], seconds: float) -> float:
    """The deadline in seconds that every one of these probes can keep. ``seconds``: of a measurement."""
    return max(DEADLINE_SECONDS, _START_SECONDS + 3 * seconds * max(script.measurements for script in scripts))
