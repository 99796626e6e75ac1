"""One file a format; the tuple of formats is in :mod:`gpuwatch.share.reports.report_formats`.

A format is a module here and a line in `share/reports/report_formats.py`. How HTML looks, and how wide its charts are:
`share/reports/formats/report.css`; how a table fits a terminal: `share/reports/formats/terminal_tables.py`. `--csv`: a
snapshot has a column per metric (`core/model/metrics.py`), all else `share/reports/formats/csv.py`.
"""
