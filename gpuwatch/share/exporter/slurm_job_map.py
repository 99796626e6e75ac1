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


class SlurmJobMap:
    """A folder with these files. Its methods raise OSError if it cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written_texts: dict[int, str] = {}

    def check_writable(self) -> None:
        """OSError if nothing can be written there."""
        trial_file = self.folder / f".gpuwatch-{os.getpid()}"
        trial_file.write_bytes(b"")
        trial_file.unlink()

    def update(self, snapshot: Snapshot) -> None:
        """Writes the files that changed. GPUs that the driver does not list keep theirs."""
        jobs: dict[int, set[str]] = {device.index: set() for device in snapshot.devices if device.index >= 0}
        for process in snapshot.processes:
            job = owner_of(process).slurm_job
            if job is not None and process.device_index in jobs:
                jobs[process.device_index].add(job)
        for index, job_numbers in jobs.items():
            self._replace(index, "".join(f"{job}\n" for job in sorted(job_numbers, key=lambda job: (len(job), job))))

    def remove_files(self) -> None:
        """Removes the files: nobody keeps them up to date any more."""
        for index in self._written_texts:
            with suppress(OSError):
                (self.folder / str(index)).unlink()

    def _replace(self, index: int, text: str) -> None:
        if self._written_texts.get(index) == text:
            return
        path = self.folder / str(index)
        if text:
            temporary = self.folder / f".gpuwatch-{index}"
            temporary.write_text(text, encoding="ascii")
            temporary.chmod(0o644)
            temporary.replace(path)
        else:
            path.unlink(missing_ok=True)
        self._written_texts[index] = text
