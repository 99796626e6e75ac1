"""Times nvitop's own snapshot of every device and process; prints JSON. Runs in nvitop's interpreter."""

import json
import statistics
import sys
import time

from nvitop import Device, GpuProcess


def snapshot(devices):
    taken = [device.as_snapshot() for device in devices]
    processes = [process for device in devices for process in device.processes().values()]
    return taken, GpuProcess.take_snapshots(processes, failsafe=True)


def main():
    devices = Device.all()
    snapshot(devices)
    times = []
    for _ in range(int(sys.argv[1])):
        time.sleep(0.1)  # as between samples
        began = time.perf_counter()
        taken, processes = snapshot(devices)
        times.append(time.perf_counter() - began)
    print(json.dumps({"sample": statistics.median(times), "devices": len(taken), "processes": len(processes)}))


if __name__ == "__main__":
    main()
