"""One file a format; the tuple of formats is in :mod:`gpuwatch.share.reports.report_formats`."""
