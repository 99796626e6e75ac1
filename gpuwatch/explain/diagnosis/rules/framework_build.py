"""A framework's build without CUDA, too new for the driver or without code for the GPU; missing CUDA libraries.

A driver runs every CUDA version up to its own, and later minor versions of the same major version ("minor version
compatibility"), except that it cannot compile their PTX.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpuwatch.core.model.findings import Certainty, Finding, Severity
from gpuwatch.core.model.run import Framework
from gpuwatch.core.model.snapshot import Device
from gpuwatch.core.model.visible_devices import visible_devices
from gpuwatch.core.parsing import parse_integer
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.reference.advice_table import JAX, TENSORFLOW, framework_of, gpu_build_advice
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import (
    FIRST_DRIVER_RELEASES,
    capabilities_of_build,
    cuda_of_tensorflow_wheel,
    driver_branch,
    driver_update_advice,
    driver_update_advice_from_log,
    install_advice,
    parse_capability,
    support_of_build,
)
from gpuwatch.explain.diagnosis.rule_registry import error_finding, finding, rule, warning_finding
from gpuwatch.explain.diagnosis.rules.driver_failures import complains_about_driver
from gpuwatch.explain.diagnosis.rules.error_evidence import NO_NCCL, error_lines, raised_for
from gpuwatch.explain.diagnosis.rules.simulation_limits import is_of_simulated_driver
from gpuwatch.explain.logs.log_facts import WORK, LogFacts
from gpuwatch.explain.logs.message_topics import states_explicitly
from gpuwatch.explain.logs.missing_libraries import LIBDEVICE

DRIVER_LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
"""Libraries that belong to the driver, not to the toolkit."""
_OTHER_BUILD_ACTION = "Use a build for this GPU's compute capability, or another GPU."
_NEWER_BUILD_ACTION = "Use a newer build; until then raise CUDA_CACHE_MAXSIZE so that it compiles only once."
_JIT_CAPABILITY = re.compile(r"compatible with compute capability (\d+\.\d+)")
_MULTIPROCESSORS = re.compile(r"count: (\d+)")
_OLDEST_PTX_CAPABILITY = (8, 0)
"""The oldest GPU that can compile the PTX in TensorFlow's own wheels (2.10: compute_80, 2.16: compute_90)."""
_OTHER_LIBCUDA_ACTION = (
    "Find out which libcuda.so.1 is loaded (gpuwatch doctor shows its file), and remove that copy (from cuda-compat "
    "or an image), or its folder from LD_LIBRARY_PATH: the driver has its own."
)
_ON_REAL_GPUS_ACTION = "On a real machine: find the older libcuda.so.1 (gpuwatch doctor shows its file), and remove it."
_VERSION = re.compile(r"^(\d+)\.(\d+)")
_FOUND_CUDA = re.compile(r"too old \(found version (\d{1,2})0(\d)0\)")
_NEEDED_CUDA = re.compile(r"unsatisfied condition: cuda ?>= ?(\d{1,2})\.(\d)")
_WHEEL_CUDA = re.compile(r"\+cu(1\d)(\d)\b")
_PACKAGE_WITHOUT_CUDA = re.compile(r"(?i)not compiled with (?:CUDA|GPU) support")
"""Said by operators of packages that extend PyTorch."""
_TORCH_EXTENSION = re.compile(r"Could not run '(torchvision|torchaudio)::")
_OTHER_ATTENTION = (
    "Choose another attention (attn_implementation='sdpa' or 'eager'; vLLM, SGLang: another --attention-backend)"
)
_UNSUPPORTED_FEATURES = (
    (re.compile(r"[Bb]float16 is only supported"), "This GPU is too old for bfloat16",
     "Start it with float16 instead (--dtype half, torch_dtype=torch.float16, fp16=True), or use a GPU of compute"
     " capability 8.0 (Ampere) or later."),
    (re.compile(r"FlashAttention only supports"), "This GPU is too old for FlashAttention",
     f"{_OTHER_ATTENTION}, or use a GPU with compute capability 8.0 (Ampere) or later."),
    (re.compile(r"not supported on \.target 'sm_"),
     "The source uses instructions that this GPU architecture does not have, so it cannot be compiled for it",
     "Remove that architecture from the build (CMAKE_CUDA_ARCHITECTURES, TORCH_CUDA_ARCH_LIST; some"
     " instructions need 90a or 100a instead of 90 or 100), or use a release that supports this GPU."),
    (re.compile(r"[Ee]xpected is_sm"), "FlashAttention has no kernel for this GPU and these sizes",
     f"{_OTHER_ATTENTION}; smaller attention heads (64, 128) have kernels for more GPUs."),
    (re.compile(r"quantization method.*[Mm]inimum capability"), "This GPU is too old for this quantization method",
     "Use another quantization of the model (AWQ, GPTQ or bitsandbytes run on older GPUs than FP8 does), or a GPU "
     "with the capability that the line names."),
)  # fmt: skip
"""What a program was asked to use, which no build of it has for this GPU: the line, a title, what helps."""
_CAPABILITY = re.compile(
    r"(?:CUDA capability|Value|target|arch|architecture|processor)[ :=]{0,3}"
    r"'?(?P<sm>sm_\d{2,3}[af]?|compute_\d{2,3}|gfx\w{3,5})"
    r"|'?(?P<other>sm_\d{2,3}[af]?)'? is not"
    r"|(?:compute|cuda) capability (?P<version>\d{1,2}\.\d)|capability: (?P<number>\d{2,3})\b"
)
_BUILD_CAPABILITIES = re.compile(r"supports CUDA capabilities ((?:(?:sm|compute)_\w{2,5}[ .]?){1,20})")
_CAPABILITY_RANGE = re.compile(r"\((\d{1,2}\.\d)\) - \((\d{1,2}\.\d)\)")
_OLD_CAPABILITY = re.compile(r"(?:sm_)?[567]\.?[0-2]")
_LAST_BUILDS_FOR_OLD = ": those for CUDA 12.6 (cu126) are the last with Maxwell, Pascal and Volta"
_MIN_MULTIPROCESSORS = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"
_REQUIRED = re.compile(r"minimum required count is (\d+)")
_DEFAULT_MIN_MULTIPROCESSORS = 8
"""TensorFlow's default minimum (``gpu_device.cc``), or the count of the best GPU if that is smaller."""


