"""What every other package uses: metrics, samples, runs, findings; how they are written; errors.

How large a file or message any reader takes: `core/input_size_limits.py`.
"""
