"""Widgets drawn line by line, so that only what changed costs anything."""
