"""Pure functions from evidence to findings. Imports logs, history, formatting and model only.

Advice on a cause is in its row of `core/model/causes.py`, where that has none in its rule or condition; for what one
line of a log says, one framework or environment (container, WSL, Slurm) in `explain/diagnosis/reference/advice.txt`.
From when on something is a finding is at the top of its rule or condition; what a watched program reports at all, and
from which size or number on: `probes/_gpuwatch_watch/`.
"""
