"""The settings that ``gpuwatch try`` can try, by name, and those that it tries by default.

TensorFlow's are the probes' (``probes/*.py``): their ENVIRONMENT, and their ``configure()``, which is called inside the
program (``probes/_gpuwatch_watch/_gpuwatch_trial_setting.py``). PyTorch's and JAX's are variables: docs.pytorch.org
("CUDA Environment Variables"), docs.jax.dev ("GPU memory allocation").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gpuwatch.core.errors import UsageError
from gpuwatch.core.formatting.suggest import did_you_mean
from gpuwatch.core.model.run import Setting as RunSetting
from gpuwatch.experiment.probing.probe_scripts import example_code, find_probe
from gpuwatch.sim.machine_shape import parse_memory

_MIB = 1 << 20
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_GROWTH_NAMES = ("memory growth", "allow_growth")
_MEMORY_AMOUNT = ("memory_limit", "per_process_gpu_memory_fraction")


class TrialSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting to try."""

    name: str
    """As it is given to ``--config``: ``limit=6GiB``."""
    label: str
    framework: Literal["tensorflow", "torch", "jax", "any"] = "any"
    variables: dict[str, str] = {}
    """Environment variables to start the program with."""
    probe: str | None = None
    """Probe whose settings are applied inside the program (GPUWATCH_TRIAL); None if variables suffice."""
    options: dict[str, Any] = {}
    """The probe's options."""
    changes_results: bool = False
    """The program's results differ a little: mixed precision, TF32, XLA."""
    requires: Literal["", "several-gpus"] = ""
    simulated: bool = True
    """Whether it can be tried on simulated GPUs."""
    tier: str = ""
    """The only tier of simulated GPUs that has it, ``driver`` or ``plugin``; empty if both have."""
    code: str = ""
    """What to paste to keep it: shell lines for variables, else Python."""
    program_names: tuple[str, ...] = ()
    """Settings of a run (``Run.settings``) by which a program makes this setting itself."""

    @property
    def code_lines(self) -> tuple[str, ...]:
        return tuple(self.code.rstrip().splitlines())


def find_setting(setting_name: str) -> TrialSetting:
    """The setting that a user names: ``growth``, ``limit=6GiB``, ``TF_GPU_THREAD_MODE=gpu_private``.

    Raises:
        UsageError: there is no such setting, or its value is wrong.
    """
    name, equals, value = setting_name.strip().partition("=")
    if name in _SETTINGS and not equals:
        return _SETTINGS[name]()
    if name in _SETTINGS_WITH_VALUE:
        make, example = _SETTINGS_WITH_VALUE[name]
        if not value:
            raise UsageError(f"{name} needs a value", hint=f"for example --config {name}={example}")
        return make(value)
    if name in _SETTINGS:
        raise UsageError(f"{name} takes no value", hint=f"--config {name}")
    if equals and _VARIABLE.fullmatch(name):
        return _variables_setting(setting_name.strip(), setting_name.strip(), {name: value}, program_names=(name,))
    names = [*_SETTINGS, *_SETTINGS_WITH_VALUE]
    with_value = (f"{name}={example}" for name, (_, example) in _SETTINGS_WITH_VALUE.items())
    hint = ", ".join([*_SETTINGS, *with_value, "VARIABLE=value"])
    raise UsageError(f"unknown setting {setting_name!r}{did_you_mean(name, names)}", hint=f"known: {hint}")


def default_settings(
    frameworks: Collection[str], gpus: Sequence[int], simulation: str | None
) -> list[tuple[TrialSetting, str]]:
    """The settings to compare for a program, each with why it cannot be tried here; empty if it can.

    ``frameworks``: those that it loads (tensorflow, torch, jax). ``gpus``: total memory of each GPU, in bytes.
    ``simulation``: tier of simulated GPUs, None if they are real.
    """
    settings: dict[str, TrialSetting] = {"default": find_setting("default")}
    for framework in ("tensorflow", "torch", "jax"):
        if framework in frameworks:
            for text in _DEFAULT_NAMES[framework](gpus):
                settings.setdefault(text, find_setting(text))
    return [(setting, _why_not_applicable(setting, gpus, simulation)) for setting in settings.values()]


