"""Which physical GPU is cuda:0? The device map of PyTorch.

cuda:0 is the first GPU that CUDA_VISIBLE_DEVICES leaves, counted in CUDA's order (fastest first, unless
CUDA_DEVICE_ORDER=PCI_BUS_ID), not that of nvidia-smi. The UUID and the PCI address tell for sure.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-map",
    "title": "The device map of PyTorch",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "verdict": "ok",
}


def configure(torch, probe):
    """Nothing: PyTorch as it comes."""


def work(torch, probe):
    for index in range(shared.need_gpu(torch, probe)):
        probe.result("cuda:%d" % index, shared.describe(torch, index))
    shared.matmul(torch, probe, "cuda", "cuda:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
