"""Saves runs for ``gpuwatch report`` and the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpuwatch.cli.output import say
from gpuwatch.history.runs import RunStore
from gpuwatch.model.run import Run

_F = TypeVar("_F", bound=Callable[..., Any])


def no_save_option(command: _F) -> _F:
    """``--no-save``, as the parameter ``no_save``."""
    return click.option("--no-save", is_flag=True, help="Do not save the run for reports and the dashboard.")(command)


def keep(run: Run) -> bool:
    """Saves a run; if that fails, prints one line to stderr and continues."""
    store = RunStore()
    try:
        store.save(run)
    except OSError as error:
        say(f"gpuwatch: cannot save the run in {store.folder}: {error.strerror or error} (--no-save skips saving)")
        return False
    return True
