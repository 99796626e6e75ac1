"""An hour of processes that come and go, compressed: what a front end then holds and costs, in JSON lines.

    python -m tests.safety.soak dashboard --speed 12

The front end is the one that users start: the dashboard in a terminal with keys, the recorder, the exporter scraped,
the list of two hosts that run gpuwatch themselves, the server of assistants asked again and again. It and its
collectors read simulated GPUs on which real processes hold memory: each second 28 come that live for three, 100,000 in
an hour. For all of gpuwatch time runs faster (fast_clock.c). The hour before fills what is kept (an hour of samples,
the latest events); what is measured comes after it. A sample is what a collector writes; its CPU is in units of a
fixed piece of work, so that a busy machine counts less.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuwatch.core.model.json_codec import from_json, to_json
from gpuwatch.sim.machine_shape import SimShape
from gpuwatch.sim.simulated_machine import SimMachine
from tests.terminal import Terminal, cpu_seconds, family
from tests.ui import machines

NEW, LIVES = 28, 3
"""Processes that come in each second, and the seconds for which each stays."""
PARTS = 12
KEYS = ("2", "3", "5", "6", "1", "j", "\r", "2", "1", "G", "\r", "1")
LIST_KEYS = ("j", "k", "G", "g")
"""Nothing that starts a program or opens a host; no Esc, which together with the next key is another key."""
HERE = Path(__file__).parent
GPUWATCH = (sys.executable, "-m", "gpuwatch")
SSH = '#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nexec sh -c "$3"\n'
CALLS = (("snapshot", {}), ("snapshot", {"metrics": "all", "topology": True}), ("list_causes", {}))
INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    '"clientInfo":{"name":"soak","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


class Running:
    """A front end, and what its user does in each second of its time: ``use`` gets its number."""

    def __init__(self, pid: int, use: Callable[[int], None], end: Callable[[], object]) -> None:
        self.pid, self.use, self.end = pid, use, end
        self.stopping = False
        self.seconds = 0
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        done = 0
        try:
            while not self.stopping:
                while done == self.seconds and not self.stopping:
                    time.sleep(0.005)  # until the second is over
                done = self.seconds
                self.use(done)
        except BaseException as error:  # noqa: BLE001  # the main thread raises it
            self.failure = error

    def stop(self) -> None:
        self.stopping = True
        self._thread.join(30)
        self.end()


def in_a_terminal(environment: dict[str, str], keys: Sequence[str], *arguments: str) -> Running:
    terminal = Terminal([*GPUWATCH, *arguments], environment)

    def use(second: int) -> None:
        terminal.drain(0.002)
        del terminal.output[:-20_000]
        if os.waitpid(terminal.pid, os.WNOHANG)[0]:
            raise RuntimeError(f"it ended: {bytes(terminal.output[-2000:])!r}")
        if not second % 20:
            terminal.keys(keys[second // 20 % len(keys)])

    def end() -> None:
        terminal.keys("\x03")
        terminal.close()

    return Running(terminal.pid, use, end)


def dashboard(environment: dict[str, str], folder: Path) -> Running:
    return in_a_terminal(environment, KEYS)


def fleet(environment: dict[str, str], folder: Path) -> Running:
    program = folder / "bin/ssh"
    program.parent.mkdir()
    program.write_text(SSH)
    program.chmod(0o755)
    environment = {**environment, "PATH": f"{program.parent}:{environment['PATH']}"}
    return in_a_terminal(environment, LIST_KEYS, "--hosts", "n1,n2", "--remote-command", " ".join(GPUWATCH))


def recorder(environment: dict[str, str], folder: Path) -> Running:
    command = [*GPUWATCH, "record", str(folder / "soak.gpuwatch"), "--max-size", "64MiB"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return Running(process.pid, lambda second: None, lambda: (process.terminate(), process.wait(30)))


def exporter(environment: dict[str, str], folder: Path) -> Running:
    command = [*GPUWATCH, "exporter", "--listen", "127.0.0.1:0", "--processes", "--commands", "--every", "1s"]
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    port = next(found[1] for line in process.stderr if (found := re.search(rb":(\d+)/metrics", line)))
    threading.Thread(target=process.stderr.read, daemon=True).start()

    def use(second: int) -> None:
        if not second % 5:
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
            connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip" if second % 2 else "identity"})
            assert connection.getresponse().read()
            connection.close()

    return Running(process.pid, use, lambda: (process.terminate(), process.wait(30)))


def mcp(environment: dict[str, str], folder: Path) -> Running:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*GPUWATCH, "mcp"], env=environment, **pipes)  # type: ignore[call-overload]
    process.stdin.write(INITIALIZE)
    process.stdin.flush()
    process.stdout.readline()

    def use(second: int) -> None:
        name, arguments = CALLS[second % len(CALLS)]
        call = {"jsonrpc": "2.0", "id": second + 2, "method": "tools/call"}
        process.stdin.write(json.dumps(call | {"params": {"name": name, "arguments": arguments}}) + "\n")
        process.stdin.flush()
        assert not json.loads(process.stdout.readline())["result"]["isError"]

    return Running(process.pid, use, lambda: (process.stdin.close(), process.wait(30)))


FRONT_ENDS = {"dashboard": dashboard, "recorder": recorder, "exporter": exporter, "fleet": fleet, "mcp": mcp}


@contextmanager
def processes(machine: SimMachine, program: Path) -> Iterator[Callable[[], None]]:
    """Each call: new processes on the GPUs; those of three calls ago end."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    source = subprocess.Popen([program], **pipes)  # type: ignore[call-overload]
    lines: list[list[int]] = []

    def second() -> None:
        source.stdin.write(f"{NEW}\n")
        source.stdin.flush()
        if len(lines) == LIVES:
            for pid in lines.pop(0):
                machine.detach(pid)
        lines.append([int(word) for word in source.stdout.readline().split()])
        for number, pid in enumerate(lines[-1]):
            machine.attach(pid, device=number % 2, memory_bytes=64 << 20, sm_percent=number)

    try:
        yield second
    finally:
        source.stdin.close()
        source.wait(30)


