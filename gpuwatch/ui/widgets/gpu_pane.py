"""The GPU pane: cards or lines, following the layout, with a cursor to select a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from textual import events

from gpuwatch.core.model.snapshot import Device
from gpuwatch.session.view import View
from gpuwatch.ui.drawing.overview_layout import OverviewLayout
from gpuwatch.ui.panes import gpu_card, gpu_line
from gpuwatch.ui.panes.gpu_grid import devices_of_rows, gpu_lines, rows_of_lines
from gpuwatch.ui.panes.no_gpu_panel import no_gpu_lines
from gpuwatch.ui.settings.actions import bindings
from gpuwatch.ui.settings.preferences import Preferences
from gpuwatch.ui.tables.gpu_fields import OPTIONAL_FIELDS, available_fields, fields_with_values
from gpuwatch.ui.tables.gpu_loads import SteadyOrder, with_devices
from gpuwatch.ui.widgets.painted_pane import JumpTarget, PaintedPane
from gpuwatch.ui.widgets.preferences_app import preferences_of

_REDRAW_SECONDS = 5.0
"""Seconds after which graphs are redrawn without new values: a dot column is one to four seconds wide."""


class GpuPane(PaintedPane, can_focus=True):
    """All GPUs."""

    BINDINGS = bindings("gpus")

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._latest_view: View | None = None
        self._view: View | None = None
        """The same with the devices in the preferred order."""
        self._order = SteadyOrder()
        self._overview_layout = OverviewLayout()
        self.cursor_uuid: str | None = None
        self._drawn_at = 0.0
        self._top = 0
        """The first visible row of lines."""
        self._available: set[str] = set()
        """Fields of which some device had a value: they stay, so that nothing jumps."""

    def show(self, view: View, layout: OverviewLayout) -> None:
        self._latest_view, self._overview_layout = view, layout
        self._sort()
        self.can_focus = bool(view.devices)
        self.redraw()

    def show_sample(self, view: View) -> None:
        """Like :meth:`show`, with the same layout: redraws unchanged devices only now and then, for their graphs."""
        still = self._latest_view is not None and view.devices is self._latest_view.devices
        if still and abs(view.now - self._drawn_at) < _REDRAW_SECONDS - 0.5:
            self._latest_view = view
            self._sort()
        else:
            self.show(view, self._overview_layout)

    def _sort(self) -> None:
        view, order = self._latest_view, preferences_of(self).gpu_order
        if view is not None and order != "index" and len(view.devices) > 1:
            view = with_devices(view, self._order.of(view, order))
        self._view = view

    def pin(self) -> None:
        """Keeps the cursor on its GPU while the order changes, also on the first one."""
        if self.selected is not None:
            self.cursor_uuid = self.selected.uuid

    @property
    def _devices(self) -> Sequence[Device]:
        return self._view.devices if self._view is not None else ()

    def bring_into_view(self) -> None:
        if self._devices:
            row = self._cursor() % rows_of_lines(len(self._devices), self._overview_layout)
            self._top = min(max(self._top, row - self._room + 1), row)

    def move(self, columns: int, rows: int) -> None:
        count, lines = len(self._devices), self._overview_layout.gpus_as == "line"
        # Cards are numbered by row, lines by column.
        across, down = (rows_of_lines(count, self._overview_layout), 1) if lines else (1, self._overview_layout.columns)
        there = self._cursor() + columns * across + rows * down
        if abs(rows) > 1:
            there = min(max(there, 0), count - 1)
        if 0 <= there < count:
            self.cursor_uuid = self._devices[there].uuid
            self.bring_into_view()
            self.redraw()

    @property
    def _room(self) -> int:
        """Rows of lines that fit, if not all do."""
        return max(self._overview_layout.gpu_height - 1, 1)

    def turn_wheel(self, rows: int) -> bool:
        """Scrolls if not all lines fit, without moving the cursor."""
        if self._overview_layout.scrolls:
            self._top += rows
            self.redraw()
        return self._overview_layout.scrolls

    @property
    def selected(self) -> Device | None:
        return self._devices[self._cursor()] if self._devices else None

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """A field's short name is spelled out below the mouse."""
        line = "".join(text for line in self.lines[event.y : event.y + 1] for text, _ in line.spans)
        named = (
            f"{name}: {field.help}"
            for field in OPTIONAL_FIELDS
            if field.metric
            for name in {field.title, field.label} - {""}
            for found in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", line)
            if found.start() <= event.x < found.end()
        )
        text = next(named, None)
        if text != self.tooltip:
            self.tooltip = text

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a double click opens the GPU."""
        number = self._device_at(event.x, event.y)
        if number is not None:
            self._jump(self._devices[number].uuid, event.chain == 2)

    def jump_targets(self) -> list[JumpTarget]:
        across = max(self._overview_layout.columns, 1)
        lefts = [-(-column * self.size.width // across) for column in range(across)]
        found: dict[int, JumpTarget] = {}
        for y in range(self.size.height):
            for x in lefts:
                number = self._device_at(x, y)
                if number is not None and number not in found:
                    inset = 1 if self._overview_layout.gpus_as == "card" else 0
                    found[number] = (x + inset, y, partial(self._jump, self._devices[number].uuid))
        return list(found.values())

    def go_to(self, uuid: str | None) -> None:
        """Puts the cursor on a GPU and the focus on this pane."""
        self.cursor_uuid = uuid
        self.bring_into_view()
        self.focus()
        self.redraw()

    def _jump(self, uuid: str, opens: bool) -> None:
        self.cursor_uuid = uuid
        self.redraw()
        if opens:
            self.choose()

    def _cursor(self) -> int:
        return next((number for number, device in enumerate(self._devices) if device.uuid == self.cursor_uuid), 0)

    def _device_at(self, x: int, y: int) -> int | None:
        """The number of the device that is drawn at a cell."""
        view, layout = self._view, self._overview_layout
        if view is None or layout.gpus_as == "none":
            return None
        column = min(x * layout.columns // max(self.size.width, 1), layout.columns - 1)
        number = y // layout.card_height * layout.columns + column
        if layout.gpus_as == "line":
            y -= int(layout.heading)
            if layout.scrolls and y >= self._room:
                return None
            y += self._top
            rows = rows_of_lines(len(view.devices), layout)
            numbers = devices_of_rows(view, layout) if layout.mig_lines else range(column * rows, (column + 1) * rows)
            number = numbers[y] if 0 <= y < len(numbers) else -1
        return number if 0 <= number < len(view.devices) else None

    def _draw(self, width: int, height: int) -> None:
        view, layout = self._view, self._overview_layout
        if view is None:
            return
        self._drawn_at = view.now
        if not view.devices:
            self.paint(no_gpu_lines(view, width, height))
            return
        chosen = self._cursor() if self.has_focus else -1
        last = rows_of_lines(len(view.devices), layout) - self._room if layout.scrolls else 0
        self._top = min(max(self._top, 0), max(last, 0))
        lines = gpu_lines(view, layout, width, self._preferences, cursor=chosen, top=self._top)
        self.paint(lines, stale=view.stale)

    def fields_of(self, devices: Sequence[Device]) -> list[str]:
        """The chosen fields that some of these devices has, may get, or had before."""
        chosen = preferences_of(self).gpu_fields
        self._available |= fields_with_values(chosen, devices)
        return available_fields(chosen, devices, self._available)

    @property
    def _preferences(self) -> Preferences:
        """The preferences, with those of the chosen fields that some device has."""
        fields = self.fields_of(self._latest_view.devices if self._latest_view is not None else ())
        return replace(preferences_of(self), gpu_fields=tuple(fields))

    @property
    def fields_on_screen(self) -> list[str]:
        """The fields of :meth:`fields_of` that fit on screen."""
        view, layout = self._view, self._overview_layout
        if view is None or not view.devices:
            return []
        if layout.gpus_as == "card":
            width = self.size.width // layout.columns - 4
            return gpu_card.fields_that_fit(width, layout, self._preferences)
        at = gpu_line.fit_columns(self.size.width // layout.columns, tuple(view.devices), self._preferences.gpu_fields)
        shown = [field.id for field in at.fields]
        return shown + ["name"] * bool(at.name) + ["trend"] * bool(at.trend)
