"""Simulated GPUs: NVIDIA's libraries in C over a shared state, so that everything above them runs unchanged.

`machine_shape` describes the GPUs, `compiler` compiles the libraries, `simulated_machine` is a simulated machine;
`csrc/` holds the C sources, which the wheel ships. To add a library: a source in `csrc/` and a line in
`libraries.DRIVER_LIBRARIES`.

A model is a row in `sim/gpu_models.py`. A fault: its command in `cli/sim_fault.py`, which can override a reading;
otherwise a function in `sim/faults.py`, and for a new kind of answer `sim/csrc/`.
"""
