"""The probe scripts: where they are, their headers, read without importing them, and their examples as code."""

from __future__ import annotations

import ast
import json
import string
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

import gpuwatch
from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.suggest import did_you_mean

GROUPS = ("memory", "visibility", "placement", "devices", "sharing", "limits", "torch")
Workload = Literal["matmul", "mlp", "conv", "lstm", "copy"]
"""What ``--workload`` takes: the work that a probe can do instead of its own (``probes/_gpuwatch_workloads.py``)."""
WORKLOADS: tuple[Workload, ...] = get_args(Workload)
MEASUREMENT_SECONDS = 1.0
"""Default length of a measurement."""
DEADLINE_SECONDS = 180.0
"""Seconds after which a probe is killed; more if its measurements are long (:func:`sufficient_deadline`)."""
_START_SECONDS = 60.0
"""Those of them for its start."""
_USER_OPTIONS = frozenset({"seconds", "size"})
"""Options of every probe that only the user sets (:class:`.probe_runner.ProbeOptions`)."""
_SUMMARY_WIDTH = 98
"""Columns of the summary above the code to paste."""


class ProbeScript(msgspec.Struct, frozen=True, kw_only=True):
    """One script of ``probes/``, as its header describes it."""

    name: str
    title: str
    summary: str = ""
    """First paragraph after the docstring's first line."""
    group: str
    framework: str
    workload: str
    own_work: bool = False
    """The workload is what the probe is about and cannot be replaced."""
    verdict: str = "ok"
    """Expected verdict on a machine with the GPUs that it needs."""
    gpus: int = 0
    """Number of GPUs it needs; with fewer its verdict is ``skipped``. 0: it runs without a GPU."""
    tier: str = "any"
    """Simulated GPUs it can run on: ``driver``, ``plugin``, ``any``, or ``driver-first`` (both, driver preferred)."""
    fresh: bool = False
    """Must not be forked from a server: its settings are read when the framework is imported."""
    measurements: int = 1
    """Number of measurements, each of ``--seconds``."""
    options: dict[str, Any] = {}
    """Its own options with their defaults."""
    environment: dict[str, str] = {}
    """Variables that it sets before it imports the framework."""
    path: Path


def probe_folder() -> Path:
    """The folder of the scripts: inside the package in a wheel, beside it in a checkout."""
    package = Path(gpuwatch.__file__).resolve().parent
    for folder in (package / "probes", package.parent / "probes"):
        if (folder / "_gpuwatch_probe.py").is_file():
            return folder
    raise GpuwatchError(
        f"no probe scripts found for {package}", hint="the installation is incomplete: reinstall gpuwatch-tui"
    )


def find_probes() -> dict[str, ProbeScript]:
    """All scripts by configuration name, sorted by group and name, ``default`` first."""
    scripts = [read_header(path) for path in sorted(probe_folder().glob("*.py")) if not path.name.startswith("_")]
    scripts.sort(key=lambda script: (GROUPS.index(script.group), script.name != "default", script.name))
    return {script.name: script for script in scripts}


def names_and_titles() -> dict[str, str]:
    """Title by configuration name, from the file's name and the first line of its docstring: faster than the header."""
    titles: dict[str, str] = {}
    for path in sorted(probe_folder().glob("*.py")):
        if not path.name.startswith("_"):
            with path.open(encoding="utf-8") as script:
                titles[path.stem.replace("_", "-")] = next((line for line in script if '"""' in line), "").strip(' "\n')
    return titles


def find_probe(name: str) -> ProbeScript:
    """The script of one configuration; :class:`UsageError` if there is none, with the known ones."""
    probes = find_probes()
    if name not in probes:
        suggestion = did_you_mean(name, probes)
        hint = "to list them all: gpuwatch probe --list" if suggestion else "known: " + ", ".join(probes)
        raise UsageError(f"unknown configuration {name!r}{suggestion}", hint=hint)
    return probes[name]


def read_header(path: Path) -> ProbeScript:
    """Reads docstring, ``CONFIG`` and ``ENVIRONMENT`` of a script, which is parsed, not run."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        docstring = ast.get_docstring(tree) or ""
        literals = module_literals(tree, "CONFIG", "ENVIRONMENT")
        config: dict[str, Any] = literals["CONFIG"]
        if reserved := _USER_OPTIONS & config.get("options", {}).keys():
            raise ValueError(f"{', '.join(sorted(reserved))}: set by the user, not by a probe")
        _, _, body = docstring.partition("\n\n")
        return msgspec.convert(
            {
                **config,
                "summary": " ".join(body.partition("\n\n")[0].split()),
                "environment": literals.get("ENVIRONMENT", {}),
                "path": str(path),
            },
            ProbeScript,
            dec_hook=lambda kind, value: kind(value),
        )
    except (OSError, SyntaxError, ValueError, KeyError, msgspec.ValidationError) as error:
        raise GpuwatchError(f"probe script {path.name} has no readable header: {error}") from error


def module_literals(tree: ast.Module, *names: str) -> dict[str, Any]:
    """The literals that a module assigns to these names; it is not run."""
    return {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in names
    }


def sufficient_deadline(scripts: Iterable[ProbeScript], seconds: float) -> float:
    """The deadline in seconds that every one of these probes can keep. ``seconds``: of a measurement."""
    return max(DEADLINE_SECONDS, _START_SECONDS + 3 * seconds * max(script.measurements for script in scripts))


def example_code(script: ProbeScript, options: dict[str, Any] | None = None) -> str:
    """The ``EXAMPLE`` of ``script``, which is parsed, not run; ``options`` override its defaults.

    Fields of the example (``$memory_limit``) are replaced by the options' values, as Python literals.
    """
    options_used = {**_script_literal(script.path.with_name("_gpuwatch_probe.py"), "DEFAULT_OPTIONS"), **script.options}
    options_used.update(options or {})
    if "visible" in script.options and options_used["visible"] == script.options["visible"]:
        options_used["visible"] = script.environment["CUDA_VISIBLE_DEVICES"]
    literals = {name: _python_literal(value) for name, value in options_used.items()}
    summary = textwrap.wrap(
        script.summary, _SUMMARY_WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )
    example = string.Template(_script_literal(script.path, "EXAMPLE")).substitute(literals).rstrip()
    return "\n".join([f"# {script.title}", "#", *summary, "", example]) + "\n"


def _python_literal(value: object) -> str:
    """A Python literal, strings in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _script_literal(path: Path, name: str) -> Any:
    return module_literals(ast.parse(path.read_text(encoding="utf-8")), name)[name]
