"""Experiments on a user's program: it runs under several settings, and the runs are compared.

How long a run of `try` may take: `experiment/trials/interleaved_rounds.py`. When `try` and `diff` call a speed faster:
`experiment/probing/step_times.py`.
"""
