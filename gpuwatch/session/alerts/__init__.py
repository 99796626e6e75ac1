"""Tells somebody about findings: a command, a webhook, the terminal. Nothing here may delay sampling.

A way to send alerts: a module here, started in `session/alerts/alerts.py`; its option in `alert_options` of
`cli/shared_options.py`. What an alert says: `core/model/findings.py`.
"""
