"""Choose PyTorch's current GPU: torch.cuda.set_device, here the last one.

``"cuda"`` without a number then means this GPU. Unlike CUDA_VISIBLE_DEVICES it hides nothing: the program can still use
the other GPUs, and create contexts on them.
"""

import _gpuwatch_probe as gpuwatch_probe
import _gpuwatch_torch as shared

CONFIG = {
    "name": "torch-set-device",
    "title": "PyTorch's current GPU",
    "group": "torch",
    "framework": "torch",
    "workload": "matmul",
    "own_work": True,
}

EXAMPLE = """\
import torch

last = torch.cuda.device_count() - 1
torch.cuda.set_device(last)

# "cuda" without a number means this GPU now. The others are not hidden: "cuda:0" still works.
a = torch.rand(1024, 1024, device="cuda")
print((a @ a).device)
"""


def configure(torch, probe):
    """See work(): the call creates a context, so the devices are listed first."""


def work(torch, probe):
    last = shared.need_gpu(torch, probe) - 1
    torch.cuda.set_device(last)

    probe.setting("current device", asked="cuda:%d" % last, effective="cuda:%d" % torch.cuda.current_device())
    ran_on = shared.matmul(torch, probe, "cuda", "cuda:%d" % last)
    probe.result("cuda", ran_on)


if __name__ == "__main__":
    gpuwatch_probe.main(CONFIG, configure, work)
