"""What findings say of limits, holders, releases and libraries: no more than is known, and all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.core.model.doctor import FrameworkFacts, Library
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.run import Oom
from gpuwatch.core.model.snapshot import Driver, Process, Snapshot
from gpuwatch.experiment.probing.interpreter_checks import with_opened_libraries
from gpuwatch.explain.diagnosis.diagnostic_report import DOCTOR, diagnostic_report
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_holders import GENERAL_ADVICE, free_memory_advice, holders_headline
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts
from gpuwatch.explain.diagnosis.memory.oom_verdict import judge
from gpuwatch.explain.diagnosis.reference.cuda_compatibility import (
    cuda_of_tensorflow_wheel,
    driver_update_advice,
    install_advice,
)
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.machine.sources.system_and_driver_facts import read_system_facts as look_at_system
from gpuwatch.share.reports.diagnostic_report import diagnostic_content
from tests.doctor.machines import GIB, checks, examined, gpu, machine, run, snapshot
from tests.reports.diagnostics import looks, program

MIB = 1 << 20
replace = msgspec.structs.replace
PIECES = Oom(
    device="GPU:0",
    allocator="GPU_0_bfc",
    requested_bytes=256 * MIB,
    limit_bytes=1024 * MIB,
    in_use_bytes=576 * MIB,
    largest_free_bytes=64 * MIB,
)
FULL = Oom(
    device="GPU:0",
    allocator="GPU_0_bfc",
    requested_bytes=GIB,
    limit_bytes=1984 * MIB,
    in_use_bytes=GIB,
    largest_free_bytes=960 * MIB,
)


def holder(pid: int = 77, gib: float = 60, device: int = 0, **fields: Any) -> Process:
    seen: dict[str, Any] = {"create_time": 1.0, "user": "ann", "command": "python train.py", "name": "python"}
    return Process(
        pid=pid,
        type="C",
        device_uuid=f"GPU-{device}{device}{device}",
        readings={"gpu_memory_bytes": int(gib * GIB)},
        **{**seen, **fields},
    )


UNSEEN = {"create_time": None, "user": None, "command": None, "name": None, "note": "not in this PID namespace"}


# -- whose limit ----------------------------------------------------------------------------------


def test_pieces_under_the_programs_own_limit_are_mended_by_more_room() -> None:
    told = judge(PIECES, OomFacts(total_bytes=24 * GIB, others_bytes=0, held_by_others=False))
    assert (told.cause, told.certain) == ("memory.fragmented", True)
    assert "own memory limit of 1.0 GiB" in told.title
    assert "limit of 1.0 GiB: 23.0 GiB" in told.action
    assert "TF_GPU_ALLOCATOR" in told.action


@pytest.mark.parametrize(
    "around",
    [
        OomFacts(),
        OomFacts(total_bytes=GIB + 200 * MIB, others_bytes=0, held_by_others=False),
        OomFacts(total_bytes=24 * GIB, others_bytes=22 * GIB, held_by_others=True),
    ],
    ids=["nothing is known", "the limit is all that there is", "others hold the rest"],
)
def test_a_limit_that_nobody_set_is_not_called_the_programs_own(around: OomFacts) -> None:
    told = judge(PIECES, around)
    assert (told.cause, told.title, told.action) == ("memory.fragmented", "", "")


def test_a_card_of_which_only_the_name_is_known_makes_an_if() -> None:
    told = judge(PIECES, OomFacts(total_bytes=22 * GIB, total_from_name=True))
    assert told.title == ""
    assert told.action.startswith("If the program set the limit")


def test_what_was_free_is_not_what_was_granted() -> None:
    told = judge(FULL, OomFacts(total_bytes=24 * GIB, others_bytes=20 * GIB, held_by_others=True))
    assert told.cause == "memory.other-process"
    assert "its allocator 1.9 GiB" in " ".join(told.lines)
    assert "were free" not in " ".join(told.lines)
    assert "next is unknown" in told.lines[-1]


# -- who holds it, and where there is room --------------------------------------------------------


def room(*processes: Process, cards: int = 1, free: float = 79, name: str = "NVIDIA A100") -> Snapshot:
    devices = [gpu(0, memory__free_bytes=GIB)]
    devices += [gpu(index, memory__free_bytes=int(free * GIB), name=name) for index in range(1, cards)]
    return snapshot(*devices, processes=processes)


@pytest.mark.parametrize(
    ("seen", "says", "never"),
    [
        (room(holder()), "End process 77 of ann, or wait until it exits; this machine shows no other GPU.", "CUDA_VIS"),
        (
            room(holder(), cards=2),
            "Use GPU 1, which has 79.0 GiB free: export CUDA_VISIBLE_DEVICES=1. Or end",
            "no other",
        ),
        (room(holder(), cards=2, free=2), "no other GPU here has enough free", "CUDA_VIS"),
        (room(holder(), cards=2, name="NVIDIA T4"), "export CUDA_VISIBLE_DEVICES=GPU-111", "DEVICES=1."),
        (room(holder(**UNSEEN)), "Look on the host (nvidia-smi there) for process 77, which is not visible", "ann"),
        (
            room(holder(), holder(78, 9, **UNSEEN)),
            "End process 77 of ann, or wait until it exits; look on the host",
            "??",
        ),
        (room(), "Find who holds GPU 0, because NVML lists no process", "End process"),
    ],
)
def test_what_to_do_is_of_this_machine(seen: Snapshot, says: str, never: str) -> None:
    told = free_memory_advice(seen, seen.devices[0], need=10 * GIB)
    assert says in told
    assert never not in told


def test_where_nothing_is_known_the_advice_is_general() -> None:
    assert free_memory_advice(None, None) == GENERAL_ADVICE


def test_the_headline_names_who_held_how_much() -> None:
    one, two = room(holder(gib=20)), room(holder(gib=20), holder(78, 9))
    assert holders_headline(one, one.devices[0]) == "Another process, pid 77 (ann), held 20.0 GiB of GPU 0's 80.0 GiB"
    assert holders_headline(two, two.devices[0]) == "2 other processes held 29.0 GiB of GPU 0's 80.0 GiB"
    few = room(holder(gib=3))
    assert holders_headline(few, few.devices[0]) == "Another process, pid 77 (ann), held 3.0 GiB of GPU 0's 80.0 GiB"
    assert holders_headline(room(), gpu(0)) == ""


def test_a_gpu_that_others_hold_mostly_is_no_pass() -> None:
    seen = snapshot(gpu(0, memory__free_bytes=13 * GIB), gpu(1), processes=(holder(gib=66),))
    check = checks(machine(snapshot=seen))["devices.memory"]
    assert check.state == "warn"
    assert "(pid 77, ann): 66.0 GiB" in check.detail
    assert "Use GPU 1" in check.action
    quiet = checks(machine(snapshot=snapshot(gpu(0, memory__reserved_bytes=256 * MIB))))["devices.memory"]
    assert (quiet.state, quiet.detail) == ("pass", "GPU 0: 79.0 GiB of 80.0 GiB (driver: 256 MiB)")


# -- releases of the driver -----------------------------------------------------------------------

TOO_OLD = "InternalError: CUDA driver version is insufficient for CUDA runtime version"


def too_old(driver: str, cuda: str, **changes: Any) -> Finding:
    seen = replace(snapshot(driver=Driver(version=driver, nvml_version=None, cuda_version=cuda)), **changes)
    found = diagnose(Evidence(snapshot=seen, run=run(gpus=0), log=parse(TOO_OLD)))
    finding, *others = [entry for entry in found if entry.id == "driver.too-old"]
    assert not others
    return finding


def test_a_driver_that_is_too_old_is_told_with_all_numbers() -> None:
    finding = too_old("470.82", "11.4")
    assert (finding.severity, finding.certainty) == ("error", "fact")
    assert finding.evidence[0] == (
        "the driver (470.82) supports CUDA up to 11.4; tensorflow 2.21.0 was built for CUDA 12.5.1"
    )
    assert "release 525 or later" in finding.action
    assert '"tensorflow[and-cuda]==2.14.*"' in finding.action
    assert len(finding.evidence) == 2


def test_a_release_that_contradicts_its_cuda_is_explained() -> None:
    finding = too_old("570.86", "11.4")
    assert "CUDA 12 needs 525 or later" in finding.evidence[1]
    assert "Update the NVIDIA driver" not in finding.action
    assert "libcuda.so.1" in finding.action
    assert "fault cuda_version" in too_old("570.00-sim", "11.4", simulated=True).action


@pytest.mark.parametrize(("version", "cuda"), [("2.14.1", 11), ("2.15.0", 12), ("2.3.0", None), (None, None)])
def test_which_cuda_a_release_was_built_for(version: str | None, cuda: int | None) -> None:
    assert cuda_of_tensorflow_wheel(version) == cuda


def test_without_versions_the_advice_has_the_numbers_of_both() -> None:
    assert "12.8: 570" in driver_update_advice()
    assert "13: 580" in driver_update_advice()
    assert "580 or later" in driver_update_advice(13, 12)
    assert "cu118" in driver_update_advice(12, 11, "torch")


# -- libraries ------------------------------------------------------------------------------------


def test_the_wheel_is_for_this_interpreter_and_this_release() -> None:
    told = install_advice(["libcudnn.so.9"], "2.21.0", interpreter="/opt/venv/bin/python")
    assert '/opt/venv/bin/python -m pip install "tensorflow[and-cuda]==2.21.0".' in told
    strange = install_advice(["libcudnn.so.9"], "2.21.0-dev1", interpreter="/opt/my env/python")
    assert ': pip install "tensorflow[and-cuda]".' in strange


def test_a_library_that_the_log_says_was_opened_was_opened() -> None:
    wanted = tuple(
        Library(name=name, state="loaded", path="/sim/empty.so") for name in ("libcufft.so.11", "libcudart.so.12")
    )
    tried = FrameworkFacts(name="tensorflow", libraries=(Library(name="libcufft.so.11", state="loaded"),))
    both = with_opened_libraries(FrameworkFacts(name="tensorflow", libraries=wanted), tried).libraries
    assert both is not None
    assert [library.opened for library in both] == [True, False]


def test_a_report_names_the_library_that_only_the_doctor_found() -> None:
    stamp = "W0000 00:00:1795180{}.365964    2812 gpu_device.cc:2365] Cannot dlopen some GPU libraries."
    cause = "cuda.libraries-missing"
    said = Finding(
        id=cause,
        severity="error",
        certainty="fact",
        title="CUDA libraries cannot be loaded",
        evidence=(stamp.format("246"),),
        action="Which ones, gpuwatch doctor says.",
    )
    knows = replace(
        said,
        title="CUDA libraries cannot be loaded: libcudnn.so.9",
        evidence=("libcudnn.so.9: cannot open shared object file", stamp.format("242")),
        action="pip install it",
    )
    doctor = replace(examined(machine()), findings=(knows,))
    document = diagnostic_report(looks(doctor=doctor, programs=(program(findings=(said,), primary=cause),)))
    main = document.findings[0]
    assert (main.title, main.action, main.evidence) == (knows.title, knows.action, knows.evidence)
    assert main.sources == ("run of python train.py", DOCTOR)


def test_a_check_that_has_nothing_to_compare_is_skipped_and_not_left_out() -> None:
    gone = (Library(name="libcudnn.so.9", state="missing", detail="no such file"),)
    facts = machine()
    assert facts.installation is not None
    check = checks(machine(installation=replace(facts.installation, libraries=gone)))["framework.cudnn"]
    assert (check.state, check.detail.split("; ")[1]) == ("skip", "the build needs 9.3")


# -- the system -----------------------------------------------------------------------------------


def test_the_system_says_its_name(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n')
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9654\nprocessor\t: 1\n")
    system = look_at_system({}, tmp_path)
    assert (system.distribution, system.processor) == ("Debian GNU/Linux 12 (bookworm)", "AMD EPYC 9654")
    (tmp_path / "etc/os-release").unlink()
    (tmp_path / "proc/cpuinfo").unlink()
    system = look_at_system({}, tmp_path)
    assert (system.distribution, system.processor) == (None, None)


def test_the_report_says_on_which_system_it_was_made() -> None:
    facts = machine()
    assert facts.system is not None
    system = replace(facts.system, distribution="Debian GNU/Linux 12", processor="AMD EPYC", container="docker")
    doctor = examined(machine(system=system))
    told = dict(diagnostic_content(diagnostic_report(looks(doctor=doctor))).facts)["machine"]
    assert told.startswith("Debian GNU/Linux 12, kernel ")
    assert "CPUs (AMD EPYC)" in told
    assert told.endswith("in a container: docker")
