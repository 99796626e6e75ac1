"""An hour of 100,000 processes that come and go: memory, descriptors and CPU a sample stay."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.safety.soak import FRONT_ENDS, PARTS

SHARE = 1.05


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_an_hour_of_processes_that_come_and_go_leaves_nothing(front_end: str) -> None:
    command = [sys.executable, "-m", "tests.safety.soak", front_end]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    parts = [json.loads(line) for line in done.stdout.splitlines()]
    print(front_end, *parts, sep="\n")
    assert len(parts) == PARTS
    third = PARTS // 3
    first, last = parts[:third], parts[-third:]
    assert max(one["descriptors"] for one in last) <= max(one["descriptors"] for one in first)
    for figure in ("memory", "cpu"):
        before, after = (sum(one[figure] for one in some) / third for some in (first, last))
        assert after <= SHARE * before, f"{figure}: {before:.1f}, then {after:.1f}"
