"""Where data comes from: GPUs (``nvidia/``), processes and the host (/proc, /sys).

A new value of a process: `machine/sources/process_table.py`, `machine/collector/process_rows.py`,
`core/model/snapshot.py`; one of the Process tab alone: `machine/sources/process_details.py`. Jobs, pods and containers
are named in `machine/sources/process_table.py`. A new source of GPUs is a class with the interface in
`machine/sources/device_source.py`.
"""
