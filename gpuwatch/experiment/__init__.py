"""Runs programs to observe them: probes, `gpuwatch run`, `gpuwatch try`."""