def why_not_simulated(setting: TrialSetting, simulation: str | None) -> str:
    """Why GPUs simulated in this tier do not have a setting; empty if they do, or are real (None)."""
    if simulation is None or (setting.simulated and setting.tier in ("", simulation)):
        return ""
    which = "simulated GPUs" if not setting.simulated else f"GPUs simulated as a {simulation}"
    return f"{which} do not have it"


def program_setting_text(
    setting: TrialSetting, settings: Mapping[str, RunSetting], default: Mapping[str, RunSetting] | None = None
) -> str:
    """``the program sets memory growth itself (train.py:3)``; empty if it does not.

    ``settings``: those of the run in which ``setting`` was to be tried. ``default``: of the run without it, which shows
    whether the framework takes what the program sets; with the setting both may have asked for the same.
    """
    for name in setting.program_names:
        program_setting = settings.get(name)
        if program_setting is None or program_setting.source in ("", "environment", "gpuwatch try"):
            continue
        without = (default or {}).get(name)
        if _was_refused(program_setting) or (without is not None and _was_refused(without)):
            continue
        return f"the program sets {name.replace('memory_limit', 'a memory limit')} itself ({program_setting.source})"
    return ""


def _was_refused(setting: RunSetting) -> bool:
    """Whether the framework did not take a program's setting: it came too late, once the devices were there."""
    is_comparable = isinstance(setting.asked, bool | list) and setting.effective is not None
    return is_comparable and setting.effective != setting.asked


def _why_not_applicable(setting: TrialSetting, gpus: Sequence[int], simulation: str | None) -> str:
    if not gpus and setting.name not in ("default", "cpu-only"):
        return "there is no GPU"
    if setting.requires == "several-gpus" and len(gpus) < 2:
        return "there is only one GPU"
    return why_not_simulated(setting, simulation)


def _tensorflow_defaults(gpus: Sequence[int]) -> list[str]:
    half_limit = [f"grow-to-limit={min(gpus) // 2 // _MIB}MiB"] if gpus else []
    single_gpus = [f"visible={number}" for number in range(len(gpus))] if len(gpus) > 1 else []
    return ["growth", *half_limit, "async-allocator", "mixed-float16", "xla", *single_gpus, "cpu-only"]


_DEFAULT_NAMES: dict[str, Callable[[Sequence[int]], list[str]]] = {
    "tensorflow": _tensorflow_defaults,
    "torch": lambda gpus: ["expandable-segments", "fraction=0.5", "tf32"],
    "jax": lambda gpus: ["no-preallocate", "fraction=0.5", "platform-allocator"],
}


def _variables_setting(name: str, label: str, variables: dict[str, str], **more: Any) -> TrialSetting:
    code = "\n".join(f"export {variable}={value}" for variable, value in variables.items())
    return TrialSetting(name=name, label=label, variables=variables, code=code, **more)


def _environment_setting(name: str, script: str, label: str, **more: Any) -> TrialSetting:
    """A setting that is a probe's ENVIRONMENT alone."""
    return _variables_setting(name, label, find_probe(script).environment, framework="tensorflow", **more)


def _limit_setting(name: str, label: str, *program_names: str) -> Callable[[str], TrialSetting]:
    """A setting that the probe's configure() makes inside the program."""

    def make(value: str) -> TrialSetting:
        limit_mib = parse_memory(value) // _MIB
        if limit_mib < 1:
            raise UsageError(f"{value}: less than 1 MiB", hint="for example --config limit=6GiB")
        amount = f"{limit_mib // 1024} GiB" if limit_mib % 1024 == 0 else f"{limit_mib} MiB"
        script, options = find_probe(name), {"memory_limit": limit_mib}
        _, *sections, _ = example_code(script, options).split("\n\n")  # without the title and the work
        return TrialSetting(
            name=f"{name}={value}",
            label=f"{label} {amount}",
            framework="tensorflow",
            variables=script.environment,
            probe=name,
            options=options,
            code="\n\n".join(sections),
            program_names=(*program_names, *_GROWTH_NAMES, *_MEMORY_AMOUNT),
        )

    return make


