"""A watched machine without a user interface: shared by the dashboard and the commands.

The position in time, live and replayed: `session/playhead.py`. Which events the key `n` stops at:
`session/event_timeline.py`.

A way to send alerts: a class in `session/alert_delivery.py`, started in `session/alerts.py`; its option in
`alert_options` of `cli/shared_options.py`. What an alert says: `core/model/alert.py`.
"""
