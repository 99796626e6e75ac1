"""Probe scripts: one configuration each. Run by path, in the interpreter of the framework."""
