"""NVIDIA GPUs through NVML: the one folder that calls ``pynvml``."""
