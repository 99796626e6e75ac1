"""Finds the Python interpreter that has the user's framework; probes run in it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.formatting.command_lines import HELPER_MARK
from gpuwatch.core.model.run import signal_name
from gpuwatch.core.safe_text import printable, shorten

# Runs in the user's interpreter: finds the framework without importing it, which takes seconds, where the user's own
# programs find it: PYTHONPATH and the user's site-packages count, the working folder, which -c puts first, does not.
# The check itself takes the standard library first, whatever files of its modules' names stand in those folders.
_INSPECTION_SCRIPT = (
    f"{HELPER_MARK}\n"
    """
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import os
library = os.path.dirname(os.__file__)
sys.path.sort(key=lambda path: not path.startswith(library) or "-packages" in path)
import importlib.metadata, importlib.util, json, pathlib, re
name = sys.argv[1]
spec = importlib.util.find_spec(name)
if spec is None or not spec.origin:
    sys.exit(9)
root = pathlib.Path(spec.origin).parent
cuda = None
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
    cuda = None if found is None else found.group(1).strip().strip("'")
    gpu = None if cuda is None else cuda != "None"
version = None
for distribution in (name, name + "-cpu", name + "_cpu"):
    try:
        version = importlib.metadata.version(distribution)
        break
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({"version": version, "gpu_build": gpu, "cuda_version": cuda if gpu else None}))
"""
)
_MAX_OUTPUT_CHARS = 160
"""Characters shown of the output of a program that is not a usable Python."""
_ANSWER_SECONDS = 30
"""Seconds an interpreter has to answer: a cold network drive takes ten."""
_PYTHON_NAME = re.compile(r"python[\d.]*")
_NOT_INSTALLED = "not installed"
_PRODUCT_NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}


class Interpreter(msgspec.Struct, frozen=True):
    """A Python that has the framework, and facts about the build read from its files."""

    path: str
    framework: str
    version: str | None = None
    gpu_build: bool | None = None
    """Built for CUDA; None if unknown."""
    installed: bool = True
    """False if no interpreter has the framework: its probes are skipped."""
    cuda_version: str | None = None
    """``12.6``, for PyTorch only; None if unknown."""


ChooseInterpreter = Callable[[str, str | None], Interpreter]
"""Gives the interpreter for a framework, and the path that the user named; as :func:`choose_interpreter`."""


class _BuildFacts(msgspec.Struct, frozen=True):
    """What ``_INSPECTION_SCRIPT`` prints."""

    version: str | None
    gpu_build: bool | None
    cuda_version: str | None = None


class FrameworkMissing(GpuwatchError):
    """No interpreter with the framework was found."""


def choose_interpreter(framework: str, python: str | None) -> Interpreter:
    """An interpreter that has ``framework``.

    ``python``: the one the user named. Without it: this interpreter, then that of the active virtual or conda
    environment, then ``python3`` on PATH. Raises :class:`UsageError` if it cannot run, and
    :class:`FrameworkMissing` if it does not have the framework.
    """
    if python is not None:
        python_path = resolve_python(python)
        inspected = _inspect(python_path, framework)
        if isinstance(inspected, str):
            raise _missing_error(framework, python_path, inspected)
        return inspected
    for candidate in _candidates():
        if (interpreter := find_framework(candidate, framework)) is not None:
            return interpreter
    raise _missing_error(framework, sys.executable, _NOT_INSTALLED)


def find_interpreters(
    frameworks: Iterable[str],
    python: str | None,
    choose: ChooseInterpreter = choose_interpreter,
) -> dict[str, Interpreter]:
    """An interpreter for each framework; if only PyTorch is missing, its probes are skipped."""
    distinct = dict.fromkeys(frameworks)
    interpreters: dict[str, Interpreter] = {}
    for framework in distinct:
        try:
            interpreters[framework] = choose(framework, python)
        except FrameworkMissing:
            if framework == "tensorflow" or len(distinct) == 1:
                raise
            interpreters[framework] = Interpreter(python or sys.executable, framework, installed=False)
    return interpreters


def resolve_python(python: str) -> str:
    """Path of the interpreter that the user named; :class:`UsageError` if it does not exist."""
    path = shutil.which(python)
    if path is None:
        raise UsageError(f"--python {python}: {_why_not_started(python)}")
    return path


def _why_not_started(python: str) -> str:
    try:
        status = Path(python).stat()
    except PermissionError:
        return "permission denied for one of its parent folders"
    except OSError:
        return "no such program"
    if stat.S_ISDIR(status.st_mode):
        its_python = shutil.which(str(Path(python) / "bin" / "python"))
        return f"it is a folder; its Python is {its_python}" if its_python else "it is a folder, not a program"
    return f"this user cannot execute it (its mode is {stat.filemode(status.st_mode)})"


def interpreter_of_command(command: Sequence[str]) -> str | None:
    """The interpreter that runs a command: its program, or the one in its script's ``#!`` line; None if neither is."""
    program = shutil.which(command[0]) if command else None
    if program is None:
        return None
    if _PYTHON_NAME.fullmatch(Path(program).name):
        return program
    try:
        with Path(program).open("rb") as script:
            first = script.readline(500).decode("utf-8", "replace")
    except OSError:
        return None
    words = first[2:].split() if first.startswith("#!") else []
    python = next((word for word in words[:2] if _PYTHON_NAME.fullmatch(Path(word).name)), None)  # /usr/bin/env python3
    return shutil.which(python) if python else None


