"""Opens a session that plays a recording."""

from __future__ import annotations

from gpuwatch.machine.collector.recording_player import RecordingPlayer
from gpuwatch.session.judge import RecordedJudge
from gpuwatch.session.session import Session


def replay(feed: RecordingPlayer, moment: float | None = None) -> Session:
    """A session that shows what the dashboard showed then, with the findings and events that were recorded.

    ``feed``: of a recording that has samples. ``moment``: where to begin; None: at its beginning. It plays once it is
    started, unless that moment is in a hang, which is over in the next sample.
    """
    recording = feed.recording
    session = Session(
        feed, clock=feed.now, timeline=recording, read_only=True, player=feed, judge=RecordedJudge(recording)
    )
    playhead = session.pause()
    playhead.go(recording.times[0] if moment is None else moment)
    if not playhead.in_hang:
        session.resume()
    return session
