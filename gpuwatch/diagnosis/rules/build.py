"""The framework's build and the CUDA libraries beneath it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuwatch.diagnosis.capability import capability
from gpuwatch.diagnosis.cuda_libraries import install
from gpuwatch.diagnosis.evidence import Evidence
from gpuwatch.diagnosis.registry import finding, rule
from gpuwatch.logs.devices import LIBDEVICE
from gpuwatch.logs.topics import topics_of
from gpuwatch.model.findings import Finding, Severity

_OTHER_BUILD = "Use a build that was made for this GPU's compute capability, or another GPU."
_NOT_FOR = re.compile(r"compatible with compute capability (\d+\.\d+)")
_COUNT = re.compile(r"count: (\d+)")
_PTX = (8, 0)
"""The oldest GPU that can compile what TensorFlow's own wheels bring for that (2.10: compute_80, 2.16: compute_90)."""


@rule("cuda.libraries-missing")
def libraries_missing(evidence: Evidence) -> Iterator[Finding]:
    """The driver is fine, a CUDA library cannot be loaded: TensorFlow then drops every GPU."""
    log = evidence.log
    if log is None or (evidence.driver_answers is False and not log.libraries_skipped):
        return
    if evidence.run is not None and evidence.run.simulation == "plugin":
        return  # a PluggableDevice needs none of them
    names = [name for name in log.missing_libraries if not name.startswith("libcuda.so") or evidence.driver_answers]
    driver_works = evidence.driver_answers or log.libraries_skipped or bool(log.seen_pci)
    if log.libraries_skipped:
        certainty = "fact"
    elif names and log.cuinit_error is None and not hidden_lib_noise(names):
        certainty = "likely"
    elif log.cudart_missing and driver_works and not evidence.gpu_usable and log.cuinit_error is None:
        certainty = "likely"
        names = names or ["libcudart"]
    elif names and evidence.driver_answers and not evidence.gpu_usable:
        certainty = "fact"
    else:
        return
    only_looked_for = names == [LIBDEVICE] and "cuda.missing-library" not in log.topics
    severity: Severity = "warning" if evidence.gpu_usable or only_looked_for else "error"
    shown = ", ".join(names)
    title = f"CUDA libraries cannot be loaded: {shown}" if shown else "CUDA libraries cannot be loaded"
    framework = evidence.run.framework if evidence.run is not None else None
    torch = framework.name == "torch" if framework is not None else log.frameworks == ["pytorch"]
    version, python = (framework.version, framework.interpreter) if framework is not None else (None, None)
    action = install(names, version, torch=torch, interpreter=python)
    if not names and not torch:
        action += (
            " Which ones, gpuwatch doctor says; TensorFlow itself names them under TF_CPP_MIN_LOG_LEVEL=0"
            " TF_CPP_VMODULE=dso_loader=1."
        )
    yield finding(
        "cuda.libraries-missing",
        severity,
        "fact" if certainty == "fact" else "likely",
        title=title,
        evidence=log.lines_of(
            "cuda.libraries-skipped", "cuda.missing-library", "cuda.libdevice-unfound", "cuda.cudart-missing"
        ),
        action=action,
    )


def hidden_lib_noise(names: list[str]) -> bool:
    """Only libcuda is missing: that is the driver's, not the toolkit's."""
    return all(name.startswith(("libcuda.so", "libnvidia-ml.so")) for name in names)


_GPU_BUILD = {
    "": 'Install the build with GPU support: pip uninstall tensorflow-cpu; pip install "tensorflow[and-cuda]".',
    "torch": "Install the build with CUDA: pip uninstall torch, then the command that pytorch.org gives for your CUDA.",
}


def _is_torch(evidence: Evidence, lines: list[str]) -> bool:
    """Whether PyTorch is the framework that was built without CUDA."""
    if evidence.run is not None and evidence.run.framework is not None:
        return evidence.run.framework.name == "torch"
    return any("Torch not compiled" in line for line in lines)


def ended_the_work(evidence: Evidence) -> bool:
    """Whether an exception said that the build has no CUDA: then that is the cause, whatever else is missing."""
    errors = list(evidence.log.errors) if evidence.log is not None else []
    if evidence.run is not None:
        errors += [error for error in evidence.run.errors if not error.expected]
    return not evidence.gpu_usable and any("build.cpu-only" in topics_of(error.message) for error in errors)


