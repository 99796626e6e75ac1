"""The list of hosts by keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from gpuwatch.cli.dashboard import host_list_filter_and_order
from gpuwatch.core.errors import UsageError
from gpuwatch.fleet.fleet_source import FleetPoller
from gpuwatch.fleet.prometheus_api import Prometheus
from gpuwatch.fleet.prometheus_source import PrometheusSource
from gpuwatch.ui.fleet_app import FleetApp
from tests.fleet.demo import fleet
from tests.fleet.exporters import dcgm
from tests.fleet.prometheus_server import FakePrometheus, exposition, served
from tests.ui.conftest import fixed_surroundings  # noqa: F401
from tests.ui.waiting import drawn_lines, until

SIZES = [(60, 15), (80, 24), (120, 40), (200, 60)]


@pytest.fixture(scope="module")
def many() -> Iterator[FakePrometheus]:
    with served(fleet(40)) as running:
        yield running


def app_of(fake: FakePrometheus, **options: object) -> FleetApp:
    source = PrometheusSource(Prometheus(fake.url))
    return FleetApp(FleetPoller(source, 60.0), lambda name: source.feed(name, 1.0), **options)  # type: ignore[arg-type]


def text_of(app: FleetApp) -> str:
    return "\n".join(drawn_lines(app))


@pytest.mark.parametrize("size", SIZES)
async def test_what_is_free_who_has_it_what_is_wrong(many: FakePrometheus, size: tuple[int, int]) -> None:
    app = app_of(many)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.summary is not None and app.fleet_screen.hosts.counts[1])
        lines = text_of(app).splitlines()
        assert len(lines) == size[1]
        assert "41 of 42" in lines[0]
        summary = app.summary
        assert summary is not None
        assert f"○ {summary.free_count} of {summary.gpu_count} GPUs" in lines[1]
        assert f"{summary.free_hosts[0][0]} {summary.free_hosts[0][1]}" in lines[1]
        assert "In use" in lines[2]
        assert f"{summary.holders[0][0]} ×{summary.holders[0][1]}" in lines[2]
        assert "Wrong: dgx008  GPU 5: " in lines[3]
        assert sum("dgx0" in line for line in lines[4:]) >= min(size[1], 42) - 12
        assert all(len(line) == size[0] for line in lines)


async def test_enter_opens_a_host_and_escape_comes_back(many: FakePrometheus) -> None:
    app = app_of(many)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        await pilot.press("slash", *"dgx004", "enter")
        await until(pilot, lambda: app.fleet_screen.hosts.counts == (1, 42))
        await pilot.press("enter")
        await until(pilot, lambda: app.tab is app.overview and app.session.snapshot is not None)
        await until(pilot, lambda: "NVIDIA H100 80GB HBM3" in text_of(app))
        assert "dgx004" in text_of(app).splitlines()[0]
        assert app.session.history.sample_count > 200, "the last hour, by a range query"
        assert "no process uses a GPU" not in text_of(app), "nobody reports processes here"
        (host,) = [one for one in app.summary.hosts if one.name == "dgx004"]
        used = [gpu for gpu in host.gpus if gpu.holders]
        assert used
        assert all(f"used by {gpu.holders[0].name}" in text_of(app) for gpu in used), "as the list has it"
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "processes are not reported here; GPU" in text_of(app))
        await pilot.resize_terminal(120, 40)
        assert not re.search("signal|probe|report", app.tab.keys.plain), "what is for this machine alone"
        for key, tab in (("2", "gpu"), ("5", "findings"), ("6", "events"), ("3", "process")):
            await pilot.press(key)
            await until(pilot, lambda tab=tab: app.screen is app.tab and tab == app.tab.TAB)
        (well,) = app.session.findings
        assert "not judged: processes that hold GPU memory while idle (processes are not reported)" in well.evidence
        assert well.evidence[0].startswith("watched: 8 GPUs, for ")
        await pilot.press("4")
        await until(pilot, lambda: "probes run on dgx004 itself" in text_of(app))
        await pilot.press("1")
        await until(pilot, lambda: app.screen is app.overview)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.fleet_screen)
        assert app.fleet_screen.hosts.item_under_cursor is not None
        assert app.fleet_screen.hosts.item_under_cursor.name == "dgx004"
        await pilot.press("escape")
        await until(pilot, lambda: app.fleet_screen.hosts.counts == (42, 42))


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("host~dgx01", lambda host: host.name.startswith("dgx01")),
        ("free", lambda host: host.free_count > 0),
        ("mem>20GiB free", lambda host: host.free_count > 0 and not host.name.startswith("desk")),
        ("silent", lambda host: not host.view.answered),
        ("wrong", lambda host: bool(host.errors_and_warnings) or not host.view.answered),
        ("user:alice", lambda host: any(name == "alice" for name, _ in host.holders)),
        ("-dgx", lambda host: host.name.startswith("desk")),
    ],
)
async def test_filter(many: FakePrometheus, typed: str, wanted: Callable[[object], bool]) -> None:
    app = app_of(many)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        await pilot.press("slash")
        for key in typed:
            await pilot.press({" ": "space", ">": "greater_than_sign", ":": "colon", "~": "tilde"}.get(key, key))
        await pilot.press("enter")
        await pilot.pause()
        assert app.summary is not None
        expected = {host.name for host in app.summary.hosts if wanted(host)}
        assert expected
        assert {host.name for host in app.fleet_screen.hosts.items} == expected


async def test_an_invalid_word_is_named(many: FakePrometheus) -> None:
    app = app_of(many)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        await pilot.press("slash")
        for typed, said in (("hots:a", "did you mean host"), ("mem>x", "compared with a number such as 2GiB")):
            app.fleet_screen.filter_typed(typed)
            await pilot.pause()
            assert said in text_of(app)


async def test_sorting(many: FakePrometheus) -> None:
    app = app_of(many)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        table = app.fleet_screen.hosts
        assert [host.name for host in table.items[:4]] == ["desk1", "desk2", "dgx001", "dgx002"]
        await pilot.press("s", "down", "enter")
        free = [host.free_count for host in table.items]
        assert free == sorted(free, reverse=True)
        await pilot.press("S")
        assert [host.free_count for host in table.items] == free[::-1]
        table.sort_by("state")
        assert not table.items[0].view.answered


async def test_filter_and_order_of_the_command_line_are_those_of_the_copied_one(many: FakePrometheus) -> None:
    app = app_of(many)
    wanted, column, reverse = host_list_filter_and_order("mem>20GiB free", "free", descending=False)
    app.fleet_screen.begin_with(wanted, column, reverse=reverse)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        shown = app.fleet_screen.hosts.items
        assert 0 < len(shown) < app.fleet_screen.hosts.counts[1]
        free = [host.free_count for host in shown]
        assert free == sorted(free)
        assert free[0] > 0
        begun = ["--filter", "mem>20GiB free", "--sort", "free", "--no-descending"]
        assert app.fleet_screen.command()[-5:] == begun
        await pilot.press("escape", "S")
        assert app.fleet_screen.command()[-2:] == ["--sort", "free"]


@pytest.mark.parametrize(
    ("words", "column", "said"),
    [
        ("hots:a", None, "--filter is invalid: .*did you mean host"),
        (None, "pid", "--sort has the unknown column 'pid'"),
    ],
)
def test_a_wrong_filter_or_order_of_hosts_is_refused(words: str | None, column: str | None, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        host_list_filter_and_order(words, column, descending=None)


async def test_keys_of_a_machine_do_nothing_here(many: FakePrometheus) -> None:
    app = app_of(many)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        await pilot.press("2", "4", "P", "left_square_bracket", "r", "semicolon")
        await pilot.pause()
        assert app.screen is app.fleet_screen
        offered = [command.title for command in app.get_system_commands(app.screen)]
        assert "Only hosts with free GPUs" in offered
        assert not any(":" in title or "Pause" in title for title in offered)
        await pilot.press("question_mark")
        await until(pilot, lambda: "a free GPU with more than 20 GiB" in text_of(app))
        assert "Probes" not in text_of(app)
        await pilot.press("escape", "y")
        await pilot.pause()
        assert "gpuwatch --interval 60" in text_of(app)
        assert app.current_preferences().tab == "overview"


async def test_a_click_on_a_title_sorts(many: FakePrometheus) -> None:
    app = app_of(many)
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
        table = app.fleet_screen.hosts
        x = table.plain.splitlines()[1].index("FREE")
        await pilot.click(table, offset=(x + 1, 1))
        await pilot.pause()
        assert table.sort == "free"


async def test_a_server_that_is_gone_dims_the_list_and_says_why() -> None:
    with served(fleet(3)) as fake:
        app = app_of(fake)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
            fake.answer = lambda query: (502, b"")
            app.fleet_poller.read_now()
            await until(pilot, lambda: "HTTP error 502" in text_of(app))
            assert "dgx001" in text_of(app)
            fake.answer = None
            app.fleet_poller.read_now()
            await until(pilot, lambda: "5 of 5 hosts answered" in text_of(app))


async def test_a_server_without_gpus_says_what_was_looked_for() -> None:
    with served() as fake:
        app = app_of(fake)
        async with app.run_test(size=(80, 24)) as pilot:
            await until(pilot, lambda: app.summary is not None)
            await until(pilot, lambda: "gpuwatch exporter, dcgm-exporter" in text_of(app))


async def test_names_with_control_characters_are_harmless() -> None:
    with served() as fake:
        fake.series = exposition(dcgm("n1", 1), instance="n1:1", job="d")
        for labels, _ in fake.series:
            labels["Hostname"] = "n1\x1b[2J\nevil"
            labels["modelName"] = "\x1b]0;x\x07"
        app = app_of(fake)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.fleet_screen.hosts.counts[1])
            assert "\x1b" not in text_of(app)
            await pilot.press("enter")
            await until(pilot, lambda: app.session.snapshot is not None)
            assert "\x1b" not in text_of(app)
