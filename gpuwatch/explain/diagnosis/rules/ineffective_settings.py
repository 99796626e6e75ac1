"""Settings made too late, that conflict, or whose names TensorFlow does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Setting
from gpuwatch.core.safe_text import printable, shorten
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.rule_registry import finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.error_evidence import error_lines, stated_error

_SET_EARLIER_ACTION = "Call tf.config right after the import, before any tensor or model is created."
_FIRST_SESSION_ACTION = "Give it to the ConfigProto of the first session, or to tf.config right after the import."
_POLICY_ACTION = (
    "Set the policy before the model's layers are created; a loaded model keeps the types it was saved with."
)
_PASS_CONFIG_ACTION = "Give the ConfigProto to the session: tf.compat.v1.Session(config=config)."
_SAME_GROWTH_ACTION = (
    "Set memory growth the same on every GPU. For growth up to a limit, set only memory_limit, and"
    " TF_FORCE_GPU_ALLOW_GROWTH=true in the environment."
)
_READ_BACK_SETTINGS = ("memory growth", "memory_limit", "logical devices", "visible devices")
"""Settings of tf.config whose effective values the watcher reads from TensorFlow's own state."""
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_TOO_LATE, _OVERRIDDEN, _REFUSED, _UNUSED = "too late", "overridden by ", "refused: ", "not in effect: "
"""Beginnings of the watcher's notes on settings (_gpuwatch_tensorflow_settings.py)."""
_UNKNOWN_FIELD = re.compile(r"rotocol message (?P<message>GPUOptions|ConfigProto) has no \W(?P<field>\w{1,80})\W")
_FIELDS = {
    "GPUOptions": (
        "per_process_gpu_memory_fraction", "allow_growth", "allocator_type", "deferred_deletion_bytes",
        "visible_device_list", "polling_active_delay_usecs", "polling_inactive_delay_msecs", "force_gpu_compatible",
        "experimental",
    ),
    "ConfigProto": (
        "device_count", "intra_op_parallelism_threads", "inter_op_parallelism_threads", "use_per_session_threads",
        "session_inter_op_thread_pool", "placement_period", "device_filters", "gpu_options", "allow_soft_placement",
        "log_device_placement", "graph_options", "operation_timeout_in_ms", "rpc_options", "cluster_def",
        "isolate_session_state", "share_cluster_devices_in_session", "experimental",
    ),
}  # fmt: skip
"""Fields of the messages in ``tensorflow/core/protobuf/config.proto``, which has never removed one of these."""
_MIN_NAME_SIMILARITY = 0.7


@rule("config.too-late", "config.inconsistent")
def settings_without_effect(evidence: Evidence) -> Iterator[Finding]:
    """Settings that a program asked for and that are not in effect, also if it caught the error.

    They were made too late, overridden by a variable, or never used.
    """
    run = evidence.program
    settings = run.settings if run is not None else {}
    without_effect = {name: setting for name, setting in settings.items() if _is_without_effect(name, setting)}
    overridden = {name: setting for name, setting in without_effect.items() if setting.note.startswith(_OVERRIDDEN)}
    too_late = {name: setting for name, setting in without_effect.items() if name not in overridden}
    stated, _ = error_lines(evidence, "config.too-late")
    if too_late:
        failed = run is not None and run.verdict == "error" and bool(stated)
        action = _FIRST_SESSION_ACTION if all(setting.note for setting in too_late.values()) else _SET_EARLIER_ACTION
        if _VISIBLE_DEVICES in too_late:
            action = "If this process should use it, set it in the shell, or before the framework is imported."
        yield finding(
            "config.too-late",
            "error" if failed else "warning",
            title=f"Set too late, and not in effect: {', '.join(too_late)}",
            evidence=[*_setting_texts(too_late), *stated],
            action=action,
        )
    elif stated:
        yield from stated_error(evidence, "config.too-late", _SET_EARLIER_ACTION)
    unused = {name: setting for name, setting in settings.items() if setting.note.startswith(_UNUSED)}
    if unused:
        yield warning_finding(
            "config.inconsistent",
            title=f"Not in effect: {', '.join(unused)}",
            evidence=_setting_texts(unused),
            action=_POLICY_ACTION if "mixed precision" in unused else _PASS_CONFIG_ACTION,
        )
    for name, setting in overridden.items():
        variable = setting.note.removeprefix(_OVERRIDDEN)
        yield warning_finding(
            "config.inconsistent",
            title=f"{variable} overrides the program's own {name}",
            evidence=_setting_texts({name: setting}),
            action=f"Unset {variable.partition('=')[0]}, or set it to what the program requests.",
        )


def _is_without_effect(name: str, setting: Setting) -> bool:
    """Whether a setting is known not to be in effect."""
    if setting.note.startswith(_TOO_LATE):
        return True
    compared = name in _READ_BACK_SETTINGS or setting.note.startswith(_OVERRIDDEN)
    if not compared or setting.effective is None or setting.asked is None:
        return False
    return _normalized(setting.asked) != _normalized(setting.effective)


def _normalized(value: object) -> object:
    """A list of names in any order is the same setting."""
    return sorted(value) if isinstance(value, list) and all(isinstance(entry, str) for entry in value) else value


def _setting_texts(settings: Mapping[str, Setting]) -> Iterator[str]:
    for name, setting in settings.items():
        where = f" at {printable(setting.source)}" if setting.source else ""
        has = "none" if setting.effective == [] else setting.effective
        effect = setting.note if setting.effective is None else f"TensorFlow has {has}"
        yield shorten(printable(f"{name}: {setting.asked} was requested{where}; {effect}"), 300)


@rule("config.inconsistent")
def rejected_settings(evidence: Evidence) -> Iterator[Finding]:
    """Settings that TensorFlow rejects: in combination, or because it has no field of that name."""
    lines, _ = error_lines(evidence, "config.inconsistent")
    unknown = next((match for line in lines if (match := _UNKNOWN_FIELD.search(line))), None)
    title, action = "", _SAME_GROWTH_ACTION
    if unknown is not None:
        message, field = unknown["message"], unknown["field"]
        title = f"{message} has no field {field}{_field_meant(message, field)}"
        action = "Correct the field's name where the program sets it."
    settings = evidence.program.settings if evidence.program is not None else {}
    refused = {name: setting for name, setting in settings.items() if setting.note.startswith(_REFUSED)}
    if refused and not lines:
        yield warning_finding(
            "config.inconsistent",
            title=f"TensorFlow rejected {', '.join(refused)}, and therefore uses no GPU",
            evidence=_setting_texts(refused),
            action=_SAME_GROWTH_ACTION,
        )
    yield from stated_error(evidence, "config.inconsistent", action, title)


def _field_meant(message: str, field: str) -> str:
    """The field that was probably meant, if one resembles it."""
    for owner in sorted(_FIELDS, key=lambda name: name != message):
        for near in get_close_matches(field.lower(), _FIELDS[owner], 1, _MIN_NAME_SIMILARITY):
            place = f" (ConfigProto.gpu_options.{near})" if owner == "GPUOptions" else ""
            return f": {near} was probably meant" if owner == message else f": {near} belongs to {owner}{place}"
    return ""
