"""Replaces this process by a program, on simulated GPUs if asked: for ``sim`` and ``pick``."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

import click

from gpuwatch.cli.sim_options import SIM_NAME_KEY, simulated_environment

if TYPE_CHECKING:
    from gpuwatch.sim.machine_shape import SimShape


def program_path(name: str) -> str:
    """The path of a program; the error says why it cannot be started."""
    path = shutil.which(name)
    if path is None:
        from gpuwatch.experiment.probing.execve_errors import not_started

        raise not_started(name, errno.EACCES if shutil.which(name, mode=os.F_OK) else errno.ENOENT)
    return path


def replace_process(
    ctx: click.Context,
    path: str,
    command: Sequence[str],
    shape: SimShape | None,
    tier: str = "auto",
    variables: Mapping[str, str] | None = None,
) -> NoReturn:
    """Replaces this process by a command: on simulated GPUs if there is a ``shape``, with these variables besides."""
    environment = dict(os.environ)
    if shape is not None:
        from gpuwatch.sim.environment import ENV_PLUGIN

        environment = simulated_environment(shape, tier, name=ctx.meta.get(SIM_NAME_KEY), command=command, hold=True)
        if ENV_PLUGIN in environment:  # adapts every Python process: _gpuwatch_simulated_gpus.py
            from gpuwatch.experiment.probing.launch_program import with_watch_hook

            environment = with_watch_hook(environment)
    try:
        os.execve(path, list(command), environment | dict(variables or {}))
    except OSError as error:
        from gpuwatch.experiment.probing.execve_errors import not_started

        raise not_started(command[0], error.errno or errno.EACCES) from error
