"""Which Python runs the probes: the one where the user's framework lives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpuwatch.errors import GpuwatchError, UsageError

# Runs in the user's interpreter: finds the framework without importing it, which takes seconds.
_CHECK = """
import importlib.metadata, importlib.util, json, pathlib, re, sys
name = sys.argv[1]
spec = importlib.util.find_spec(name)
if spec is None or not spec.origin:
    sys.exit(9)
root = pathlib.Path(spec.origin).parent
def text(*parts):
    try:
        return root.joinpath(*parts).read_text()
    except OSError:
        return ""
if name == "tensorflow":
    found = re.search(r"is_cuda_build.{0,4}(True|False)", text("python", "platform", "build_info.py"))
    gpu = None if found is None else found.group(1) == "True"
else:
    found = re.search(r"^cuda\\b.*?=\\s*(.+)$", text("version.py"), re.M)
    gpu = None if found is None else found.group(1).strip() != "None"
version = None
for distribution in (name, name + "-cpu", name + "_cpu"):
    try:
        version = importlib.metadata.version(distribution)
        break
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({"version": version, "gpu_build": gpu}))
"""
_PACKAGE = {"tensorflow": "TensorFlow", "torch": "PyTorch"}


class Interpreter(msgspec.Struct, frozen=True):
    """A Python that has the framework, and what its files tell of the build."""

    path: str
    framework: str
    version: str | None = None
    gpu_build: bool | None = None
    """Built for CUDA; None where its files do not say."""
    installed: bool = True
    """False for the stand-in of a framework that no interpreter has: its probes are skipped."""


class FrameworkMissing(GpuwatchError):
    """No interpreter with the framework was found."""


def choose_interpreter(framework: str, asked: str | None) -> Interpreter:
    """An interpreter that has ``framework``.

    ``asked`` is what the user named; without it this interpreter is tried first, then that of the
    active virtual or conda environment, then ``python3`` on PATH. Raises :class:`UsageError` for an
    interpreter that cannot run and :class:`FrameworkMissing` for one without the framework.
    """
    if asked is not None:
        found = shutil.which(asked)
        if found is None:
            what = "it is no program that can be run" if Path(asked).exists() else "there is no such program"
            raise UsageError(f"--python {asked}: {what}")
        looked = _look(found, framework)
        if isinstance(looked, str):
            raise _missing(framework, found, looked)
        return looked
    for candidate in _candidates():
        looked = _look(candidate, framework)
        if isinstance(looked, Interpreter):
            return looked
    raise _missing(framework, sys.executable, _NOT_INSTALLED)


_NOT_INSTALLED = "not installed"


def _missing(framework: str, python: str, problem: str) -> GpuwatchError:
    if problem != _NOT_INSTALLED:
        return UsageError(f"--python {python}: {problem}")
    return FrameworkMissing(
        f"{_PACKAGE[framework]} is not installed in {python}",
        hint=f"install it there (pip install {framework}), or name the interpreter that has it with --python",
    )


def _candidates() -> Iterator[str]:
    seen: set[str] = set()
    named = [sys.executable]
    roots = [os.environ.get(key) for key in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    named += [str(Path(root) / "bin" / "python") for root in roots if root]
    named += [path for name in ("python3", "python") if (path := shutil.which(name))]
    for candidate in named:
        if candidate not in seen and Path(candidate).is_file():
            seen.add(candidate)
            yield candidate


def _look(python: str, framework: str) -> Interpreter | str:
    """What ``python`` has of the framework, or why it is of no use."""
    try:
        # -P would be right but needs 3.11; an isolated start keeps the working directory out as well.
        done = subprocess.run(
            [python, "-I", "-c", _CHECK, framework], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return "it did not answer within 30 s"
    except OSError as error:
        return f"it cannot be started: {error.strerror}"
    if done.returncode == 9:
        return _NOT_INSTALLED
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return f"it is no usable Python: {last[0]}"
    try:
        facts = json.loads(done.stdout)
        return Interpreter(python, framework, facts["version"], facts["gpu_build"])
    except (ValueError, TypeError, KeyError):
        return f"it is no usable Python: it answers {done.stdout[:60]!r}"
