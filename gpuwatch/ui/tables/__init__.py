"""Data of the tables: columns, GPU fields, filter, tree, totals. Pure.

When a load or a state changes color: `ui/tables/gpu_loads.py`.
"""
