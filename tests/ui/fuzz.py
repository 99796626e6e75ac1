"""Keys in bursts and pastes, thrown at the dashboard; says what breaks and how to see it again.

By hand, for a thousand sessions (about ten minutes):

    nice -n 10 python -m tests.ui.fuzz --count 1000

``--seed`` repeats one of them. A few run with every ``pytest`` (test_ui_bursts.py).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import traceback

from textual import events

from gpuwatch.ui.settings.actions import ACTIONS
from tests.ui import machines
from tests.ui.conftest import Stage

_CHARACTERS = {
    "space": " ", "question_mark": "?", "slash": "/", "plus": "+", "minus": "-", "comma": ",", "full_stop": ".",
    "left_square_bracket": "[", "right_square_bracket": "]", "less_than_sign": "<", "greater_than_sign": ">",
}  # fmt: skip
_OPENERS = [name for pane in ACTIONS.values() for action in pane for name in action.keys.split(",")]
_CLOSERS = ["escape", "q", "enter", "1", "2", "3", "4", "y", "n"]
_KEYS = [
    *_OPENERS, *_CLOSERS, *"0123456789", "up", "down", "left", "right", "tab", "shift+tab", "home", "end", "pageup",
    "pagedown", "backspace", "delete", "space", "f12", "ctrl+a", "K", "J",
]  # fmt: skip
DIGITS = "9" * 4400
_PASTES = (
    DIGITS, f"gpu:{DIGITS}", f"time>{DIGITS}d", f"time>{DIGITS}:00:00", f"mem>{DIGITS}GiB", f"pid:{DIGITS}",
    f"sees:1>{DIGITS}", f"-visible:{DIGITS}", "\x1b[31mred", "one\ntwo\n", 'cmd:"open', "\u202e\u200b", "-" * 3000,
)  # fmt: skip
_LEAVING = frozenset({"ctrl+c", "ctrl+q"})
"""They end the dashboard, as they should; q does so too, on a tab."""


def _key(name: str) -> events.Key:
    return events.Key(name, _CHARACTERS.get(name) or (name if len(name) == 1 else None))


async def session(seed: int, rounds: int = 12) -> list[object]:
    """Some bursts on a dashboard with ten processes; raises what ends it. Gives what was typed."""
    rng = random.Random(seed)
    stage = Stage()
    typed: list[object] = []
    async with stage.app.run_test(size=rng.choice([(120, 40), (80, 24), (60, 12)])) as pilot:
        stage.push(machines.many(2, 10, findings=(machines.HELD,)))
        await pilot.pause()
        for _ in range(rounds):
            if rng.random() < 0.5:
                burst = [rng.choice(_OPENERS), *[rng.choice(_CLOSERS)] * rng.randint(2, 4)]
            else:
                burst = [rng.choice(_KEYS) for _ in range(rng.randint(1, 6))]
            burst = [name for name in burst if name not in _LEAVING]
            typed.append(burst)
            for name in burst:  # all of them before the first is handled, as one read of the terminal gives them
                stage.app.post_message(_key(name))
            if rng.random() < 0.4:
                paste = rng.choice(_PASTES)
                typed.append(paste[:20])
                stage.app.post_message(events.Paste(paste))
            await pilot.pause()
            if not stage.app.is_running:
                break
            if rng.random() < 0.3:
                stage.push(machines.many(2, 10, tick=rng.randint(1, 50)))
                await pilot.pause()
    return typed


def main() -> None:
    """Counts the kinds of errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, help="one session alone")
    given = parser.parse_args()
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        os.environ["GPUWATCH_CONFIG_FILE"] = f"{folder}/settings.toml"
        for seed in range(given.count) if given.seed is None else [given.seed]:
            try:
                typed = asyncio.run(asyncio.wait_for(session(seed), 120))
            except Exception as error:  # noqa: BLE001  (counted)
                last = [frame for frame in traceback.extract_tb(error.__traceback__) if "gpuwatch" in frame.filename]
                where = f"{last[-1].filename}:{last[-1].lineno}" if last else "outside of gpuwatch"
                found.setdefault(f"{type(error).__name__}: {str(error)[:100]} at {where}", []).append(seed)
            else:
                if given.seed is not None:
                    print(*typed, sep="\n")
    for what, seeds in found.items():
        print(f"{len(seeds)} x {what}; seeds {seeds[:5]}")
    print(f"{sum(map(len, found.values()))} sessions ended in an error")


if __name__ == "__main__":
    main()
