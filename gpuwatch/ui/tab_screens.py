"""Creates the screens of the tabs on first use, so that the first frame does not wait for them."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from gpuwatch.ui.screens.tab import TabScreen
from gpuwatch.ui.settings.tabs import TABS

_SCREENS = "gpuwatch.ui.screens"
"""Modules are imported by name, which import-linter does not see: only :mod:`gpuwatch.ui.app` may import this."""


def prepare(tab_id: str) -> None:
    """Imports what :func:`make` needs, so that the tab opens without delay."""
    import_module(f"{_SCREENS}.{tab_id}")


def make(tab_id: str) -> TabScreen:
    """The screen of a tab; KeyError for an id that is not in the table."""
    if tab_id not in {tab.id for tab in TABS}:
        raise KeyError(tab_id)
    return cast("TabScreen", getattr(import_module(f"{_SCREENS}.{tab_id}"), f"{tab_id.capitalize()}Screen")())
