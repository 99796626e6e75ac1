"""Secrets and names of people and machines, replaced before anything is shown, kept or sent."""
