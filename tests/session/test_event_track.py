"""What happened, on a clock: which incidents events make, whose they are, and how the dashboard draws them."""

from __future__ import annotations

import math

import pytest

from gpuwatch.machine.history.machine_event import MachineEvent, Severity
from gpuwatch.session.event_timeline import IncidentTrack, clock_ticks, incidents_of_events, rounded_begin
from gpuwatch.session.view import PlayheadPosition
from gpuwatch.ui.widgets.timeline import problem_labels, track_spans
from tests.diagnosis.watching import gpu, sample, seconds, watched

HOT, LOST = "GPU 0 throttled (thermal)", "GPU 1 has fallen off the bus"


def event(
    at: float, kind: str, text: str, severity: Severity = "warning", uuid: str | None = None, number: int = 0
) -> MachineEvent:
    return MachineEvent(at=at, kind=kind, text=text, severity=severity, device_uuid=uuid, occurrence=number)


EVENTS = [
    event(0, "recording.began", "recording began", "info"),
    event(10, "throttle.began", HOT, "warning", "a", 1),
    event(20, "gpu.began", LOST, "error", "b", 2),
    event(25, "throttle.changed", "GPU 0 is throttled more", "error", "a", 1),
    event(30, "throttle.ended", "GPU 0 no longer throttled", "good", "a", 1),
    event(35, "memory.freed", "GPU 0 memory", "info", "a"),
    event(40, "silence.began", "The driver does not answer", "error"),
    event(55, "silence.ended", "The driver answers again", "good"),
    event(60, "power-cap.began", "GPU 0 at its power limit", "info", "a", 3),
]


def drawn(
    happened: IncidentTrack, width: int = 100, *, end: float = 99.0, cursor: float | None = None
) -> tuple[str, str]:
    past = PlayheadPosition(0.0, 0.0, end, 1.0, [(0.0, 70.0), (80.0, end)], happened)
    return "".join(text for text, _ in track_spans(past, happened, width, cursor)), "".join(
        text for text, _ in problem_labels(past, happened, width)
    )


def test_an_incident_lasts_from_its_onset_to_its_end() -> None:
    found = incidents_of_events(EVENTS)
    assert [(one.begin, one.end, one.severity, one.text) for one in found.incidents] == [
        (10, 30, "error", HOT),
        (20, math.inf, "error", LOST),
        (40, 55, "error", "The driver does not answer"),
    ]
    assert [one.begin for one in found.marks] == [10, 20, 25, 40], "notes, and ends, are no marks"
    assert [one.text for one in found.of_gpu("a").incidents] == [HOT, "The driver does not answer"]
    assert [one.begin for one in found.of_gpu("b").marks] == [20, 40]
    assert found.of_gpu(None) is found
    assert [found.incident_at(at) and found.incident_at(at).begin for at in (5, 15, 50)] == [None, 10, 40]  # type: ignore[union-attr]


def test_an_incident_is_as_long_as_it_was_seen() -> None:
    """Its end is told half a minute after it was last seen, its onset some seconds after it was first seen."""
    brake = {"clocks.event_reasons": "hw-power-brake"}
    watched_ = watched(seconds(120, lambda at: sample(at, [gpu(readings=brake if 20 <= at < 60 else {})])))
    (one,) = incidents_of_events(watched_.events).incidents
    (mark,) = incidents_of_events(watched_.events).marks
    assert (one.end - one.begin, mark.begin - one.begin) == (39, 5)


def test_another_recorder_counts_anew() -> None:
    """What lasted when a recorder ended is over where the next one began: it uses the same numbers again."""
    again = [*EVENTS, event(70, "recording.began", "", "info"), event(75, "throttle.ended", "", "good", "a", 2)]
    assert [one.end for one in incidents_of_events(again).incidents] == [30, 70, 55]


def test_marks_and_incidents_are_drawn_with_the_worst_on_top() -> None:
    line, names = drawn(incidents_of_events(EVENTS), cursor=62.0)
    assert len(line) == len(names) == 100
    assert (line[10], line[15], line[20], line[25]) == ("▲", "━", "✖", "✖")
    assert line[62] == "●"
    assert line[5] == "─", "nothing was wrong"
    assert line[85] == "━", "it still lasts"
    healed, _ = drawn(incidents_of_events(EVENTS[:2] + EVENTS[4:5]))
    assert (healed[31], healed[72:78]) == ("─", " " * 6), "a gap"
    assert names.index(HOT) == 10, "at its onset"
    assert "The driver does not answer" in names


def test_a_name_below_the_track_is_whole_where_there_is_room() -> None:
    long = "bob's notebook.py (4242) holds 5320 MiB on idle GPU 3, and its parent is gone"
    assert long in drawn(incidents_of_events([event(10, "idle-memory.began", long, "warning", "a", 1)]), 160)[1]
    later = event(50, "throttle.began", HOT, "warning", "a", 2)
    names = drawn(incidents_of_events([event(10, "idle-memory.began", long, "warning", "a", 1), later]), 120)[1]
    assert "holds 5320 MiB on idle GPU 3 " not in names
    assert HOT in names


@pytest.mark.parametrize("width", [12, 13, 40, 79, 200])
def test_any_width_is_filled(width: int) -> None:
    for happened in (
        IncidentTrack(),
        incidents_of_events(EVENTS),
        incidents_of_events([event(at, "x.began", HOT, number=at) for at in range(90)]),
    ):
        for end in (0.5, 99.0, 1e6):
            assert [len(one) for one in drawn(happened, width, end=end, cursor=end)] == [width, width]


def test_scales_stand_still() -> None:
    assert [rounded_begin(100.0, end) for end in (101.0, 399.0, 401.0)] == [-199.0, 99.0, -199.0]
    assert rounded_begin(0.0, 7200.0) == 0.0
    times = list(clock_ticks(0.0, 100.0, 10))
    assert [at for at, _ in times] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
