"""A recording's file, interval, maximum size and age of its samples, if the user names none.

Beyond size and age :class:`.writer.RecordingWriter` deletes the oldest. ``gpuwatch record`` has an option for each.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

INTERVAL_SECONDS: Final = 1.0
"""Seconds between samples."""
MAX_BYTES: Final = 1 << 30
MIN_BYTES: Final = 4 << 20
"""The smallest maximum size that may be set."""
MAX_SECONDS: Final = 30 * 86_400.0
"""Age of the oldest samples; means per minute and hour are kept longer (:data:`.minute_and_hour_means.AGE_FACTORS`)."""


def default_recording_file() -> Path:
    """The recording of this machine and user, whether it exists or not."""
    import platformdirs

    host = "".join(text if text.isalnum() or text in ".-_" else "_" for text in platform.node())
    folder = Path(platformdirs.user_state_dir("gpuwatch", appauthor=False)) / "recordings"
    return folder / f"{host.strip('.') or 'machine'}.gpuwatch"
