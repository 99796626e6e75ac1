"""What happened between two snapshots, and what did not."""

from __future__ import annotations

import math
import random
import re

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.formatting.durations import ago, hours_minutes, rounded_duration
from gpuwatch.core.formatting.sentences import gpu_list_text
from gpuwatch.core.model.reading import Missing
from gpuwatch.core.model.snapshot import Device, MappedDevice, MigInstance, Process
from gpuwatch.explain.diagnosis.condition_engine import REJUDGE_SECONDS, ConditionEngine
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.machine.history.machine_event import MachineEvent
from gpuwatch.machine.history.sample_events import ProcessEvents
from tests.ui import machines

GIB = machines.GIB
THERMAL = "throttle.thermal"


def kinds(found: list[MachineEvent]) -> list[str]:
    return [one.kind for one in found]


def watched(*shots: tuple[tuple[Device, ...], tuple[Process, ...]]) -> list[list[MachineEvent]]:
    watcher = ConditionEngine()
    return [watcher.observe(machines.snapshot(devices, rows, tick=n)) for n, (devices, rows) in enumerate(shots)]


def device(index: int = 0, used: float = 10, **changes: object) -> Device:
    readings = {"memory.used_bytes": int(used * GIB), **changes.pop("readings", {})}  # type: ignore[dict-item]
    return machines.device(index, busy=50, readings=readings, **changes)


def test_the_first_look_is_no_event() -> None:
    assert watched(((device(),), (machines.process(0),))) == [[]]


def test_processes_come_and_go_with_what_they_freed() -> None:
    row = machines.process(0, readings={"gpu_memory_bytes": 4 * GIB})
    most = machines.process(0, readings={"gpu_memory_bytes": 9 * GIB})
    _, came, same, _, went = watched(*(((device(),), rows) for rows in ((), (row,), (most,), (row,), ())))
    assert kinds(came) == ["process.started"]
    assert came[0].text == "alice's train.py (2210) started using GPU 0: python train.py --bs 64 --model resnet50"
    assert same == []
    assert went[0].text == (
        "alice's train.py (2210) exited on GPU 0 after 14 min, 4.0 GiB freed, peak 9.0 GiB, held it for 2 s,"
        " SM avg 0 % max 0 %: python train.py --bs 64 --model resnet50"
    )
    assert (went[0].certainty, went[0].pid) == ("fact", 2210)


def test_what_cannot_be_read_of_one_that_went_is_not_made_up() -> None:
    row = machines.denied_process()
    untold = machines.process(0, pid=7, missing={"gpu_memory_bytes": machines.DENIED}, create_time=None)
    found = watched(*(((device(),), rows) for rows in ((), (row, untold), (row, untold), ())))[3]
    assert (
        found[0].text == "Xorg (1999) exited on GPU 0, 614 MiB freed, peak 614 MiB, held it for 1 s, SM avg 0 % max 0 %"
    )
    assert found[1].text.startswith("alice's train.py (7) exited on GPU 0, held it for 1 s, SM avg 0 % max 0 %: python")


def on_gpus(count: int, *, mapped: int, **changes: object) -> tuple[Process, ...]:
    """One program on the first ``count`` GPUs of ``mapped`` that it sees."""
    seen = tuple(MappedDevice(ordinal=n, uuid=f"GPU-{n}", index=n) for n in range(mapped))
    same = {"pid": 4711, "create_time": machines.process(0).create_time, "user": "alice", "command": "python train.py"}
    return tuple(machines.process(n, gpu=n, device_map=seen, **same, **changes) for n in range(count))


def test_a_program_on_several_gpus_comes_and_goes_in_one_line() -> None:
    eight = tuple(device(n) for n in range(8))
    half, most = (on_gpus(n, mapped=8, readings={"gpu_memory_bytes": 2 * GIB}) for n in (3, 8))
    found = watched((eight, ()), (eight, half), (eight, most), (eight, most), (eight, half), (eight, ()))
    assert [kinds(one) for one in found] == [[], [], ["process.started"], [], [], ["process.exited"]]
    came, went = found[2][0], found[5][0]
    assert came.text.startswith("alice's train.py (4711) started using GPUs 0-7")
    assert "exited on GPUs 0-7 after 14 min, 16.0 GiB freed, peak 16.0 GiB in total, held them for 3 s (" in went.text
    assert "(14 s of GPU time), SM avg" in went.text
    for event in (came, went):
        assert all(one.uuid in event.all_device_uuids for one in eight)
    assert "GPU-of-nobody" not in came.all_device_uuids


