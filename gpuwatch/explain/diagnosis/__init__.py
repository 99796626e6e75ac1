"""Pure functions from evidence to findings. Imports logs, history, formatting and model only.

Advice on a cause is in its row of `core/model/causes.py`, where that has none in its rule or condition; for what one
line of a log says, one framework or environment (container, WSL, Slurm) in `explain/diagnosis/reference/advice.txt`.
From when on something counts is beside what decides it: in the rule or condition, or, for what is measured inside a
watched program, in `probes/_gpuwatch_watch/`.
"""
