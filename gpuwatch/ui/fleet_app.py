"""The dashboard over many hosts: their list, and each host in the tabs of a single machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from textual.screen import Screen

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.fleet.fleet_source import FleetPoller
from gpuwatch.fleet.fleet_summary import FleetSummary
from gpuwatch.machine.collector.feed import Feed, FeedStatus
from gpuwatch.machine.collector.host_processes import HostProcesses
from gpuwatch.session.session import Session, next_choice
from gpuwatch.ui.app import GpuwatchApp
from gpuwatch.ui.screens.base_tab import TabScreen
from gpuwatch.ui.screens.host_list import FleetScreen
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.settings.settings_file import LoadedSettings

_INTERVALS_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds between two reads of all hosts that the keys step through."""


class _NoFeed:
    """The feed while no host is open."""

    interval = 1.0
    host = HostProcesses("")

    def start(self, wake: Callable[[], None] | None = None) -> None:
        """Nothing to start."""

    def drain(self) -> list[Snapshot]:
        return []

    def status(self) -> FeedStatus:
        return FeedStatus("starting")

    def resumed(self) -> None:
        """Nothing waits."""

    def stop(self) -> None:
        """Nothing to stop."""


class FleetApp(GpuwatchApp):
    """The list of hosts; an open host is a session like any other, with all tabs but Probes."""

    def __init__(
        self,
        fleet_poller: FleetPoller,
        open_feed: Callable[[str], Feed],
        *,
        settings: LoadedSettings | None = None,
        ascii_only: bool = False,
        few_colors: bool = False,
        host_arguments: Sequence[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``open_feed``: makes the feed of a host, not started; ``host_arguments``: those that say which hosts."""
        self._idle = Session(_NoFeed(), clock=clock)
        super().__init__(self._idle, settings=settings, ascii_only=ascii_only, few_colors=few_colors)
        self.fleet_poller = fleet_poller
        self._open_feed = open_feed
        self.host_arguments = tuple(host_arguments)
        self.now = clock
        self.summary: FleetSummary | None = None
        self.fleet_screen = FleetScreen()
        self.tab: TabScreen = self.fleet_screen
        self.install_screen(self.overview, self.overview.TAB)

    def get_default_screen(self) -> Screen[None]:
        return self.fleet_screen

    def current_preferences(self) -> Preferences:
        """The preferences as they would be saved now; those of single machines stay."""
        own = self.preferences
        return replace(super().current_preferences(), tab=own.tab, interval=own.interval, read_only=own.read_only)

    def on_mount(self) -> None:
        super().on_mount()
        self.fleet_poller.start(self._wake)

    def stop_sessions(self) -> None:
        super().stop_sessions()
        self.fleet_poller.stop()

    def _draw_news(self) -> None:
        if self.fleet_poller.failure is not None:
            raise self.fleet_poller.failure
        summary = self.fleet_poller.summary
        if summary is not self.summary:
            self.summary = summary
            self.session.owners = self._owners(self.session.host.name)
            if self.tab is self.fleet_screen:
                with self.terminal_writes:
                    self.fleet_screen.show_again()
        if self.session is not self._idle:
            super()._draw_news()

    @property
    def unavailable_actions(self) -> tuple[str, ...]:
        """Signals, probes and reports are for the user's own machine."""
        return () if self.session is self._idle else ("signal", "probe_gpu", "diagnostic")

    def _owners(self, name: str) -> dict[str, str]:
        """Who has the GPUs of a host, as the list has it; of MIG instances the list of hosts tells more."""
        hosts = self.summary.hosts if self.summary is not None else ()
        host = next((host for host in hosts if host.name == name), None)
        if host is None or host.view.snapshot is None:
            return {}
        listed = {row.device_uuid for row in host.view.snapshot.processes}
        others = [gpu for gpu in host.gpus if gpu.instance is None and gpu.holders and gpu.device.uuid not in listed]
        return {gpu.device.uuid: gpu.reason for gpu in others}

    async def open_host(self, name: str) -> None:
        session = Session(self._open_feed(name), clock=self.now)
        session.read_only = True
        session.owners = self._owners(name)
        self.session = self.sessions[name] = session
        self.chosen_gpu = self.chosen_process = self.chosen_event = None
        self.tab = self.overview
        session.start(self._wake)
        await self.push_screen(self.overview.TAB)
        self.overview.say("Esc returns to the list of hosts", "accent")
        self._draw_samples()

    async def show_tab(self, tab_id: str, *, back: bool = False) -> None:
        """Opens a tab of the host; probes run on the machine of their user alone."""
        if self.session is self._idle:
            return
        if tab_id == "probes":
            self.tab.say(f"probes run on {self.session.host.name} itself: log in there", "warning")
            return
        await super().show_tab(tab_id, back=back)

    async def leave_host(self) -> bool:
        """Returns to the list; ends the host's session."""
        if self.session is self._idle:
            return False
        if self.tab is not self.overview:
            await self.show_tab(self.overview.TAB, back=True)
        session, self.session = self.session, self._idle
        self.sessions = {self._idle.host.name: self._idle}
        self.tab = self.fleet_screen
        await self.pop_screen()
        # Ending a feed may take a second.
        threading.Thread(target=session.stop, name="gpuwatch-leave", daemon=True).start()
        return True

    def change_interval(self, step: int) -> None:
        """Reads all hosts, or the open one, less often (1) or more often (-1)."""
        if self.session is not self._idle:
            super().change_interval(step)
            return
        self.fleet_poller.set_interval(next_choice(_INTERVALS_SECONDS, self.fleet_poller.interval, step))
        self.fleet_screen.head.redraw()
