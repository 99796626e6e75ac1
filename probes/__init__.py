"""Probe scripts, one configuration each. Run by path, in the framework's interpreter."""
