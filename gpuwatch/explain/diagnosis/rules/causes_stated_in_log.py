"""Causes that a log line states directly: the topic is the cause.

To add one: its row in :mod:`gpuwatch.core.model.causes`, and its text in ``explain/logs/message_topic_texts.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from gpuwatch.core.model.causes import CAUSE_TABLE
from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW, framework_of, libraries_advice
from gpuwatch.explain.diagnosis.rule_registry import finding, rule
from gpuwatch.explain.diagnosis.rules.driver_failures import CUDA_ERROR_ADVICE
from gpuwatch.explain.diagnosis.rules.error_evidence import error_line, error_lines, raised_at
from gpuwatch.explain.logs import cuda_errors
from gpuwatch.explain.logs.log_facts import KERAS_WORK, WORK
from gpuwatch.explain.logs.message_topics import states_explicitly
from gpuwatch.explain.logs.removed_api import find_removed_api

STATED_CAUSES = {cause: row for cause, row in CAUSE_TABLE.items() if row.stated is not None}
_VERSION_MISMATCHES = (
    # Loaded runtime CuDNN library: 9.1.1 but source was compiled with: 9.3.0.
    re.compile(
        r"oaded runtime (?P<what>CuDNN) library: (?P<has>[\d.]{1,20}).{0,60}?compiled with:? (?P<wants>\d[\d.]{0,20}\d)"
    ),
    # PyTorch was compiled  against (8, 9, 2) but found runtime version (8, 5, 0)
    re.compile(
        r"(?P<what>cuDNN) version incompatibility.{0,80}?against \((?P<wants>[\d, ]{1,20})\) but found runtime version"
        r" \((?P<has>[\d, ]{1,20})\)"
    ),
    # Found cuDNN version 8600, but JAX was built against version 8904
    re.compile(
        r"Found (?P<what>\w{2,20}) version (?P<has>\d{1,9}), but JAX was built against version (?P<wants>\d{1,9})"
    ),
    # The detected CUDA version (12.1) mismatches the version that was used to compile PyTorch (11.7)
    re.compile(
        r"etected (?P<what>CUDA) version \((?P<has>[\d.]{1,20})\) mismatches .{0,80}?\((?P<wants>[\d.]{1,20})\)",
    ),
    # ('The detected CUDA version (%s) mismatches the version that was used to compilePyTorch (%s). …', '11.7', '12.1')
    re.compile(
        r"etected (?P<what>CUDA) version \(%s\) mismatches .{0,200}?', '(?P<has>[\d.]{1,20})', '(?P<wants>[\d.]{1,20})'"
    ),
    re.compile(r"XLA requires (?P<what>ptxas) version (?P<wants>[\d.]{1,20})(?P<has>)"),
    re.compile(r"linked against (?P<what>\w{2,20}) (?P<wants>[\d.]{1,20}) but loaded \w{2,20} (?P<has>[\d.]{1,20})"),
    re.compile(
        r"PJRT API version \((?P<has>[\d.]{1,20})\) and framework (?P<what>PJRT) API version \(?(?P<wants>[\d.]{1,20})"
    ),
)
_TENSORRT_TITLES = (
    (
        "magicTag",
        "TensorRT cannot read that file as an engine: another version created it, or it is not an engine (an ONNX "
        "model)",
    ),
    ("ersion tag does not match", "The engine was built with another TensorRT version"),
)
_TOOLKIT_MISMATCH = "mismatches the version that was used to compile"
_TOOLKIT_ACTION = (
    "Load or install the toolkit (nvcc) for {}, and set CUDA_HOME and PATH to it, or install a prebuilt wheel of the "
    "package. PyTorch itself is fine."
)
_UNDEFINED_SYMBOL = re.compile(
    r"(?P<file>[\w.+-]{1,80}\.so[.\d]{0,20}): undefined symbol: (?P<symbol>\w{1,120})(?:, version (?P<of>\S{1,80}))?"
)


@rule(*STATED_CAUSES)
def stated_by_the_log(evidence: Evidence) -> Iterator[Finding]:
    """One finding for each cause that the log states."""
    log = evidence.log
    no_driver = log.lines_of("driver.not-running")
    worked = log.ending_kind in (WORK, KERAS_WORK)
    for cause, row in STATED_CAUSES.items():
        lines, expected = error_lines(evidence, cause)
        if not lines:
            continue
        certain = any(states_explicitly(line, cause) for line in lines)
        if cause == "cuda.version-mismatch" and not certain and "build.gpu-jit" in log.topics:
            continue  # without code for this GPU even the error's text cannot be looked up
        only_query = all("driver error: failed to process" in line for line in lines)
        if cause == "driver.bad-state" and only_query and any("nvc.c:" in line for line in no_driver):
            continue  # the container toolkit could not query the driver, and its own log says why
        if worked and all("xformers" in line.lower() for line in lines):
            continue  # PyTorch's own attention was used
        mapped = cause == "cuda.version-mismatch" and evidence.gpu_usable
        severity: Severity = "info" if expected else "warning" if row.ends == "nothing" or mapped else "error"
        certainty: Certainty = "fact" if row.stated == "fact" and (certain or row.ends == "nothing") else "likely"
        title, specific_action = _title_and_action(evidence, cause, lines)
        if cause == "mode.exclusive":
            lines = [*lines, *log.lines_of("mode.shown")]
        if cause == "api.removed":
            removed_errors = (error for error in log.errors if find_removed_api(error_line(error)) is not None)
            lines = [*lines, *chain.from_iterable(raised_at(log, error) for error in removed_errors)]
        yield finding(cause, severity, certainty, title=title, evidence=lines, action=specific_action or row.action)


def _title_and_action(evidence: Evidence, cause: str, lines: list[str]) -> tuple[str, str]:
    """A title and an action with details from the lines; empty if they only state the cause."""
    if cause == "driver.bad-state":
        return _start_error_title_and_action(lines)
    if cause == "api.removed":
        for removed_api in filter(None, map(find_removed_api, lines)):
            return f"The code uses {removed_api.name}, which the installed version no longer has", removed_api.action
    if cause != "cuda.version-mismatch":
        return "", ""
    if tensorrt_title := next((title for text, title in _TENSORRT_TITLES if any(text in line for line in lines)), ""):
        return tensorrt_title, ""
    for line in lines:
        for pattern in _VERSION_MISMATCHES:
            if (match := pattern.search(line)) is not None:
                what = "cuDNN" if match["what"] == "CuDNN" else match["what"]
                needed, loaded = (match[name].replace(", ", ".").strip(".") for name in ("wants", "has"))
                and_loaded = f", and {what} {loaded} was loaded" if loaded else ""
                hint = " Keep other copies out of LD_LIBRARY_PATH." if what in ("cuDNN", "CUDA") else ""
                title = f"The program was built for {what} {needed}{and_loaded}"
                if _TOOLKIT_MISMATCH in line:
                    toolkit, cuda = f"the toolkit that would build the extension is {loaded}", f"CUDA {needed}"
                    return f"PyTorch was built for {cuda}, and {toolkit}", _TOOLKIT_ACTION.format(cuda)
                if what == "PJRT":
                    action = 'Install jax, jaxlib and the CUDA plugin in one version: pip install -U "jax[cuda12]".'
                    return title, action
                return title, f"Install {what} {needed} or a later release of the same major version.{hint}"
        if _TOOLKIT_MISMATCH in line:
            return "", _TOOLKIT_ACTION.format("PyTorch's CUDA (torch.version.cuda)")
        if (match := _UNDEFINED_SYMBOL.search(line)) is not None:
            library_version = f" in {match['of']}" if match["of"] else ""
            return (
                f"{match['file']} needs {match['symbol']}, which the loaded library{library_version} lacks",
                "Remove the other copy of that library from LD_LIBRARY_PATH (LD_LIBRARY_PATH= python … shows whether it"
                " is the reason), or reinstall the framework with its own CUDA libraries.",
            )
    framework = framework_of(evidence, lines)
    return "", libraries_advice(framework) if framework != TENSORFLOW else ""


def _start_error_title_and_action(lines: list[str]) -> tuple[str, str]:
    """Title and action for a driver that does not start, from CUDA's error number."""
    number = next(filter(None, map(cuda_errors.number, lines)), None)
    if number is not None and number in CUDA_ERROR_ADVICE:
        return f"The driver is installed but does not start: CUDA error {number}", CUDA_ERROR_ADVICE[number]
    if any("rm" in line.lower() and "nvrm" in line.lower() for line in lines):
        return (
            "The driver's kernel module could not start the GPU",
            "Turn the machine off and on; then check the preceding lines in dmesg (firmware, PCIe, power), and try "
            "the card by itself, in another slot, or with another driver release.",
        )
    return "", ""
