"""Documents for people and programs, made from model data alone.

What holds memory, by line, layer and op: `share/reports/memory_profile_tables.py`. A column of `compare` and of the
Probes tab: `COLUMNS` in `share/reports/runs_side_by_side.py`, its width in `ui/widgets/probe_table.py`. What
`diff` compares: `share/reports/diff_sides.py`; from which difference on: the top of `share/reports/diff_report.py`.
"""
