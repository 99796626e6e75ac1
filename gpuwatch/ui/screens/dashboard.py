"""The app's interface for the tabs: the app imports its screens, no screen imports the app."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from textual.screen import Screen

    from gpuwatch.session.playhead import Playhead
    from gpuwatch.session.probe_runs import ProbeRuns
    from gpuwatch.session.process_history import Identity
    from gpuwatch.session.session import Session
    from gpuwatch.ui.settings.preferences import Preferences


class Dashboard(Protocol):
    """The app as seen by a tab."""

    session: Session
    """The session of the machine on screen."""
    preferences: Preferences
    settings_path: Path
    chosen_gpu: str | None
    chosen_process: Identity | None
    where: Sequence[str]
    """The options that name the hosts of a list; empty for a single machine."""
    k_explained: bool
    """Whether the footer has said that ``k`` no longer sends a signal."""

    @property
    def cannot(self) -> tuple[str, ...]:
        """Actions that the watched machine does not allow."""

    @property
    def tab(self) -> Screen[None]:
        """The current tab."""

    async def show_tab(self, tab_id: str) -> None:
        """Opens a tab."""

    async def go_back(self) -> None:
        """Opens the previous tab."""

    async def leave_host(self) -> bool:
        """Returns to the list of hosts; False if there is none."""

    def leave_for(self, *arguments: str) -> None:
        """Ends the dashboard; gpuwatch goes on with these arguments."""

    @property
    def has_probe_runs(self) -> bool:
        """Whether :attr:`probe_runs` already exists, so that using it costs nothing."""

    @property
    def probe_runs(self) -> ProbeRuns:
        """The probes and their runs."""

    def watch_probe_runs(self) -> None:
        """Redraws the tabs that show runs when there are new ones."""

    def toggle_pause(self) -> None:
        """Pauses the display, or returns to now."""

    def look_at(self, move: Callable[[Playhead], None]) -> None:
        """Moves to another moment; pauses first if needed."""

    def change_interval(self, steps: int) -> None:
        """Samples more often (negative) or less often."""

    def prefer(self, **changes: Any) -> None:
        """Changes preferences with immediate effect."""

    def gathered(self) -> Preferences:
        """The preferences as they would be saved now."""

    def key_name(self, shown: str) -> str:
        """A key's name as this terminal can show it."""
