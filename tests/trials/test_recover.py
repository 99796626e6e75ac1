"""Programs that run out of memory, and what makes them pass."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from gpuwatch.core.model.run_memory import Memory
from gpuwatch.experiment.trials import oom_recovery
from gpuwatch.experiment.trials.trial_settings import find_setting
from tests.reports.documents import GIB, full_run
from tests.trials.programs import document, forked_document, program, tried

# The second process of the program finds no memory left, unless the first takes only what it needs.
_TWO = """
work = '''
import tensorflow as tf, time
held = tf.Variable(tf.random.uniform([60, 1 << 18]))
print(float(tf.reduce_sum(held)) > 0, flush=True)
time.sleep(DURATION)
'''
first = subprocess.Popen([sys.executable, "-c", work.replace("DURATION", "30")], stdout=subprocess.PIPE)
first.stdout.readline()
code = subprocess.call([sys.executable, "-c", work.replace("DURATION", "0")])
first.kill()
sys.exit(code)
"""
_ONE_TENSOR = """
import tensorflow as tf
print(tf.reduce_sum(tf.random.uniform([4000, 1 << 18])))
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "It does not run out of memory: there is nothing to recover"),
        ("raise ValueError('bad')\n", "It fails, but not for lack of GPU memory: it exited with code 1"),
    ],
)
def test_a_program_that_does_not_run_out_of_memory(text: str, sentence: str, tmp_path: Path) -> None:
    found = document("--recover", "--", *program(tmp_path, text))
    assert found["answer"]["sentence"].startswith(sentence)
    assert len(found["trials"]) == 1


@pytest.mark.parametrize("option", [("--config", "growth"), ("--stop-after", "5s"), ("--copies", "2")])
def test_what_does_not_apply_to_it(option: tuple[str, str]) -> None:
    result = tried("--recover", *option, "--", "true")
    assert result.returncode == 2
    assert option[0] in result.stderr


@pytest.mark.tensorflow
@pytest.mark.long
def test_growth_makes_room_for_a_second_process(tmp_path: Path) -> None:
    found = document("--recover", "--sim", "1x2GiB", "--", *program(tmp_path, _TWO))
    (growth,) = (entry for entry in found["recover"] if entry["name"] == "growth")
    assert (growth["passed"], growth["runs"], growth["verified"]) == (3, 3, True)
    assert found["answer"]["best"] == "growth"
    assert found["answer"]["code"] == ["export TF_FORCE_GPU_ALLOW_GROWTH=true"]
    assert "verified 2 of 2" in found["answer"]["sentence"]


@pytest.mark.tensorflow
@pytest.mark.slow
def test_what_the_cause_rules_out_is_not_tried(tmp_path: Path) -> None:
    command = ("--recover", "--sim", "1x2GiB", "--", *program(tmp_path, _ONE_TENSOR))
    found = forked_document(*command, environment=os.environ, timeout=120)
    assert len(found["trials"]) == 1
    assert not any(entry["runs"] or entry["verified"] for entry in found["recover"])
    assert "requests 3.9 GiB" in found["recover"][0]["reason"]
    assert "Split this tensor" in found["answer"]["sentence"]


def test_a_limit_of_nearly_the_whole_card_is_not_what_is_too_small() -> None:
    run = full_run(config="x", group="run", verdict="oom", primary="memory.limit-too-small")
    run = msgspec.structs.replace(run, memory=Memory(device_total_bytes=2 * GIB))
    assert (
        oom_recovery._failure_text(find_setting("grow-to-limit=1945MiB"), run)
        == "out of memory with 1.9 GiB of the card's 2.0 GiB"
    )
    assert "limit" in oom_recovery._failure_text(find_setting("growth"), run)
