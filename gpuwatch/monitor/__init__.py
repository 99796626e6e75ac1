"""The collector: samples in a process of its own, so that a hanging driver hurts nobody else."""