def _built_with_cuda(evidence: Evidence) -> Framework | None:
    framework = evidence.framework
    without = framework is None or framework.gpu_build is False or evidence.simulation == "plugin"
    return None if without else framework


def _cuda_version(match: re.Match[str] | None) -> tuple[int, int] | None:
    return (int(match[1]), int(match[2])) if match else None


def _visible_gpus(evidence: Evidence) -> tuple[Device, ...]:
    """The GPUs that the program can see; all of them if that is not known."""
    devices = evidence.gpus
    seen = visible_devices(evidence.visible_devices, evidence.variables.get("CUDA_DEVICE_ORDER"), devices)
    if seen.why_unsure:
        return devices
    uuids = {entry.uuid for entry in seen.map}
    return tuple(device for device in devices if device.uuid in uuids)


@rule("driver.too-old")
def driver_older_than_the_build(evidence: Evidence) -> Iterator[Finding]:
    """The driver does not support the build's major CUDA version: reported by CUDA, or known from both versions."""
    if is_of_simulated_driver(evidence):
        return  # a simulated driver, which reports itself what it lacks
    stated, expected = error_lines(evidence, "driver.too-old")
    framework = _built_with_cuda(evidence)
    driver = evidence.snapshot.driver if evidence.snapshot is not None else None
    driver_cuda = _cuda_version(_VERSION.match(driver.cuda_version or "")) if driver is not None else None
    build_version = framework.build.get("cuda_version") if framework is not None else None
    if framework is not None and framework.name == "tensorflow" and stated and build_version is None:
        build_version = cuda_of_tensorflow_wheel(framework.version)
    build_cuda = _cuda_version(_VERSION.match(str(build_version)))
    build_cuda = build_cuda or ((major, 0) if (major := parse_integer(str(build_version))) is not None else None)
    older = driver_cuda is not None and build_cuda is not None and driver_cuda[0] < build_cuda[0]
    if not stated and not older:
        return
    severity: Severity = "info" if expected else "error" if stated or not evidence.gpu_usable else "warning"
    lines, title = [], ""
    name = framework.name if framework is not None else None
    needed = build_cuda[0] if build_cuda and (older or not driver_cuda) else None
    action = driver_update_advice(needed, driver_cuda[0] if driver_cuda else None, name)
    if framework is None and driver_cuda is None:
        text = "\n".join((*stated, *evidence.log.lines_of("environment.setting")))
        action = driver_update_advice_from_log(
            _cuda_version(_FOUND_CUDA.search(text)),
            _cuda_version(_NEEDED_CUDA.search(text) or _WHEEL_CUDA.search(text)),
        )
    if older and driver is not None and framework is not None and driver_cuda is not None and build_cuda is not None:
        lines.append(
            f"the driver ({driver.version}) supports CUDA up to {driver.cuda_version};"
            f" {framework.name} {framework.version} was built for CUDA {build_version}"
        )
        title = f"The driver supports CUDA up to {driver.cuda_version}, but the build needs CUDA {build_cuda[0]}"
        release, first_release = driver_branch(driver.version), FIRST_DRIVER_RELEASES.get(build_cuda[0])
        if release is not None and first_release is not None and release >= first_release:
            lines.append(
                f"release {release} by itself is new enough (CUDA {build_cuda[0]} needs {first_release} or later): the"
                " version of CUDA is libcuda.so.1's, so an older one was loaded in its place"
            )
            action = _OTHER_LIBCUDA_ACTION
            if evidence.snapshot is not None and evidence.snapshot.simulated:
                imitated = "The simulation imitates an older driver here: remove its fault cuda_version."
                action = f"{imitated} {_ON_REAL_GPUS_ACTION}"
    certainty: Certainty = "fact" if stated else "likely"
    yield finding("driver.too-old", severity, certainty, title=title, evidence=(*lines, *stated), action=action)


