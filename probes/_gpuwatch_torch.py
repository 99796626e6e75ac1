"""What the PyTorch probes share: the devices, why there are none, and the matrix product.

PyTorch touches no GPU at import, takes memory bit by bit as it needs it (there is no "all of it" as in
TensorFlow), and keeps what it was given for its own later use.
"""

from __future__ import annotations

import os
import time

import _gpuwatch_timing as timing


def need_gpu(torch, probe):
    """Says which GPUs PyTorch has, and which they are; ends the probe with the reason where it has none."""
    began = time.monotonic()
    available = torch.cuda.is_available()
    count = torch.cuda.device_count() if available else 0
    probe.emit("phase", name="device_init", seconds=time.monotonic() - began)
    names = ["cuda:%d" % index for index in range(count)]
    probe.emit("devices", physical=names, visible=names, virtual=[], logical=["cpu", *names])
    if not count:
        probe.skip("PyTorch has no GPU: " + why_none(torch))
    for index, name in enumerate(names):
        probe.result(name, describe(torch, index))
    return count


def why_none(torch):
    """Why PyTorch sees no GPU: the build, the environment, the driver, in this order of certainty."""
    reasons = []
    if torch.version.cuda is None:
        reasons.append("%s is a build without CUDA" % torch.__version__)
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        told = hidden_by(value)
        if told:
            reasons.append(told)
    if not reasons:
        try:
            torch.cuda.init()
            reasons.append("the driver lists no device")
        except (RuntimeError, AssertionError) as error:
            reasons.append(str(error).strip().splitlines()[0])
    return "; and ".join(reasons)


def hidden_by(value):
    """Why a value of CUDA_VISIBLE_DEVICES leaves no GPU, or an empty text where it leaves some."""
    entries = [entry.strip() for entry in value.split(",")]
    if not value.strip():
        return "CUDA_VISIBLE_DEVICES is set and empty, which hides every GPU"
    if entries[0].startswith("-"):
        unread = ", ".join(entries[1:])
        return "CUDA_VISIBLE_DEVICES=%s hides every GPU: CUDA stops reading at %s%s" % (
            value,
            entries[0],
            ", so %s is never read" % unread if unread else "",
        )
    if len(set(entries)) < len(entries):
        return "CUDA_VISIBLE_DEVICES=%s names a GPU twice, which PyTorch takes for none at all" % value
    return ""


def describe(torch, index):
    """Identity of a GPU, with what this version of PyTorch tells."""
    properties = torch.cuda.get_device_properties(index)
    found = {
        "name": properties.name,
        "capability": "%d.%d" % (properties.major, properties.minor),
        "total_bytes": properties.total_memory,
    }
    if hasattr(properties, "uuid"):
        found["uuid"] = "GPU-%s" % properties.uuid
    if hasattr(properties, "pci_bus_id"):
        domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
        found["pci_bus_id"] = "%04x:%02x:%02x.0" % (domain, bus, slot)
    return found


def matmul(torch, probe, device="cuda", requested=None):
    """Float32 ``n x n`` matrix product, timed; returns the device where it ran."""
    n = int(probe.options["size"])
    a, b = (torch.rand(n, n).to(device) for _ in range(2))
    began = time.monotonic()
    product = torch.matmul(a, b)
    torch.cuda.synchronize(product.device)
    probe.emit("phase", name="first_step", seconds=time.monotonic() - began)
    ran_on = str(product.device)
    probe.emit("placement", op="matmul", dtype="float32", requested=requested or device, actual=ran_on, count=1)
    memory(torch, probe, product.device)

    def tell(steps, elapsed):
        probe.emit("progress", steps=steps, seconds=elapsed, of_seconds=float(probe.options["seconds"]))

    measured = timing.measure(
        lambda: torch.matmul(a, b),
        lambda result: torch.cuda.synchronize(result.device),
        float(probe.options["seconds"]),
        tell,
        flops=2.0 * n**3,
    )
    probe.emit("throughput", device=ran_on, **measured)
    memory(torch, probe, product.device)
    return ran_on


def memory(torch, probe, device):
    """What PyTorch's allocator has handed out, and the most that it ever had."""
    probe.emit(
        "memory",
        device=str(device),
        current=torch.cuda.memory_allocated(device),
        peak=torch.cuda.max_memory_allocated(device),
        reserved=torch.cuda.memory_reserved(device),
    )
