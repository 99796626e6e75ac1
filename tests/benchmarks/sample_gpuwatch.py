"""Times one full sample against the bare calls it is made of; prints JSON. Runs on the sim's environment."""

from __future__ import annotations

import json
import statistics
import sys
import time

import pynvml

from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.machine.collector.collector import Collector


def bare(handles: list[object], last: dict[int, int]) -> int:
    """The NVML calls of one tick and one read of /proc/<pid>/stat per process, nothing kept."""
    calls = 0
    done = set()
    for index, handle in enumerate(handles):
        for spec in METRICS:
            if not spec.call or spec.lane is not Lane.FAST or (index, spec.call, spec.args) in done:
                continue
            done.add((index, spec.call, spec.args))
            arguments = tuple(getattr(pynvml, a) if isinstance(a, str) else a for a in spec.args)
            if spec.call == "nvmlDeviceGetFieldValues":
                arguments = ([arguments[0]],)
            calls += 1
            try:
                getattr(pynvml, spec.call)(handle, *arguments)
            except pynvml.NVMLError:
                continue
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, last.get(index, 0))
            last[index] = max((sample.timeStamp for sample in samples), default=last.get(index, 0))
        except pynvml.NVMLError:
            pass
        for process in running:
            with open(f"/proc/{process.pid}/stat", "rb", buffering=0) as file:
                file.read(4096)
    return calls


def main() -> None:
    rounds = int(sys.argv[1])
    collector = Collector()
    collector.sample()
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    ours, theirs, last = [], [], {}
    for _ in range(rounds):
        time.sleep(0.1)  # as between samples
        began = time.perf_counter()
        bare(handles, last)
        middle = time.perf_counter()
        snapshot = collector.sample()
        ours.append(time.perf_counter() - middle)
        theirs.append(middle - began)
    print(
        json.dumps(
            {
                "sample": statistics.median(ours),
                "bare": statistics.median(theirs),
                "devices": len(snapshot.devices),
                "processes": len(snapshot.processes),
            }
        )
    )


if __name__ == "__main__":
    main()
