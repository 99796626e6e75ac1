"""Pure functions from evidence to findings. Imports logs, history, formatting and model only.

Advice on a cause is in its row of `core/model/causes.py`, where that has none in its rule or condition; for one
framework or environment (container, WSL, Slurm) also in `explain/diagnosis/reference/advice.txt`. When GPUs are free,
busy, or hold idle memory: `explain/diagnosis/idle_and_busy_limits.py`.
"""
