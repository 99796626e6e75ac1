"""How often a recording samples, how much of a disk it may use and how long it keeps samples, if nothing is asked for.

Beyond that :class:`.writer.RecordingWriter` deletes the oldest. ``gpuwatch record`` has an option for each.
"""

from __future__ import annotations

from typing import Final

INTERVAL_SECONDS: Final = 1.0
"""Seconds between samples."""
MAX_BYTES: Final = 1 << 30
MIN_BYTES: Final = 4 << 20
"""The smallest maximum size that may be set."""
MAX_SECONDS: Final = 30 * 86_400.0
"""Age of the oldest samples; means per minute and hour are kept longer (:data:`.minute_and_hour_means.AGE_FACTORS`)."""