@rule("build.gpu-unsupported")
def no_native_code_for_gpu(evidence: Evidence) -> Iterator[Finding]:
    """The build has no native code for a GPU that the program can use, by its own list of capabilities."""
    framework = _built_with_cuda(evidence)
    if framework is None or {"build.gpu-unsupported", "build.gpu-jit"} & set(evidence.log.topics):
        return  # the log states it
    built = capabilities_of_build(framework.build)
    for device in _visible_gpus(evidence) if built else ():
        gpu_capability = parse_capability(device.compute_capability)
        if gpu_capability is None or (support := support_of_build(gpu_capability, built)) == "native":
            continue
        build_capabilities = ", ".join(str(entry) for entry in framework.build["cuda_compute_capabilities"])
        lines = (
            f"GPU {device.index} {device.name}: compute capability {device.compute_capability}",
            f"{framework.name} {framework.version} was built for {build_capabilities}",
        )
        severity: Severity = "error" if support == "no" and not evidence.gpu_usable else "warning"
        title = f"No native code for GPU {device.index}: kernels are compiled on first use"
        action = _NEWER_BUILD_ACTION
        if support == "no":
            title = f"{framework.name} {framework.version} has no code for GPU {device.index}"
            action = _OTHER_BUILD_ACTION
        uuid = device.uuid
        yield finding("build.gpu-unsupported", severity, title=title, evidence=lines, action=action, device_uuid=uuid)


@rule("build.cpu-only")
def cpu_only(evidence: Evidence) -> Iterator[Finding]:
    """A build without CUDA, as the framework itself reports."""
    framework = evidence.framework
    stated = framework is not None and framework.gpu_build is False
    lines: list[str] = []
    if framework is not None and stated and evidence.simulation != "plugin":
        lines.append(f"{framework.name} {framework.version or ''} reports: not built with CUDA")
    lines += evidence.log.lines_of("build.cpu-only") if not evidence.gpu_usable else ()
    if not lines:
        return
    if (of_package := [line for line in lines if _PACKAGE_WITHOUT_CUDA.search(line)]) and not stated:
        frames = evidence.log.error_frames.items()
        packages = (frame.last_package for said, frame in frames if _PACKAGE_WITHOUT_CUDA.search(said))
        title = f"{next(filter(None, packages), 'A package')} was built without CUDA support: that package, not PyTorch"
        yield error_finding("build.cpu-only", title=title, evidence=of_package)
        return
    ended_the_work = raised_for(evidence, "build.cpu-only")
    keeps_gpus_away = not evidence.gpu_usable and ((stated and evidence.driver_answers) or ended_the_work)
    severity: Severity = "error" if keeps_gpus_away else "warning"
    certainty: Certainty = "fact" if stated else "likely"
    yield finding("build.cpu-only", severity, certainty, evidence=lines, action=_build_action(evidence, lines))


def _build_action(evidence: Evidence, lines: Iterable[str]) -> str:
    text = " ".join(lines)
    if "native windows" in text.lower():
        return (
            'Run it in WSL2, with pip install "tensorflow[and-cuda]" there; or use tensorflow<2.11, the last with GPUs'
            " on native Windows (CUDA 11.2, cuDNN 8.1)."
        )
    if (match := _TORCH_EXTENSION.search(text)) is not None:
        return (
            f"Install the CUDA build of {match[1]} for the installed torch: pip uninstall {match[1]}, then the command"
            " from pytorch.org, which installs both from one index."
        )
    return gpu_build_advice(framework_of(evidence, lines) or TENSORFLOW)


