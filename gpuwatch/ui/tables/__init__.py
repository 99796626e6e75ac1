"""Data of the tables: columns, GPU fields, filter, tree, totals. Pure.

When a load or a state changes color: `ui/tables/load_levels.py`.
"""
