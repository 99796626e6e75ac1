"""A fraction of a GPU's memory for PyTorch: set_per_process_memory_fraction.

A limit for PyTorch's allocator: nothing is taken in advance, and the CUDA context needs a few hundred MB more. Beyond
it, PyTorch raises OutOfMemoryError even if the GPU has free memory.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-fraction",
    "title": "Memory fraction (PyTorch)",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "own_work": True,
    "options": {"fraction": 0.4},
}

EXAMPLE = """\
import torch

# A limit for PyTorch's allocator: nothing is taken in advance, and the CUDA context needs more.
torch.cuda.set_per_process_memory_fraction($fraction, 0)

limit = int($fraction * torch.cuda.get_device_properties(0).total_memory)
try:
    torch.empty(limit + (64 << 20), dtype=torch.uint8, device="cuda:0")
except torch.cuda.OutOfMemoryError as error:
    print(error)  # even if the GPU has free memory
"""


def configure(torch, probe):
    """See work(): the call needs a GPU."""


def work(torch, probe):
    shared.need_gpu(torch, probe)
    fraction = probe.options["fraction"]
    torch.cuda.set_per_process_memory_fraction(fraction, 0)

    limit = int(fraction * torch.cuda.get_device_properties(0).total_memory)
    probe.setting("per_process_memory_fraction", asked=fraction, effective="%d MB" % (limit >> 20))
    shared.matmul(torch, probe, "cuda:0")
    try:
        torch.empty(limit + (64 << 20), dtype=torch.uint8, device="cuda:0")
    except torch.cuda.OutOfMemoryError as error:
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("PyTorch allocated more than the fraction")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
