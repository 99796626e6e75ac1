"""From when on a GPU counts as idle, and memory that an idle process holds as too much."""

from __future__ import annotations

IDLE = 1.0
"""Utilization in percent up to which a device counts as idle."""
HELD_SHARE = 0.2
HELD_LEAST = 1 << 30
"""Bytes. Less than this, or than :data:`HELD_SHARE` of the device, does not disturb others."""
