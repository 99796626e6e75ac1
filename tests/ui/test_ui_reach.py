"""Every action is within two keys from anywhere: the number of a tab and a key, or the palette."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from textual.command import CommandList
from textual.widgets.option_list import Option

from gpuwatch.ui.app import Palette
from gpuwatch.ui.settings.actions import ACTIONS, Action, tab_actions
from gpuwatch.ui.settings.tabs import TABS, Tab
from tests.ui import machines
from tests.ui.conftest import Stage
from tests.ui.waiting import press, settle


def unreached(stage: Stage, tab: Tab) -> Iterator[Action]:
    """The actions of a tab that none of its keys runs where the focus is now, and not named either."""
    bound = {key: active.binding.action for key, active in stage.app.screen.active_bindings.items()}
    for action in tab_actions(tab.id):
        runs = {action.run or f"screen.{action.id}", action.run.removeprefix("app.")}
        if not action.name and not any(bound.get(key) in runs for key in action.keys.split(",")):
            yield action


@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.id)
async def test_every_action_is_a_tabs_number_and_its_key_or_in_the_palette(stage: Stage, tab: Tab) -> None:
    async with stage.opened(machines.pair()) as pilot:
        await press(pilot, str(TABS.index(tab) + 1))
        assert tab.id == stage.app.tab.TAB
        missed = set(unreached(stage, tab))
        # Their keys work in the pane that P opens.
        missed -= {one for one in ACTIONS["timeline"] if "timeline" in tab.panes}
        # And in the table that u opens.
        missed -= {one for one in ACTIONS["users"] if "users" in tab.panes}
        missed -= {one for one in missed if one.id == "up_by_k"}  # where k moves up anyway
        missed -= {one for one in missed if one.keys == "escape"}  # leaves what is open
        known = {one.id for one in tab_actions(tab.id) if one.name}
        assert {one.id for one in missed if one.id not in known} == set()


@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.id)
async def test_p_and_a_key_reach_the_timeline(stage: Stage, tab: Tab) -> None:
    async with stage.opened(past=machines.pair, seconds=5) as pilot:
        await press(pilot, str(TABS.index(tab) + 1), "P")
        bound = {key: active.binding.action for key, active in stage.app.screen.active_bindings.items()}
        assert stage.app.tab.focused_pane == "timeline"
        for action in ACTIONS["timeline"]:
            assert all(bound[key] == f"screen.{action.id}" for key in action.keys.split(","))


@pytest.mark.parametrize("tab", TABS, ids=lambda tab: tab.id)
async def test_the_palette_has_every_named_action_of_every_tab(stage: Stage, tab: Tab) -> None:
    async with stage.app.run_test(size=(120, 40)) as pilot:
        stage.push(machines.pair())
        await press(pilot, str(TABS.index(tab) + 1))
        titles = [command.title for command in stage.app.get_system_commands(stage.app.screen)]
        assert len(titles) == len(set(titles))
        for other in TABS:
            for action in (one for one in tab_actions(other.id) if one.name):
                assert any(title == action.name or title.endswith(f": {action.name}") for title in titles), action


async def test_an_action_of_another_tab_opens_that_tab(stage: Stage) -> None:
    async with stage.opened(machines.pair()) as pilot:
        commands = {command.title: command for command in stage.app.get_system_commands(stage.app.screen)}
        await commands["Probes: Select all probes"].callback()  # type: ignore[misc]
        await settle(pilot)
        assert stage.app.tab.TAB == "probes"
        assert stage.app.probe_runs.selected == set(stage.app.probe_runs.scripts)


async def test_page_keys_in_a_palette_that_is_being_filled_do_nothing(stage: Stage) -> None:
    async with stage.opened(machines.pair(), size=(80, 24)) as pilot:
        stage.app.action_command_palette()
        await pilot.pause()
        palette = stage.screen(Palette)
        commands = palette.query_one(CommandList)
        commands.clear_options()
        commands.add_option(Option("not laid out yet"))
        palette.action_page("page_up")
        await press(pilot, "pagedown", "pageup", "escape")
        assert stage.app.screen is stage.app.tab
