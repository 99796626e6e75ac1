"""Settings that came from the environment: which variables the framework reads, and who set them."""

from __future__ import annotations

import msgspec

from gpuwatch.core.model.run import INHERITED, Framework, Run, Setting
from gpuwatch.experiment.probing.environment_settings import PARENT_PROCESS, environment_settings
from gpuwatch.share.reports.run_report import GPUWATCH_SOURCE, settings_text
from gpuwatch.share.reports.runs_side_by_side import differences
from tests.reports.documents import bare_run

TENSORFLOW, TORCH = Framework(name="tensorflow"), Framework(name="torch")


def test_variables_of_the_framework_are_settings_with_who_set_them() -> None:
    start = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "CUDA_VISIBLE_DEVICES": "0,1", "HOME": "/home/alice"}
    now = {**start, "CUDA_VISIBLE_DEVICES": "1", "TF_GPU_ALLOCATOR": "cuda_malloc_async"}
    assert environment_settings(now, start, TENSORFLOW, {}) == {
        "CUDA_VISIBLE_DEVICES": Setting(asked="1", source=PARENT_PROCESS),
        "TF_FORCE_GPU_ALLOW_GROWTH": Setting(asked="true", effective=True, source=INHERITED),
        "TF_GPU_ALLOCATOR": Setting(asked="cuda_malloc_async", source=PARENT_PROCESS),
    }
    placed = environment_settings(now, start, TENSORFLOW, {"TF_GPU_ALLOCATOR": "train.py:3", "HOME": "train.py:4"})
    assert [one.source for one in placed.values()] == [PARENT_PROCESS, INHERITED, "train.py:3"]
    assert set(environment_settings(now, start, TORCH, {})) == {"CUDA_VISIBLE_DEVICES"}
    assert environment_settings(now, start, None, {}) == {}


def test_a_value_that_tensorflow_does_not_take_has_no_effect() -> None:
    (growth,) = environment_settings({"TF_FORCE_GPU_ALLOW_GROWTH": "1"}, {}, TENSORFLOW, {}).values()
    assert growth.effective is None
    assert "only true and false" in growth.note


def test_two_runs_with_and_without_it_do_not_compare_as_the_same_settings() -> None:
    plain: Run = msgspec.structs.replace(
        bare_run(),
        group="run",
        config="run",
        verdict="ok",
        settings={"placement logging": Setting(asked=True, source=GPUWATCH_SOURCE)},
    )
    settings = environment_settings({"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, {}, TENSORFLOW, {})
    grown = msgspec.structs.replace(plain, settings=settings)
    (difference,) = differences((plain, grown))
    assert [change for change in difference.changed if "TF_FORCE_GPU_ALLOW_GROWTH=true" in change]
    assert not [change for change in difference.changed if "placement" in change]
    assert settings_text(grown) == "TF_FORCE_GPU_ALLOW_GROWTH=true"