def _fraction_setting(value: str) -> TrialSetting:
    try:
        fraction = float(value)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction={value}: not a fraction", hint="for example --config fraction=0.5")
    variable = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    call = f"torch.cuda.set_per_process_memory_fraction({fraction:g})"
    return TrialSetting(
        name=f"fraction={value}",
        label=f"{fraction:.0%} of the GPU's memory",
        variables={variable: value},
        probe="fraction",
        options={"fraction": fraction},
        code=f"{call}  # PyTorch\nexport {variable}={value}  # JAX",
        program_names=(*_MEMORY_AMOUNT, variable),
    )


def _visible_setting(value: str) -> TrialSetting:
    variables = {**find_probe("visible-env").environment, "CUDA_VISIBLE_DEVICES": value}
    label = f"only GPU {value}" if "," not in value else f"GPUs {value}"
    names = ("CUDA_VISIBLE_DEVICES", "visible devices", "visible_device_list")
    return _variables_setting(f"visible={value}", label, variables, requires="several-gpus", program_names=names)


def _variable_setting(
    name: str, framework: str, label: str, variable: str, value: str, changes_results: bool = False
) -> Callable[[], TrialSetting]:
    """A setting that is one variable, and that simulated GPUs do not have."""
    return lambda: _variables_setting(
        *(name, label, {variable: value}),
        framework=framework,
        changes_results=changes_results,
        simulated=False,
        program_names=(variable,),
    )


_GROWTH_VARIABLE = "TF_FORCE_GPU_ALLOW_GROWTH"
_SETTINGS: dict[str, Callable[[], TrialSetting]] = {
    "default": lambda: TrialSetting(name="default", label="as the program is"),
    "growth": lambda: _environment_setting(
        "growth", "growth-env", "memory growth", program_names=(_GROWTH_VARIABLE, *_GROWTH_NAMES)
    ),
    "async-allocator": lambda: _environment_setting(
        *("async-allocator", "async-allocator", "CUDA's asynchronous allocator"),
        program_names=("TF_GPU_ALLOCATOR",),
        probe="async-allocator",
        tier=find_probe("async-allocator").tier,
    ),
    "mixed-float16": lambda: TrialSetting(
        name="mixed-float16",
        label="mixed precision (Keras)",
        framework="tensorflow",
        probe="mixed-float16",
        changes_results=True,
        simulated=False,
        code='import keras\n\nkeras.mixed_precision.set_global_policy("mixed_float16")',
    ),
    "xla": _variable_setting("xla", "tensorflow", "XLA for all graphs", "TF_XLA_FLAGS", "--tf_xla_auto_jit=2", True),
    "cpu-only": lambda: _variables_setting(
        "cpu-only", "no GPU", find_probe("cpu-only").environment, program_names=("CUDA_VISIBLE_DEVICES",)
    ),
    "expandable-segments": _variable_setting(
        *("expandable-segments", "torch", "expandable segments"), "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
    ),
    "tf32": _variable_setting("tf32", "torch", "TF32 matrix products", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1", True),
    "no-preallocate": _variable_setting(
        "no-preallocate", "jax", "memory as needed", "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
    ),
    "platform-allocator": _variable_setting(
        "platform-allocator", "jax", "no memory pool", "XLA_PYTHON_CLIENT_ALLOCATOR", "platform"
    ),
}
_SETTINGS_WITH_VALUE: dict[str, tuple[Callable[[str], TrialSetting], str]] = {
    "limit": (_limit_setting("limit", "memory limit"), "6GiB"),
    "grow-to-limit": (_limit_setting("grow-to-limit", "memory growth up to", _GROWTH_VARIABLE), "6GiB"),
    "fraction": (_fraction_setting, "0.5"),
    "visible": (_visible_setting, "1"),
}
