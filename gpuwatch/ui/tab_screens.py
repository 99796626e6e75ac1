"""Makes the screens of the tabs, each when it is first looked at, so the first frame pays for none."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.settings.tabs import TABS

_SCREENS = "gpuwatch.ui.screens"
"""An import by string is one all the same: only :mod:`gpuwatch.ui.app` may import this module."""


def prepare(tab_id: str) -> None:
    """Imports what :func:`make` needs, so that the first look at a tab does not wait for that."""
    import_module(f"{_SCREENS}.{tab_id}")


def make(tab_id: str) -> TabScreen:
    """The screen of a tab; KeyError for an id that is not in the table."""
    tab = next((tab for tab in TABS if tab.id == tab_id), None)
    if tab is None:
        raise KeyError(tab_id)
    return cast("TabScreen", getattr(import_module(f"{_SCREENS}.{tab_id}"), tab.screen)())
