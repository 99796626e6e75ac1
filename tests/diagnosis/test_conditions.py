"""Rules over time on synthetic series: what they find, what they must not find, and that they do not flap."""

from __future__ import annotations

import datetime
import random
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Problem, Process, Snapshot
from gpuwatch.core.model.xids import Xid
from gpuwatch.explain.diagnosis.condition_engine import PAST_SECONDS, REJUDGE_SECONDS, ConditionEngine
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition, conditions
from gpuwatch.explain.diagnosis.conditions.pcie_link import PcieLink
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.diagnosis.rule_registry import RULES, Rule
from tests.diagnosis.watching import BEGIN, GIB, gpu, history, ids, of, program, sample, seconds, watched

HOT = {"clocks.event_reasons": "sw-thermal", "clocks.sm_mhz": 1200, "temperature.gpu_celsius": 88}
CAPPED = {"clocks.event_reasons": "sw-power-cap", "clocks.sm_mhz": 1750, "power.draw_watts": 348.0}
SLOW_LINK = {"pcie.generation": 1, "pcie.width": 16}


# -- hysteresis -----------------------------------------------------------------------------------


def occurrence(report_after: float = 10.0, end_after: float = 30.0) -> Occurrence:
    return Occurrence(Sign(cause="unknown"), 0.0, 0.0, report_after_seconds=report_after, end_after_seconds=end_after)


def test_a_condition_is_told_after_its_time_and_past_after_the_other() -> None:
    one = occurrence()
    for second in range(10):
        one.add(Sign(cause="unknown"), second, 1.0)
        assert not one.reported
    one.add(Sign(cause="unknown"), 10, 1.0)
    assert one.reported
    for second in range(11, 41):
        one.add(None, second, 1.0)
        assert not one.has_ended
    one.add(None, 41, 1.0)
    assert one.has_ended
    assert one.last_held == 10


@settings(max_examples=150, deadline=None)
@given(
    noise=st.lists(st.booleans(), min_size=50, max_size=400),
    report_after_seconds=st.sampled_from([5.0, 10.0, 30.0]),
    end_after_seconds=st.sampled_from([5.0, 20.0, 60.0]),
)
def test_noise_never_flaps(noise: list[bool], report_after_seconds: float, end_after_seconds: float) -> None:
    """Between two onsets lie at least the times of both, and each onset rests on its time of holding."""
    one, onsets, ends, held = occurrence(report_after_seconds, end_after_seconds), [], [], 0.0
    for second, holds in enumerate(noise):
        before = one.reported
        one.add(Sign(cause="unknown") if holds else None, second, 1.0)
        held += holds
        if one.reported and not before:
            assert held >= report_after_seconds
            onsets.append(second)
        if before and one.has_ended:
            ends.append(second)
            one, held = occurrence(report_after_seconds, end_after_seconds), 0.0
    assert all(end - onset >= end_after_seconds for onset, end in zip(onsets, ends, strict=False))
    assert all(later - earlier >= report_after_seconds + end_after_seconds for earlier, later in pairwise(onsets))


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.1, 0.5, 0.9]))
def test_a_noisy_machine_does_not_flap(seed: int, share: float) -> None:
    """Utilization around the threshold, reasons that come and go: few changes, whatever the noise."""
    rng = random.Random(seed)

    def make(second: int) -> Snapshot:
        hot = rng.random() < share
        device = gpu(busy=50 + rng.gauss(0, 10), readings=(HOT if hot else {}) | (SLOW_LINK if hot else {}))
        return sample(second, [device], [program(sm=50.0)])

    snapshots = list(seconds(600, make))
    for cause in ("throttle.thermal", "pcie.degraded"):
        told = history(snapshots, cause)
        changes = sum(before != after for before, after in pairwise(told))
        assert changes <= 600 / 20, cause


def test_a_gap_is_no_evidence() -> None:
    """The driver hangs for minutes between two samples that both show the brake: two samples are two samples."""
    braked = {"clocks.event_reasons": "hw-power-brake"}
    two = [sample(0, [gpu(readings=braked)]), sample(300, [gpu(readings=braked)])]
    assert "throttle.power" not in ids(watched(two))
    watch = watched([*seconds(9, lambda s: sample(s, [gpu(readings=HOT)]))])
    watched(seconds(9, lambda s: sample(s, [gpu(readings=HOT)]), start=200), watch)
    assert watch.unobserved_seconds == pytest.approx(192)
    (found,) = of(
        watched([sample(209, [gpu(readings=HOT)]), sample(215, [gpu(readings=HOT)])], watch).findings,
        "throttle.thermal",
    )
    assert "not observed for 3 min of it" in " ".join(found.evidence)


