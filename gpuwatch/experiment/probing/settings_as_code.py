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


def settings_code(script: ProbeScript, options: dict[str, Any] | None = None) -> str:
    """The ``EXAMPLE`` of ``script``, which is parsed, not run; ``options`` override its defaults.

    Fields of the example (``$memory_limit``) are replaced by the options' values, as Python literals.
    """
    options_used = {**_script_literal(script.path.with_name("_gpuwatch_probe.py"), "DEFAULT_OPTIONS"), **script.options}
    options_used.update(options or {})
    if "visible" in script.options and options_used["visible"] == script.options["visible"]:
        options_used["visible"] = script.environment["CUDA_VISIBLE_DEVICES"]
    literals = {name: _python_literal(value) for name, value in options_used.items()}
    summary = textwrap.wrap(script.summary, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    example = string.Template(_script_literal(script.path, "EXAMPLE")).substitute(literals).rstrip()
    return "\n".join([f"# {script.title}", "#", *summary, "", example]) + "\n"


def _python_literal(value: object) -> str:
    """A Python literal, strings in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _script_literal(path: Path, name: str) -> Any:
    return module_literals(ast.parse(path.read_text(encoding="utf-8")), name)[name]
