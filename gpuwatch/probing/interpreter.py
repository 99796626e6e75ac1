"""Which Python runs the probes: the one where the user's framework lives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.errors import GpuwatchError, UsageError

_CHECK = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec(sys.argv[1]) else 9)"
_PACKAGE = {"tensorflow": "TensorFlow", "torch": "PyTorch"}


class FrameworkMissing(GpuwatchError):
    """No interpreter with the framework was found."""


def choose_interpreter(framework: str, asked: str | None) -> str:
    """Path of an interpreter that has ``framework``.

    ``asked`` is what the user named; without it this interpreter is tried first, then that of the
    active virtual or conda environment, then ``python3`` on PATH. Raises :class:`UsageError` for an
    interpreter that cannot run and :class:`FrameworkMissing` for one without the framework.
    """
    if asked is not None:
        found = shutil.which(asked)
        if found is None:
            raise UsageError(f"--python {asked}: there is no such program")
        problem = _lacks(found, framework)
        if problem:
            raise _missing(framework, found, problem)
        return found
    for candidate in _candidates():
        if not _lacks(candidate, framework):
            return candidate
    raise _missing(framework, sys.executable, "")


def _missing(framework: str, python: str, problem: str) -> GpuwatchError:
    if problem and problem != "not installed":
        return UsageError(f"--python {python}: {problem}")
    return FrameworkMissing(
        f"{_PACKAGE[framework]} is not installed in {python}",
        hint=f"install it there (pip install {framework}), or name the interpreter that has it with --python",
    )


def _candidates() -> Iterator[str]:
    seen: set[str] = set()
    named = [sys.executable]
    named += [
        str(Path(root) / "bin" / "python") for key in ("VIRTUAL_ENV", "CONDA_PREFIX") if (root := os.environ.get(key))
    ]
    named += [path for name in ("python3", "python") if (path := shutil.which(name))]
    for candidate in named:
        if candidate not in seen and Path(candidate).is_file():
            seen.add(candidate)
            yield candidate


def _lacks(python: str, framework: str) -> str:
    """Empty when ``python`` has the framework, else why not."""
    try:
        # -P would be right but needs 3.11; an isolated start keeps the working directory out as well.
        done = subprocess.run(
            [python, "-I", "-c", _CHECK, framework], capture_output=True, text=True, timeout=30, check=False
        )
    except subprocess.TimeoutExpired:
        return "it did not answer within 30 s"
    except OSError as error:
        return f"it cannot be started: {error.strerror}"
    if done.returncode == 0:
        return ""
    if done.returncode == 9:
        return "not installed"
    last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return f"it is no usable Python: {last[0]}"
