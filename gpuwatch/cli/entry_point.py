"""The program's entry point: starts the dashboard's collector before anything else."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from gpuwatch.cli import early_collector, exit_signals
from gpuwatch.machine.sources.restore_locale import undo_coercion


def main() -> NoReturn:
    """Entry point of the program."""
    exit_signals.handle_exit_signals()
    undo_coercion(os.environ)
    try:
        early_collector.start_early(sys.argv[1:], more=("gpuwatch.cli.main",))
        from gpuwatch.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # before the command line's own handler was set up
        sys.exit(130)
    finally:
        early_collector.undo_start()
