"""Checks of the framework in the chosen interpreter: installation, build, libraries, devices, one op.

Sources: TensorFlow's install guide (one distribution, ``tensorflow[and-cuda]``), ``get_build_info()``, CUDA
compatibility guide (a driver runs its own and older major versions of CUDA).
"""

from __future__ import annotations

from collections.abc import Iterable

from gpuwatch.core.formatting.durations import tenths_of_seconds
from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.model.doctor import Distribution, FrameworkFacts, Library
from gpuwatch.core.model.run import RunError
from gpuwatch.core.parsing import parse_integer
from gpuwatch.explain.diagnosis.doctor.check import Answer, Facts, check, check_of_framework, fail, ok, skip, warn
from gpuwatch.explain.diagnosis.evidence import NO_LOG
from gpuwatch.explain.diagnosis.reference.advice_table import TENSORFLOW, TORCH
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import (
    capabilities_of_build,
    driver_update_advice,
    install_advice,
    parse_capability,
    support_of_build,
)
from gpuwatch.explain.diagnosis.rules.framework_build import DRIVER_LIBRARIES
from gpuwatch.explain.diagnosis.rules.process_ends import ending_signal
from gpuwatch.explain.diagnosis.rules.program_error_messages import SIGNALS
from gpuwatch.explain.logs.device_names import device_name, is_gpu

_TENSORFLOW_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-gpu",
    "tensorflow-intel",
    "tensorflow-cpu-aws",
    "tf-nightly",
)
_NOT_IMPORTED = "the framework was not imported"
INSTALL_CUDA_BUILD_OF_PYTORCH = "Install a CUDA build (see pytorch.org for the index of your CUDA version)."
INSTALL_FRAMEWORK = "Install it there, or use --python to choose an interpreter that has it."
_SEE_FIRST_FINDING = "See the finding at the top."
_CUDNN_NEEDED = {
    "2.10": "8.1", "2.11": "8.1", "2.12": "8.6", "2.13": "8.6", "2.14": "8.7", "2.15": "8.9", "2.16": "8.9",
    "2.17": "8.9", "2.18": "9.3", "2.19": "9.3", "2.20": "9.3", "2.21": "9.3",
}  # fmt: skip
"""The cuDNN that TensorFlow's releases were compiled with ("Tested build configurations"); an older minor version of
the same major version does not start."""


def _deadline_text(doing: str) -> str:
    return f"{doing} did not finish before its deadline" if doing else ""


def _first_line(error: RunError | None) -> str:
    return f"{error.type}: {error.message.splitlines()[0][:200]}" if error is not None and error.message else ""


@check("framework.interpreter", "Interpreter")
def interpreter(facts: Facts) -> Answer | None:
    """The interpreter that was checked."""
    if facts.installation is None:
        return skip("not checked")
    if facts.installation.missing:
        return fail(facts.installation.missing, INSTALL_FRAMEWORK)
    return ok(f"{facts.installation.interpreter}")


