"""Times as people write them."""

from __future__ import annotations

import datetime
import time

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.durations import parse_duration
from gpuwatch.machine.recording.time_expressions import parse_moment
from tests.every import every

BERLIN = datetime.timezone(datetime.timedelta(hours=2))
NOW = datetime.datetime(2026, 5, 11, 14, 30, 0, tzinfo=BERLIN)


@every(
    [
        ("now", NOW),
        ("14:05", NOW.replace(minute=5)),
        ("14:05:30", NOW.replace(minute=5, second=30)),
        ("14:31", NOW.replace(day=10, minute=31)),
        ("9:00", NOW.replace(hour=9, minute=0)),
        ("yesterday 14:05", NOW.replace(day=10, minute=5)),
        ("today 14:45", NOW.replace(minute=45)),
        ("20 min ago", NOW.replace(minute=10)),
        ("1h 30min ago", NOW.replace(hour=13, minute=0)),
        ("1.5 hours ago", NOW.replace(hour=13, minute=0)),
        ("-2h", NOW.replace(hour=12)),
        ("-90s", NOW.replace(minute=28, second=30)),
        ("2 days ago", NOW.replace(day=9)),
        ("2026-05-11", NOW.replace(hour=0, minute=0)),
        ("2026-05-11T12:04", NOW.replace(hour=12, minute=4)),
        ("2026-05-11 12:04:31", NOW.replace(hour=12, minute=4, second=31)),
        ("2026-05-11T10:04:31Z", NOW.replace(hour=12, minute=4, second=31)),
        ("2026-05-11T12:04:31+02:00", NOW.replace(hour=12, minute=4, second=31)),
        ("  20  MIN  AGO ", NOW.replace(minute=10)),
        ("@1778500000", datetime.datetime.fromtimestamp(1778500000, BERLIN)),
    ]
)
def test_moments(text: str, wanted: datetime.datetime) -> None:
    assert parse_moment(text, NOW.timestamp(), BERLIN) == wanted.timestamp()


@pytest.mark.parametrize("text", ["", "soon", "25:00", "14:61", "20 parsecs ago", "-", "ago", "14:05:99", "2026-13-01"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_moment(text, NOW.timestamp(), BERLIN)


def test_a_time_of_day_is_local_across_a_change_of_the_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        now = datetime.datetime(2026, 3, 29, 9, 0, tzinfo=datetime.UTC).timestamp()  # after the change: 11:00
        wanted = datetime.datetime(2026, 3, 28, 10, 30, tzinfo=datetime.UTC).timestamp()
        assert parse_moment("11:30", now) == wanted, "winter time the day before"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "wanted"), [("90s", 90), ("1h30m", 5400), ("2 days, 3 h", 183_600), ("", None), ("5", None), ("x", None)]
)
def test_durations(text: str, wanted: float | None) -> None:
    assert parse_duration(text) == wanted
