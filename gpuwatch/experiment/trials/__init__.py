"""Experiments on a user's program: it runs under several settings, and the runs are compared."""
