"""Would a program run on a smaller card?"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.try_results import Trial
from gpuwatch.experiment.trials import smaller_card
from gpuwatch.experiment.trials.smaller_card import parse_cards
from gpuwatch.experiment.trials.trial import Goal
from gpuwatch.experiment.trials.trial_plan import Configuration, StopRule
from gpuwatch.experiment.trials.trial_settings import find_setting
from tests.reports import documents
from tests.reports.documents import full_run
from tests.trials.programs import document, program, trial_setup, tried

GIB, MIB = 1 << 30, 1 << 20
# 900 MiB of variables.
_NEEDS = """
import tensorflow as tf
held = [tf.Variable(tf.zeros([10, 1 << 18])) for _ in range(90)]
@tf.function
def train():
    held[0].assign_add(tf.ones_like(held[0]))
for _ in range(200): train()
"""


def test_cards_are_sizes_the_smallest_first() -> None:
    assert parse_cards("24GiB, 512MiB,16GB") == (("512MiB", 512 * MIB), ("16GB", 16 * 10**9), ("24GiB", 24 * GIB))
    with pytest.raises(UsageError):
        parse_cards("16GiB,")


def test_a_program_without_a_framework_has_no_allocator(tmp_path: Path) -> None:
    result = tried("--fits", "1GiB", "--sim", "1x2GiB", "--no-save", "--", *program(tmp_path, "step()\n"))
    assert result.returncode == 2
    assert "the program used no GPU" in result.stderr


def test_a_card_that_cannot_be_simulated_is_refused_before_anything_runs(tmp_path: Path) -> None:
    command = program(tmp_path, f"open('{tmp_path}/ran', 'w').close()\n")
    result = tried("--fits", "200MiB,1GiB", "--sim", "1x2GiB", "--no-save", "--", *command)
    assert result.returncode == 2
    assert "--fits 200MiB: no such card can be simulated" in result.stderr
    assert "512 MiB is the smallest" in result.stderr
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("peak", [700 * MIB, None], ids=["known", "of a session"])
def test_the_memory_that_it_needs_is_found_with_and_without_the_allocators_peak(
    peak: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = 900 * MIB

    class Cards:
        note = ""

        def __init__(self, *_: object) -> None: ...

        def run(self, amount: int, goal: Goal) -> Trial:
            ran = full_run(group="run", verdict="ok" if amount >= needs else "oom", findings=(), primary=None)
            memory = msgspec.structs.replace(ran.memory, allocator_peak_bytes=peak)
            return documents.tried("default", run=msgspec.structs.replace(ran, memory=memory))

        def available_on(self, card: int) -> int:
            return card

    monkeypatch.setattr(smaller_card, "_SimulatedCards", Cards)
    setup = trial_setup(simulation="plugin")
    cards = parse_cards("768MiB,1GiB,24GiB")
    smaller_card.find_smaller_card(
        setup, Configuration(find_setting("default")), cards, StopRule("steps", 20), budget=60
    )
    found = setup.experiment
    assert found.needed_bytes is not None
    assert found.needed_bytes[0] < needs <= found.needed_bytes[1] <= found.needed_bytes[0] * 1.06
    assert [one.fits for one in found.fits] == [False, True, True]
    assert found.answer.sentence.startswith("1GiB is enough: it needs ")


@pytest.mark.tensorflow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_border_is_that_of_a_sweep_by_hand(tmp_path: Path) -> None:
    command = program(tmp_path, _NEEDS)
    found = document("--fits", "768MiB,1GiB,2GiB,4GiB", "--sim", "1x4GiB", "--", *command)
    low, high = found["needed_bytes"]
    assert high <= low * 1.06
    assert [(entry["card"], entry["fits"]) for entry in found["fits"]] == [
        *(("768MiB", False), ("1GiB", False), ("2GiB", True), ("4GiB", True)),
    ]
    assert found["answer"]["sentence"].startswith("2GiB is enough: it needs 1.")
    for amount, verdict in ((int(low * 0.97), "oom"), (int(high * 1.03), "ok")):
        shape = f"1x{amount // MIB}MiB"
        by_hand = document("--config", "default", "--rounds", "1", "--sim", shape, "--", *command)
        assert by_hand["trials"][0]["run"]["verdict"] == verdict
