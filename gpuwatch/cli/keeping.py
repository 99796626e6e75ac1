"""Runs of the command line, kept for ``gpuwatch report`` and the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gpuwatch.history.runs import RunStore
from gpuwatch.model.run import Run

_F = TypeVar("_F", bound=Callable[..., Any])


def no_save_option(command: _F) -> _F:
    """``--no-save``, as the parameter ``no_save``."""
    return click.option(
        "--no-save",
        is_flag=True,
        help="Do not keep the run among the latest ones, which the report and the dashboard show.",
    )(command)


def keep(run: Run) -> bool:
    """Keeps a run; where that is impossible one line on stderr says so, and the command goes on."""
    store = RunStore()
    try:
        store.save(run)
    except OSError as error:
        click.echo(
            f"gpuwatch: the run is not kept: {store.folder}: {error.strerror or error} (--no-save does without)",
            err=True,
        )
        return False
    return True