def test_an_xid_ages_only_while_samples_come() -> None:
    """A pause or a hang of hours is no hour without another Xid."""

    def severity(watch: ConditionEngine) -> str:
        (found,) = of(watch.findings, "hardware.fault")
        return found.severity

    def faulty(second: float) -> Snapshot:
        start = sample(0, []).taken_at.timestamp()
        return sample(second, [msgspec.structs.replace(gpu(), xids=(Xid(start + 2, 79),))])

    watch = watched([sample(0, [gpu()]), faulty(3), faulty(4)])
    assert severity(watch) == "error"
    watched(seconds(1800, faulty, start=4 * 3600, step=10), watch)
    assert severity(watch) == "error"
    watched(seconds(1700, faulty, start=9 * 3600, step=10), watch)
    assert severity(watch) == "error"
    watched(seconds(300, faulty, start=9 * 3600 + 1700, step=10), watch)
    assert severity(watch) == "warning"
    # It happened while nothing was sampled: nobody has seen an hour without another.
    late = watched([sample(0, [gpu()]), faulty(3 * 3600), faulty(3 * 3600 + 1)])
    assert severity(late) == "error"


def test_samples_that_come_seldom_are_no_gaps() -> None:
    """An interval of a minute: the steps themselves are the evidence; the first of them is not known yet."""
    watch = watched(seconds(600, lambda s: sample(s, [gpu(readings=HOT)]), step=60))
    assert "throttle.thermal" in ids(watch)
    assert watch.unobserved_seconds == 60


def test_a_clock_that_is_set_back_begins_anew() -> None:
    watch = watched(seconds(60, lambda s: sample(s + 3600, [gpu(readings=HOT)])))
    watched(seconds(30, lambda s: sample(s, [gpu(readings=HOT)])), watch)
    (found,) = of(watch.findings, "throttle.thermal")
    assert found.since == sample(0, []).taken_at


def test_what_lasts_is_not_judged_without_a_driver_and_goes_on_after_it() -> None:
    watch = watched(seconds(30, lambda s: sample(s, [gpu(readings=HOT)])))
    dead = (Problem(source="nvml", reason="driver.missing", detail="libnvidia-ml.so.1 cannot be loaded"),)
    watched(seconds(60, lambda s: sample(s, [], problems=dead), start=30), watch)
    assert set(ids(watch)) == {"driver.missing"}, "what was seen before is not told as if it were seen now"
    watched([sample(90, [gpu(readings=HOT)])], watch)
    assert set(ids(watch)) == {"throttle.thermal"}, "and a driver that answers is not told to be missing"
    assert [one.id for one in watch.past] == ["driver.missing"]
    (hot,) = of(watch.findings, "throttle.thermal")
    assert hot.since == sample(0, []).taken_at


def test_a_lost_device_that_is_back_is_past_at_once_and_one_that_flickers_is_one_finding() -> None:
    def lost(second: float) -> Snapshot:
        return sample(second, [gpu(state="lost" if second in (30, 31, 33, 34) else "ok")])

    watch = watched(seconds(30, lost))
    assert ids(watch) == ["healthy"]
    watched([lost(30), lost(31)], watch)
    assert ids(watch) == ["hardware.fault"]
    watched([lost(32)], watch)
    assert ids(watch) == ["healthy"]
    watched([lost(33), lost(34), lost(35)], watch)
    (past,) = watch.past
    assert (past.since, past.until) == (lost(30).taken_at, lost(34).taken_at)
    (sound,) = watch.findings
    assert sound.since == lost(35).taken_at


def test_a_gap_begins_the_time_anew_in_which_all_was_well() -> None:
    watch = watched(seconds(60, lambda s: sample(s, [gpu()])))
    watched(seconds(20, lambda s: sample(s, [gpu()]), start=100), watch)
    (sound,) = watch.findings
    assert sound.since == sample(100, []).taken_at


def test_the_same_snapshot_twice_changes_nothing() -> None:
    watch = ConditionEngine()
    shot = sample(0, [gpu()])
    watch.observe(shot)
    first = watch.findings
    assert watch.observe(shot) == []
    assert watch.findings is first
    assert watch.samples == 1


def test_a_finding_says_since_when_and_stays_listed_when_it_is_past() -> None:
    watch = watched(seconds(60, lambda s: sample(s, [gpu(readings=HOT if s >= 20 else {})])))
    (found,) = of(watch.findings, "throttle.thermal")
    assert found.since == sample(20, []).taken_at
    assert found.until is None
    watched(seconds(60, lambda s: sample(s, [gpu()]), start=60), watch)
    assert not of(watch.findings, "throttle.thermal")
    (past,) = watch.past
    assert (past.since, past.until) == (sample(20, []).taken_at, sample(59, []).taken_at)
    watched([sample(60 + PAST_SECONDS + 100, [gpu()])], watch)
    assert not watch.past


def test_words_change_seldom() -> None:
    """The dashboard draws again whatever findings change."""
    watch, changes, before = ConditionEngine(), 0, None
    for shot in seconds(600, lambda s: sample(s, [gpu(busy=97.0 + s % 3, readings=HOT)])):
        watch.observe(shot)
        now = watch.findings
        changes += now is not before
        before = now
    assert changes <= 600 / REJUDGE_SECONDS


def test_spans_are_coarse() -> None:
    assert [steady_duration(s) for s in (3, 17, 99, 119, 3600, 9000)] == [
        "3 s",
        "10 s",
        "90 s",
        "110 s",
        "60 min",
        "2.5 h",
    ]


