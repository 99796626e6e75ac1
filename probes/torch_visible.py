"""Choose GPUs for PyTorch by the environment: CUDA_VISIBLE_DEVICES.

PyTorch reads the list itself as well as the driver, and is stricter: a GPU named twice means none at
all, and UUIDs and indices cannot be mixed. It must be set before the first use of a GPU.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-visible",
    "title": "GPUs chosen by the environment (PyTorch)",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "own_work": True,
    "verdict": "ok",
    "options": {"visible": "0"},
}

ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}

EXAMPLE = """\
import os

# Before the first use of a GPU. Indices or UUIDs, not mixed, and none twice: PyTorch would see no GPU.
os.environ["CUDA_VISIBLE_DEVICES"] = $visible
# Without this, indices are not those of nvidia-smi on a machine with different cards.
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"

import torch

print(torch.cuda.device_count(), "GPUs")
for index in range(torch.cuda.device_count()):
    print("cuda:%d" % index, torch.cuda.get_device_name(index))
if torch.cuda.is_available():
    a = torch.rand(1024, 1024, device="cuda")
    print((a @ a).device)
"""


def configure(torch, probe):
    """The environment has done it."""


def work(torch, probe):
    count = shared.need_gpu(torch, probe)
    wanted = probe.options["visible"].split(",")
    probe.setting("visible GPUs", asked=wanted, effective=["cuda:%d" % index for index in range(count)])
    shared.matmul(torch, probe, "cuda", "cuda:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)
