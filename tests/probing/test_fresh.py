"""A fork of the template and a fresh interpreter tell the same."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.sim.machine import SimMachine
from tests.conftest import gpuwatch

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

GROUPS = ("--group", "memory", "--group", "visibility", "--group", "placement")


def told(run: dict[str, Any]) -> dict[str, Any]:
    """What must not depend on how the probe was started."""
    return {
        "verdict": run["verdict"],
        "device_map": run["device_map"],
        "placements": sorted((p["op"], p["requested"] or "", p["actual"]) for p in run["placements"]),
        "fallbacks": sorted((f["op"], f["requested"], f["actual"], f["reason"]) for f in run["fallbacks"]),
        "ooms": run["ooms"],
        "errors": [(error["type"], error["expected"]) for error in run["errors"]],
        "findings": sorted((finding["id"], finding["severity"]) for finding in run["findings"]),
        "missing_libraries": run["missing_libraries"],
        "settings": {name: setting["effective"] for name, setting in run["settings"].items()},
    }


@pytest.mark.timeout(600)
def test_the_groups_that_are_compared_most(sim_machine: Callable[[str], SimMachine]) -> None:
    environment = sim_machine("2x24GiB").environment(os.environ)
    taken: dict[bool, dict[str, dict[str, Any]]] = {}
    seconds = {}
    for fresh in (False, True):
        began = time.monotonic()
        arguments = ["probe", *GROUPS, "--seconds", "0.05", "--json", *(["--fresh"] if fresh else [])]
        result = gpuwatch(*arguments, environment=environment, timeout=500)
        seconds[fresh] = time.monotonic() - began
        assert result.code == 0, result.err
        taken[fresh] = {run["config"]: run for run in json.loads(result.out)["runs"]}
    assert not any(run["fresh"] for run in taken[False].values())
    assert all(run["fresh"] for run in taken[True].values())
    assert taken[False].keys() == taken[True].keys()
    for config, forked in taken[False].items():
        assert told(forked) == told(taken[True][config]), config
    print(f"\nforked {seconds[False]:.1f} s, fresh {seconds[True]:.1f} s: {seconds[True] / seconds[False]:.1f} times")
