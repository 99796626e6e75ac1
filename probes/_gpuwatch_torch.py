"""Shared by the PyTorch probes: the devices, why there are none, and the matrix product.

PyTorch touches no GPU at import, allocates memory as needed (not all of it, as TensorFlow does), and caches what it
has freed.
"""

from __future__ import annotations

import os
import time

import _gpuwatch_timing as timing


def need_gpu(torch, probe):
    """Reports PyTorch's GPUs and their identity; ends the probe with the reason if there are none."""
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
    """Why PyTorch sees no GPU: the build, the environment, or the driver."""
    reasons = []
    if torch.version.cuda is None:
        reasons.append("%s is a CPU build" % torch.__version__)
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    if value is not None:
        hidden = hidden_by(value)
        if hidden:
            reasons.append(hidden)
    if not reasons:
        try:
            torch.cuda.init()
            reasons.append("the driver lists no device")
        except (RuntimeError, AssertionError) as error:
            reasons.append(str(error).strip().splitlines()[0])
    return "; and ".join(reasons)


def hidden_by(value):
    """Why a value of CUDA_VISIBLE_DEVICES hides every GPU; empty if it does not."""
    entries = [entry.strip() for entry in value.split(",")]
    if not value.strip():
        return "CUDA_VISIBLE_DEVICES is set to an empty value, which hides every GPU"
    if entries[0].startswith("-"):
        ignored = ", ".join(entries[1:])
        return "CUDA_VISIBLE_DEVICES=%s hides every GPU: CUDA stops reading at %s%s" % (
            value,
            entries[0],
            " and ignores %s" % ignored if ignored else "",
        )
    if len(set(entries)) < len(entries):
        return "CUDA_VISIBLE_DEVICES=%s lists a GPU twice, so PyTorch ignores all of them" % value
    return ""


def describe(torch, index):
    """Identity of a GPU, as far as this version of PyTorch reports it."""
    properties = torch.cuda.get_device_properties(index)
    description = {
        "name": properties.name,
        "capability": "%d.%d" % (properties.major, properties.minor),
        "total_bytes": properties.total_memory,
    }
    if hasattr(properties, "uuid"):
        description["uuid"] = "GPU-%s" % properties.uuid
    if hasattr(properties, "pci_bus_id"):
        domain, bus, slot = properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id
        description["pci_bus_id"] = "%04x:%02x:%02x.0" % (domain, bus, slot)
    return description


def matmul(torch, probe, device="cuda", requested=None):
    """Times a float32 ``n x n`` matrix product; returns the device where it ran."""
    n = int(probe.options["size"])
    a, b = (torch.rand(n, n).to(device) for _ in range(2))
    began = time.monotonic()
    product = torch.matmul(a, b)
    torch.cuda.synchronize(product.device)
    probe.emit("phase", name="first_step", seconds=time.monotonic() - began)
    ran_on = str(product.device)
    probe.emit("placement", op="matmul", dtype="float32", requested=requested or device, actual=ran_on, count=1)
    memory(torch, probe, product.device)

    measured = timing.measure(
        lambda: torch.matmul(a, b),
        lambda result: torch.cuda.synchronize(result.device),
        float(probe.options["seconds"]),
        probe.progress,
        flops=2.0 * n**3,
    )
    probe.emit("throughput", device=ran_on, **measured)
    memory(torch, probe, product.device)
    return ran_on


def memory(torch, probe, device):
    """Reports current and peak memory of PyTorch's allocator."""
    probe.emit(
        "memory",
        device=str(device),
        current=torch.cuda.memory_allocated(device),
        peak=torch.cuda.max_memory_allocated(device),
        reserved=torch.cuda.memory_reserved(device),
    )
