"""``--sim FILE``: a simulated machine that answers like the machine described in a file."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.terminal_support import file_name

if TYPE_CHECKING:
    from gpuwatch.core.model.snapshot import Snapshot
    from gpuwatch.sim.simulated_machine import SimMachine

_FILE_NAME_END = re.compile(r"/|\.(?:xml|txt|log|json|gpuwatch|gz|xz|bz2|zst)$", re.IGNORECASE)
_HINT = "give the output of nvidia-smi -q or -q -x, a gpuwatch snapshot --json, or a recording"


def file_and_time(value: str) -> tuple[Path, str | None] | None:
    """The file of ``FILE`` or ``FILE@TIME``, with the time; None for the shape of a machine."""
    name, _, moment = value.partition("@")
    # Not of pathlib: those raise for a name that no file can have.
    if os.path.isfile(value):  # noqa: PTH113
        return Path(value), None
    if os.path.isfile(name) or _FILE_NAME_END.search(name):  # noqa: PTH113
        return Path(name), moment or None
    return None


def machine_from_file(path: Path, moment: str | None) -> SimMachine:
    """The machine of a file, made at its first use.

    Raises:
        UsageError: the file tells of no GPU, or of one that cannot be simulated.
    """
    from gpuwatch.machine.sources.nvidia.encode_nvml_answers import described
    from gpuwatch.sim.machine_shape import SimShape
    from gpuwatch.sim.simulated_machine import SimMachine

    try:
        snapshot = _snapshot_of(path, moment)
        gpus = described(snapshot)
        shape = SimShape(len(gpus), gpus[0].memory_bytes)
    except OSError as error:
        raise UsageError(f"cannot read {file_name(path)}: {error.strerror or error}") from error
    except UsageError as error:
        raise UsageError(f"cannot simulate {file_name(path)}: {error.message}", hint=error.hint or _HINT) from error
    digest = hashlib.sha256(repr(gpus).encode()).hexdigest()[:8]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.name.partition(".")[0])[:40]
    return SimMachine.open(shape, name=f"{stem or 'file'}-{digest}", described=gpus)


def _snapshot_of(path: Path, moment: str | None) -> Snapshot:
    from gpuwatch.cli.read_log import lines_of
    from gpuwatch.cli.recording_input import is_recording
    from gpuwatch.core.model.json_codec import NotADocument, read
    from gpuwatch.core.model.snapshot import Snapshot
    from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader
    from gpuwatch.machine.recording.reader import open_recording
    from gpuwatch.machine.recording.time_expressions import parse_moment

    if is_recording(path):
        with open_recording(path) as recording:
            assert recording.end is not None
            kept = recording.at(recording.end if moment is None else parse_moment(moment, recording.end))
        if kept is None:
            raise UsageError("nothing was recorded at that time")
        return kept.snapshot
    if moment is not None:
        raise UsageError("it is not a recording, so a time cannot be chosen", hint=f"--sim {path}")
    with path.open("rb", buffering=0) as file:
        if file.read(16).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{"):
            try:
                document = read(path)
            except NotADocument as error:
                raise UsageError(str(error)) from error
            if not isinstance(document, Snapshot):
                raise UsageError("it is a gpuwatch document, but not a snapshot")
            return document
        reader = SmiQueryReader()
        file.seek(0)
        for line in lines_of(file.fileno(), path):
            reader.take(line)
    snapshot = reader.snapshot()
    if snapshot is None:
        raise UsageError("it does not contain nvidia-smi -q output")
    return snapshot