# -- a rule that fails, and rules that are declared wrongly ---------------------------------------


def test_a_rule_that_raises_is_told_once_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Condition):
        name = "breaks"
        causes = ("unknown",)
        looks_for = "nothing"
        report_after_seconds = end_after_seconds = 0.0

        def signs(self, look: object) -> Iterator[Sign]:
            raise ZeroDivisionError("by zero")

        def finding(self, occurrence: Occurrence, look: object) -> None:
            """It never has a sign."""

    breaks = Rule("breaks", ("unknown",), Breaks(), "samples")
    monkeypatch.setitem(RULES, "samples", [breaks, *RULES["samples"]])
    watch = watched(seconds(60, lambda s: sample(s, [gpu(readings=HOT)])))
    (broken,) = of(watch.findings, "unknown")
    assert "Breaks" in broken.title
    assert of(watch.findings, "throttle.thermal")


def test_a_rule_may_only_name_known_causes() -> None:
    with pytest.raises(ValueError, match=r"no\.such"):

        @condition
        class Wrong(PcieLink):
            causes = ("no.such",)


def test_every_condition_has_a_name_of_its_own_and_its_times() -> None:
    assert len({rule.name for rule in conditions()}) == len(conditions())
    for rule in conditions():
        assert rule.name
        assert rule.report_after_seconds >= 0
        assert rule.end_after_seconds >= 0


# -- clocks ---------------------------------------------------------------------------------------


def test_heat_is_told_with_its_time_share_and_loss() -> None:
    def make(second: int) -> Snapshot:
        hot = second >= 60 and second % 5 != 0
        return sample(second, [gpu(busy=95.0, readings=HOT if hot else {})], [program(sm=95.0)])

    (found,) = of(watched(seconds(240, make)).findings, "throttle.thermal")
    assert (found.severity, found.certainty, found.device_uuid) == ("warning", "fact", "GPU-0")
    text = " ".join(found.evidence)
    assert "for 2 min" in text
    assert "in 80 % of the samples" in text
    assert re.search("1200 MHz .* 1900 MHz .* 700 MHz", text)
    assert "88 °C" in text


