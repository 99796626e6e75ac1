"""Choose GPUs for PyTorch by environment variable: CUDA_VISIBLE_DEVICES.

PyTorch parses the list too, and is stricter than the driver: if a GPU is listed twice, it sees none, and UUIDs and
indices cannot be mixed. Set it before the first use of a GPU.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-visible",
    "title": "GPUs chosen by environment variable (PyTorch)",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "own_work": True,
    "options": {"visible": "0"},
}

ENVIRONMENT = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}

EXAMPLE = """\
import os

# Before the first use of a GPU. Indices or UUIDs, not both; if one is listed twice, PyTorch sees no GPU.
os.environ["CUDA_VISIBLE_DEVICES"] = $visible
# Without this, indices can differ from nvidia-smi's on a machine with different cards.
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
    """Set by the environment."""


def work(torch, probe):
    count = shared.need_gpu(torch, probe)
    wanted = probe.options["visible"].split(",")
    probe.setting("visible GPUs", asked=wanted, effective=["cuda:%d" % index for index in range(count)])
    shared.matmul(torch, probe, "cuda", "cuda:0")


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work, ENVIRONMENT)
