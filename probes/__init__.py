"""Probe scripts, one configuration each. Run by path, in the framework's interpreter.

What a configuration sets is in its header. `_gpuwatch_watch/` observes programs under `gpuwatch run` and `gpuwatch try`
from inside: what it reports, and from when on.
"""
