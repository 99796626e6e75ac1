"""The recording of this machine, where a command is given none."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.terminal import file_name


def own_recording() -> Path:
    """The recording of a recorder that runs on this machine, else the newest one in this user's folder.

    UsageError, which says how to make one, if there is none.
    """
    from gpuwatch.cli.record import default_file
    from gpuwatch.machine.recording.running_recorders import running

    found = running()
    paths = [Path(recorder.entry.path) for recorder in found]
    for recorder in found:
        recorder.close()
    if paths:
        return paths[0]
    folder = default_file().parent
    kept: list[tuple[float, Path]] = []
    with suppress(OSError):
        for path in folder.glob("*.gpuwatch"):
            with suppress(OSError):
                kept.append((path.stat().st_mtime, path))
    if not kept:
        raise UsageError(
            f"no recorder runs, and there is no recording in {file_name(folder)}",
            hint="gpuwatch record makes one; or name a file",
        )
    return max(kept)[1]
