"""Which physical GPU is cuda:0? The device map of PyTorch.

cuda:0 is the first GPU that CUDA_VISIBLE_DEVICES leaves, in CUDA's order (fastest first, unless
CUDA_DEVICE_ORDER=PCI_BUS_ID), which can differ from nvidia-smi's. The UUID and the PCI address identify it.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-map",
    "title": "PyTorch device map",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import torch

# cuda:0 is the first GPU that CUDA_VISIBLE_DEVICES leaves, in CUDA's order: fastest first, unless
# CUDA_DEVICE_ORDER=PCI_BUS_ID. The UUID identifies it in nvidia-smi.
print(torch.cuda.device_count(), "GPUs")
for index in range(torch.cuda.device_count()):
    gpu = torch.cuda.get_device_properties(index)
    uuid = getattr(gpu, "uuid", "not available in this version")
    print("cuda:%d" % index, gpu.name, uuid, gpu.total_memory >> 20, "MB")

if torch.cuda.is_available():
    a = torch.rand(1024, 1024, device="cuda")
    print((a @ a).device)
"""


def configure(torch, probe):
    """No settings."""


def work(torch, probe):
    shared.need_gpu(torch, probe)
    shared.matmul(torch, probe, "cuda", "cuda:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
