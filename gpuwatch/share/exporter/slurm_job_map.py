"""Files that tell dcgm-exporter which Slurm jobs use which GPU (its ``--hpc-job-mapping-dir``).

A file for each GPU in use, whose name is the GPU's index, with a job's number in each line. It is replaced as a whole,
and removed when no job is left. Usually a prolog script of Slurm writes them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.share.exporter.process_owners import owner_of


class JobMap:
    """A folder with these files; OSError if it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[int, str] = {}

    def check(self) -> None:
        """OSError if nothing can be written there."""
        trial = self.folder / f".gpuwatch-{os.getpid()}"
        trial.write_bytes(b"")
        trial.unlink()

    def write(self, snapshot: Snapshot) -> None:
        """Brings the files up to date. GPUs that the driver does not list keep theirs."""
        jobs: dict[int, set[str]] = {device.index: set() for device in snapshot.devices if device.index >= 0}
        for row in snapshot.processes:
            job = owner_of(row).slurm_job
            if job is not None and row.device_index in jobs:
                jobs[row.device_index].add(job)
        for index, found in jobs.items():
            self._replace(index, "".join(f"{job}\n" for job in sorted(found, key=lambda job: (len(job), job))))

    def remove(self) -> None:
        """Removes the files: nobody keeps them up to date any more."""
        for index in self._written:
            with suppress(OSError):
                (self.folder / str(index)).unlink()

    def _replace(self, index: int, text: str) -> None:
        if self._written.get(index) == text:
            return
        path = self.folder / str(index)
        if text:
            new = self.folder / f".gpuwatch-{index}"
            new.write_text(text, encoding="ascii")
            new.chmod(0o644)
            new.replace(path)
        else:
            path.unlink(missing_ok=True)
        self._written[index] = text