@rule("build.gpu-unsupported", needs="log")
def gpu_unsupported(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """The build has no code for this GPU, which is too old or too new for it."""
    too_old_gpus = [gpu for gpu in log.ignored_gpus if gpu.reason == "capability"]
    lines = log.lines_of("build.gpu-unsupported", "build.gpu-jit", "device.ignored")
    versions = {match[1] for line in log.lines_of("build.gpu-jit") if (match := _JIT_CAPABILITY.search(line))}
    oldest = _OLDEST_PTX_CAPABILITY
    too_old = sorted(version for version in versions if (parse_capability(version) or oldest) < oldest)
    severity: Severity = "warning" if evidence.gpu_usable else "error"
    certainty: Certainty = "likely"
    if too_old_gpus or "build.gpu-unsupported" in log.topics:
        features = (row[1:] for row in _UNSUPPORTED_FEATURES if lines and all(map(row[0].search, lines)))
        severity = "warning" if (evidence.gpu_usable and too_old_gpus) or log.ending_kind == WORK else "error"
        certain = too_old_gpus or any(states_explicitly(line, "build.gpu-unsupported") for line in lines)
        certainty = "fact" if certain else "likely"
        title, action = next(features, ("", _build_for_gpu_advice(evidence, lines)))
    elif too_old:
        title = f"This build has no code for a GPU of compute capability {too_old[0]}: its kernels will fail"
        lines += ("TensorFlow's own builds include PTX for 8.0 or 9.0, which only newer GPUs can compile",)
        action = _OTHER_BUILD_ACTION
    elif "build.gpu-jit" in log.topics:
        severity, certainty = "warning", "fact"
        title = "This build has no native code for this GPU: kernels are compiled on first use"
        action = _NEWER_BUILD_ACTION
    else:
        return
    yield finding("build.gpu-unsupported", severity, certainty, title=title, evidence=lines, action=action)


def _build_for_gpu_advice(evidence: Evidence, lines: Iterable[str]) -> str:
    """Advice to use a build for the compute capability in the log."""
    text = " ".join(lines)
    match = _CAPABILITY.search(text)
    wanted = next((group for group in match.groups() if group), None) if match else None
    if wanted is None:
        return _OTHER_BUILD_ACTION
    if wanted.isdigit():
        wanted = f"{wanted[:-1]}.{wanted[-1]}"
    supported = f" (this one has {built[1].strip(' .')})" if (built := _BUILD_CAPABILITIES.search(text)) else ""
    if (supported_range := _CAPABILITY_RANGE.search(text)) is not None:
        supported = f" (this one supports {supported_range[1]} to {supported_range[2]})"
    names = {"pytorch": "PyTorch", "jax": "JAX", "tensorflow": "TensorFlow"}
    name = names.get(framework_of(evidence, lines), "the program")
    last = _LAST_BUILDS_FOR_OLD if name == "PyTorch" and _OLD_CAPABILITY.fullmatch(wanted) else ""
    return f"Use a build of {name} for {wanted}{supported}{last}, or another GPU."


@rule("build.gpu-unsupported", needs="log")
def ignored_small_gpu(evidence: Evidence, log: LogFacts) -> Iterator[Finding]:
    """TensorFlow ignores a GPU with few multiprocessors beside a larger one; a variable can make it ignore all."""
    small_gpus = [gpu for gpu in log.ignored_gpus if gpu.reason == "core-count"]
    if not small_gpus:
        return
    names = ", ".join(dict.fromkeys(f"{gpu.name or 'a GPU'} ({gpu.pci_bus_id or 'no address'})" for gpu in small_gpus))
    they_have = "it has" if len(small_gpus) == 1 else "they have"
    lines = log.lines_of("device.ignored")
    value = evidence.variables.get(_MIN_MULTIPROCESSORS)
    required = max((int(match[1]) for line in lines if (match := _REQUIRED.search(line))), default=0)
    if value is not None or required > _DEFAULT_MIN_MULTIPROCESSORS:
        # By itself TensorFlow asks for 8 at most, and for no more than the best card has.
        minimum = value if value is not None else required
        ignored = names if evidence.gpu_usable else f"every GPU: {names}"
        yield finding(
            "build.gpu-unsupported",
            "warning" if evidence.gpu_usable else "error",
            title=f"{_MIN_MULTIPROCESSORS}={minimum} makes TensorFlow ignore {ignored}; {they_have} fewer"
            " multiprocessors",
            evidence=[f"{_MIN_MULTIPROCESSORS}={value}" if value is not None else "", *lines],
            action=f"Unset {_MIN_MULTIPROCESSORS}, which was set to {minimum}.",
        )
        return
    counts = [int(match[1]) for gpu in small_gpus if (match := _MULTIPROCESSORS.search(gpu.detail))]
    yield warning_finding(
        "build.gpu-unsupported",
        title=f"TensorFlow ignored {names}: {they_have} too few multiprocessors",
        evidence=lines,
        action=f"Set {_MIN_MULTIPROCESSORS}={min(counts, default=1)} to use it too, or leave it to other programs.",
    )


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
