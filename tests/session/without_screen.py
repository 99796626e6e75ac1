"""Drives a session over a hand-made feed, and prints which of its modules a screen would need."""

from __future__ import annotations

import sys

from gpuwatch.session import background_probes, playhead, probe_batch, process_history  # noqa: F401
from gpuwatch.session.session import Session
from tests.ui import machines
from tests.ui.feed import FakeFeed

feed = FakeFeed()
session = Session(feed, clock=lambda: machines.NOON.timestamp() + 30)
session.start(lambda: None)
feed.push(*(machines.pair(tick) for tick in range(30)))
assert len(session.take()) == 30
session.diagnose()
assert session.view().findings
session.pause().move_samples(-3)
assert session.view().position is not None
session.stop()
print(*(name for name in sys.modules if name.partition(".")[0] in ("textual", "rich")))
