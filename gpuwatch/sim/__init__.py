"""Simulated GPUs: NVIDIA's libraries in C over one shared state, so that all that is above runs unchanged.

The lowest layer: imports the standard library, platformdirs and `gpuwatch.errors` only. `shape` says which
GPUs, `build` compiles the libraries, `machine` makes them available; `csrc/` holds the C sources, which the
wheel ships. To add a library: a source in `csrc/` and a line in `build.LIBRARIES`.
"""
