"""When a GPU counts as busy or starved, and when an idle process holds too much memory for too long."""

from __future__ import annotations

MIN_IN_USE_PERCENT = 10.0
"""Utilization in percent from which a GPU is in use, though no process is listed on it."""
MAX_STARVED_PERCENT = 60.0
"""Mean utilization in percent up to which a device that waits for its input does so much of the time."""
HELD_SHARE = 0.2
"""Share of a device's memory from which an idle process holds much of it."""
LONG_HELD_SECONDS = 300.0
"""Seconds that a process holds memory idle from which it is a warning."""
MIN_HELD_BYTES = 1 << 30
"""Bytes. Less than this, or than :data:`HELD_SHARE` of the device, does not disturb others."""
