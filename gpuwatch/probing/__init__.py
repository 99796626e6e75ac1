"""Finds probe scripts, runs them in processes of their own, and observes what they do."""
