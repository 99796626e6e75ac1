"""How fast logs are read: MB for each second of CPU, by kind of log. Tests nothing: ``python -m tests.logs.speed``."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from gpuwatch.explain.logs.log_parser import LogParser

LINES = 50_000


def _noise(i: int) -> str:
    return f"{random.random():.5f} {random.randrange(10**6)} {i}"


def _at(source: str, message: str) -> str:
    return f"2026-11-20 07:00:{random.random() * 60:09.6f}: I tensorflow/core/common_runtime/{source}] {message}"


KINDS: dict[str, Callable[[int], str]] = {
    "program's own lines": lambda i: f"INFO trainer: epoch {i} loss {_noise(i)} samples/s",
    "lines on devices and memory": lambda i: f"step {i}: device GPU:{i % 4} memory {_noise(i)} MB, op{i}",
    "C++ lines on devices": lambda i: _at(f"gpu/gpu_device.cc:{i}", f"value {_noise(i)} of device {i % 7}, memory {i}"),
    "progress bars": lambda i: f"\x1b[1m{i}/{LINES}\x1b[0m ━━━━━━━━━━ {i}s {i}ms/step - loss: {_noise(i)}",
    "chunks of a dump": lambda i: _at("bfc_allocator.cc:1083", f"InUse at 7f{i:08x} of size {i * 256} next {i}"),
    "placement, eager": lambda i: _at("eager/execute.cc:1525", f"Executing op f_{i} in device /job:x/device:GPU:0"),
    "placement, graphs": lambda i: f"layer_{i}/kernel_{i}: (MatMul): /job:localhost/task:0/device:GPU:{i % 4}",
    "refused by the driver": lambda i: _at(
        "gpu/cuda_driver.cc:733", f"failed to allocate {i}.1G ({i * 4096} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY"
    ),
    "PyTorch out of memory": lambda i: (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {i % 900 + 1}.00 MiB. GPU {i % 8} has a total"
        f" capacity of 79.15 GiB of which {i}.50 MiB is free. Process {i} has 12.{i % 90} GiB memory in use. Of the"
        f" allocated memory {i % 70}.12 GiB is allocated by PyTorch, and {i}.01 MiB is reserved by PyTorch but"
        " unallocated. If reserved but unallocated memory is large try setting max_split_size_mb."
    ),
    "PyTorch, ranks of a job": lambda i: (
        f"[rank{i % 64}]: RuntimeError: CUDA out of memory. Tried to allocate {i}.00 MiB (GPU {i % 8}; 39.59 GiB total"
        f" capacity; {i % 30}.12 GiB already allocated; {i}.19 MiB free; {i % 38}.5 GiB reserved in total by PyTorch)"
    ),
    "lines of a collector": lambda i: (
        f'{{"log":"step {i} loss {_noise(i)} device cuda:{i % 4}\\n","stream":"stderr","time":"2026-11-20T07:00:'
        f'{i % 60:02d}.{i:09d}Z"}}'
    ),
    "exceptions retried": lambda i: f"ERROR worker {i}: RuntimeError: request {_noise(i)} failed, retrying",
}


def main() -> None:
    for kind, make in KINDS.items():
        lines = [make(i) for i in range(LINES)]
        megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
        seconds = []
        for _ in range(3):
            parser = LogParser()
            began = time.process_time()
            for line in lines:
                parser.feed(line)
            parser.close()
            seconds.append(time.process_time() - began)
        print(f"{kind:<30} {megabytes / min(seconds):7.1f} MB/s")


if __name__ == "__main__":
    main()
