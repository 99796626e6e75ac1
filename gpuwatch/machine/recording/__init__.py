"""Recordings on disk: samples, means, events, findings and processes in one file; written, read, checked, cut.

What is kept of old samples: the end of `machine/recording/writer.py`; how a block is compressed:
`machine/recording/database_cells.py`. What `usage` groups by: `GroupBy` in `core/model/gpu_time_usage.py`
and `_GROUP_KEYS` in `machine/recording/gpu_time_by_group.py`.
"""
