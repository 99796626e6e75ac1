"""Textual's command palette, whose page keys do not fail while its list is being filled."""

from __future__ import annotations

from contextlib import suppress
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette

_PAGES = ("pageup", "pagedown")


class Palette(CommandPalette, inherit_bindings=False):
    """The palette with page keys of its own."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            binding
            for binding in CommandPalette.BINDINGS
            if not (isinstance(binding, Binding) and binding.key in _PAGES)
        ),
        Binding("pageup", "page('page_up')", "Previous page", show=False),
        Binding("pagedown", "page('page_down')", "Next page", show=False),
    ]

    def action_page(self, where: str) -> None:
        # Textual 8.2 raises KeyError while the list has options that were not laid out yet.
        with suppress(KeyError):
            getattr(self.query_one(CommandList), f"action_{where}")()
