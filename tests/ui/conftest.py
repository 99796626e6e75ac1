"""Pictures of screens mean something on one version of Textual and rich only."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import pytest
import rich.cells  # noqa: F401  (imported first, so that the version check below names what is used)
from textual.pilot import Pilot

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.machine.sources.process_details import ProcessDetails
from gpuwatch.session.process_history import Identity
from gpuwatch.session.session import Session
from gpuwatch.ui.app import GpuwatchApp
from tests.ui import idle, machines
from tests.ui.feed import FakeFeed, FakeHost
from tests.ui.people import details_of
from tests.ui.waiting import settle

PINNED = {"textual": "8.2.8", "rich": "15.0.0"}
_OTHER = [f"{name} {version(name)} is not {wanted}" for name, wanted in PINNED.items() if version(name) != wanted]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not _OTHER:
        return
    if config.getoption("update_snapshots", default=False):
        raise pytest.UsageError(f"pictures are updated on the pinned versions only: {', '.join(_OTHER)}")
    for item in items:
        if "snap_compare" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason=", ".join(_OTHER)))


@pytest.fixture(autouse=True)
def fixed_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The same time zone and terminal everywhere; no settings and no runs of a developer's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GPUWATCH_CONFIG_FILE", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("gpuwatch.ui.screens.base_tab._MESSAGE_SECONDS", 600.0)  # also on a busy machine
    for name in ("FORCE_HYPERLINK", "NO_COLOR", "TEXTUAL_THEME", "TEXTUAL_COLOR_SYSTEM", "TEXTUAL_ANIMATIONS"):
        monkeypatch.delenv(name, raising=False)
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.fixture(scope="session", autouse=True)
def _pilots_do_not_sleep() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        idle.use(patch)
        yield


S = TypeVar("S")


class Stage:
    """An app, its feed, and the clock that both live by."""

    def __init__(self, *, read_process: Callable[[Identity], ProcessDetails] = details_of, **options: object) -> None:
        self.feed = FakeFeed(FakeHost(read_process))
        self.now = machines.NOON.timestamp()
        watched = {name: options.pop(name) for name in ("conditions", "read_only", "timeline") if name in options}
        session = Session(self.feed, clock=lambda: self.now, **watched)  # type: ignore[arg-type]
        self.app = GpuwatchApp(session, **options)  # type: ignore[arg-type]

    def push(self, *snapshots: Snapshot) -> None:
        """Samples arrive."""
        self.now = snapshots[-1].taken_at.timestamp()
        self.feed.push(*snapshots)

    def past(self, make: Callable[[int], Snapshot], seconds: int = 130) -> None:
        """``seconds`` of history up to now."""
        self.push(*(make(tick) for tick in range(seconds)))

    @asynccontextmanager
    async def opened(
        self,
        *snapshots: Snapshot,
        past: Callable[[int], Snapshot] | None = None,
        seconds: int = 130,
        size: tuple[int, int] = (120, 40),
    ) -> AsyncIterator[Pilot[None]]:
        """The app on a terminal of this size, after these samples (or ``seconds`` of ``past``) are on screen."""
        async with self.app.run_test(size=size) as pilot:
            if past is not None:
                self.past(past, seconds)
            elif snapshots:
                self.push(*snapshots)
            await settle(pilot)
            yield pilot

    async def show(self, pilot: Pilot[None], *snapshots: Snapshot) -> None:
        """Samples arrive and are drawn."""
        self.push(*snapshots)
        await settle(pilot)

    def screen(self, kind: type[S]) -> S:
        """The screen that is shown, which must be of this kind."""
        shown = self.app.screen
        assert isinstance(shown, kind), shown
        return shown


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def make_stage() -> Callable[..., Stage]:
    return Stage
