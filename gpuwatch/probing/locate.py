"""Finds the probe scripts and reads their headers without importing them."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import msgspec

import gpuwatch
from gpuwatch.errors import GpuwatchError, UsageError
from gpuwatch.formatting.suggest import did_you_mean

GROUPS = ("memory", "visibility", "placement", "devices", "sharing", "limits", "torch")


class ProbeScript(msgspec.Struct, frozen=True, kw_only=True):
    """One script of ``probes/``, as its header describes it."""

    name: str
    title: str
    summary: str
    """First paragraph after the docstring's first line."""
    group: str
    framework: str
    workload: str
    own_work: bool = False
    """It always does this work, which is its subject: no other can be chosen."""
    verdict: str
    """How it ends where it has the GPUs that it needs."""
    gpus: int = 0
    """How many GPUs its subject needs; with fewer it says ``skipped``. 0: it runs without any."""
    tier: str = "any"
    """Simulated GPUs that can show it: ``driver``, ``plugin``, ``any``, or ``driver-first``: both, but rather that."""
    fresh: bool = False
    """Must start from nothing: what it sets is read when the framework is loaded."""
    measurements: int = 1
    """How often it measures for ``--seconds``, one after another."""
    options: dict[str, Any] = {}
    """Its own options with their defaults."""
    environment: dict[str, str]
    """What it sets before the framework is imported."""
    path: Path


def probe_folder() -> Path:
    """Where the scripts are: beside the package in a wheel, at the top of a checkout otherwise."""
    package = Path(gpuwatch.__file__).resolve().parent
    for folder in (package / "probes", package.parent / "probes"):
        if (folder / "_gpuwatch_probe.py").is_file():
            return folder
    raise GpuwatchError(
        f"the probe scripts are missing beside {package}", hint="the installation is incomplete: reinstall gpuwatch-tui"
    )


def find_probes() -> dict[str, ProbeScript]:
    """All scripts by configuration name, in the order of groups, then names as the catalogue has them."""
    found = [read_header(path) for path in sorted(probe_folder().glob("*.py")) if not path.name.startswith("_")]
    found.sort(key=lambda script: (GROUPS.index(script.group), script.name != "default", script.name))
    return {script.name: script for script in found}


def names_and_titles() -> dict[str, str]:
    """What can be run, by configuration name, without the cost of reading whole headers.

    Scripts are named after their configurations, and the first line of each is its title.
    """
    found: dict[str, str] = {}
    for path in sorted(probe_folder().glob("*.py")):
        if not path.name.startswith("_"):
            with path.open(encoding="utf-8") as script:
                found[path.stem.replace("_", "-")] = next((line for line in script if '"""' in line), "").strip(' "\n')
    return found


def find_probe(name: str) -> ProbeScript:
    """The script of one configuration; :class:`UsageError` naming the known ones otherwise."""
    probes = find_probes()
    if name not in probes:
        meant = did_you_mean(name, probes)
        hint = "gpuwatch probe --list names them all" if meant else "known: " + ", ".join(probes)
        raise UsageError(f"unknown configuration {name!r}{meant}", hint=hint)
    return probes[name]


def read_header(path: Path) -> ProbeScript:
    """Docstring, ``CONFIG`` and ``ENVIRONMENT`` of a script, which is parsed and not run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        docstring = ast.get_docstring(tree) or ""
        literals = {
            target.id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id in ("CONFIG", "ENVIRONMENT")
        }
        config: dict[str, Any] = literals["CONFIG"]
        _, _, rest = docstring.partition("\n\n")
        return msgspec.convert(
            {
                **config,
                "summary": " ".join(rest.partition("\n\n")[0].split()),
                "environment": literals.get("ENVIRONMENT", {}),
                "path": str(path),
            },
            ProbeScript,
            dec_hook=lambda kind, value: kind(value),
        )
    except (OSError, SyntaxError, ValueError, KeyError, msgspec.ValidationError) as error:
        raise GpuwatchError(f"probe script {path.name} has no readable header: {error}") from error
