"""The program's entry point: starts the dashboard's collector before anything else."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import NoReturn

from gpuwatch.cli import early_collector, exit_signals

_LOCALE = b"LC_CTYPE="


def main() -> NoReturn:
    """Entry point of the program."""
    exit_signals.handle_exit_signals()
    _restore_locale(os.environ)
    try:
        early_collector.start_early(sys.argv[1:], extra_modules=("gpuwatch.cli.main",))
        from gpuwatch.cli.main import main as command_line

        command_line()
    except KeyboardInterrupt:  # before the command line's own handler was set up
        sys.exit(130)
    finally:
        early_collector.undo_early_start()


def _restore_locale(environment: MutableMapping[str, str]) -> None:
    """Sets ``LC_CTYPE``, which Python overrides at its start in the C locale (PEP 538), to the user's value again.

    Does nothing if Python did not coerce the locale, or if ``/proc/self/environ`` cannot be read.
    """
    if not sys.flags.utf8_mode or "LC_CTYPE" not in environment:
        return  # the C locale switches it on (PEP 540)
    with suppress(OSError):
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # no pathlib: it costs the start
            given = [entry for entry in file.read().split(b"\0") if entry.startswith(_LOCALE)]
        if given:
            environment["LC_CTYPE"] = os.fsdecode(given[0][len(_LOCALE) :])
        else:
            del environment["LC_CTYPE"]