def seen(root: int, counted: dict[int, int]) -> dict[str, float]:
    """What the processes hold now: MiB, and descriptors. ``counted`` gets the samples of each collector so far."""
    pids = family(root)
    parents = {pid: parent for pid in pids if (parent := parent_of(pid)) is not None}
    figures = {"memory": 0.0, "others_memory": 0.0, "descriptors": 0.0}
    for pid in parents:
        with suppress(OSError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            figures["memory" if pid == root else "others_memory"] += pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
            figures["descriptors"] += len(os.listdir(f"/proc/{pid}/fd"))
            if pid != root and pid not in parents.values():
                counted[pid] = int(re.findall(r"syscw: (\d+)", Path(f"/proc/{pid}/io").read_text())[0])
    return figures


def parent_of(pid: int) -> int | None:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("front_end", choices=FRONT_ENDS)
    parser.add_argument("--seconds", type=int, default=3600, help="of the front end's time, that are measured")
    parser.add_argument("--before", type=int, default=3600, help="seconds before those")
    parser.add_argument("--speed", type=int, default=12, help="how many times as fast its time runs")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-soak-"))
    machine = SimMachine.open(SimShape.parse("2x24GiB"), name=f"soak-{os.getpid()}")
    try:
        soak(options.front_end, options.before, options.seconds, options.speed, machine, folder)
    except BaseException:
        for crash in folder.glob("STATE/gpuwatch/crash-*"):
            print(crash.read_text(), file=sys.stderr)
        raise
    finally:
        machine.state_path.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def soak(front_end: str, before: int, seconds: int, speed: int, machine: SimMachine, folder: Path) -> None:
    clock, churn = folder / "fast_clock.so", folder / "churn"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", clock, HERE / "fast_clock.c", "-ldl"], check=True)
    subprocess.run(["cc", "-O2", "-o", churn, HERE / "churn.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(clock)}
    environment |= {f"XDG_{kind}_HOME": str(folder / kind) for kind in ("STATE", "CONFIG", "CACHE")}
    environment["SOAK_CLOCK"] = f"{speed} {time.monotonic_ns()} {time.time_ns()}"
    running = FRONT_ENDS[front_end](machine.environment(environment), folder)
    work = to_json(machines.many(2, 40), indent=0).encode()
    held: list[dict[str, float]] = []
    unit = 0.0
    counted: dict[int, int] = {}
    samples, cpu = 0, {"cpu": 0.0, "others_cpu": 0.0}
    due = time.monotonic()
    with processes(machine, churn) as come_and_go:
        for second in range(1 - before, seconds + 1):
            come_and_go()
            running.seconds += 1
            if running.failure is not None:
                raise running.failure
            if not second % 10:
                held.append(seen(running.pid, counted))
                began = time.process_time()
                from_json(work)
                unit += time.process_time() - began
            if second >= 0 and second % (seconds // PARTS) == 0:
                seen(running.pid, counted)
                now, everything = sum(counted.values()), cpu_seconds(running.pid)
                mine = own_cpu(running.pid)
                if second > 0:
                    figures = {name: round(statistics.median(one[name] for one in held), 1) for name in held[0]}
                    count = now - samples
                    ratio = len(held) / unit / count
                    costs = {"cpu": mine - cpu["cpu"], "others_cpu": everything - mine - cpu["others_cpu"]}
                    costs = {name: round(cost * ratio, 3) for name, cost in costs.items()}
                    print(json.dumps({"samples": count, **figures, **costs}), flush=True)
                samples, cpu = now, {"cpu": mine, "others_cpu": everything - mine}
                held, unit = [], 0.0
            due = max(due + 1 / speed, time.monotonic() - 1)
            time.sleep(max(due - time.monotonic(), 0))  # the pace of the samples
    running.stop()


def own_cpu(pid: int) -> float:
    """CPU seconds of a process alone."""
    return time.clock_gettime(~pid << 3 | 2)


if __name__ == "__main__":
    main()
