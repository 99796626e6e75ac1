"""The encoder in probes/ writes what the decoder in the model reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model.probes import BrokenEventLine, Event, decode_event
from gpuwatch.experiment.probing.probe_scripts import probe_folder

_SAY = """
import sys
sys.path.insert(0, sys.argv[1])
import _gpuwatch_probe
probe = _gpuwatch_probe.Probe({"name": "x"})
for kind in sys.argv[2].split(","):
    probe.emit(kind, text="ä\\n\\x1b", number=1.5, nothing=None, many=[1, 2], odd=object)
"""


def test_what_the_probe_writes_is_what_we_read() -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    subprocess.run(
        [sys.executable, "-c", _SAY, str(probe_folder()), "start,phase,end"],
        env={**os.environ, "GPUWATCH_EVENT_FD": str(write)},
        pass_fds=(write,),
        check=True,
    )
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        events = [decode_event(line) for line in stream]
    assert [event.kind for event in events if isinstance(event, Event)] == ["start", "phase", "end"]


@given(st.binary())
def test_any_line_is_an_event_or_says_why_not(line: bytes) -> None:
    assert isinstance(decode_event(line), Event | BrokenEventLine)


def test_half_a_line_is_broken() -> None:
    whole = json.dumps({"t": 1.0, "kind": "end", "data": {}}).encode()
    assert isinstance(decode_event(whole), Event)
    assert isinstance(decode_event(whole[:20]), BrokenEventLine)


def test_an_event_that_is_nested_without_end_is_a_broken_one() -> None:
    event = decode_event(b'{"t":0.0,"kind":"result","data":{"a":' + b"[" * 100_000)
    assert isinstance(event, BrokenEventLine)
