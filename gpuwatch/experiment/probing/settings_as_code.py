"""A configuration's settings as a short program that a user can paste and run."""

from __future__ import annotations

import ast
import json
import string
import textwrap
from pathlib import Path
from typing import Any

from gpuwatch.experiment.probing.probe_scripts import ProbeScript, module_literals

_WIDTH = 98


def recipe(script: ProbeScript, options: dict[str, Any] | None = None) -> str:
    """The ``EXAMPLE`` of ``script``, which is parsed, not run; ``options`` override its defaults.

    Fields of the example (``$memory_limit``) are replaced by the options' values, as Python literals.
    """
    values = {**_literal(script.path.with_name("_gpuwatch_probe.py"), "DEFAULT_OPTIONS"), **script.options}
    values.update(options or {})
    if "visible" in script.options and values["visible"] == script.options["visible"]:
        values["visible"] = script.environment["CUDA_VISIBLE_DEVICES"]
    fields = {name: _python(value) for name, value in values.items()}
    summary = textwrap.wrap(script.summary, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    example = string.Template(_literal(script.path, "EXAMPLE")).substitute(fields).rstrip()
    return "\n".join([f"# {script.title}", "#", *summary, "", example]) + "\n"


def _python(value: object) -> str:
    """A Python literal, strings in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _literal(path: Path, name: str) -> Any:
    return module_literals(ast.parse(path.read_text(encoding="utf-8")), name)[name]
