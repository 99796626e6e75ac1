"""Faults of a running kernel: the program's mostly, the card's where the driver says so."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain

_XID = "[88112.31] NVRM: Xid (PCI:0000:65:00): {}, pid=4711, name=python, told by the driver"


@pytest.mark.parametrize(
    ("line", "title", "action"),
    [
        (
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "illegal memory access",
            "BLOCKING=1",
        ),
        ("RuntimeError: CUDA error: misaligned address", "illegal memory access", "compute-sanitizer"),
        ("InternalError: CUDA_ERROR_ILLEGAL_ADDRESS", "illegal memory access", "on the CPU"),
        ("InternalError: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure", "A kernel crashed", "BLOCKING=1"),
        ("RuntimeError: CUDA error: the launch timed out and was terminated", "ran longer", "without a display"),
        ("RuntimeError: cuda runtime error (700) : it failed", "illegal memory access", "BLOCKING=1"),
    ],
)
def test_a_kernel_that_crashed_may_be_the_programs_or_the_cards(line: str, title: str, action: str) -> None:
    found = explain([line]).findings[0]
    assert (found.id, found.severity) == ("unknown", "error")
    assert title in found.title
    assert action in found.action
    assert found.evidence[0].endswith(line[-40:])


def test_one_crash_told_twice_is_not_two_kinds() -> None:
    twice = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert explain([twice, f"[rank1]: {twice}", "InternalError: CUDA_ERROR_ILLEGAL_ADDRESS"]).primary == "unknown"
    assert explain([twice, "RuntimeError: CUDA error: unspecified launch failure"]).primary == "hardware.fault"


@pytest.mark.parametrize(
    ("line", "title", "action"),
    [
        (_XID.format(79), "Xid 79 (the GPU has fallen off the bus)", "Restart the machine"),
        (_XID.format(48), "Xid 48 (double-bit ECC error)", "field diagnostic"),
        (_XID.format(145), "Xid 145 (NVLink 5 error, RLW)", "fabric manager"),
        (_XID.format(119), "Xid 119 (GSP firmware timeout)", "update the driver"),
        (_XID.format(998), "Xid 998", "reset it"),
        (_XID.format(45) + ", Ch 00000008 caused by previous Xid 149", "Xid 149 (NVLink 5", "fabric manager"),
        ("NVRM: GPU 0000:b3:00.0 has fallen off the bus.", "A GPU has fallen off the bus", "Restart the machine"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "hardware fault", "nvidia-smi -r"),
    ],
)
def test_whose_fault_it_is(line: str, title: str, action: str) -> None:
    found = explain([line]).findings[0]
    assert (found.id, found.severity) == ("hardware.fault", "error")
    assert found.certainty == ("likely" if "Xid" in line or "CUDA" in line else "fact")
    assert title in found.title
    assert action in found.action
    assert "dmesg" not in found.action or "Xid" not in line
    assert found.evidence[0].endswith(line[-40:])


@pytest.mark.parametrize(
    ("codes", "told"),
    [((13, 45), 13), ((45, 31), 31), ((31, 45, 79), 79), ((94, 63, 79), 79), ((74, 48), 48), ((43, 119, 149), 149)],
)
def test_of_several_xids_the_one_to_act_on_is_told(codes: tuple[int, ...], told: int) -> None:
    assert f"Xid {told} (" in explain([_XID.format(code) for code in codes]).findings[0].title


def test_an_illegal_access_beside_a_lost_gpu_is_the_cards() -> None:
    lines = ["RuntimeError: CUDA error: an illegal memory access was encountered", _XID.format(79), _XID.format(31)]
    found = explain(lines).findings
    assert [entry.id for entry in found] == ["hardware.fault"]
    assert "Xid 79" in found[0].title
    assert "Restart the machine" in found[0].action


def test_an_assertion_asks_for_the_index_and_not_for_a_report() -> None:
    found = explain(["RuntimeError: CUDA error: device-side assert triggered"]).findings[0]
    assert "one of its own assertions" in found.title
    assert "out of range" not in found.title
    assert "CUDA_LAUNCH_BLOCKING=1" in found.action
    assert "report" not in found.action


@pytest.mark.parametrize(
    ("line", "cause", "severity"),
    [
        ("[ERROR] [tid 7] detected NVSwitch non-fatal error 12028 on fid 0 port 61", "unknown", "warning"),
        ("[ERROR] [tid 7] detected NVSwitch fatal error 11001 on fid 0 port 61", "hardware.fault", "error"),
        ("nvidia-nvswitch3: SXid (PCI:0000:86:00.0): 24007, Fatal, Link 28 sourcetrack", "hardware.fault", "error"),
        ("\tGPU 1: FAULTY", "hardware.fault", "error"),
        ("nvbandwidth Version: v0.6", "healthy", "info"),
        ('{"MESSAGE": "NVRM: Xid (PCI:0000:65:00): 79, GPU has fallen off the bus."}', "hardware.fault", "error"),
    ],
)
def test_logs_of_the_machines_own_programs(line: str, cause: str, severity: str) -> None:
    found = explain([line]).findings[0]
    assert (found.id, found.severity) == (cause, severity)


def test_an_interrupt_of_lspci_is_no_exception() -> None:
    assert not explain(["\tInterrupt: pin A routed to IRQ 181"]).errors
    assert explain(["Traceback (most recent call last):", "KeyboardInterrupt"]).errors


@pytest.mark.parametrize(
    ("codes", "cause"),
    [
        ((13,), "unknown"),
        ((31,), "unknown"),
        ((13, 43, 45), "unknown"),
        ((31, 45, 62), "hardware.fault"),
        ((13, 109), "unknown"),
        ((13, 119), "hardware.fault"),
        ((43, 154), "hardware.fault"),
        ((63,), "hardware.fault"),
    ],
)
def test_xids_of_programs_alone_do_not_accuse_the_card(codes: tuple[int, ...], cause: str) -> None:
    found = explain([_XID.format(code) for code in codes]).findings[0]
    assert (found.id, found.severity, found.certainty) == (cause, "error", "likely")
    assert found.title.startswith("The driver reported Xid ")
    assert "BLOCKING=1" in found.action or cause != "unknown" or "Restart the program" in found.action


def test_what_programs_do_beside_a_card_that_is_lost() -> None:
    lost = "NVRM: GPU at PCI:0000:b3:00: GPU has fallen off the bus."
    assert explain([_XID.format(31), lost]).primary == "hardware.fault"


def test_nan_to_sample_from_is_no_index_out_of_range() -> None:
    at = "../aten/src/ATen/native/cuda/{}: block: [0,0,0], thread: [0,0,0] Assertion `{}` failed."
    end = "RuntimeError: CUDA error: device-side assert triggered"
    nan = at.format("TensorCompare.cu:112: _assert", "probability tensor contains either `inf`, `nan` or element < 0")
    index = at.format("Indexing.cu:1289: indexSelectLargeIndex", "srcIndex < srcSelectDimSize")
    assert "NaN" in explain([nan, end]).findings[0].title
    assert "NaN" in explain([nan.split("Assertion `")[1]]).findings[0].title
    assert "index is out of range" in explain([index, end]).findings[0].title
    mask = at.format("IndexKernel.cu:7: masked_scatter_size_check", "totalElements <= srcSize")
    assert "more positions than" in explain([mask, end]).findings[0].title
    assert "out of range" not in explain([at.format("Own.cu:7: mine", "n == m"), end]).findings[0].title


def test_a_fabric_manager_without_a_switch_is_no_driver_in_a_bad_state() -> None:
    unit = "nv-fabricmanager[71]: query of NVSwitch devices failed with error:WARNING Nothing to do [{}]"
    ended = "systemd[1]: nvidia-fabricmanager.service: Control process exited, code=exited, status=1/FAILURE"
    assert explain([unit.format("NV_WARN_NOTHING_TO_DO"), ended]).findings[0].title.endswith("found no NVSwitch")
    assert explain([unit.format("NV_ERR_GENERIC"), ended]).primary == "driver.bad-state"


def test_an_xid_after_many_others_is_found_and_all_are_told_in_order_of_time() -> None:
    line = "[{:>12.6f}] NVRM: Xid (PCI:0000:65:00): {}, pid=4711, name=python, Ch 00000008, intr {}"
    lines = [line.format(900, 43, 1), *(line.format(10 + n / 9, 31, n) for n in range(40))]
    alone = explain(lines).findings[0]
    assert alone.id == "unknown"
    assert alone.evidence[-1].endswith(": 31 (40 times), 43")
    found = explain([*lines, line.format(950, 79, 0)]).findings[0]
    assert found.id == "hardware.fault"
    assert "): 79," in found.evidence[0]
    assert found.evidence[-1].endswith(": 31 (40 times), 43, 79")


def test_a_context_switch_that_timed_out_is_the_programs_until_others_speak() -> None:
    line = "NVRM: Xid (PCI:0000:01:00): 109, pid=7, name=game.exe, Ch 0000001e, errorString CTX SWITCH TIMEOUT"
    found = explain([line]).findings[0]
    assert (found.id, found.action.startswith("Restart the program")) == ("unknown", True)


def test_the_evidence_of_a_lost_gpu_is_not_a_programs_xid() -> None:
    xid = "NVRM: Xid (PCI:0000:01:00): 31, pid=7, Ch 00000002, intr 10000000. MMU Fault: ENGINE HOST6 HUBCLIENT_HOST"
    found = explain([xid, "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."]).findings[0]
    assert found.title == "A GPU has fallen off the bus"
    assert "fallen off" in found.evidence[0]


def test_the_text_of_dcgm_exporter() -> None:
    sample = 'DCGM_FI_DEV_{}{{gpu="{}",UUID="GPU-1a2b3c4d",pci_bus_id="00000000:{}:00.0",modelName="NVIDIA A100"}} {}'
    head = ["# HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).", "# TYPE DCGM_FI_DEV_GPU_TEMP gauge"]
    good = [sample.format("GPU_TEMP", gpu, bus, 41) for gpu, bus in ((0, "1A"), (1, "4B"))]
    good += [sample.format("XID_ERRORS", 0, "1A", 0), sample.format("ECC_DBE_VOL_TOTAL", 0, "1A", 9223372036854775794)]
    assert explain([*head, *good]).primary == "healthy"
    for name, value, cause in (
        ("XID_ERRORS", 79, "hardware.fault"),
        ("XID_ERRORS", 31, "unknown"),
        ("ECC_DBE_VOL_TOTAL", 2, "hardware.fault"),
        ("CLOCK_THROTTLE_REASONS", 0x40, "throttle.thermal"),
        ("CLOCKS_EVENT_REASONS", 0x84, "throttle.power"),
        ("CLOCKS_EVENT_REASONS", 0x4, "healthy"),
    ):
        found = explain([*head, *good, sample.format(name, 1, "4B", value)])
        assert found.primary == cause, (name, value)
        assert name != "XID_ERRORS" or f"Xid {value}" in found.findings[0].title
