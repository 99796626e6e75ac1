"""A recording's file, interval, maximum size and age of its samples, if the user names none.

Beyond size and age :class:`.writer.RecordingWriter` deletes the oldest. ``gpuwatch record`` has an option for each.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

from gpuwatch.core import user_folders

INTERVAL_SECONDS: Final = 1.0
"""Seconds between samples."""
MAX_BYTES: Final = 1 << 30
MIN_BYTES: Final = 4 << 20
"""The smallest maximum size that may be set."""
MAX_SECONDS: Final = 30 * 86_400.0
"""Age of the oldest samples; means per minute and hour are kept longer (:data:`.minute_and_hour_means.AGE_FACTORS`)."""


def default_recording_file() -> Path:
    """The recording of this machine and user, whether it exists or not."""
    host = "".join(text if text.isalnum() or text in ".-_" else "_" for text in platform.node())
    return user_folders.state_folder() / "recordings" / f"{host.strip('.') or 'machine'}.gpuwatch"
