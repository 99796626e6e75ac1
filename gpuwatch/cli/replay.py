"""``gpuwatch replay [FILE]``: the dashboard on a recording."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.command_classes import SectionedCommand
from gpuwatch.cli.dashboard import need_terminal
from gpuwatch.cli.dashboard_options import loaded_preferences, replay_options
from gpuwatch.cli.input_files import latest_recording, read_recording
from gpuwatch.cli.option_types import FiniteRange
from gpuwatch.cli.output import print_line
from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.path_text import printable_path
from gpuwatch.core.formatting.terminal_support import has_few_colors, why_only_ascii

_EXAMPLES = """\b
Examples:
  gpuwatch replay                                     this machine's recording
  gpuwatch replay night.gpuwatch                      from the start
  gpuwatch replay night.gpuwatch -t 14:05
  gpuwatch replay night.gpuwatch -t '20 min ago' --speed 8
  gpuwatch replay night.gpuwatch --tab findings --filter user:alice
"""


@click.command(cls=SectionedCommand, epilog=_EXAMPLES)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--time",
    "at",
    metavar="TIME",
    help="Start at this time: 14:05, '20 min ago' (before the end of the recording), -2h, 2026-05-11T14:05 (default: "
    "the start of the recording).",
)
@click.option(
    "--speed",
    type=FiniteRange(0.25, 64.0),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Playback speed, as a multiple of real time.",
)
@replay_options
@click.pass_context
def replay(
    ctx: click.Context, /, file: Path | None, at: str | None, speed: float, config_file: Path | None, **given: Any
) -> None:
    """Open the dashboard on a recording.

    Without FILE, opens the recording in progress on this machine, or else the newest that gpuwatch record made without
    FILE.

    Every tab shows what was recorded. Space pauses and plays, [ and ] step, + and - change the speed, n and N go to the
    next and previous warning or error, T goes to a time. A recording in progress is followed live.
    """
    from gpuwatch.machine.recording.time_expressions import parse_moment, time_text

    settings = loaded_preferences(config_file, given)
    notice = ""
    if file is None:
        file = latest_recording()
        print_line(f"gpuwatch: replaying {printable_path(file)}")
        notice = f"replaying {printable_path(Path(file.name))}"
    with read_recording(file) as recording:
        assert recording.begin is not None
        assert recording.end is not None
        start = None
        if at is not None:
            start = parse_moment(at, recording.end)
            if not recording.begin - 1 <= start <= recording.end + 1:
                raise UsageError(
                    f"nothing was recorded at {time_text(start)}",
                    hint=f"{printable_path(file)} has {time_text(recording.begin)} to {time_text(recording.end)}",
                )
        need_terminal("gpuwatch record info FILE shows its contents", "gpuwatch record info FILE shows its contents")
        gc.disable()  # what is imported now stays
        from gpuwatch.machine.collector.recording_player import RecordingPlayer
        from gpuwatch.session.session import replay_session
        from gpuwatch.ui.app import GpuwatchApp, run

        gc.freeze()
        gc.enable()
        feed = RecordingPlayer(recording, speed=speed)
        try:
            app = GpuwatchApp(
                replay_session(feed, start),
                settings=settings,
                notice=notice,
                ascii_only=bool(why_only_ascii(os.environ, sys.stdout.encoding)),
                few_colors=has_few_colors(os.environ),
            )
            ctx.exit(run(app))
        finally:
            feed.stop()
            for line in settings.lines:
                print_line(f"gpuwatch: {line}")