@check_of_framework("framework.distributions", "Distributions")
def distributions(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """Two distributions in the same folder overwrite each other's files."""
    if installation.distributions is None:
        return skip(_deadline_text(installation.search_late) or "; ".join(installation.problems) or "not checked")
    names = {entry.name: entry.version for entry in installation.distributions}
    builds = [name for name in _TENSORFLOW_DISTRIBUTIONS if name in names]
    if len(builds) > 1 and installation.name == "tensorflow":
        listed = " and ".join(f"{name} {names[name]}" for name in builds)
        return fail(
            f"{listed} are both installed and overwrite each other's files",
            f"pip uninstall -y {' '.join(builds)}, then install one of them.",
        )
    if "pynvml" in names and "nvidia-ml-py" in names:
        return warn(
            f"pynvml {names['pynvml']} and nvidia-ml-py {names['nvidia-ml-py']} both contain the module pynvml",
            "pip uninstall pynvml; nvidia-ml-py is NVIDIA's own.",
        )
    own = "torch" if facts.checks_pytorch else "tensorflow"
    shown = [f"{name} {version}" for name, version in names.items() if name.startswith((own, "keras", "tf-"))]
    wheels = sum(name.startswith("nvidia-") and name != "nvidia-ml-py" for name in names)
    cuda = f", {count_text(wheels, 'wheel')} with CUDA libraries" if wheels else ", no wheels with CUDA libraries"
    return ok(", ".join(shown) + cuda)


@check("framework.in-the-way", "Files that shadow the framework")
def shadowing_files(facts: Facts) -> Answer | None:
    """Files with the framework's name in the working directory or PYTHONPATH, which Python imports instead."""
    found = facts.system.shadowing_files if facts.system is not None else ()
    if not found:
        return None
    return warn(", ".join(path for path, _ in found), "Rename them, or start programs in another folder.")


@check_of_framework("framework.import", "Import")
def framework_import(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """In a child process, never in gpuwatch's own."""
    run = facts.run
    if run is None:
        return skip("; ".join(installation.problems) or _NOT_IMPORTED)
    if run.framework is None:
        if installation.late:
            action = "Look for a slow file system, and check dmesg for a hung GPU."
            return fail(_deadline_text(installation.late), action)
        ended_by = ending_signal(run)
        if ended_by is not None and not run.errors:
            return fail(*SIGNALS[ended_by][:2])
        reason = _first_line(run.errors[-1] if run.errors else None) or run.verdict_reason
        return fail(reason, "Repair the installation: the import fails in your own programs, too.")
    took = f" in {installation.import_seconds:.1f} s" if installation.import_seconds is not None else ""
    python = f", Python {run.framework.python_version}" if run.framework.python_version else ""
    return ok(f"{facts.framework_text}{took}{python}")


@check_of_framework("framework.build", "Build")
def cuda_build(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """Whether it is built with CUDA, and which."""
    framework = facts.framework
    gpu_build = framework.gpu_build if framework is not None else installation.gpu_build
    if gpu_build is None:
        return skip(_NOT_IMPORTED)
    if not gpu_build:
        action = 'pip uninstall -y tensorflow-cpu; pip install "tensorflow[and-cuda]".'
        return fail(
            f"{facts.framework_text} is a build without CUDA",
            INSTALL_CUDA_BUILD_OF_PYTORCH if facts.checks_pytorch else action,
        )
    build = framework.build if framework is not None else {}
    keys = {"CUDA": "cuda_version", "cuDNN": "cudnn_version"}
    needs = [f"{name} {build[key]}" for name, key in keys.items() if key in build]
    return ok(f"built for {', '.join(needs)}" if needs else "built with CUDA")


@check_of_framework("framework.cuda-version", "Driver and the build's CUDA")
def cuda_version(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """The driver must support the build's major CUDA version."""
    needed = facts.framework.build.get("cuda_version") if facts.framework is not None else None
    supported, source = facts.cuda_version
    if needed is None or not supported:
        unknown = ["the build's"] * (needed is None) + ["the driver's"] * (not supported)
        return skip(f"{' and '.join(unknown)} CUDA version is unknown")
    has, needs = _numbers(supported), _numbers(str(needed))
    versions = f"{source} supports CUDA {supported}, the build needs {needed}"
    if has[0] < needs[0]:
        return fail(versions, driver_update_advice(needs[0], has[0], installation.name))
    if has < needs:
        return ok(f"{versions}: it runs (minor version compatibility), but its PTX cannot be compiled")
    return ok(versions)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(number for part in version.split(".")[:2] if (number := parse_integer(part)) is not None)


@check_of_framework("framework.capability", "Build and compute capability")
def capabilities(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """Whether the build has native code for the cards, compiles it at the first start, or has none."""
    built = capabilities_of_build(facts.framework.build) if facts.framework is not None else ()
    if not built or not facts.gpus:
        return skip(f"the compute capability of the {'cards' if built else 'build'} is unknown")
    words = {"native": "native code", "jit": "compiled on first use", "no": "no code"}
    cards, worst = [], "native"
    for device in facts.gpus:
        card = parse_capability(device.compute_capability)
        can = support_of_build(card, built) if card is not None else None
        cards.append(f"GPU {device.index} ({device.compute_capability or '?'}) {words[can] if can else 'unknown'}")
        if can is not None and list(words).index(can) > list(words).index(worst):
            worst = can
    if worst == "no":
        return fail(", ".join(cards), "Use a build for these cards: an older one for old cards, a newer one for new.")
    if worst == "jit":
        return warn(", ".join(cards), "Use a newer build; until then raise CUDA_CACHE_MAXSIZE.")
    return ok(", ".join(cards))


@check_of_framework("framework.libraries", "CUDA libraries")
def cuda_libraries(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """Each is opened in the loader's order; if one is missing, TensorFlow uses no GPU."""
    if installation.gpu_build is False:
        return None
    if installation.libraries is None:
        return skip(_deadline_text(installation.search_late) or "; ".join(installation.problems) or "not checked")
    unloaded = [name for name in facts.log.missing_libraries if not name.startswith(DRIVER_LIBRARIES)]
    bad = [library for library in installation.libraries if library.state != "loaded"]
    names = list(dict.fromkeys([*(library.name for library in bad), *unloaded]))
    if names:
        broken = next((library.detail for library in bad if library.state == "broken"), "")
        inside = f" ({broken})" if broken else ""
        return fail(f"cannot be loaded: {', '.join(names)}{inside}", library_install_advice(facts, names))
    if installation.search_late:
        return skip(f"{_deadline_text(installation.search_late)}; opened so far: {len(installation.libraries)}")
    if not installation.libraries:
        return skip("the build lists none")
    origins = dict.fromkeys(library.origin or "?" for library in installation.libraries)
    return ok(f"{count_text(len(installation.libraries), 'library', 'libraries')} load, from {', '.join(origins)}")


def library_install_advice(facts: Facts, names: Iterable[str]) -> str:
    """How to install these libraries for the checked framework."""
    installation = facts.installation
    version = facts.framework.version if facts.framework is not None else None
    if version is None and installation is not None:
        version = next(
            (entry.version for entry in installation.distributions or () if entry.name in _TENSORFLOW_DISTRIBUTIONS),
            None,
        )
    python = installation.interpreter if installation is not None else None
    return install_advice(names, version, framework=TORCH if facts.checks_pytorch else TENSORFLOW, interpreter=python)


@check_of_framework("framework.cudnn", "cuDNN version")
def cudnn(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """The library's name has the major version; the minor one is from its file or its wheel."""
    framework = facts.framework
    if installation.name != "tensorflow" or framework is None or not installation.libraries:
        return None
    needs = _CUDNN_NEEDED.get(".".join((framework.version or "").split(".")[:2]))
    if needs is None:
        return None
    library = next((entry for entry in installation.libraries if entry.name.startswith("libcudnn.so")), None)
    if library is None or library.state != "loaded":
        return skip(f"no cuDNN was loaded; the build needs {needs}")
    has = cudnn_version(library, installation.distributions or ())
    if has is None:
        return skip(f"{library.path}: unknown version; the build needs {needs}")
    if _numbers(has) < _numbers(needs):
        return fail(
            f"{has} from {library.path}, but the build needs {needs} or newer of the same major version",
            f'pip install -U "nvidia-cudnn-cu12>={needs}", or remove the folder of the older one from LD_LIBRARY_PATH.',
        )
    return ok(f"{has}, the build needs {needs}")


def cudnn_version(library: Library, distributions: Iterable[Distribution]) -> str | None:
    """The version of the loaded cuDNN; None if unknown."""
    if library.version and "." in library.version:
        return library.version
    wheels = distributions if library.origin == "wheel" else ()
    return next((entry.version for entry in wheels if entry.name.startswith("nvidia-cudnn")), None)


@check_of_framework("framework.devices", "Framework devices")
def framework_devices(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """The logical devices that the framework lists, at least one of them a GPU that it does not ignore."""
    run = facts.run
    if run is None or run.framework is None:
        return skip(_NOT_IMPORTED)
    if not run.devices.logical:
        if installation.late:
            return fail(_deadline_text(installation.late), "Check dmesg for a hung GPU.")
        return fail(_first_line(run.errors[-1] if run.errors else None) or "it listed no devices", _SEE_FIRST_FINDING)
    gpus = [*filter(is_gpu, run.devices.logical)]
    if not gpus:
        return fail(f"{facts.framework_text} has no GPU", _SEE_FIRST_FINDING)
    if ignored := facts.log.ignored_gpus:
        why = {"capability": "too old for this build", "core-count": "too few multiprocessors"}
        listed = ", ".join(f"{entry.name or 'a GPU'}: {why.get(entry.reason, entry.detail)}" for entry in ignored)
        action = "Lower TF_MIN_GPU_MULTIPROCESSOR_COUNT to use cards with few multiprocessors."
        return warn(f"{count_text(len(gpus), 'GPU')}; ignored: {listed}", action)
    return ok(f"{count_text(len(gpus), 'GPU')}: {', '.join(name.removeprefix('/device:') for name in gpus)}")


@check_of_framework("framework.op", "One op on each device")
def op_on_each_device(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """A matrix product, whose result is checked."""
    if not installation.tests:
        return skip(_deadline_text(installation.late) or "no device was reached")
    bad = [test for test in installation.tests if test.error is not None]
    if bad:
        return fail(f"{bad[0].device}: {(bad[0].error or '').splitlines()[0][:200]}", _SEE_FIRST_FINDING)
    wrong = [test for test in installation.tests if test.correct is False]
    if wrong:
        return fail(f"{wrong[0].device} computes a wrong result", "Check dmesg for Xid and ECC errors; test the card.")
    places = [(device_name(test.ran_on or test.device), tenths_of_seconds(test.seconds)) for test in installation.tests]
    results = ", ".join(f"{device} in {seconds}" for device, seconds in places)
    if not any(is_gpu(test.ran_on or "") for test in installation.tests):
        return fail(f"it ran on {results}", _SEE_FIRST_FINDING)
    return ok(results)


@check_of_framework("framework.log", "Framework log")
def framework_log(facts: Facts, installation: FrameworkFacts) -> Answer | None:
    """The log of the framework's GPU code, parsed as in ``explain``."""
    found = facts.log
    if found is NO_LOG:
        return skip(_NOT_IMPORTED)
    complaints = []
    if found.cuinit_error is not None:
        code = f" ({found.cuinit_error.code})" if found.cuinit_error.code is not None else ""
        complaints.append(f"cuInit: {found.cuinit_error.name or found.cuinit_error.text}{code}")
    if found.hiding_visible_devices is not None:
        complaints.append(f"CUDA_VISIBLE_DEVICES={found.hiding_visible_devices} hides the GPUs")
    if found.missing_libraries:
        complaints.append(f"missing {', '.join(found.missing_libraries)}")
    if found.libraries_skipped:
        complaints.append("GPUs skipped because libraries are missing")
    if found.driver_messages:
        complaints.append(found.driver_messages[0][:160])
    raised = facts.run.errors[-1] if facts.run is not None and facts.run.errors else None
    if raised is not None and not complaints:
        complaints.append(f"{count_text(found.line_count, 'line')} without problems, and then {raised.type} was raised")
    if complaints:
        return warn("; ".join(dict.fromkeys(complaints)), _SEE_FIRST_FINDING)
    unknown = count_text(len(found.unknown_gpu_lines), "line")
    more = f"; {unknown} of GPU code not recognized" if found.unknown_gpu_lines else ""
    return ok(f"{count_text(found.line_count, 'line')}, no problems{more}")
