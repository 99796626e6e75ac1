"""Which alerts there are: one at the onset, one at the end, few where conditions flap or come in hundreds."""

from __future__ import annotations

import datetime
from collections import Counter

from msgspec.structs import replace

from gpuwatch.core.model.alert import Alert
from gpuwatch.core.model.findings import Finding
from gpuwatch.session.alerts import MAX_ALERTS, SETTLE_SECONDS, AlertRules
from tests.ui import machines
from tests.ui.machines import NOON

UUID = machines.uuid(0)
HOT = Finding(
    id="throttle.thermal",
    severity="warning",
    certainty="fact",
    title="GPU 0 is throttled",
    device_uuid=UUID,
    since=NOON,
)


class Machine:
    """Time goes by; what is told is kept."""

    def __init__(self) -> None:
        self.onsets, self.second, self.told = AlertRules(), 0, list[Alert]()

    def go(self, seconds: int, *findings: Finding) -> list[Alert]:
        told = list[Alert]()
        for _ in range(seconds):
            shot = replace(machines.pair(), taken_at=NOON + datetime.timedelta(seconds=self.second))
            told += self.onsets.observe(findings, shot)
            self.second += 1
        self.told += told
        return told


def test_one_onset_and_one_end() -> None:
    machine = Machine()
    assert machine.go(5) == []
    (onset,) = machine.go(30, HOT)
    assert (onset.phase, onset.device_index, onset.at, onset.finding) == ("onset", 0, NOON, HOT)
    (end,) = machine.go(100)
    assert (end.phase, end.returns) == ("end", 0)
    assert end.at == NOON + datetime.timedelta(seconds=34)
    assert end.lasted_seconds == 34
    assert end.finding.until == end.at
    assert len(machine.go(30, HOT)) == 1, "the next time it is told again"


def test_a_finding_that_is_over_has_ended() -> None:
    machine = Machine()
    machine.go(5, HOT)
    over = replace(HOT, until=NOON + datetime.timedelta(seconds=4))
    assert [one.phase for one in machine.go(int(SETTLE_SECONDS) + 5, over)] == ["end"]
    assert machine.go(300, over) == []


def test_what_is_unchanged_still_holds() -> None:
    machine, findings = Machine(), (HOT,)
    shot = machines.pair()
    for second in range(300):
        at = NOON + datetime.timedelta(seconds=second)
        machine.told += machine.onsets.observe(findings, replace(shot, taken_at=at))
    assert [one.phase for one in machine.told] == ["onset"]


def test_a_condition_that_flaps_is_told_once() -> None:
    machine = Machine()
    for _ in range(100):
        machine.go(3, HOT)
        machine.go(int(SETTLE_SECONDS) - 1)
    assert [one.phase for one in machine.told] == ["onset"]
    machine.go(int(SETTLE_SECONDS) + 1)
    assert [one.phase for one in machine.told] == ["onset", "end"]
    assert machine.told[-1].returns == 99


def test_a_storm_of_findings_is_cut_short_and_counted() -> None:
    machine = Machine()
    storm = tuple(replace(HOT, pid=pid) for pid in range(1000))
    assert len(machine.go(10, *storm)) == MAX_ALERTS
    machine.go(200, *storm)
    (late,) = machine.go(1, *storm, replace(HOT, pid=5000))
    assert late.held_back == 1000 - MAX_ALERTS
    ends = machine.go(200)
    assert Counter(one.phase for one in ends) == {"end": MAX_ALERTS + 1}, "only what was told has an end"


def test_notes_are_no_alerts() -> None:
    machine = Machine()
    assert machine.go(10, replace(HOT, severity="info"), replace(HOT, id="healthy", severity="info")) == []


def test_secrets_are_masked() -> None:
    (alert,) = Machine().go(1, replace(HOT, evidence=("python train.py --password hunter2secret",)))
    assert "hunter2secret" not in str(alert)


def test_a_clock_that_is_set_back_ends_nothing() -> None:
    machine = Machine()
    machine.go(10, HOT)
    machine.second -= 3600
    assert machine.go(100, HOT) == []
    assert [one.phase for one in machine.go(100)] == ["end"]
