"""The environment around gpuwatch: a Slurm job, a notebook service, WSL, Secure Boot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_JOB = (
    ("SLURM_JOB_ID", "job"),
    ("SLURM_JOB_PARTITION", "partition"),
    ("SLURM_JOB_GPUS", "GPUs of the node"),
    ("SLURM_STEP_GPUS", "GPUs of the step"),
    ("SLURM_GPUS_ON_NODE", "GPUs on this node"),
    ("SLURM_NTASKS", "tasks"),
)
"""Slurm's own variables (sbatch, "OUTPUT ENVIRONMENT VARIABLES")."""
_SECURE_BOOT = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
"""UEFI's variable in efivarfs: four bytes of attributes, then 1 or 0 (UEFI 3.3, Linux efivarfs.rst)."""
_LONGEST = 200


def surroundings(environment: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Name to description of what was found. ``root``: where to look for the system's files."""
    found: dict[str, str] = {}
    if environment.get("SLURM_JOB_ID"):
        found["Slurm"] = ", ".join(
            f"{what} {environment[name][:_LONGEST]}" for name, what in _JOB if environment.get(name)
        )
    if environment.get("COLAB_RELEASE_TAG") or environment.get("COLAB_GPU"):
        release = environment.get("COLAB_RELEASE_TAG", "")[:_LONGEST]
        found["Google Colab"] = f"release {release}" if release else "detected by its variables"
    if environment.get("KAGGLE_KERNEL_RUN_TYPE"):
        found["Kaggle"] = environment["KAGGLE_KERNEL_RUN_TYPE"][:_LONGEST]
    release = _text(root / "proc/sys/kernel/osrelease")
    if "microsoft" in release.lower():
        found["WSL"] = f"kernel {release.strip()[:_LONGEST]}"
    try:
        content = (root / "sys/firmware/efi/efivars" / _SECURE_BOOT).read_bytes()
    except OSError:
        content = b""
    if len(content) == 5:
        on = "on: the kernel loads only modules signed with an enrolled key (mokutil --list-enrolled)"
        found["Secure Boot"] = on if content[4] == 1 else "off"
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