@pytest.mark.parametrize("later", [on_gpus(1, mapped=8), ()])
def test_a_start_on_fewer_gpus_than_the_program_sees_waits_one_sample(later: tuple[Process, ...]) -> None:
    two = (device(0), device(1))
    found = watched((two, ()), (two, on_gpus(1, mapped=8)), (two, later))
    assert [kinds(one) for one in found[:2]] == [[], []]
    assert kinds(found[2]) == ["process.started", "process.exited"][: 1 if later else 2]
    assert "(4711) started using GPU 0" in found[2][0].text


def test_a_program_that_leaves_some_of_its_gpus_stops_using_these() -> None:
    two = (device(0), device(1))
    both, first = on_gpus(2, mapped=2), on_gpus(1, mapped=2)
    found = watched((two, ()), (two, both), (two, first), (two, first), (two, ()))
    assert "(4711) stopped using GPU 1" in found[3][0].text
    assert "(4711) exited on GPU 0 after" in found[4][0].text


@given(st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=2, max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_life_of_a_process_has_the_utilization_that_was_sampled(used: list[int | None]) -> None:
    def row(percent: int | None) -> Process:
        lack = {"sm_percent": Missing("no_sample")} if percent is None else {}
        known = {} if percent is None else {"sm_percent": percent}
        whole = machines.process(0, readings=known)
        readings = {key: value for key, value in whole.readings.items() if key != "sm_percent" or percent is not None}
        return msgspec.structs.replace(whole, readings=readings, missing=lack)

    text = watched(((device(),), ()), *(((device(),), (row(one),)) for one in used), ((device(),), ()))[-1][0].text
    assert f"held it for {len(used) - 1} s" in text
    assert "since gpuwatch started" not in text
    sampled = [one for one in used[1:] if one is not None]  # the first sample is of the time before
    if not sampled:
        assert "SM avg" not in text
    else:
        most = max(one for one in used if one is not None)
        assert f"SM avg {sum(sampled) / len(sampled):.0f} % max {most} %" in text
        assert (f"in {len(sampled)} s with samples" in text) == (len(sampled) < (len(used) - 1) / 2)


def test_of_an_older_process_only_the_time_since_gpuwatch_started_is_known() -> None:
    went = watched(((device(),), (machines.process(0),)), ((device(),), (machines.process(0),)), ((device(),), ()))[2]
    assert "1 s since gpuwatch started" in went[0].text


def test_gpus_are_named_in_runs() -> None:
    assert [gpu_list_text(one) for one in ((3,), (7, 0, 1, 2), (0, 2), range(8))] == [
        "GPU 3", "GPUs 0-2, 7", "GPUs 0, 2", "GPUs 0-7",
    ]  # fmt: skip
    assert hours_minutes(2 * 3600 + 3 * 60) == "2 h 03 min"


def test_nobody_goes_from_a_gpu_that_sleeps() -> None:
    row = machines.process(0)
    shots = (((device(),), (row,)), ((device(state="asleep"),), ()), ((device(),), (row,)), ((device(),), ()))
    woken = watched(*shots)
    assert woken[:3] == [[], [], []], "its processes cannot be seen: nobody went, and nobody came when it woke"
    assert kinds(woken[3]) == ["process.exited"]


def test_a_gpu_that_slept_from_the_start_is_the_same_one_when_it_wakes() -> None:
    slept = device(state="asleep", uuid="asleep-0000:1a:00.0", name="sleeping GPU")
    assert watched(((slept,), ()), ((device(),), ()), ((device(),), ())) == [[], [], []]


def test_a_counter_that_a_device_did_not_have_is_told_with_what_it_begins() -> None:
    without = device(missing={"ecc.uncorrected": Missing("not_supported")})
    unread = device(1, missing={"ecc.uncorrected": Missing("no_sample")})
    counting = [device(n, readings={"ecc.uncorrected": 2}) for n in (0, 1)]
    same, found = watched(((without, unread), ()), (tuple(counting), ()))
    assert same == []
    assert [(one.severity, one.text) for one in found] == [
        ("error", "GPU 0 uncorrected ECC errors: 2 new, 2 in total"),
        ("warning", "GPU 1 uncorrected ECC errors: 2 since the last reset"),
    ]


def test_secrets_of_commands_are_masked() -> None:
    row = machines.process(0, command="python train.py --api-key sk-verysecretverysecret123 --lr 0.1")
    for some in watched(((device(),), ()), ((device(),), (row,)), ((device(),), ())):
        assert not any("verysecret" in one.text for one in some)


def test_one_that_ends_while_its_device_is_away_is_told_when_it_is_back() -> None:
    row, other = machines.process(0), machines.process(3)
    lost = device(state="lost")
    shots = (((device(),), (row, other)), ((lost,), ()), ((lost,), ()), ((device(),), (other,)))
    found = watched(*shots)
    assert [kinds(one) for one in found] == [[], ["gpu-lost.began"], [], ["gpu-lost.ended", "process.exited"]]


def test_a_pid_that_is_used_again_is_another_process() -> None:
    found = watched(
        ((device(),), (machines.process(0, create_time=1.0),)), ((device(),), (machines.process(0, create_time=2.0),))
    )[1]
    assert kinds(found) == ["process.exited", "process.started"]


def test_names_are_harmless() -> None:
    row = machines.process(0, command="/tmp/\x1b[31mevil\n\u202ex", user="a\x07b")
    text = watched(((device(),), ()), ((device(),), (row,)))[1][0].text
    assert text.isprintable()


SLOW = {"clocks.sm_mhz": 1400, "temperature.gpu_celsius": 88}


def test_throttling_has_an_onset_and_an_end_with_its_length() -> None:
    hot = device(readings={"clocks.event_reasons": "sw-thermal+sw-power-cap", **SLOW})
    hotter = device(readings={"clocks.event_reasons": "hw-thermal", **SLOW})
    blind = device(missing={"clocks.event_reasons": machines.NOT_SUPPORTED})
    cool = device()
    found = watched(*(((one,), ()) for one in (cool, hot, hotter, blind, hotter, *[cool] * 31)))
    began, *rest, ended = [one for one in found if one]
    assert rest == []
    assert (kinds(began), found.index(began)) == (["throttle.began"], 1), "the driver says so: at once"
    assert (kinds(ended), found.index(ended)) == (["throttle.ended"], 35), "30 s after it was seen last"
    assert (began[0].text, began[0].severity, began[0].cause) == ("GPU 0 throttled (thermal)", "warning", THERMAL)
    assert ended[0].text == "GPU 0 no longer throttled (thermal, 3 s)"
    assert (ended[0].cause, ended[0].occurrence) == (THERMAL, began[0].occurrence)


def test_throttling_is_one_warning_whatever_it_costs() -> None:
    warm = device(readings={"clocks.event_reasons": "sw-thermal"})
    hot = device(readings={"clocks.event_reasons": "sw-thermal", **SLOW})
    told = [one for some in watched(*(((one,), ()) for one in [warm] * 10 + [hot] * 10)) for one in some]
    assert [(one.kind, one.severity) for one in told] == [("throttle.began", "warning")]


def test_a_reason_that_flickers_is_one_throttle() -> None:
    hot, cool = device(readings={"clocks.event_reasons": "sw-thermal", **SLOW}), device()
    found = watched(*(((hot if tick % 20 < 2 else cool,), ()) for tick in range(100)))
    assert [one.kind for some in found for one in some] == ["throttle.began"]


def test_a_brake_must_last_as_it_may_flash_at_a_change_of_clocks() -> None:
    braked, free = device(readings={"clocks.event_reasons": "hw-slowdown+hw-power-brake"}), device()
    assert not any(watched(*(((braked if tick % 40 < 3 else free,), ()) for tick in range(40))))
    found = watched(*(((braked if 3 <= tick < 20 else free,), ()) for tick in range(60)))
    told = [one for some in found for one in some]
    assert [one.text for one in told] == [
        "GPU 0 throttled (power brake)",
        "GPU 0 no longer throttled (power brake, 16 s)",
    ]
    assert [one.cause for one in told] == ["throttle.power"] * 2


def test_a_power_cap_is_told_when_it_lasts_and_a_touch_of_it_is_not() -> None:
    capped, free = device(readings={"clocks.event_reasons": "sw-power-cap", "power.draw_watts": 690.0}), device()
    touches = watched(*(((capped if tick % 20 < 3 else free,), ()) for tick in range(1, 60)))
    assert [one for some in touches for one in some] == []
    lasting = watched(*(((capped if 5 <= tick < 100 and tick % 7 else free,), ()) for tick in range(170)))
    told = [one for some in lasting for one in some]
    assert kinds(told) == ["power-cap.began", "power-cap.ended"]
    assert [one.severity for one in told] == ["info", "info"]
    assert told[0].text == "GPU 0 at its power limit, which is normal for a busy GPU"
    assert told[1].text == "GPU 0 no longer at its power limit (94 s)"


def test_a_card_far_below_its_limit_is_not_at_it() -> None:
    capped = device(readings={"clocks.event_reasons": "sw-power-cap", "power.draw_watts": 200.0})
    lasting = watched(*(((capped if 5 <= tick < 100 else device(),), ()) for tick in range(170)))
    assert [one.text for some in lasting for one in some] == [
        "GPU 0: NVML reports a power cap, 200 of 700 W drawn",
        "GPU 0: NVML no longer reports a power cap (94 s)",
    ]


def test_reasons_have_episodes_that_can_be_looked_up_as_of_then() -> None:
    watcher = ConditionEngine()
    start = machines.NOON.timestamp()
    for tick in range(100):
        reasons = "sw-power-cap+sw-thermal" if 10 <= tick < 30 else "sw-power-cap" if tick < 50 else "none"
        one = device(readings={"clocks.event_reasons": reasons})
        watcher.observe(machines.snapshot((one,), (), tick=tick))
    uuid = machines.uuid(0)
    now = {one.reason: one for one in watcher.throttling(uuid, start + 98)}
    assert now["sw-thermal"].began == start + 10
    assert now["sw-thermal"].last == start + 29
    assert now["sw-thermal"].ended == start + 59, "as its finding and its event"
    assert now["sw-power-cap"].at_start
    assert now["sw-power-cap"].ended is None, "a minute must have passed"
    then = watcher.throttling(uuid, start + 20)
    assert {one.reason: one.ended for one in then} == {"sw-thermal": None, "sw-power-cap": None}
    assert {one.last for one in then} == {start + 20}
    assert [one.reason for one in watcher.throttling(uuid, start + 5)] == ["sw-power-cap"]
    assert watcher.throttling(machines.uuid(1), start + 60) == []


@pytest.mark.parametrize("gone", [(), (device(state="lost", state_detail="XID 79"),)])
def test_a_device_is_lost_and_back_and_its_processes_did_not_end(gone: tuple[Device, ...]) -> None:
    row = machines.process(0)
    found = watched(((device(),), (row,)), (gone, ()), (gone, ()), ((device(),), (row,)))
    assert [kinds(one) for one in found] == [[], ["gpu-lost.began"], [], ["gpu-lost.ended"]]
    assert found[1][0].severity == "error"
    assert found[3][0].text == "GPU 0 is back, after 2 s"


def test_a_list_that_could_not_be_read_is_nobody_gone() -> None:
    unread = Missing("unknown", detail="the list of processes could not be read")
    blind = device(missing={"memory.unexplained_bytes": unread})
    row = machines.process(0)
    assert watched(((device(),), (row,)), ((blind,), ()), ((device(),), (row,))) == [[], [], []]


def test_a_device_that_appears() -> None:
    assert kinds(watched(((device(),), ()), ((device(), device(1)), ()))[1]) == ["device.new"]


def test_memory_nearly_full_is_said_once_until_it_is_free_again() -> None:
    found = watched(*(((device(used=used),), ()) for used in (100, 135, 136, 132, 135, 90, 137)))
    assert {event.cause for one in found for event in one} == {""}, "nothing is wrong"
    assert [[kind for kind in kinds(one) if kind != "memory.freed"] for one in found] == [
        [],
        ["memory-full.began"],
        [],
        [],
        [],
        ["memory-full.ended"],
        ["memory-full.began"],
    ]


def test_growing_memory_says_when_it_would_be_full() -> None:
    found = watched(*(((device(used=80 + tick),), ()) for tick in range(40)))
    told = [one for some in found for one in some]
    assert kinds(told) == ["memory-filling.began"]
    assert (told[0].certainty, told[0].severity, told[0].cause) == ("likely", "warning", "memory.growing")
    assert "full in about 20 s" in told[0].text


@pytest.mark.parametrize(("sm_percent", "told"), [(90, ["memory-filling.began"]), (3, [])])
def test_memory_that_a_young_program_fills_is_a_leak_only_if_it_computes(sm_percent: int, told: list[str]) -> None:
    """A program that loads its model fills memory too, and hardly computes."""

    def row(tick: int) -> Process:
        return machines.process(
            0,
            create_time=machines.NOON.timestamp() - 20,
            readings={"gpu_memory_bytes": (80 + tick) * GIB, "sm_percent": sm_percent},
        )

    found = watched(*(((device(used=80 + tick),), (row(tick),)) for tick in range(40)))
    assert [kind for some in found for kind in kinds(some) if kind.startswith("memory-filling")] == told


def test_a_leak_beside_ups_and_downs_is_seen_and_noise_alone_is_not() -> None:
    def said(values: list[float]) -> list[str]:
        found = watched(*(((device(used=value),), ()) for value in values))
        return [one.kind for some in found for one in some if one.kind.endswith(".began")]

    noise = random.Random(4)
    assert said([100 + noise.gauss(0, 2) for _ in range(400)]) == []
    assert said([100 + 3 * math.sin(tick / 5) for tick in range(400)]) == []
    assert said([100 + 0.4 * (tick % 7) for tick in range(400)]) == []
    leak = said([90 + 0.1 * tick + noise.gauss(0, 0.3) for tick in range(120)])
    assert leak == ["memory-filling.began"]
    assert said([20 + 0.1 * tick for tick in range(120)]) == [], "far from full, and it may well stop"


def test_memory_that_a_program_gives_back_is_told_once_a_minute() -> None:
    found = watched(*(((device(used=60 if tick % 10 < 5 else 30),), ()) for tick in range(100)))
    told = [one for some in found for one in some]
    assert kinds(told) == ["memory.freed", "memory.freed"]
    assert re.search("30.0 GiB freed .* 30.0 GiB of 139.8 GiB", told[0].text)
    row = machines.process(0, readings={"gpu_memory_bytes": 30 * GIB})
    gone = watched(((device(used=60),), (row,)), ((device(used=30),), ()))[1]
    assert kinds(gone) == ["process.exited"], "what went with a process is told with it"


def test_a_new_mig_layout() -> None:
    def parts(*ids: str, mode: str | None = "enabled") -> Device:
        instances = tuple(
            MigInstance(id=one, index=n, uuid=None, gpu_instance=n, compute_instance=0, profile="1g.10gb")
            for n, one in enumerate(ids)
        )
        readings = {"mig.mode": mode} if mode is not None else {}
        return device(readings=readings, mig_instances=instances)

    shots = (parts(mode="disabled"), parts("7/0", "8/0"), parts("7/0", "8/0"), parts(mode=None), parts("7/0"), parts())
    found = watched(*(((one,), ()) for one in shots))
    assert [[one.text for one in some] for some in found] == [
        [],
        ["GPU 0 MIG layout changed: 1g.10gb, 1g.10gb"],
        [],
        [],
        [],
        ["GPU 0 MIG layout changed: no instances, 1 before"],
    ]


def test_counters_of_errors_that_grow() -> None:
    def at(corrected: int | None, uncorrected: int = 0, pending: str = "no") -> Device:
        readings = {"ecc.uncorrected": uncorrected, "remapped_rows.pending": pending}
        if corrected is not None:
            readings["ecc.corrected"] = corrected
        made = device(readings=readings)
        known = {name: value for name, value in made.readings.items() if name != "ecc.corrected" or name in readings}
        return msgspec.structs.replace(made, readings=known)

    found = watched(
        *(((one,), ()) for one in (at(5), at(5), at(9), at(12), at(None), at(12, 1, "yes"), at(0, 1), at(1, 1)))
    )
    assert [[one.text for one in some] for some in found] == [
        [],
        [],
        ["GPU 0 corrected ECC errors: 4 new, 9 in total"],
        [],
        [],
        [
            "GPU 0 uncorrected ECC errors: 1 new, 1 in total",
            "GPU 0 bad memory rows will be remapped at the next reset",
        ],
        [
            "GPU 0 error counters were reset",
            "no longer: GPU 0 bad memory rows will be remapped at the next reset (0 s)",
        ],
        ["GPU 0 corrected ECC errors: 1 new, 1 in total"],
    ]
    assert [one.severity for one in found[5]] == ["error", "warning"]


def test_links_fabric_and_sram_are_events() -> None:
    def at(recoveries: int, health: str, threshold: str) -> Device:
        told = {"nvlink.recoveries": recoveries, "fabric.health": health, "ecc.sram_threshold_exceeded": threshold}
        return device(readings=told)

    lacks = Missing("not_supported", detail="")
    none = msgspec.structs.replace(device(), missing={"fabric.health": lacks, "ecc.sram_threshold_exceeded": lacks})
    now = at(2, "route-unhealthy", "yes")
    flags = [
        ("error", "GPU 0 SRAM errors exceed the threshold of NVIDIA's field diagnostic"),
        ("error", "GPU 0 NVLink fabric reports route unhealthy"),
    ]
    found = watched(((at(0, "healthy", "no"),), ()), ((now,), ()))
    assert [(one.severity, one.text) for one in found[1]] == [
        ("warning", "GPU 0 NVLink recoveries: 2 new, 2 in total"),
        *flags,
    ]
    first = watched(((none,), ()), ((now,), ()))[1]
    assert [(one.severity, one.text) for one in first if one.severity == "error"] == flags


def test_growth_within_a_minute_of_the_last_is_told_after_it_though_nothing_else_moves() -> None:
    watcher = ConditionEngine()
    counts = ((0, 1), (1, 2), (2, 7))
    shots = [machines.snapshot((device(readings={"ecc.corrected": n}),), (), tick=at) for at, n in counts]
    told = [one.text for shot in shots for one in watcher.observe(shot)]
    for at in range(3, 70):
        told += [one.text for one in watcher.observe(machines.snapshot(shots[-1].devices, (), tick=at))]
    assert told == [
        "GPU 0 corrected ECC errors: 1 new, 2 in total",
        "GPU 0 corrected ECC errors: 5 new, 7 in total",
    ]


def test_one_step_of_growth_is_no_trend() -> None:
    found = watched(*(((device(used=80 if tick < 5 else 120),), ()) for tick in range(40)))
    assert [one for some in found for one in some] == []


def test_the_collector_stalls_is_replaced_and_answers_again() -> None:
    watcher = ConditionEngine()
    assert watcher.feed(FeedStatus("ok"), 0) == []
    (began,) = watcher.feed(FeedStatus("not-answering", waiting_seconds=5.0), 10)
    assert (began.kind, began.severity, began.cause) == ("silence.began", "error", "driver.bad-state")
    assert watcher.silence is not None
    assert watcher.findings == (watcher.silence,)
    assert (watcher.silence.title, watcher.silence.severity) == (began.text, began.severity)
    assert watcher.feed(FeedStatus("not-answering", waiting_seconds=7.0), 12) == []
    replaced = FeedStatus("not-answering", waiting_seconds=9.0, replacements=1, detail="ended\x1b by itself")
    assert kinds(watcher.feed(replaced, 14)) == ["collector.replaced"]
    assert len(watcher.findings) == 1, "a replacement is a part of the silence"
    (last,) = watcher.feed(FeedStatus("ok", replacements=1), 35)
    assert (last.kind, last.text) == ("silence.ended", "The driver answers again, after 30 s")
    assert watcher.feed(FeedStatus("ok", replacements=1), 36) == []
    assert watcher.count == 3
    assert all(one.text.isprintable() for one in watcher.events)


def test_a_replaced_collector_is_a_warning_only_until_its_successor_works() -> None:
    watcher = ConditionEngine()
    at = machines.snapshot().taken_at.timestamp()
    (event,) = watcher.feed(FeedStatus("starting", replacements=1, detail="ended by itself"), at)
    (found,) = watcher.findings
    assert (found.title, found.severity, found.id) == (event.text, event.severity, event.cause)
    watcher.observe(machines.snapshot((device(),), tick=0))
    assert found in watcher.findings, "what was read before it is no sign of life"
    watcher.observe(machines.snapshot((device(),), tick=2))
    assert found not in watcher.findings
    assert kinds(list(watcher.events)) == ["collector.replaced"], "the event stays"


def test_the_list_is_bounded_and_the_count_is_not() -> None:
    watcher = ConditionEngine(capacity=5)
    for tick in range(10):
        rows = (machines.process(0),) if tick % 2 else ()
        watcher.observe(machines.snapshot((device(),), rows, tick=tick))
    assert (len(watcher.events), watcher.count) == (5, 9)


def test_times_past_in_words() -> None:
    assert [ago(seconds) for seconds in (-1, 8, 180, 9000)] == ["0 s ago", "8 s ago", "3 min ago", "2.5 h ago"]


_STEPS = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from([10.0, 10.1, 60.0, 75.0, 139.0]),
        st.sampled_from(["none", "idle", "sw-thermal", "sw-power-cap", "hw-power-brake"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=14,
)


@pytest.mark.thorough
@settings(deadline=None, max_examples=20)
@given(_STEPS)
def test_a_machine_on_which_nothing_changes_is_judged_seldom_and_no_differently(
    steps: list[tuple[int, float, str, int, int]],
) -> None:
    still, looking, tick = ConditionEngine(), ConditionEngine(), 0
    everybody = tuple(machines.process(n, gpu=n % 2) for n in range(3))
    for lasts, used, reason, errors, count in [*steps, (100, 10.0, "none", 0, 0)]:
        readings = {"clocks.event_reasons": reason, "ecc.uncorrected": errors, "clocks.sm_mhz": 1500}
        devices = (device(used=used, readings=readings), device(1))
        rows = everybody[:count]
        for _ in range(lasts):
            tick += 1
            still.observe(machines.snapshot(devices, rows, tick=tick))
            looking.observe(machines.snapshot((devices[0], devices[1]), rows, tick=tick))
    told, seen = (sorted((one.kind, one.at) for one in watch.events) for watch in (still, looking))
    assert [kind for kind, _ in told] == [kind for kind, _ in seen]
    assert all(0 <= at - then <= REJUDGE_SECONDS for (_, at), (_, then) in zip(told, seen, strict=True))
    assert [(one.id, one.severity) for one in still.findings] == [(one.id, one.severity) for one in looking.findings]


@pytest.mark.parametrize("apart", [1.0, 30.0, 60.0])
def test_what_was_not_sampled_is_held_by_nobody(apart: float) -> None:
    """As recordings count it: a gap is 15 s, or 2.5 intervals where samples are less frequent."""
    row = machines.process(0, gpu=0, readings={"sm_percent": 50})
    ticks = [*range(6), *range(400, 406)]
    events, told = ProcessEvents(), []
    for number, tick in enumerate((*ticks, 406)):
        at = machines.NOON.timestamp() + tick * apart
        rows = (row,) if 0 < number < len(ticks) else ()
        shot = msgspec.structs.replace(machines.many(1, 0), devices=(device(),), processes=rows)
        told += events.observe(shot, at)[0]
    (text,) = [one.text for one in told if one.kind == "process.exited"]
    assert f"held it for {rounded_duration(9 * apart)}" in text, "4 intervals before the gap, 5 after it"
    assert "SM avg 50 % max 50 %" in text
