"""The settings that can be tried: their names, what they set, and which are tried by default."""

from __future__ import annotations

import ast

import pytest

from gpuwatch.core.errors import UsageError
from gpuwatch.core.model.run import Setting as RunSetting
from gpuwatch.experiment.probing.probe_scripts import find_probe
from gpuwatch.experiment.trials.trial_settings import default_settings, find_setting, program_setting_text
from tests.every import every

GIB = 1 << 30
EVERY = [
    *("default", "growth", "async-allocator", "mixed-float16", "xla", "cpu-only", "expandable-segments", "tf32"),
    *("no-preallocate", "platform-allocator", "limit=6GiB", "grow-to-limit=700MiB", "fraction=0.5", "visible=1"),
    "TF_GPU_THREAD_MODE=gpu_private",
]


@every(EVERY)
def test_a_setting_has_the_name_by_which_it_is_found_and_code_to_keep_it(text: str) -> None:
    setting = find_setting(text)
    assert setting.name == text
    assert setting.label
    assert bool(setting.code) is (text != "default")
    for name, value in setting.variables.items():
        assert name in setting.code
        assert value in setting.code
    if setting.code.startswith("import"):
        ast.parse(setting.code)


def test_variables_and_values_of_tensorflow_are_those_of_the_probes() -> None:
    assert find_setting("growth").variables == find_probe("growth-env").environment
    assert find_setting("cpu-only").variables == find_probe("cpu-only").environment
    assert find_setting("async-allocator").variables == find_probe("async-allocator").environment
    limit = find_setting("grow-to-limit=1.5GiB")
    assert (limit.probe, limit.options) == ("grow-to-limit", {"memory_limit": 1536})
    assert limit.variables == find_probe("grow-to-limit").environment
    assert "limit = 1536  # MB" in limit.code
    assert "matmul" not in limit.code, "only what makes the setting"
    assert find_setting("visible=GPU-1,0").variables["CUDA_VISIBLE_DEVICES"] == "GPU-1,0"


def test_a_variable_may_have_any_value() -> None:
    assert find_setting("XLA_FLAGS=--xla_dump_to=/tmp/a=b").variables == {"XLA_FLAGS": "--xla_dump_to=/tmp/a=b"}


@every(
    [
        ("growht", "unknown setting 'growht'; did you mean growth?"),
        ("limit", "limit needs a value"),
        ("limit=", "limit needs a value"),
        ("limit=6", "'6' is not a memory size"),
        ("limit=100MB", None),
        ("limit=1kB", "is not a memory size"),
        ("fraction=2", "fraction=2: not a fraction"),
        ("fraction=half", "not a fraction"),
        ("growth=true", "growth takes no value"),
        ("lower=case", "unknown setting 'lower=case'"),
        ("", "unknown setting ''"),
    ]
)
def test_what_is_no_setting_is_refused(text: str, message: str | None) -> None:
    if message is None:
        assert find_setting(text).options == {"memory_limit": 95}
        return
    with pytest.raises(UsageError) as refused:
        find_setting(text)
    assert message in refused.value.message
    assert refused.value.hint


def _names(frameworks: set[str], gpus: list[int], simulation: str | None) -> tuple[list[str], dict[str, str]]:
    found = default_settings(frameworks, gpus, simulation)
    return (
        [setting.name for setting, reason in found if not reason],
        {setting.name: reason for setting, reason in found if reason},
    )


def test_the_settings_of_tensorflow_by_default() -> None:
    tried, left_out = _names({"tensorflow"}, [24 * GIB, 16 * GIB], None)
    assert tried == [
        *("default", "growth", "grow-to-limit=8192MiB", "async-allocator", "mixed-float16", "xla"),
        *("visible=0", "visible=1", "cpu-only"),
    ]
    assert left_out == {}


def test_the_settings_of_others_by_default() -> None:
    assert _names({"torch"}, [GIB], None)[0] == ["default", "expandable-segments", "fraction=0.5", "tf32"]
    assert _names({"jax"}, [GIB], None)[0] == ["default", "no-preallocate", "fraction=0.5", "platform-allocator"]
    assert _names({"jax", "torch"}, [GIB], None)[0].count("fraction=0.5") == 1
    assert _names(set(), [GIB], None)[0] == ["default"]


def test_what_does_not_apply_has_its_reason() -> None:
    tried, left_out = _names({"tensorflow"}, [24 * GIB], "driver")
    assert tried == ["default", "growth", "grow-to-limit=12288MiB", "async-allocator", "cpu-only"]
    assert set(left_out) == {"mixed-float16", "xla"}
    tried, left_out = _names({"tensorflow"}, [24 * GIB], "plugin")
    assert "async-allocator" not in tried
    assert left_out["async-allocator"] == "GPUs simulated as a plugin do not have it"
    tried, left_out = _names({"tensorflow"}, [], None)
    assert tried == ["default", "cpu-only"]
    assert left_out["growth"] == "there is no GPU"


def test_settings_that_change_results_are_marked() -> None:
    assert {text for text in EVERY if find_setting(text).changes_results} == {"mixed-float16", "xla", "tf32"}


def test_a_program_that_makes_a_setting_itself_is_named_with_its_line() -> None:
    growth, limit = find_setting("growth"), find_setting("limit=6GiB")
    itself = {"memory growth": RunSetting(asked=True, effective=True, source="train.py:3")}
    assert program_setting_text(growth, itself) == "the program sets memory growth itself (train.py:3)"
    assert program_setting_text(limit, itself) == program_setting_text(growth, itself)
    assert program_setting_text(find_setting("cpu-only"), itself) == ""
    refused = {"memory growth": RunSetting(asked=True, effective=False, source="train.py:53")}
    assert program_setting_text(growth, refused) == "", "too late: what was tried stays in effect"
    assert program_setting_text(growth, itself, refused) == "", "both asked for it: that of the program is too late"
    assert program_setting_text(growth, itself, itself)
    ours = {
        "memory_limit": RunSetting(asked=6144, source="gpuwatch try"),
        "TF_FORCE_GPU_ALLOW_GROWTH": RunSetting(asked="true", source="environment"),
    }
    assert program_setting_text(growth, ours) == program_setting_text(limit, ours) == ""
    later = {"TF_FORCE_GPU_ALLOW_GROWTH": RunSetting(asked="false", source="the process that starts this one")}
    assert (
        program_setting_text(growth, later)
        == "the program sets TF_FORCE_GPU_ALLOW_GROWTH itself (the process that starts this one)"
    )