def test_what_is_told_of_heat_and_power_is_of_one_moment() -> None:
    """A margin of now says nothing of a mean since the onset."""

    def make(second: int) -> Snapshot:
        core = (86, 91, 71)[min(second // 20, 2)]
        of = {"temperature.gpu_celsius": core, "temperature.margin_celsius": 88 - core, "power.draw_watts": 3.0 * core}
        return sample(second, [gpu(busy=95.0, readings=HOT | of | {"clocks.event_reasons": "sw-thermal"})])

    (found,) = of(watched(seconds(90, make)).findings, "throttle.thermal")
    begun = next(line for line in found.evidence if line.startswith("at least since "))[15:23]
    (latest,) = [line for line in found.evidence if line.startswith("latest reading, at ")]
    assert "71 °C, 17 °C below" in latest
    assert any(begun in line and "86 °C, 2 °C below" in line for line in found.evidence)
    assert any(line.endswith("up to 91 °C") for line in found.evidence)
    assert found.title == "GPU 0 throttled (thermal)", "it was hot"
    (found,) = of(watched([make(30)]).findings, "throttle.thermal")
    assert any("91 °C, 3 °C above" in line for line in found.evidence)

    capped = lambda s: sample(s, [gpu(busy=97.0, readings=CAPPED | {"power.draw_watts": 340.0 + s // 40})])  # noqa: E731
    (found,) = of(watched(seconds(90, capped)).findings, "throttle.power")
    told = [line.split(", ")[0] for line in found.evidence if line.endswith(" W of its limit of 350 W")]
    assert told == ["latest reading", "first reading"]


def test_heat_that_costs_nothing_is_a_warning_too() -> None:
    warm = {"clocks.event_reasons": "sw-thermal", "clocks.sm_mhz": 1880}
    make = lambda s: sample(s, [gpu(busy=95.0, readings=warm if s > 30 else {})])  # noqa: E731
    (found,) = of(watched(seconds(100, make)).findings, "throttle.thermal")
    (at_once,) = of(watched([make(40)]).findings, "throttle.thermal")
    assert found.severity == at_once.severity == "warning"


@pytest.mark.parametrize(
    ("readings", "busy", "severity", "words"),
    [
        (CAPPED, 97.0, "info", "which is normal for a busy GPU"),
        ({**CAPPED, "clocks.sm_mhz": 900}, 97.0, "warning", "far below"),
        ({**CAPPED, "power.limit_watts": 250.0}, 97.0, "info", "which was lowered"),
        ({"clocks.event_reasons": "hw-slowdown+hw-power-brake"}, 97.0, "warning", "power brake"),
        ({"clocks.event_reasons": "hw-slowdown"}, 0.0, "warning", "(hardware slowdown)"),
        (CAPPED, 3.0, None, ""),
        ({"clocks.event_reasons": "idle"}, 0.0, None, ""),
    ],
)
def test_power_is_judged_by_what_is_lost(
    readings: dict[str, object], busy: float, severity: str | None, words: str
) -> None:
    watch = watched(seconds(90, lambda s: sample(s, [gpu(busy=busy, readings=readings)])))
    found = of(watch.findings, "throttle.power")
    assert [entry.severity for entry in found] == ([severity] if severity else [])
    assert not found or words in found[0].title


def test_heat_with_a_hardware_slowdown_is_not_told_as_power_too() -> None:
    both = {"clocks.event_reasons": "hw-slowdown+hw-thermal"}
    assert ids(watched(seconds(90, lambda s: sample(s, [gpu(busy=90.0, readings=both)])))) == ["throttle.thermal"]


# -- link -----------------------------------------------------------------------------------------


def test_a_link_is_judged_under_load_only() -> None:
    assert "pcie.degraded" not in ids(watched(seconds(300, lambda s: sample(s, [gpu(readings=SLOW_LINK)]))))
    busy = watched(seconds(60, lambda s: sample(s, [gpu(busy=90.0, readings=SLOW_LINK)])))
    (found,) = of(busy.findings, "pcie.degraded")
    assert found.severity == "warning"
    assert re.search(" 1 x16, .* 4 x16", found.evidence[0])
    assert "about 4.0 of 31.5 GB/s" in found.evidence[1]
    # At rest the samples cannot tell: it is neither gone nor forgotten at once, but after a quarter of an hour.
    watched(seconds(600, lambda s: sample(s, [gpu(readings=SLOW_LINK)]), start=60), busy)
    assert "pcie.degraded" in ids(busy)
    watched(seconds(400, lambda s: sample(s, [gpu(readings=SLOW_LINK)]), start=660), busy)
    assert "pcie.degraded" not in ids(busy)


def test_rests_in_between_are_told_apart_from_gaps() -> None:
    """Ten busy minutes of an hour: the link could be judged in those."""
    make = lambda s: sample(s, [gpu(busy=90.0 if s % 600 < 100 else 0.0, readings=SLOW_LINK)])  # noqa: E731
    (found,) = of(watched(seconds(3660, make, step=2)).findings, "pcie.degraded")
    text = " ".join(found.evidence)
    assert "for 60 min, " in text
    assert "of which could be judged" in text
    assert "nobody observed" not in text


def test_a_link_that_wakes_up_is_fine() -> None:
    """The first seconds of load: utilization is up, the link's generation is still that of its rest."""
    make = lambda s: sample(s, [gpu(busy=90.0 if s > 10 else 0.0, readings=SLOW_LINK if s < 20 else {})])  # noqa: E731
    assert not any(history(seconds(120, make), "pcie.degraded"))


def test_few_lanes_of_many_are_a_note_where_more_than_half_is_left() -> None:
    twelve = {"pcie.width": 12}
    (found,) = of(watched(seconds(60, lambda s: sample(s, [gpu(busy=90, readings=twelve)]))).findings, "pcie.degraded")
    assert found.severity == "info"


def test_a_slot_that_can_do_no_more_is_no_fault() -> None:
    """NVML's maximum is that of device and slot together."""
    old = {"pcie.generation": 3, "pcie.max_generation": 3}
    assert "pcie.degraded" not in ids(watched(seconds(60, lambda s: sample(s, [gpu(busy=90, readings=old)]))))


# -- memory that is held --------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "words"), [(None, "idle at least since "), (90.0, "idle since ")])
def test_what_was_unknown_before_may_have_begun_then(before: float | None, words: str) -> None:
    make = lambda s: sample(s, [gpu(used=21.0, busy=before if s < 30 else 0.0)], [program()])  # noqa: E731
    (found,) = of(watched(seconds(120, make)).findings, "idle.memory-held")
    (line,) = [line for line in found.evidence if line.startswith("idle ")]
    assert line.startswith(words)
    assert bool(found.may_be_older) is (before is None)
    assert ("may_be_older" in msgspec.json.decode(msgspec.json.encode(found))) is (before is None)


def test_memory_held_while_idle_becomes_a_warning() -> None:
    make = lambda s: sample(s, [gpu(used=21.0)], [program()])  # noqa: E731
    (found,) = of(watched(seconds(70, make)).findings, "idle.memory-held")
    assert (found.severity, found.certainty, found.pid) == ("info", "fact", 7)
    (found,) = of(watched(seconds(400, make)).findings, "idle.memory-held")
    assert found.severity == "warning"
    assert "train.py (7) holds 20.0 GiB" in found.title
    assert "memory growth" in found.action
    assert "for 6 min" in " ".join(found.evidence)


@pytest.mark.parametrize("since", [0, 1])
def test_whether_a_process_is_idle_is_what_its_row_says(since: int) -> None:
    """The device alone would say the opposite."""
    row = program()
    row = msgspec.structs.replace(row, readings={**row.readings, "idle_since": since})
    watch = watched(seconds(70, lambda s: sample(s, [gpu(used=21.0, busy=95.0 if since else 0.0)], [row])))
    assert bool(of(watch.findings, "idle.memory-held")) is bool(since)


def idle_row(since: float, **changes: Any) -> Process:
    """``since``: seconds after the beginning; a negative one: it computes."""
    row = program(**changes)
    known = int(BEGIN.timestamp() + since) if since >= 0 else 0
    return msgspec.structs.replace(row, readings={**row.readings, "idle_since": known})


def test_a_process_that_works_now_and_then_is_not_idle() -> None:
    """One second of every seven, beside another one."""

    def make(second: int) -> Snapshot:
        works = second % 7 == 0
        row = idle_row(-1 if works else second // 7 * 7 + 1, sm=60.0 if works else None)
        return sample(second, [gpu(busy=70.0)], [row, program(8, sm=60.0)])

    assert not any(history(seconds(700, make), "idle.memory-held"))
    before = lambda s: idle_row(0 if s < 200 else -1 if s < 205 else 205)  # noqa: E731
    watch = watched(seconds(240, lambda s: sample(s, [gpu()], [before(s)])))
    assert not of(watch.findings, "idle.memory-held"), "what it had been before its work is over"
    assert of(watch.past, "idle.memory-held")
    watch = watched(seconds(400, lambda s: sample(s, [gpu()], [before(s)])))
    (found,) = of(watch.findings, "idle.memory-held")
    assert found.since == BEGIN + datetime.timedelta(seconds=205)


def test_an_idle_time_that_began_anew_unseen_is_another_one() -> None:
    def make(second: int) -> Snapshot:
        row = idle_row(0 if second < 200 else 210)
        if 200 <= second < 210:
            row = program()
            row.missing["idle_since"] = Missing("not_supported")
        return sample(second, [gpu(busy=0.0 if not 200 <= second < 210 else 70.0)], [row, program(8, held=0.1)])

    (found,) = of(watched(seconds(300, make)).findings, "idle.memory-held")
    assert found.since == BEGIN + datetime.timedelta(seconds=210)


def test_a_single_sample_that_says_since_when_is_judged_as_by_the_dashboard() -> None:
    """One of a recorder's: the time is known."""

    def judged(seconds_idle: float) -> list[tuple[str, bool]]:
        shot = sample(900, [gpu(used=21.0)], [idle_row(900 - seconds_idle)])
        found = of(diagnose(Evidence(snapshot=shot)), "idle.memory-held")
        return [(one.severity, any("since " in line for line in one.evidence)) for one in found]

    assert judged(0) == [("info", False)], "nobody looked before"
    assert judged(30) == []
    assert judged(90) == [("info", True)]
    assert judged(400) == [("warning", True)]


def test_others_are_named_only_where_they_compute() -> None:
    def said(others: float | None) -> str:
        rows = [idle_row(0), program(8, held=0.1, sm=others)]
        (found,) = of(watched(seconds(90, lambda s: sample(s, [gpu(busy=7.0)], rows))).findings, "idle.memory-held")
        return " ".join(found.evidence)

    assert "7 %, by others: " in said(7.0)
    assert "by others" not in said(None)


def test_what_a_sleeping_gpu_does_not_tell_is_not_over() -> None:
    def make(s: int) -> Snapshot:
        asleep = msgspec.structs.replace(gpu(state="asleep"), readings={})
        return sample(s, [asleep] if s >= 100 else [gpu()], [] if s >= 100 else [program()])

    watch = watched(seconds(130, make))
    assert of(watch.findings, "idle.memory-held"), "it could not be seen to end"
    assert not watch.past


def test_who_is_idle_on_the_gpu_and_busy_on_the_cpu_is_told_so() -> None:
    """What soft placement does without a word."""
    (found,) = of(watched(seconds(90, lambda s: sample(s, [gpu()], [program(cpu=400.0)]))).findings, "idle.memory-held")
    assert any("400 % of a CPU core" in line for line in found.evidence)
    (calm,) = of(watched(seconds(90, lambda s: sample(s, [gpu()], [program(cpu=3.0)]))).findings, "idle.memory-held")
    assert not any("may run on the CPU" in line for line in calm.evidence)


@pytest.mark.parametrize(
    ("framework", "words"), [("torch 2.11.0", "empty_cache"), ("jaxlib 0.5", "PREALLOCATE"), (None, "Ask alice")]
)
def test_the_action_is_the_framework_s_own(framework: str | None, words: str) -> None:
    make = lambda s: sample(s, [gpu(used=21.0)], [program(framework=framework)])  # noqa: E731
    (found,) = of(watched(seconds(90, make)).findings, "idle.memory-held")
    assert words in found.action


def test_a_guest_that_holds_memory_on_a_busy_gpu_is_told_as_likely() -> None:
    guest, worker = program(7, held=8.0), program(8, held=10.0, sm=90.0)
    (found,) = of(
        watched(seconds(90, lambda s: sample(s, [gpu(busy=90.0)], [guest, worker]))).findings, "idle.memory-held"
    )
    assert (found.pid, found.certainty) == (7, "likely")
    assert "no kernel sample" in " ".join(found.evidence)


def test_who_works_on_one_gpu_and_holds_another_is_told_how_to_keep_it_free() -> None:
    rows = [program(7, sm=95.0, gpu=0), program(7, gpu=1)]
    (found,) = of(
        watched(seconds(90, lambda s: sample(s, [gpu(busy=95.0), gpu(1)], rows))).findings, "idle.memory-held"
    )
    assert found.device_uuid == "GPU-1"
    assert "CUDA_VISIBLE_DEVICES=0" in found.action


def test_a_process_that_ends_takes_its_finding_along_at_once() -> None:
    watch = watched(seconds(90, lambda s: sample(s, [gpu(used=21.0)], [program()] if s < 88 else [])))
    assert "idle.memory-held" not in ids(watch)
    assert [past.id for past in watch.past] == ["idle.memory-held"]


@pytest.mark.parametrize("container", [None, "docker", "wsl"])
def test_memory_that_nobody_listed_holds(container: str | None) -> None:
    odd = {"memory.unexplained_bytes": 5 * GIB}
    watch = watched(seconds(60, lambda s: sample(s, [gpu(used=6.0, readings=odd)], container=container)))
    cause = "container.pid-namespace" if container else "memory.other-process"
    (found,) = [entry for entry in watch.findings if entry.id != "healthy"]
    assert (found.id, found.certainty) == (cause, "likely")
    assert "5.0 GiB" in found.title
    assert ("Windows" in found.action) == (container == "wsl")


def test_memory_that_is_not_known_is_not_unexplained() -> None:
    unknown = gpu(used=20.0)
    del unknown.readings["memory.unexplained_bytes"]
    assert ids(watched(seconds(60, lambda s: sample(s, [unknown])))) == ["healthy"]


def test_memory_that_fills_up_is_told_before_it_is_full() -> None:
    make = lambda s: sample(s, [gpu(busy=90, used=12 + s * 0.02)], [program(held=12 + s * 0.02, sm=90)])  # noqa: E731
    (found,) = of(watched(seconds(300, make)).findings, "memory.growing")
    assert (found.severity, found.certainty) == ("warning", "likely")
    assert "full in about 5 min" in found.title
    assert "1.2 GiB per minute" in " ".join(found.evidence)
    level = lambda s: sample(s, [gpu(busy=90, used=min(12 + s * 0.1, 20))], [program(held=15, sm=90)])  # noqa: E731
    assert not any(history(seconds(400, level), "memory.growing"))


# -- errors ---------------------------------------------------------------------------------------


def test_new_uncorrectable_errors_are_an_error_and_old_ones_a_warning() -> None:
    make = lambda s: sample(s, [gpu(busy=90, readings={"ecc.uncorrected": 2 if s < 30 else 3})])  # noqa: E731
    watch = watched(seconds(29, make))
    assert [entry.severity for entry in of(watch.findings, "hardware.fault")] == ["warning"]
    watched(seconds(30, make, start=29), watch)
    severities = [entry.severity for entry in of(watch.findings, "hardware.fault")]
    assert severities == ["error"], "old and new ones are one finding"
    assert "3, 1 of them new" in of(watch.findings, "hardware.fault")[0].evidence[0]
    assert [(one.severity, one.text) for one in watch.events] == [
        ("warning", "GPU 0 uncorrected ECC errors: 2 since the last reset"),
        ("error", "GPU 0 uncorrected ECC errors: 1 new, 3 in total"),
    ]


def test_nvlink_errors_that_come_now_are_told_apart_from_old_ones() -> None:
    def make(second: int) -> Snapshot:
        counts = {"nvlink.crc_errors": 7e6 + (second >= 30) * 2, "nvlink.failed_recoveries": 0 if second < 30 else 1}
        return sample(second, [gpu(busy=90, readings=counts)])

    watch = watched(seconds(29, make))
    (old,) = of(watch.findings, "hardware.fault")
    assert old.severity == "info", "sent again at some time since the reset: how many is no rate"
    watched(seconds(30, make, start=29), watch)
    (found,) = of(watch.findings, "hardware.fault")
    assert (found.severity, found.title) == ("error", "GPU 0 failed NVLink recoveries: 1 new, 1 in total")
    assert found.evidence[:2] == (
        "nvlink.failed_recoveries: 1, 1 of them new",
        "nvlink.crc_errors: 7000002, 2 of them new",
    )
    assert [(one.kind, one.severity, one.text) for one in watch.events] == [
        ("nvlink-errors.began", "info", "GPU 0 NVLink CRC errors: 7000000 since the last reset"),
        ("nvlink-errors.changed", "error", "GPU 0 failed NVLink recoveries: 1 new, 1 in total"),
        ("nvlink-errors.changed", "error", "GPU 0 NVLink CRC errors: 2 new, 7000002 in total"),
    ]


# -- input ----------------------------------------------------------------------------------------


def training(
    second: int, *, period: int = 4, low: float = 0.0, high: float = 90.0, cpu: float = 130.0, **changes: object
) -> Snapshot:
    """Half of each period at work."""
    busy = high if second % period < period / 2 else low
    return sample(second, [gpu(busy=busy)], [program(age=20.0, cpu=cpu, **changes)])  # type: ignore[arg-type]


def test_a_sawtooth_with_a_busy_core_is_input_bound() -> None:
    watch = watched(seconds(360, training))
    (found,) = of(watch.findings, "input.bound")
    assert (found.severity, found.certainty, found.pid, found.device_uuid) == ("warning", "likely", 7, "GPU-0")
    assert found.title.startswith("GPU 0 is starved for input by ")
    text = " ".join(found.evidence)
    assert "utilization 45 % on average" in text
    assert "sawtooth between 0 and 90 %" in text
    assert "130 % of a CPU core" in text
    assert "prefetch" in found.action


def test_flat_and_low_with_busy_workers_is_input_bound() -> None:
    def make(second: int) -> Snapshot:
        row = program(age=2000.0, cpu=20.0, framework="torch 2.11.0", workers_cpu_percent=350.0)
        return sample(second, [gpu(busy=35.0 + second % 3)], [row])

    (found,) = of(watched(seconds(200, make)).findings, "input.bound")
    assert "370 % of a CPU core" in " ".join(found.evidence)
    assert "DataLoader" in found.action


def test_two_gpus_of_a_process_are_starved_for_input() -> None:
    def make(second: int) -> Snapshot:
        busy = 90.0 if second % 4 < 2 else 0.0
        rows = [program(age=20.0, cpu=130.0, gpu=index) for index in (0, 1)]
        return sample(second, [gpu(index, busy=busy) for index in (0, 1)], rows)

    (found,) = of(watched(seconds(360, make)).findings, "input.bound")
    assert found.title.startswith("GPUs 0-1 are starved for input by ")


def test_waiting_for_a_disk_is_input_bound() -> None:
    def make(second: int) -> Snapshot:
        row = program(age=2000.0, cpu=20.0, state="D" if second % 2 else None)
        return sample(second, [gpu(busy=30.0)], [row])

    (found,) = of(watched(seconds(200, make)).findings, "input.bound")
    assert "a disk in 50 % of the samples" in " ".join(found.evidence)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda s: training(s, low=97.0, high=97.0), id="training at full load, its main thread spinning"),
        pytest.param(lambda s: training(s, cpu=12.0), id="bursty inference: the CPU waits for requests"),
        pytest.param(lambda s: training(s, low=0.0, high=0.0), id="import, compilation: one core busy, no kernel yet"),
        pytest.param(lambda s: training(s, framework=None), id="no framework"),
        pytest.param(
            lambda s: training(s, low=95.0, high=95.0) if s % 120 < 80 else training(s, low=0.0, high=0.0),
            id="an evaluation on the CPU after every epoch",
        ),
        pytest.param(
            lambda s: sample(
                s,
                [gpu(busy=60.0 * (s % 4 < 2))],
                [program(age=2000.0, cpu=130.0, sm=None), program(8, sm=60.0, cpu=3.0)],
            ),
            id="somebody else makes the teeth",
        ),
        pytest.param(
            lambda s: sample(s, [gpu(busy=None)], [program(age=2000.0, cpu=130.0)]), id="utilization is not told"
        ),
    ],
)
def test_what_is_not_input_bound(make: object) -> None:
    assert not any(history(seconds(600, make), "input.bound"))  # type: ignore[arg-type]


def test_warm_up_and_a_short_window_are_not_judged() -> None:
    assert not any(history(seconds(200, training), "input.bound"))


def test_a_notebook_that_begins_to_train_warms_up_as_well() -> None:
    """It has lived for an hour, and rested: what it compiles now is no input."""

    def make(second: int) -> Snapshot:
        busy = 0.0 if second < 300 else 90.0 * (second % 4 < 2)
        cpu = 1.0 if second < 300 else 130.0
        return sample(second, [gpu(busy=busy)], [program(age=3600.0, cpu=cpu)])

    told = history(seconds(900, make), "input.bound")
    assert not any(told[:500])
    assert told[-1]


# -- beside the GPUs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "cause", "severity"),
    [
        ({"cuda_visible_devices": "-1"}, "visibility.hidden", "info"),
        ({"cuda_visible_devices": "-1,0"}, "visibility.hidden", "warning"),
        ({"cuda_visible_devices": "7"}, "visibility.bad-ordinal", "warning"),
        ({"framework": "torch 2.11.0+cpu"}, "build.cpu-only", "warning"),
        ({"cuda_loaded": False}, "unknown", "info"),
        ({}, "unknown", "info"),
    ],
)
def test_a_program_on_the_cpu_beside_free_gpus(changes: dict[str, object], cause: str, severity: str) -> None:
    aside = program(31, gpu=None, cpu=800.0, **changes)  # type: ignore[arg-type]
    watch = watched(seconds(120, lambda s: sample(s, [gpu(), gpu(1, busy=90.0, used=20)], bystanders=[aside])))
    (found,) = [entry for entry in watch.findings if entry.pid == 31]
    assert (found.id, found.severity, found.certainty) == (cause, severity, "likely")
    assert "free: GPU 0" in found.evidence
    if "cuda_visible_devices" in changes:
        assert f"CUDA_VISIBLE_DEVICES={changes['cuda_visible_devices']}" in " ".join(found.evidence)


def test_one_that_was_given_mig_instances_is_not_judged() -> None:
    aside = program(31, gpu=None, cpu=800.0, cuda_visible_devices="MIG-41b36e66")
    assert ids(watched(seconds(120, lambda s: sample(s, [gpu()], bystanders=[aside])))) == ["healthy"]


def test_what_a_process_says_of_itself_is_made_harmless() -> None:
    evil = "\x1b[31m" + "x" * 500
    aside = program(31, gpu=None, cpu=800.0, cuda_visible_devices=evil, command=evil, name=evil, user=evil)
    holder = program(7, held=20.0, command=evil, name=evil, user=evil, framework=f"tensorflow {evil}")
    watch = watched(seconds(120, lambda s: sample(s, [gpu(), gpu(1)], [holder], bystanders=[aside])))
    text = "".join(part for entry in watch.findings for part in (entry.title, *entry.evidence))
    assert "visibility.bad-ordinal" in ids(watch)
    assert "\x1b" not in text


def test_no_gpu_free_and_little_cpu_are_no_reason_to_speak() -> None:
    full, aside = gpu(used=20.0), program(31, gpu=None, cpu=800.0)
    assert ids(watched(seconds(120, lambda s: sample(s, [full], bystanders=[aside])))) == ["healthy"]
    calm = program(31, gpu=None, cpu=20.0)
    assert ids(watched(seconds(120, lambda s: sample(s, [gpu()], bystanders=[calm])))) == ["healthy"]


# -- what is normal -------------------------------------------------------------------------------


def wrong(watch: ConditionEngine) -> list[Finding]:
    return [entry for entry in [*watch.findings, *watch.past] if entry.severity != "info"]


NORMAL = {
    "healthy training at 97 % at its power cap": lambda s: sample(
        s,
        [gpu(busy=97.0 - s % 2, used=21.0, readings=CAPPED)],
        [program(sm=97.0, cpu=101.0, age=5000.0)],
    ),
    "idle desktop": lambda s: sample(
        s,
        [gpu(busy=float(s % 7 == 0) * 4, used=1.2, readings={"clocks.event_reasons": "idle", **SLOW_LINK})],
        [program(2, held=0.6, framework=None, type="G", name="Xorg")],
    ),
    "bursty inference": lambda s: sample(
        s,
        [gpu(busy=85.0 if s % 45 < 3 else 0.0, used=9.0, readings=SLOW_LINK if s % 45 >= 3 else {})],
        [program(3, held=8.0, cpu=90.0 if s % 45 < 3 else 1.0, age=9000.0)],
    ),
    "notebook just opened": lambda s: sample(s, [gpu(used=21.0)], [program(4, age=1.0, cpu=2.0, name="ipykernel")]),
    "warm-up": lambda s: sample(
        s,
        [gpu(busy=0.0 if s < 60 else 30.0 * (s % 3 > 0) if s < 150 else 96.0, used=min(1 + s * 0.2, 21.0))],
        [program(5, held=min(0.3 + s * 0.2, 20.0), age=1.0, cpu=180.0 if s < 150 else 100.0)],
    ),
}


@pytest.mark.parametrize("name", NORMAL)
def test_what_is_normal_is_no_warning(name: str) -> None:
    watch = ConditionEngine()
    for shot in seconds(300, NORMAL[name]):
        watch.observe(shot)
        assert not wrong(watch), name
    assert "healthy" in ids(watch)


def test_healthy_says_what_was_looked_at_and_what_was_not() -> None:
    blind = gpu()
    del blind.readings["pcie.generation"]
    blind.missing["pcie.generation"] = msgspec.json.decode(
        b'{"reason": "not_supported"}', type=type(program(sm=None).missing["sm_percent"])
    )
    watch = watched(seconds(600, lambda s: sample(s, [blind, gpu(1)], [program(held=0.1)])))
    (healthy,) = watch.findings
    assert healthy.id == "healthy"
    assert any(re.search("2 GPUs .* 1 process, .* 9 min", line) for line in healthy.evidence)
    alone = watched(seconds(20, lambda s: sample(s, [blind])))
    assert any("not judged: PCIe links" in line and "not supported" in line for line in alone.findings[0].evidence)
    gappy = watched([sample(0, [gpu()]), sample(1, [gpu()]), sample(200, [gpu()])])
    assert any("3 min without samples" in line for line in gappy.findings[0].evidence)


def test_the_clock_of_a_gpu_without_load_is_not_compared_with_its_maximum() -> None:
    hot = {"clocks.event_reasons": "sw-thermal", "clocks.sm_mhz": 345, "clocks.sm_max_mhz": 1980}
    (idle,) = of(watched(seconds(60, lambda s: sample(s, [gpu(busy=0.0, readings=hot)]))).findings, "throttle.thermal")
    assert "SM clock 345 MHz on average, without load" in idle.evidence
    (busy,) = of(watched(seconds(60, lambda s: sample(s, [gpu(busy=90.0, readings=hot)]))).findings, "throttle.thermal")
    assert "SM clock 345 MHz on average, 1635 MHz below the card's maximum (1980)" in busy.evidence
