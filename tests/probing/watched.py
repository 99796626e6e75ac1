"""Programs to watch: what ``gpuwatch run`` needs of PyTorch, without PyTorch; and where runs are written."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.forked import run_gpuwatch, start_gpuwatch

# The parts of torch and torch.cuda that are looked at, with the names and answers of the real ones.
TORCH = """
import os, sys, types

__version__ = "2.9.0+cu128"
version = types.SimpleNamespace(cuda="12.8")


class OutOfMemoryError(RuntimeError):
    pass


class _Properties:
    def __init__(self, number):
        self.name = "NVIDIA H200"
        self.uuid = "00000000-0000-0000-0000-%012d" % number
        self.pci_domain_id, self.pci_bus_id, self.pci_device_id = 0, 1 + number, 0


class _Cuda(types.ModuleType):
    held, ooms, started = 0, 0, False

    def is_initialized(self):
        return self.started

    def device_count(self):
        return 2

    def current_device(self):
        return 0

    def memory_allocated(self, number):
        return self.held if number == 0 else 0

    max_memory_allocated = memory_allocated

    def memory_stats(self, number):
        return {"num_ooms": self.ooms}

    def get_device_properties(self, number):
        return _Properties(number)


cuda = sys.modules["torch.cuda"] = _Cuda("torch.cuda")


def hold(size):
    cuda.started, cuda.held = True, size


def refuse():
    cuda.started, cuda.ooms = True, cuda.ooms + 1
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of "
                           "139.81 GiB of which 1.00 GiB is free.")
"""


def torch_folder(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH in which ``import torch`` works."""
    folder = tmp_path / "packages"
    folder.mkdir(exist_ok=True)
    (folder / "torch.py").write_text(TORCH)
    return folder


def started(*arguments: str, **keywords: Any) -> subprocess.Popen[bytes]:
    return start_gpuwatch("run", *arguments, **keywords)


def watched(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[bytes]:
    return run_gpuwatch("run", "-q", *arguments, **keywords)


def with_torch(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(torch_folder(tmp_path))}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found
