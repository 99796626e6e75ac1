"""NVIDIA GPUs through NVML: the one folder that calls ``pynvml``.

Functions and classes get the bindings as their argument ``lib`` (the module ``pynvml``, or a test's replacement), so
that only :mod:`gpuwatch.machine.sources.nvidia.nvml_source` imports them.
"""
