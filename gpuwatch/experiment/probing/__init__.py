"""Finds probe scripts, runs each in a process of its own, and records what it does; watches users' programs."""
