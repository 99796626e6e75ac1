"""Exporters that run as a user starts them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from gpuwatch.sim.simulated_machine import SimMachine
from tests.forked import start_gpuwatch
from tests.waiting import wait_for


class RunningExporter:
    """``gpuwatch exporter`` in a process of its own, at a port that is free."""

    def __init__(self, machine: SimMachine, *arguments: str, folder: Path, listen: str = "127.0.0.1:0") -> None:
        self._log = folder / f"exporter-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self.process = start_gpuwatch(
                *("exporter", "--listen", listen, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=machine.environment(os.environ),
            )

        def address() -> re.Match[str] | None:
            assert self.process.poll() is None, self.said
            return re.search(r"metrics at (https?://\S+)/metrics", self.said)

        found = wait_for(address, lambda: f"its address: {self.said}")
        assert found is not None
        self.url = found[1]

    @property
    def said(self) -> str:
        """What it wrote to stderr."""
        return self._log.read_text()

    @property
    def address(self) -> str:
        """``127.0.0.1:43210``."""
        return self.url.partition("//")[2]

    def scrape(self) -> dict[str, str]:
        """The samples of its page."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {key: number for line in lines if line[0] != "#" for key, _, number in [line.rpartition(" ")]}

    def wait(self, name: str, value: str | None = None, seconds: float = 20.0) -> dict[str, str]:
        """Scrapes until a sample begins with ``name``, and has this value."""
        samples: dict[str, str] = {}

        def has_it() -> bool:
            samples.clear()
            samples.update(self.scrape())
            return any(key.startswith(name) and value in (None, number) for key, number in samples.items())

        wait_for(has_it, lambda: f"{name} {value or ''}: {samples}; {self.said}", seconds, pause=0.1)
        return samples

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends it; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
