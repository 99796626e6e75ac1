"""The input line for the name of a probe; Enter runs the one under the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gpuwatch.ui.drawing.text_width import cut_to_width
from gpuwatch.ui.widgets.filter_bar import NOTE_CELLS, FilterBar
from gpuwatch.ui.widgets.preferences_app import key_name

if TYPE_CHECKING:
    from gpuwatch.ui.screens.probes import ProbesScreen


class ProbeFinder(FilterBar):
    """Where the name of a probe is typed: Enter runs the one under the cursor, arrows move it."""

    def say(self, counts: tuple[int, int], wrong: str = "") -> None:
        """Also names what Enter would run; nothing before somebody has typed or moved the cursor."""
        name = self.probe
        if wrong or not (name or self._input.value):
            super().say(counts, wrong) if wrong else self.note("", "", 0)
            return
        does = f"{key_name(self, '↵')} {cut_to_width(f'runs {name}', NOTE_CELLS - 24)}" if name else ""
        self.note(f"{counts[0]} of {counts[1]}", f"  {does}  Esc list ")

    @property
    def probe(self) -> str:
        """The name of the probe that Enter runs; empty for none."""
        return self._probes.found_name if self._input.value or self._moved else ""

    _moved = False

    @property
    def _probes(self) -> ProbesScreen:
        return cast("ProbesScreen", self.screen)

    async def entered(self) -> None:
        """Runs the probe under the cursor; without one, the field stays."""
        self._probes.filter_typed(self._input.value)
        if self.probe:
            await self._probes.run_found(self.probe)

    async def arrow(self, where: str) -> None:
        """Moves the cursor to the next probe."""
        self._moved = True
        self._probes.next_found_probe(where)
        self.say(self._probes.matches)
