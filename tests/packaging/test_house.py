"""The house keeps its own rules: packages, imports, probes."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpuwatch.experiment.probing.probe_scripts import find_probes, probe_folder
from tests.every import every

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


_OF_PROGRAMS = (
    "logs.find_message_topics",
    "logs.log_ending",
    "diagnosis.rules.driver_failures",
    "diagnosis.rules.out_of_memory",
)
"""What no snapshot of a working machine needs."""


@every(
    [
        ("gpuwatch.cli.main", {"textual", "pynvml", "psutil", "tensorflow", "rich", "jinja2"}),
        ("gpuwatch.cli.probe", {"textual", "pynvml", "psutil", "tensorflow"}),
        ("gpuwatch.cli.mcp", {"mcp", "pydantic", "textual"}),
        ("gpuwatch.cli.snapshot", {"textual", "tensorflow"}),
        ("gpuwatch.explain.diagnosis.rule_engine", {f"gpuwatch.explain.{name}" for name in _OF_PROGRAMS}),
        ("gpuwatch.share.reports.formats.text", {"statistics", "gpuwatch.share.reports.run_report"}),
        ("gpuwatch.machine.collector.collector_process", {"textual", "click", "rich", "tensorflow", "jinja2"}),
        ("gpuwatch.ui.app", {"pynvml", "psutil", "tensorflow", "jinja2"}),
        (
            "gpuwatch.ui.startup.first_frame",
            {"textual", "pynvml", "psutil", "click", "asyncio", "subprocess", "tempfile"},
        ),
        ("gpuwatch.cli.early_collector", {"textual", "pynvml", "psutil", "click", "rich", "msgspec", "threading"}),
        ("gpuwatch.core.model.snapshot", {"textual", "pynvml", "psutil", "click"}),
    ]
)
def test_imports_stay_light(module: str, forbidden: set[str]) -> None:
    """import-linter cannot see deferred imports; sys.modules can."""
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & forbidden


PROBES = sorted(probe_folder().glob("*.py"))


@every(PROBES)
def test_probe_scripts_run_anywhere(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {
        node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    }
    shared = {entry.stem for entry in PROBES if entry.stem.startswith("_gpuwatch_")}
    assert imported <= set(sys.stdlib_module_names) | {"tensorflow", "torch"} | shared
    assert path.stem not in set(sys.stdlib_module_names) | {"tensorflow", "torch", "keras", "numpy"}


def test_probe_names_match_their_files() -> None:
    probes = find_probes()
    assert {name.replace("-", "_") for name in probes} == {
        path.stem for path in PROBES if not path.stem.startswith("_")
    }
    assert all(script.title and script.summary for script in probes.values())


GUIDE = (ROOT / ".github" / "CONTRIBUTING.md").read_text() + "\n".join(
    path.read_text() for path in sorted((ROOT / "gpuwatch").rglob("__init__.py"))
)
"""The guide, and what packages say on adding to them."""
SHORT = ("", "gpuwatch/")
"""The guide leaves out the first folder of a path."""


@every(sorted(set(re.findall(r"(?<!`)`([\w./*]+\.(?:py|c|css|json|txt))`", GUIDE))))
def test_the_guide_names_files_that_exist(name: str) -> None:
    assert any(list(ROOT.glob(folder + name)) for folder in SHORT)


@pytest.mark.parametrize(("name", "file"), sorted(set(re.findall(r"`(\w+)` (?:in|of) `([\w./]+\.py)`", GUIDE))))
def test_the_guide_names_what_is_in_its_files(name: str, file: str) -> None:
    assert re.search(rf"(?m)^(?:def |class )?{name}\b", (ROOT / "gpuwatch" / file).read_text())
