"""Jump mode: a label on everything on the screen that can be gone to; typing it goes there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.geometry import Region
from textual.widgets import Static

from gpuwatch.ui.screens.sheet_bases import SheetScreen
from gpuwatch.ui.widgets.painted_pane import PaintedPane

if TYPE_CHECKING:
    from gpuwatch.core.model.snapshot import Device
    from gpuwatch.ui.screens.base_tab import TabScreen

_LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""In the order in which fingers reach them."""
_HINT = " type a label to go there (Shift: open it)   Esc leaves "


@dataclass(frozen=True, slots=True)
class LabeledTarget:
    """A place on the screen, or a tab or a GPU, that a label goes to."""

    x: int
    y: int
    go: Callable[[bool], object]
    """Goes there; True: opens it too."""
    label: str = ""
    """A label of its own, for example the number of a tab."""


def jump_labels(count: int) -> list[str]:
    """Labels of one length, so that none is the start of another."""
    length = 1 if count <= len(_LETTERS) else 2
    return ["".join(letters) for letters, _ in zip(product(_LETTERS, repeat=length), range(count), strict=False)]


def targets_of(screen: TabScreen) -> list[LabeledTarget]:
    """The tabs, the panes that can be focused, and their rows or GPUs, from top to bottom."""
    found = [
        LabeledTarget(start, screen.top_line.region.y, lambda opens, tab=tab_id: screen.go(tab), label)  # type: ignore[misc]
        for start, label, tab_id in screen.top_line.tab_places
    ]
    for pane in screen.query(PaintedPane):
        if pane.focusable and pane.region.area:
            found += _pane_targets(pane, pane.region)
    return found


def gpu_number_prompt(screen: TabScreen, devices: Sequence[Device]) -> JumpScreen:
    """The GPUs by their numbers, all of as many digits."""
    digits = max(len(str(device.index)) for device in devices)
    targets = [
        LabeledTarget(-1, 0, lambda opens, uuid=device.uuid: screen.go_to_gpu(uuid), str(device.index).zfill(digits))  # type: ignore[misc]
        for device in devices
    ]
    first, last = targets[0].label, targets[-1].label
    return JumpScreen(targets, f" number of the GPU, {first} to {last}   Esc leaves ")


def _pane_targets(pane: PaintedPane, region: Region) -> Iterable[LabeledTarget]:
    if not any(y == 0 for _, y, _ in pane.jump_targets()):  # what begins there focuses the pane, too

        def focus(opens: bool) -> None:
            pane.focus()

        yield LabeledTarget(region.x + 1, region.y, focus)
    for x, y, select in pane.jump_targets():

        def go(opens: bool, select: Callable[[bool], object] = select) -> None:
            pane.focus()
            select(opens)

        yield LabeledTarget(region.x + x, region.y + y, go)


class JumpScreen(SheetScreen[None]):
    """Transparent: only the labels and a hint are drawn over the screen."""

    def __init__(self, targets: Sequence[LabeledTarget], hint: str = _HINT) -> None:
        """A target left of the screen has no label there; ``hint``: the last line."""
        super().__init__()
        self._hint = hint
        names = iter(jump_labels(sum(not target.label for target in targets)))
        self.targets = {target.label or next(names): target for target in targets}
        self._typed = ""
        self._opens = False
        self._shown: dict[str, Static] = {}

    def compose(self) -> ComposeResult:
        for label, target in self.targets.items():
            if target.x < 0:
                continue
            item = Static(Content(label), classes="jump")
            item.styles.offset = (target.x, target.y)
            self._shown[label] = item
            yield item
        hint = Static(Content(self._hint), classes="jump-hint")
        hint.styles.offset = (0, self.app.size.height - 1)
        yield hint

    async def on_key(self, event: events.Key) -> None:
        """Esc leaves; a letter completes a label, or leaves those that begin with it."""
        event.stop()
        event.prevent_default()
        char = event.character or ""
        typed = self._typed + char.lower()
        left = [label for label in self.targets if label.startswith(typed)]
        if event.key in ("escape", "semicolon") or not char or not left:
            self.dismiss(None)
            return
        self._typed, self._opens = typed, self._opens or char.isupper()
        if typed in self.targets:
            self.dismiss(None)
            self.app.call_later(self.targets[typed].go, self._opens)
            return
        for label, item in self._shown.items():
            item.display = label in left

    def on_click(self, event: events.Click) -> None:
        self.dismiss(None)

    def on_resize(self, event: events.Resize) -> None:
        """Everything has moved: leaves."""
        if event.size != self._size_at_start:
            self.dismiss(None)

    def on_mount(self) -> None:
        self._size_at_start = self.app.size
