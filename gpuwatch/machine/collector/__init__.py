"""Sampling in a separate process, the collector, so that a hanging driver blocks nothing else."""
