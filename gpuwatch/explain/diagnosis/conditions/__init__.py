"""Causes that show only over time: conditions of one sample, judged with hysteresis over many."""
