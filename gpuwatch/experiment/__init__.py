"""Programs run to be looked at: probes, `gpuwatch run`, `gpuwatch try`."""
