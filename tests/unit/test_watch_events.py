"""What happened between two snapshots, and what did not."""

from __future__ import annotations

import pytest

from gpuwatch.history.events import FeedSeen, Happened, Watcher, ago
from gpuwatch.model.reading import Missing
from gpuwatch.model.snapshot import Device, Process
from tests.ui import machines

GIB = machines.GIB


def kinds(found: list[Happened]) -> list[str]:
    return [one.kind for one in found]


def watched(*shots: tuple[tuple[Device, ...], tuple[Process, ...]]) -> list[list[Happened]]:
    watcher = Watcher()
    return [watcher.look(machines.snapshot(devices, rows, tick=n)) for n, (devices, rows) in enumerate(shots)]


def device(index: int = 0, used: float = 10, **changes: object) -> Device:
    readings = {"memory.used_bytes": int(used * GIB), **changes.pop("readings", {})}  # type: ignore[dict-item]
    return machines.device(index, busy=50, readings=readings, **changes)


def test_the_first_look_is_no_event() -> None:
    assert watched(((device(),), (machines.process(0),))) == [[]]


def test_processes_come_and_go_with_what_they_freed() -> None:
    row = machines.process(0, readings={"gpu_memory_bytes": 4 * GIB})
    _, came, same, went = watched(((device(),), ()), ((device(),), (row,)), ((device(),), (row,)), ((device(),), ()))
    assert kinds(came) == ["process.came"]
    assert came[0].text == "GPU 0: 2210 came: alice's python train.py --bs 64 --model resnet50"
    assert same == []
    assert went[0].text.startswith("GPU 0: 2210 went, 4.0 GiB freed: alice's python")
    assert (went[0].certainty, went[0].pid) == ("fact", 2210)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    found = watched(
        ((device(),), (machines.process(0, create_time=1.0),)), ((device(),), (machines.process(0, create_time=2.0),))
    )[1]
    assert kinds(found) == ["process.went", "process.came"]


def test_names_are_harmless() -> None:
    row = machines.process(0, command="/tmp/\x1b[31mevil\n\u202ex", user="a\x07b")
    text = watched(((device(),), ()), ((device(),), (row,)))[1][0].text
    assert text.isprintable()


def test_throttling_has_an_onset_and_an_end_with_its_length() -> None:
    hot = device(readings={"clocks.event_reasons": "sw-thermal+sw-power-cap"})
    hotter = device(readings={"clocks.event_reasons": "hw-thermal"})
    blind = device(missing={"clocks.event_reasons": machines.NOT_SUPPORTED})
    found = watched(*(((one,), ()) for one in (device(), hot, hotter, blind, hotter, device())))
    assert [kinds(one) for one in found] == [[], ["throttle.began"], [], [], [], ["throttle.ended"]]
    assert found[1][0].text == "GPU 0 is slowed by heat"
    assert found[5][0].text == "GPU 0 is slowed no more; heat (hardware), heat lasted 4 s"


def test_a_power_cap_and_idling_are_everyday() -> None:
    capped = device(readings={"clocks.event_reasons": "sw-power-cap"})
    assert watched(((device(),), ()), ((capped,), ()))[1] == []


@pytest.mark.parametrize("gone", [(), (device(state="lost", state_detail="XID 79"),)])
def test_a_device_is_lost_and_back_and_its_processes_did_not_end(gone: tuple[Device, ...]) -> None:
    row = machines.process(0)
    found = watched(((device(),), (row,)), (gone, ()), (gone, ()), ((device(),), (row,)))
    assert [kinds(one) for one in found] == [[], ["device.lost"], [], ["device.back"]]
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
    assert [kinds(one) for one in found] == [[], ["memory.full"], [], [], [], ["memory.free"], ["memory.full"]]


def test_growing_memory_says_when_it_would_be_full() -> None:
    found = watched(*(((device(used=80 + tick),), ()) for tick in range(25)))
    told = [one for some in found for one in some]
    assert kinds(told) == ["memory.filling"]
    assert told[0].certainty == "likely"
    assert "would be full in 42 s" in told[0].text


def test_one_step_of_growth_is_no_trend() -> None:
    found = watched(*(((device(used=80 if tick < 5 else 120),), ()) for tick in range(40)))
    assert [one for some in found for one in some] == []


def test_the_collector_stalls_is_replaced_and_answers_again() -> None:
    watcher = Watcher()
    assert watcher.feed(FeedSeen("ok"), 0) == []
    assert kinds(watcher.feed(FeedSeen("not-answering", 5.0), 10)) == ["collector.stalled"]
    assert watcher.feed(FeedSeen("not-answering", 7.0), 12) == []
    assert kinds(watcher.feed(FeedSeen("not-answering", 9.0, 1, "ended\x1b by itself"), 14)) == ["collector.replaced"]
    last = watcher.feed(FeedSeen("ok", 0.0, 1), 35)
    assert last[0].text == "the driver answers again, after 30 s"
    assert watcher.feed(FeedSeen("ok", 0.0, 1), 36) == []
    assert watcher.count == 3
    assert all(one.text.isprintable() for one in watcher.events)


def test_the_list_is_bounded_and_the_count_is_not() -> None:
    watcher = Watcher(capacity=5)
    for tick in range(10):
        rows = (machines.process(0),) if tick % 2 else ()
        watcher.look(machines.snapshot((device(),), rows, tick=tick))
    assert (len(watcher.events), watcher.count) == (5, 9)


def test_times_past_in_words() -> None:
    assert [ago(seconds) for seconds in (-1, 8, 180, 9000)] == ["0 s ago", "8 s ago", "3 min ago", "2.5 h ago"]