def find_framework(python: str, framework: str) -> Interpreter | None:
    """The framework in an interpreter; None if it does not have it, or does not answer."""
    inspected = _inspect(python, framework)
    return inspected if isinstance(inspected, Interpreter) else None


def _missing_error(framework: str, python: str, problem: str) -> GpuwatchError:
    if problem != _NOT_INSTALLED:
        return UsageError(f"--python {python}: {problem}")
    return FrameworkMissing(
        f"{_PRODUCT_NAMES[framework]} is not installed in {python}",
        hint=f"install it there (pip install {framework}), or name the interpreter that has it with --python",
    )


def _candidates() -> Iterator[str]:
    prefixes = filter(None, map(os.environ.get, ("VIRTUAL_ENV", "CONDA_PREFIX")))
    paths = [sys.executable, *(str(Path(root) / "bin" / "python") for root in prefixes)]
    paths += [path for name in ("python3", "python") if (path := shutil.which(name))]
    return filter(os.path.isfile, dict.fromkeys(paths))


def _inspect(python: str, framework: str) -> Interpreter | str:
    """The framework in ``python``, or why it cannot be used."""
    try:
        # -I would drop PYTHONPATH and the user's site-packages; a shell refuses -W instead of running the check.
        code, out, err = _output_of([python, "-W", "ignore", "-c", _INSPECTION_SCRIPT, framework])
    except subprocess.TimeoutExpired:
        return f"it did not answer within {_ANSWER_SECONDS} s"
    except OSError as error:
        return f"it cannot be started: {error.strerror}"
    if code == 9:
        return _NOT_INSTALLED
    if code < 0:
        return f"it was killed by {signal_name(-code)}"
    if code != 0:
        error_line = _error_line(err)
        if "importlib" in error_line and "Traceback" not in err:
            return "it is not a Python interpreter"
        return f"it is not a usable Python: {shorten(printable(error_line), _MAX_OUTPUT_CHARS) or f'exit code {code}'}"
    # Wrappers and start-up files may print lines before the answer.
    for line in reversed(out.splitlines()):
        try:
            facts = msgspec.json.decode(line, type=_BuildFacts)
        except (ValueError, RecursionError):
            continue
        return Interpreter(python, framework, facts.version, facts.gpu_build, cuda_version=facts.cuda_version)
    output = f"it printed {out.strip()[:60]!r}" if out.strip() else "it printed nothing"
    return f"it is not a usable Python: {output}"


def _output_of(command: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr. On a timeout the process is killed with everything that it started."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=_ANSWER_SECONDS)
    except BaseException:  # an interruption, too
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _error_line(err: str) -> str:
    """The line of stderr that says what is wrong: the last line of a traceback, otherwise the first line."""
    lines = [line.strip() for line in err.splitlines() if line.strip()] or [""]
    return lines[-1] if any(line.startswith("Traceback") for line in lines) else lines[0]
