"""Pure functions from evidence to findings. Imports logs, history, formatting and model only.

Advice on a cause is in its row of `core/model/causes.py`, where that has none in its rule or condition; for one
framework or environment (container, WSL, Slurm) also in `explain/diagnosis/reference/advice.txt`.
"""
