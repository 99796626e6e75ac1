"""Preferences, actions and tabs as data.

A key: an entry in `ui/settings/actions.py` and its `action_` method in the screen (`ui/screens/base_tab.py` if every
tab has it). A setting that the dashboard remembers: a field and an entry of `SETTINGS` in `ui/settings/preferences.py`,
written on `w` alone (`ui/screens/save_preferences.py`).
"""