@rule("build.cpu-only")
def cpu_only(evidence: Evidence) -> Iterator[Finding]:
    """A build without CUDA, said by the framework itself."""
    run = evidence.run
    said = run is not None and run.framework is not None and run.framework.gpu_build is False
    lines: list[str] = []
    if said and run is not None and run.framework is not None and run.simulation != "plugin":
        lines.append(f"{run.framework.name} {run.framework.version or ''} says: not built with CUDA")
    if evidence.log is not None and not evidence.gpu_usable:
        lines += evidence.log.lines_of("build.cpu-only")
    if not lines:
        return
    keeps_gpus_away = said and evidence.driver_answers and not evidence.gpu_usable
    yield finding(
        "build.cpu-only",
        "error" if keeps_gpus_away or ended_the_work(evidence) else "warning",
        "fact" if said else "likely",
        evidence=lines,
        action=_GPU_BUILD["torch" if _is_torch(evidence, lines) else ""],
    )


@rule("build.gpu-unsupported")
def gpu_unsupported(evidence: Evidence) -> Iterator[Finding]:
    """The wheel has no code for this card: too old, or too new."""
    log = evidence.log
    if log is None:
        return
    old = [gpu for gpu in log.ignored_gpus if gpu.reason == "capability"]
    lines = log.lines_of("build.gpu-unsupported", "build.gpu-jit", "device.ignored")
    if old or "build.gpu-unsupported" in log.topics:
        yield finding(
            "build.gpu-unsupported",
            "warning" if evidence.gpu_usable and old else "error",
            "fact",
            evidence=lines,
            action=_OTHER_BUILD,
        )
        return
    versions = {match[1] for line in log.lines_of("build.gpu-jit") if (match := _NOT_FOR.search(line))}
    too_old = sorted(version for version in versions if (capability(version) or _PTX) < _PTX)
    if too_old:
        yield finding(
            "build.gpu-unsupported",
            "warning" if evidence.gpu_usable else "error",
            "likely",
            title=f"This build has no code for a GPU of compute capability {too_old[0]}: its kernels will fail",
            evidence=[*lines, "TensorFlow's own builds bring PTX for 8.0 or 9.0, which only newer GPUs can compile"],
            action=_OTHER_BUILD,
        )
    elif "build.gpu-jit" in log.topics:
        yield finding(
            "build.gpu-unsupported",
            "warning",
            "fact",
            title="This build has no native code for this GPU: kernels are compiled at the first start",
            evidence=lines,
            action="Use a newer build; until then raise CUDA_CACHE_MAXSIZE so that it compiles only once.",
        )


_LEAST = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"
_REQUIRED = re.compile(r"minimum required count is (\d+)")
_DEFAULT_LEAST = 8
"""TensorFlow's own least count (``gpu_device.cc``), or that of the best card where it is smaller."""


@rule("build.gpu-unsupported")
def left_out(evidence: Evidence) -> Iterator[Finding]:
    """Beside a larger card TensorFlow leaves out one with few multiprocessors; a variable may make it leave out all."""
    log = evidence.log
    weak = [gpu for gpu in log.ignored_gpus if gpu.reason == "core-count"] if log is not None else []
    if log is None or not weak:
        return
    names = ", ".join(dict.fromkeys(f"{gpu.name or 'a GPU'} ({gpu.pci_bus_id or 'no address'})" for gpu in weak))
    they_have = "it has" if len(weak) == 1 else "they have"
    lines = log.lines_of("device.ignored")
    value = evidence.variable(_LEAST)
    required = max((int(match[1]) for line in lines if (match := _REQUIRED.search(line))), default=0)
    if value is not None or required > _DEFAULT_LEAST:
        # By itself TensorFlow asks for 8 at most, and for no more than the best card has.
        severity: Severity = "warning" if evidence.gpu_usable else "error"
        setting = f"{_LEAST}={value if value is not None else required}"
        yield finding(
            "build.gpu-unsupported",
            severity,
            "fact",
            title=f"{setting} makes TensorFlow leave out "
            + (names if evidence.gpu_usable else f"every GPU: {names}")
            + f"; {they_have} fewer multiprocessors",
            evidence=[*([setting] if value is not None else []), *lines],
            action=f"Unset {_LEAST}, which was set to {value if value is not None else required}.",
        )
        return
    counts = [int(match[1]) for gpu in weak if (match := _COUNT.search(gpu.detail))]
    yield finding(
        "build.gpu-unsupported",
        "warning",
        "fact",
        title=f"TensorFlow left out {names}: {they_have} too few multiprocessors",
        evidence=lines,
        action=f"Set {_LEAST}={min(counts, default=1)} to use it too, or leave it to others.",
    )
