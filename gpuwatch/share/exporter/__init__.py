"""Metrics of this machine over HTTP, for Prometheus.

A series that is not a metric: of a GPU a family in `share/metric_families.py` and its value in `series_lines` of
`share/exporter/metric_series.py`; of a process a family and a row of `PROCESS_FAMILIES`.
"""
