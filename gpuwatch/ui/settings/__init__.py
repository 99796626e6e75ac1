"""Preferences, actions and tabs as data."""
