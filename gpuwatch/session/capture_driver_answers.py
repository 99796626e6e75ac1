"""A short recording of all that the driver answers, without private names, to send to somebody else.

It is a recording as any other: `gpuwatch replay` opens it, and ``--sim FILE`` answers as that machine.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.machine.collector.live_feed import LiveFeed
from gpuwatch.machine.recording.cut_recording import cut_out
from gpuwatch.machine.recording.reader import open_recording
from gpuwatch.machine.recording.writer import RecordingWriter
from gpuwatch.machine.sources.nvidia_smi_and_kernel_log import nvidia_smi_query
from gpuwatch.session.recorder import Recorder

SMI_FILE_NAME = "nvidia-smi -q -x"
_PRIVATE_FIELDS = re.compile(
    r"(<(?:\w*(?:serial|uuid|guid|pdi|part_number|board_id|host_id|slot|tray|clique)\w*|process_name|pid)>)(?!N/A<)[^<]*",
    re.IGNORECASE,
)
_ID_VALUES = re.compile(
    r"(<\w+>)(?:0x[0-9a-f]{12,16}|\d{10,}|(?:\w+-)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?=<)", re.IGNORECASE
)
"""Ids by their form, whatever later drivers call them: numbers of 48 bits or more, and UUIDs."""


def mask_ids(smi_xml: str) -> str:
    """The output of ``nvidia-smi -q -x`` with what identifies this card, its place or a program masked."""
    return _ID_VALUES.sub(r"\1masked", _PRIVATE_FIELDS.sub(r"\1masked", smi_xml))


def capture_samples(output: Path, seconds: float, *, gpm: bool, show: Callable[[float], None] = lambda _: None) -> int:
    """Samples for so many seconds and writes them to ``output``, a new file; returns the number of samples.

    ``show`` is called with the share that is done. Beside the samples it holds the output of ``nvidia-smi -q -x``, if
    that is installed and the GPUs are real.

    Raises:
        GpuwatchError: no sample came, or the file cannot be written.
    """
    with TemporaryDirectory(prefix="gpuwatch-capture-") as folder:
        raw_path = Path(folder, "raw.gpuwatch")
        writer = RecordingWriter(raw_path, interval=1.0)
        recorder = Recorder(LiveFeed(1.0, gpm=gpm), writer)
        stop_timer = threading.Timer(seconds, recorder.stop)
        stop_timer.daemon = True
        started_at = time.monotonic()
        stop_timer.start()
        try:
            recorder.run(lambda: show(min((time.monotonic() - started_at) / seconds, 1.0)))
        finally:
            stop_timer.cancel()
            writer.close("capture")
        snapshot = recorder.snapshot
        if snapshot is None or not snapshot.devices:
            reason = "no sample arrived"
            if snapshot is not None:
                reason = "; ".join(problem.detail for problem in snapshot.problems) or "no GPU is listed"
            raise GpuwatchError(f"there is nothing to capture: {reason}", hint="gpuwatch doctor")
        smi_lines = () if snapshot.simulated else nvidia_smi_query()
        attachments = {SMI_FILE_NAME: mask_ids("\n".join(smi_lines))} if smi_lines else {}
        with open_recording(raw_path) as recording:
            return cut_out(recording, *recording.extent(), output, redact=True, attached=attachments)
