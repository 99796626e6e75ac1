"""CUDA libraries of a framework that cannot be loaded, although the driver works."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import JAX, TENSORFLOW, framework_of
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import install_advice
from gpuwatch.explain.diagnosis.rule_registry import error_finding, finding, rule
from gpuwatch.explain.diagnosis.rules.driver_failures import complains_about_driver
from gpuwatch.explain.diagnosis.rules.error_evidence import NO_NCCL, error_lines
from gpuwatch.explain.logs.log_facts import LogFacts
from gpuwatch.explain.logs.missing_libraries import LIBDEVICE

DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
"""Libraries that belong to the driver, not to the toolkit."""


@rule("cuda.libraries-missing", "simulation.limit", needs="log")
def libraries_missing(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """The driver works, but a CUDA library cannot be loaded: TensorFlow then uses no GPU."""
    if evidence.driver_answers is False and not log.libraries_skipped:
        return
    if evidence.simulation == "plugin":
        return  # a PluggableDevice needs none of them
    names = [name for name in log.missing_libraries if not name.startswith("libcuda.so") or evidence.driver_answers]
    nccl_lines, _ = error_lines(evidence, NO_NCCL)
    if nccl_lines and evidence.simulation == "driver":
        yield error_finding(
            "simulation.limit",
            title="Only on these simulated GPUs: the simulated driver has no NCCL",
            evidence=nccl_lines,
            action="Nothing to do for a real GPU. Here, use --sim-tier plugin, or give MirroredStrategy"
            " cross_device_ops=tf.distribute.ReductionToOneDevice().",
        )
        return
    stated = log.lines_of("cuda.libraries-missing")
    if not {"memory.masked", "memory.library-failed"} & set(log.topics):
        stated += log.lines_of("memory.dnn-missing")  # cuDNN was not there, or did not fit
    if "cuda.runtime-found" in log.topics:  # bitsandbytes found it in another folder
        names = [name for name in names if not name.startswith("libcudart.so")]
        stated = tuple(line for line in stated if "libcudart.so not found" not in line)
    placed = any("GPU" in entry.actual and "XLA" not in entry.actual for entry in log.placements)
    has_gpu = evidence.gpu_usable or placed or "devices.gpu" in log.topics
    xla_only = () if has_gpu else log.lines_of("devices.xla-gpu")
    driver_works = evidence.driver_answers or log.libraries_skipped or bool(log.seen_pci_addresses)
    certainty: Certainty = "likely"
    if log.libraries_skipped or nccl_lines:
        certainty = "fact"
    elif log.cuinit_error is None and any(not name.startswith(DRIVER_LIBRARIES) for name in names):
        pass
    elif log.cudart_missing and driver_works and not evidence.gpu_usable and log.cuinit_error is None:
        names = names or ["libcudart"]
    elif names and evidence.driver_answers and not evidence.gpu_usable:
        certainty = "fact"
    elif not stated and (not xla_only or complains_about_driver(log)):
        return
    only_looked_for = names == [LIBDEVICE] and "cuda.missing-library" not in log.topics
    # Without NCCL the GPUs are there, and the work ends all the same.
    severity: Severity = "warning" if (evidence.gpu_usable and not nccl_lines) or only_looked_for else "error"
    listed = ", ".join(names)
    title = "CUDA libraries cannot be loaded" + (f": {listed}" if listed else "")
    lines = log.lines_of(
        "cuda.libraries-skipped",
        "cuda.missing-library",
        "cuda.libraries-missing",
        "cuda.libdevice-unfound",
        "cuda.cudart-missing",
        "memory.dnn-missing",
    )
    if not listed and not stated and xla_only:
        title = "XLA lists a GPU that TensorFlow does not use, usually because CUDA libraries cannot be loaded"
        lines = xla_only
    framework = evidence.framework
    version, python = (framework.version, framework.interpreter) if framework is not None else (None, None)
    framework_name = framework_of(evidence, lines)
    if any("tensorflow" in line or "dso_loader" in line or "gpu_device.cc" in line for line in lines):
        # these lines name only their source files
        framework_name = JAX if "jax" in framework_of(evidence) else TENSORFLOW
    action = install_advice(names, version, framework=framework_name, interpreter=python)
    if not names and log.libraries_skipped:
        action += (
            " gpuwatch doctor shows which ones; TensorFlow names them with TF_CPP_MIN_LOG_LEVEL=0"
            " TF_CPP_VMODULE=dso_loader=1."
        )
    evidence_lines = (*nccl_lines, *lines)
    yield finding("cuda.libraries-missing", severity, certainty, title=title, evidence=evidence_lines, action=action)
