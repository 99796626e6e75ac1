"""Pictures of the list of hosts: dark and light, in ASCII, small and large."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from gpuwatch.fleet.fleet_source import FleetPoller
from gpuwatch.fleet.prometheus_api import Prometheus, Sample
from gpuwatch.fleet.prometheus_source import PrometheusSource
from gpuwatch.ui.fleet_app import FleetApp
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings
from tests.fleet.demo import fleet
from tests.ui import machines
from tests.ui.feed import FakeFeed

NOON = machines.NOON.timestamp()


class Canned(Prometheus):
    """Asks a made-up fleet without a network."""

    def __init__(self, hosts: int) -> None:
        super().__init__("http://prometheus:9090")
        self._fake = fleet(hosts)

    def query(self, expression: str) -> list[Sample]:
        return [Sample(labels, (NOON, value)) for labels, value in self._fake.evaluate(expression)]


def app_of(hosts: int, **preferences: Any) -> FleetApp:
    source = PrometheusSource(Canned(hosts), clock=lambda: NOON)
    settings = LoadedSettings(machines_path(), Preferences(**preferences))
    return FleetApp(FleetPoller(source, 5.0), lambda name: FakeFeed(), settings=settings, clock=lambda: NOON)


def machines_path() -> Any:
    from gpuwatch.ui.settings.settings_file import default_path

    return default_path()


async def shown(pilot: Pilot[None]) -> None:
    app = pilot.app
    assert isinstance(app, FleetApp)
    for _ in range(200):
        await pilot.pause(0.02)
        if app.summary is not None and app.fleet_screen.hosts.counts[1]:
            break
    await pilot.pause()


@pytest.mark.parametrize(
    ("size", "preferences"),
    [((60, 15), {}), ((120, 30), {"theme": "gpuwatch-light"}), ((80, 24), {"ascii": True}), ((200, 50), {})],
    ids=["small", "light", "ascii", "large"],
)
def test_hosts(snap_compare: Callable[..., bool], size: tuple[int, int], preferences: dict[str, Any]) -> None:
    assert snap_compare(app_of(45, **preferences), terminal_size=size, run_before=shown)
