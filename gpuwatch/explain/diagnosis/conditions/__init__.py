"""Causes that show only over time: conditions of one sample, judged with hysteresis over many.

How long and how much each condition takes is at the top of its module. A new module: also its name in
`explain/diagnosis/rule_engine.py`.
"""
