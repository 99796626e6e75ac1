"""Where the program begins: the dashboard's collector goes ahead of everything else."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from gpuwatch.cli import early
from gpuwatch.sources.locale import undo_coercion


def main() -> NoReturn:
    """Entry point of the program."""
    early.end_by_signals()
    undo_coercion(os.environ)
    try:
        early.begin(sys.argv[1:])
        from gpuwatch.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # before the command line could take care of it
        sys.exit(130)
    finally:
        early.abandon()
