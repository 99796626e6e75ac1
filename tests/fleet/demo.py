"""Serves a made-up fleet as Prometheus would: ``python -m tests.fleet.demo [HOSTS]`` prints the address."""

from __future__ import annotations

import random
import sys
import time

from tests.fleet.exporters import dcgm, gpuwatch, nvidia_smi
from tests.fleet.prometheus_server import FakePrometheus, exposition, served

USERS = ("alice", "bob", "carol", "dave", "erin", "mallory")


def fleet(hosts: int, seed: int = 1) -> FakePrometheus:
    """Hosts of all three exporters; some are silent, some have findings."""
    chance = random.Random(seed)
    fake = FakePrometheus()
    for number in range(hosts):
        name = f"dgx{number + 1:03}"
        users = {gpu: chance.choice(USERS) for gpu in range(8) if chance.random() < 0.7}
        target = {"instance": f"{name}:9836", "job": "gpus"}
        if number % 29 == 17:
            fake.past += exposition(gpuwatch(name), **target)
            fake.down.append(target)
        elif number % 3 == 0:
            jobs = {gpu: str(4700 + number) for gpu in users}
            busy = {gpu: chance.randrange(20, 100) for gpu in users}
            held = {gpu: chance.randrange(2000, 80000) for gpu in users}
            fake.series += exposition(dcgm(name, used=held, busy=busy, jobs=jobs), **target)
        else:
            found = {3: ("throttle.thermal", "warning")} if number % 23 == 5 else {}
            lost = 5 if number % 41 == 7 else None
            if lost is not None:
                found = {5: ("hardware.fault", "error")}
            fake.series += exposition(gpuwatch(name, owners=users, findings=found, lost=lost), **target)
    for number in range(2):
        target = {"instance": f"desk{number + 1}:9835", "job": "desks"}
        fake.series += exposition(nvidia_smi(first=f"d{number}"), **target)
    return fake


if __name__ == "__main__":
    with served(fleet(int(sys.argv[1]) if len(sys.argv) > 1 else 125)) as running:
        print(running.url, flush=True)
        while True:
            time.sleep(60)  # the server has its own thread
