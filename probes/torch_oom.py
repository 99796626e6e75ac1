"""Out of memory in PyTorch: OutOfMemoryError, with its numbers.

The message tells what was asked, what the GPU has free, what other processes hold, and what PyTorch
keeps unused. If the last is large, the memory is in pieces: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
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
    "verdict": "oom",
}


def configure(torch, probe):
    """Nothing: PyTorch as it comes."""


def work(torch, probe):
    shared.need_gpu(torch, probe)
    shared.matmul(torch, probe, "cuda:0")
    free, total = torch.cuda.mem_get_info(0)
    probe.result("free_bytes", free)
    probe.result("total_bytes", total)
    blocks = []
    try:
        for _ in range(16):  # each an eighth of what is free
            blocks.append(torch.empty(free // 8, dtype=torch.uint8, device="cuda:0"))
    except torch.cuda.OutOfMemoryError as error:
        print("%s: %s" % (type(error).__name__, error), file=sys.stderr)  # as an uncaught exception would
        probe.error(error, expected=True)
    else:
        probe.did_not_fail("twice the free memory was given")
    shared.memory(torch, probe, "cuda:0")
    probe.result("blocks_that_fitted", len(blocks))


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
