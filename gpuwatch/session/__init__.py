"""A watched machine without a user interface: shared by the dashboard and the commands.

The position in time, live and replayed: `session/playhead.py`. Which events the key `n` stops at:
`session/event_timeline.py`.
"""
