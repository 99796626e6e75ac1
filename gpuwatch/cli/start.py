"""Where the program begins: the dashboard's collector goes ahead of everything else."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from gpuwatch.cli import early


def main() -> NoReturn:
    """Entry point of the program."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        early.begin(sys.argv[1:])
        from gpuwatch.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # before the command line could take care of it
        sys.exit(130)
    finally:
        early.abandon()


def _terminated(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the start as Ctrl+C does: the terminal restored, the collector ended."""
    raise SystemExit(128 + number)
