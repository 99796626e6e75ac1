"""Small programs for ``gpuwatch try``, and how the tests run it on them."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from gpuwatch.core.model.try_results import Answer, Experiment
from gpuwatch.experiment.trials.trial_setup import Feed, TrialSetup
from tests.forked import gpuwatch_forked, run_gpuwatch


def program(folder: Path, text: str) -> list[str]:
    """The command that runs a script of this text, in which ``step()`` counts a step."""
    script = folder / "train.py"
    script.write_text("import os, signal, subprocess, sys, time\nfrom gpuwatch import step\n" + text)
    return [sys.executable, str(script)]


def trial_setup(simulation: str | None = None) -> TrialSetup:
    """A setup whose trials do not run a program, since a test stands in for :func:`run_trial`."""
    started_at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    answer = Answer(sentence="Nothing was run")
    experiment = Experiment(command="train", started_at=started_at, took_seconds=0.0, rule="", answer=answer)
    return TrialSetup(("train",), cast("Feed", None), Path(), experiment, simulation=simulation)


def tried(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    return run_gpuwatch("try", *arguments, text=True, **keywords)


def document(*arguments: str, **keywords: Any) -> dict[str, Any]:
    """The document that ``--json`` prints."""
    result = tried("--json", "--no-save", *arguments, **keywords)
    return _read(result.stdout, result.stderr)


def forked_document(*arguments: str, environment: Mapping[str, str], timeout: float) -> dict[str, Any]:
    """As :func:`document`, for programs that use TensorFlow: each is a fork of a process that has imported it."""
    result = gpuwatch_forked("try", "--json", "--no-save", *arguments, environment=environment, timeout=timeout)
    return _read(result.out, result.err)


def _read(out: str, err: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out or f'{{"stderr": {json.dumps(err)}}}')
    assert "trials" in found, err
    return found
