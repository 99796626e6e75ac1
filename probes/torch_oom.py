"""Out of memory in PyTorch: OutOfMemoryError, with its numbers.

The message shows the requested size, the GPU's free memory, the memory of other processes, and memory that PyTorch has
reserved but not allocated. If the last is large, the memory is fragmented: set
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
"""

import sys

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-oom",
    "title": "Out of memory (PyTorch)",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "own_work": True,
    "verdict": "oom",
}

EXAMPLE = """\
import torch

free, total = torch.cuda.mem_get_info(0)
blocks = []
try:
    for _ in range(16):
        blocks.append(torch.empty(free // 8, dtype=torch.uint8, device="cuda:0"))
except torch.cuda.OutOfMemoryError as error:
    # Its numbers: the requested size, free memory, memory of other processes, and memory that PyTorch
    # has reserved but not allocated. If the last is large, the memory is fragmented: set
    # PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
    print(error)

blocks.clear()  # frees the tensors; PyTorch caches their memory
torch.cuda.empty_cache()  # returns it to the GPU
print(torch.cuda.memory_reserved(0))
"""


def configure(torch, probe):
    """No settings."""


def work(torch, probe):
    shared.need_gpu(torch, probe)
    shared.matmul(torch, probe, "cuda:0")
    free, total = torch.cuda.mem_get_info(0)
    probe.result("free_bytes", free)
    probe.result("total_bytes", total)
    blocks = []
    try:
        for _ in range(16):  # each an eighth of the free memory
            blocks.append(torch.empty(free // 8, dtype=torch.uint8, device="cuda:0"))
    except torch.cuda.OutOfMemoryError as error:
        print("%s: %s" % (type(error).__name__, error), file=sys.stderr)  # as an uncaught exception would
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("twice the free memory could be allocated")
    shared.memory(torch, probe, "cuda:0")
    probe.result("blocks_that_fitted", len(blocks))


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
