"""Recordings in the formats of other tools: a period of a recording in, a stream of bytes out.

A table of `export`: `share/exports/recording_tables.py`, which the writers only format. A format is a module here and a
line in `share/exports/export_formats.py`. A metric needs nothing: every number is exported.
"""
