"""Sampling in a separate process, the collector, so that a hanging driver blocks nothing else.

When the driver is said not to answer, and when the collector is replaced: the top of `machine/collector/live_feed.py`.
Speeds of a replay: `SPEEDS` in `machine/collector/recording_player.py`.
"""
