"""One file a format; the tuple of formats is in :mod:`gpuwatch.reports.format_registry`."""
