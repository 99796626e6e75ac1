"""What a check is and how one is declared: a pure function from the facts that doctor gathers to an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import msgspec

from gpuwatch.core.model.doctor import Check, CheckState, DriverAnswer, FrameworkFacts, System
from gpuwatch.explain.diagnosis.evidence import Evidence

_PRODUCT_NAMES = {"tensorflow": "TensorFlow", "torch": "PyTorch"}


@dataclass(frozen=True, slots=True)
class Facts(Evidence):
    """The gathered facts. None means "not checked, or not answered in time"; the parts say which."""

    system: System | None = None
    driver: DriverAnswer | None = None
    installation: FrameworkFacts | None = None
    simulated: bool = False
    named_by_user: bool = False
    """Whether the user named the framework or the interpreter, so that its absence is an error."""
    deadline: float = 3.0
    """Seconds for each step that does not import the framework."""

    @property
    def nvml_answers(self) -> bool:
        """Whether NVML reported the driver's version."""
        return self.snapshot is not None and self.snapshot.driver is not None

    @property
    def cuda_starts(self) -> bool:
        """Whether cuInit succeeded."""
        return self.driver is not None and self.driver.cuinit_code == 0

    @property
    def cuda_version(self) -> tuple[str, str]:
        """The highest CUDA version that the driver supports, and who says so; empty if unknown."""
        nvml = self.snapshot.driver if self.snapshot is not None else None
        if nvml is not None and nvml.cuda_version:
            return nvml.cuda_version, f"driver {nvml.version}"
        number = self.driver.cuda_driver if self.driver is not None else None
        return (f"{number // 1000}.{number % 1000 // 10}", "libcuda") if number else ("", "")

    @property
    def installed_framework(self) -> FrameworkFacts | None:
        """Facts about the chosen interpreter; None if the framework is not installed there, or was not checked."""
        return self.installation if self.installation is not None and not self.installation.missing else None

    @property
    def lacks_libcuda(self) -> bool:
        """Whether libcuda was looked for and cannot be loaded."""
        return self.driver is not None and self.driver.libcuda is not None and self.driver.libcuda.error is not None

    @property
    def checks_pytorch(self) -> bool:
        """Whether PyTorch is checked, which does not read TensorFlow's variables."""
        return self.installation is not None and self.installation.name == "torch"

    @property
    def framework_text(self) -> str:
        """The framework's name, with its version if known."""
        if (known := self.framework or self.installation) is None:
            return "the framework"
        version = self.framework.version if self.framework is not None else None
        return f"{_PRODUCT_NAMES.get(known.name, known.name)} {version or ''}".strip()

    @property
    def has_driver_trace(self) -> bool:
        """Whether any part of NVIDIA's driver is on this machine."""
        system = self.system
        if self.nvml_answers or (self.driver is not None and self.driver.libcuda and self.driver.libcuda.path):
            return True
        return system is not None and (system.kernel_module is not None or bool(system.device_files))


class Answer(msgspec.Struct, frozen=True):
    """The result of a check; the registry adds id and title."""

    state: CheckState
    detail: str
    action: str = ""


CheckFunction = Callable[[Facts], Answer | None]
_FrameworkCheckFunction = Callable[[Facts, FrameworkFacts], Answer | None]


class DeclaredCheck(msgspec.Struct, frozen=True):
    """A check with its id and title."""

    id: str
    title: str
    function: CheckFunction


CHECKS: list[DeclaredCheck] = []


def check(check_id: str, title: str) -> Callable[[CheckFunction], CheckFunction]:
    """Declares a check. Its answer is None if it does not apply (no container, no WSL)."""
    if any(declared.id == check_id for declared in CHECKS) or "." not in check_id:
        raise ValueError(f"not a new dotted id: {check_id}")

    def declare(function: CheckFunction) -> CheckFunction:
        CHECKS.append(DeclaredCheck(check_id, title, function))
        return function

    return declare


def check_of_framework(check_id: str, title: str) -> Callable[[_FrameworkCheckFunction], _FrameworkCheckFunction]:
    """Declares a check of the installed framework; it does not apply if none is."""

    def declare(function: _FrameworkCheckFunction) -> _FrameworkCheckFunction:
        def answer(facts: Facts) -> Answer | None:
            return None if (installed := facts.installed_framework) is None else function(facts, installed)

        check(check_id, title)(answer)
        return function

    return declare


def run_checks(facts: Facts, checks: Iterable[DeclaredCheck]) -> tuple[Check, ...]:
    """The answer of each check. A check that raises is reported as skipped, with the error; the others still run."""
    found = []
    for declared in checks:
        try:
            answer = declared.function(facts)
        except Exception as error:  # noqa: BLE001 - reported as the check's answer, see above
            answer = Answer(
                "skip",
                f"gpuwatch's own check failed: {type(error).__name__}: {error}",
                "Report this as a gpuwatch bug; the other checks are complete.",
            )
        if answer is not None:
            found.append(Check(id=declared.id, title=declared.title, **msgspec.structs.asdict(answer)))
    return tuple(found)


ok = partial(Answer, "pass")
"""Checked, without problems."""
warn = partial(Answer, "warn")
"""Works, but not as expected, or not permanently."""
fail = partial(Answer, "fail")
"""Keeps the framework from using its GPUs."""
skip = partial(Answer, "skip")
"""Could not be checked, for this reason."""
