"""A dashboard that is started while the driver hangs: the host is there, and what is waited for is said."""

from __future__ import annotations

import datetime
import time

import msgspec
import pytest
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.collector.feed import FeedStatus
from gpuwatch.ui.widgets.scroll_list import ScrollList
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import drawn_lines


def host_alone(tick: int) -> Snapshot:
    return msgspec.structs.replace(machines.no_driver(tick), problems=())


def waits(stage: Stage, seconds: float, *, blame: str = "") -> None:
    """``seconds`` without an answer; the host was read just now."""
    machine = host_alone(int(seconds))
    stage.now = machine.taken_at.timestamp()
    state = "not-answering" if seconds > 2 else "starting"
    stage.feed.state = FeedStatus(state, None, seconds if seconds > 2 else 0.0, collector_fault=blame, machine=machine)
    assert stage.feed._wake is not None
    stage.feed._wake()
    stage.app._tick()


def lines_of(stage: Stage) -> str:
    return "\n".join(drawn_lines(stage.app))


async def told(pilot: Pilot[None], stage: Stage, wanted: str) -> str:
    """The screen as one line of words, once it has ``wanted`` or has had three seconds for it."""
    until = time.monotonic() + 3
    while True:
        await pilot.pause()
        text = " ".join(lines_of(stage).replace("│", " ").split())
        if wanted in text or time.monotonic() > until:
            return text


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_host_is_shown_while_the_driver_is_waited_for(stage: Stage, size: tuple[int, int]) -> None:
    async with stage.app.run_test(size=size) as pilot:
        waits(stage, 1)
        await pilot.pause()
        text = lines_of(stage)
        assert "querying the driver for GPUs" in text
        assert "node07" in text
        assert "42.1 / 128.0 GiB" in text
        assert "train.py" in text
        assert "not answered" not in text
        waits(stage, 9)
        text = await told(pilot, stage, "nvidia-smi hangs as well")
        since = datetime.datetime.fromtimestamp(stage.now - 9)
        assert f"the driver has not answered for 9 s, since {since:%H:%M:%S}" in text
        assert "nvidia-smi hangs as well" in text, "the layout gives it its room"
        assert "no GPU" not in text, "whether there is one is not known"
        assert "train.py" in text
        assert not stage.app.session.live_view().stale, "what is shown was read just now"


async def test_all_is_as_ever_once_the_driver_answers(stage: Stage) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        waits(stage, 9)
        await pilot.pause()
        stage.push(machines.pair(12))
        await pilot.pause()
        text = lines_of(stage)
        assert "131.2/139.8 GiB" in text
        assert "not answered" not in text
        assert [event.kind for event in stage.app.session.timeline.events()][-1] == "silence.ended"
        assert not any(event.kind.startswith("device.") for event in stage.app.session.timeline.events()), (
            "none came or went"
        )
        plain = Stage()
        async with plain.app.run_test(size=(120, 40)) as other:
            plain.push(machines.pair(12))
            await other.pause()
            assert plain.app.overview.gpus.size == stage.app.overview.gpus.size, "the layout is that of any start"


async def test_the_other_tabs_say_what_is_waited_for(stage: Stage) -> None:
    async with stage.app.run_test(size=(100, 30)) as pilot:
        waits(stage, 9)
        for key in ("2", "3", "4", "5", "6"):
            await pilot.press(key)
            await pilot.pause()
            assert "no answer for 9 s" in lines_of(stage) or "no answer from the driver for 9 s" in lines_of(stage)
            assert "all well" not in lines_of(stage)
        await pilot.press("5")
        assert "The driver does not answer" in lines_of(stage)


@pytest.mark.parametrize("key", ["2", "5", "6"])
async def test_lists_fade_with_the_data_that_they_show(stage: Stage, key: str) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.pair(0))
        await pilot.press(key)
        await pilot.pause()
        shown = [pane for pane in stage.app.screen.query(ScrollList) if pane.content]
        assert shown
        before = {id(pane): str(pane.rich_style_of("text")) for pane in shown}
        stage.feed.state = FeedStatus("not-answering", 30.0, 29.0, replacements=1, machine=host_alone(30))
        stage.now = host_alone(30).taken_at.timestamp()
        stage.app._last_sample_at = float("-inf")
        stage.app._tick()
        await pilot.pause()
        assert stage.app.session.live_view().stale
        assert all(str(pane.rich_style_of("text")) != before[id(pane)] for pane in shown)


async def test_the_host_goes_on_while_the_gpus_stand_still(stage: Stage) -> None:
    async with stage.opened(machines.pair(0)) as pilot:
        used = 99 * machines.GIB
        host = msgspec.structs.replace(machines.no_driver(30).host, memory_used_bytes=used)
        machine = msgspec.structs.replace(host_alone(30), host=host)
        stage.now = machine.taken_at.timestamp()
        stage.feed.state = FeedStatus("not-answering", 30.0, 29.0, replacements=1, machine=machine)
        stage.app._last_sample_at = float("-inf")
        stage.app._tick()
        await pilot.pause()
        text = lines_of(stage)
        assert "99.0 / 128.0 GiB" in text
        assert "131.2/139.8 GiB" in text, "what was known of the GPUs stays"
        assert stage.app.session.live_view().stale
        assert not stage.app.session.live_view().host_stale
