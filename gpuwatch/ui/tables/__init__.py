"""Data of the tables: columns, GPU fields, filter, tree, totals. Pure."""
