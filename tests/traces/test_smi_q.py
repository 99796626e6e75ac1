"""``nvidia-smi -q`` and ``-q -x`` in a log: the machine that it shows, judged like a snapshot."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from gpuwatch.core.model.snapshot import Snapshot
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.traces.nvidia_smi_q import SmiQueryReader
from tests.conftest import gpuwatch

CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"

TEXT = """
==============NVSMI LOG==============

Timestamp                                 : Mon May  4 08:09:10 2026
Driver Version                            : 590.10
CUDA Version                              : 13.1

Attached GPUs                             : 1
GPU 00000000:41:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Product Architecture                  : Hopper
    Persistence Mode                      : Enabled
    MIG Mode
        Current                           : Enabled
        Pending                           : Enabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 2
        Compute Instance ID               : 1
        Device Attributes
            Shared
                Multiprocessor count      : 32
        Shared FB Memory Usage
            Total                         : 40448 MiB
            Used                          : 1024 MiB
            Free                          : 39424 MiB
    GPU UUID                              : GPU-11111111-2222-3333-4444-555555555555
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Tx Throughput                     : 250 KB/s
    Fan Speed                             : N/A
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : {thermal}
    FB Memory Usage
        Total                             : 81559 MiB
        Reserved                          : 600 MiB
        Used                              : 1100 MiB
        Free                              : 79859 MiB
    Utilization
        GPU                               : N/A
    ECC Errors
        Volatile
            SRAM Correctable              : 2
            SRAM Uncorrectable Parity     : 1
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 3
            DRAM Uncorrectable            : 0
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 4
        Pending                           : No
        Remapping Failure Occurred        : {failed}
    Temperature
        GPU Current Temp                  : 51 C
        GPU T.Limit Temp                  : 36 C
        GPU Shutdown T.Limit Temp         : -8 C
    GPU Power Readings
        Average Power Draw                : 301.25 W
        Current Power Limit               : 700.00 W
    Processes
        GPU instance ID                   : 2
        Compute instance ID               : 1
        Process ID                        : 4711
            Type                          : C
            Name                          : /usr/bin/python3
            Used GPU Memory               : 1000 MiB
        GPU instance ID                   : 2
        Compute instance ID               : 1
        Process ID                        : 4712
            Type                          : C
            Name                          : [Not Found]
            Used GPU Memory               : N/A

after it: the log goes on
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
 <timestamp>Mon May  4 08:09:10 2026</timestamp>
 <driver_version>535.1</driver_version>
 <gpu id="00000000:41:00.0">
  <product_name>NVIDIA A &amp;amp; B</product_name>
  <mig_mode><current_mig>N/A</current_mig></mig_mode>
  <uuid>GPU-1</uuid>
  <fb_memory_usage><total>100 MiB</total><used>40 MiB</used><free>60 MiB</free></fb_memory_usage>
  <utilization><gpu_util>0 %</gpu_util></utilization>
  <retired_pages><double_bit_retirement><retired_count>3</retired_count></double_bit_retirement>
   <pending_retirement>Yes</pending_retirement></retired_pages>
  <remapped_rows>N/A</remapped_rows>
  <processes><process_info><pid>7</pid><type>G</type><process_name>/usr/lib/xorg/Xorg</process_name>
   <used_memory>22 MiB</used_memory></process_info></processes>
 </gpu>
</nvidia_smi_log>
"""


def machine(text: str) -> Snapshot:
    found = explain(text.splitlines()).machine
    assert found is not None
    return found


def test_text_becomes_a_snapshot_and_na_stays_unknown() -> None:
    snapshot = machine(TEXT.format(thermal="Not Active", failed="No"))
    (gpu,) = snapshot.devices
    assert snapshot.driver is not None
    assert (snapshot.driver.version, snapshot.driver.cuda_version) == ("590.10", "13.1")
    assert (gpu.name, gpu.pci_bus_id, gpu.uuid[:12]) == ("NVIDIA H100 80GB HBM3", "0000:41:00.0", "GPU-11111111")
    expected = {
        "memory.total_bytes": 81559 << 20,
        "pcie.width": 8,
        "pcie.max_width": 16,
        "pcie.tx_bytes_per_second": 250_000,
        "power.draw_watts": 301.25,
        "clocks.event_reasons": "sw-power-cap",
        "ecc.corrected": 5,
        "ecc.uncorrected": 1,
        "ecc.sram_uncorrected": 1,
        "remapped_rows.uncorrectable": 4,
        "temperature.margin_celsius": 36,
        "temperature.shutdown_margin_celsius": -8,
        "mode.persistence": "enabled",
        "mig.mode": "enabled",
        "mig.instances": 1,
    }
    assert {name: gpu.readings.get(name) for name in expected} == expected
    for name in ("fan.speed_percent", "utilization.gpu_percent", "retired_pages.double_bit"):
        assert name not in gpu.readings
    assert gpu.missing["fan.speed_percent"].reason == "not_supported"
    assert gpu.missing["retired_pages.double_bit"].reason == "unknown"
    (instance,) = gpu.mig_instances
    assert (instance.id, instance.multiprocessors, instance.readings["memory.used_bytes"]) == ("2/1", 32, 1 << 30)
    first, second = snapshot.processes
    assert (first.pid, first.name, first.mig_instance) == (4711, "python3", "2/1")
    assert first.readings == {"gpu_memory_bytes": 1000 << 20}
    assert second.readings == {}


OLD_ECC = """    ECC Errors
        Volatile
            Single Bit
                Device Memory             : 6
                Register File             : 1
                Texture Shared            : N/A
                Total                     : 7
            Double Bit
                Device Memory             : 2
                Total                     : 2
        Aggregate
            Single Bit
                Total                     : 9
            Double Bit
                Total                     : N/A
"""


def test_errors_are_read_where_older_gpus_count_them_by_bits() -> None:
    start, end = TEXT.index("    ECC Errors"), TEXT.index("    Remapped Rows")
    text = (TEXT[:start] + OLD_ECC + TEXT[end:]).format(thermal="Not Active", failed="No")
    (gpu,) = machine(text).devices
    counts = ("corrected", "uncorrected", "corrected_lifetime", "uncorrected_lifetime", "sram_uncorrected")
    assert [gpu.readings.get(f"ecc.{name}") for name in counts] == [7, 2, 9, None, None]
    xml = XML.replace(
        " <remapped_rows>",
        "<ecc_errors><volatile><double_bit><device_memory>3</device_memory><total>3</total></double_bit></volatile>"
        "</ecc_errors><remapped_rows>",
    )
    assert machine(xml).devices[0].readings["ecc.uncorrected"] == 3


def test_errors_of_memory_count_where_the_chip_does_not_count_its_caches() -> None:
    text = TEXT.format(thermal="Not Active", failed="No")
    for line in ("SRAM Correctable              : 2", "SRAM Uncorrectable Parity     : 1"):
        text = text.replace(line, line[:-1] + "N/A")
    text = text.replace("SEC-DED    : 0", "SEC-DED    : N/A").replace(
        "DRAM Uncorrectable            : 0", "DRAM Uncorrectable : 5"
    )
    (gpu,) = machine(text).devices
    assert (gpu.readings["ecc.corrected"], gpu.readings["ecc.uncorrected"]) == (3, 5)
    assert "ecc.sram_uncorrected" not in gpu.readings


@pytest.mark.parametrize(
    ("printed", "state", "reason", "title"),
    [
        ("GPU is lost", "lost", "device_lost", "GPU 0 has fallen off the bus"),
        ("[GPU requires reset]", "reset-required", "device_lost", "GPU 0 needs a reset"),
        ("Unknown Error", "ok", "failed", "GPU 0: memory cannot be read"),
    ],
)
def test_a_gpu_that_nvidia_smi_cannot_ask_is_lost(printed: str, state: str, reason: str, title: str) -> None:
    """It is no fault of the NVLink fabric, whose state is such a text too."""
    text = TEXT.format(thermal="Not Active", failed="No")
    fabric = f"    Fabric\n        State         : {printed}\n        Health\n            Summary   : {printed}\n"
    text = text.replace("    Temperature\n", f"{fabric}    Temperature\n")
    for value in ("81559 MiB", "600 MiB", "1100 MiB", "79859 MiB", "51 C"):
        text = text.replace(f": {value}", f": {printed}")
    found = explain(text.splitlines())
    assert found.machine is not None
    (gpu,) = found.machine.devices
    assert (gpu.state, gpu.missing["memory.used_bytes"].reason) == (state, reason)
    assert gpu.readings.get("fabric.state") is gpu.readings.get("fabric.health") is None
    assert title in [finding.title for finding in found.findings]
    assert "fabric" not in str(found.findings)


def test_a_margin_that_is_called_current_is_read() -> None:
    text = TEXT.format(failed="No", thermal="Not Active").replace("GPU T.Limit Temp ", "GPU Current T.Limit Temp ")
    assert "temperature.margin_celsius" in machine(text).devices[0].readings


def test_power_limits_are_read_where_newer_ones_print_them() -> None:
    """nvidia-smi 610 prints them below a heading of their own."""
    nested = """        GPU Ceiling Power Limit
            Current Power Limit           : 650.00 W
            Requested Power Limit         : 660.00 W
            Default Power Limit           : 700.00 W
        GPU Base Power
            Current Base Power            : 90.00 W
        Max Power Limit                   : 720.00 W"""
    text = TEXT.format(failed="No", thermal="Not Active")
    assert "        Current Power Limit               : 700.00 W" in text
    (gpu,) = machine(text.replace("        Current Power Limit               : 700.00 W", nested)).devices
    found = {name: gpu.readings.get(f"power.{name}_watts") for name in ("limit", "requested_limit", "default_limit")}
    assert found == {"limit": 650.0, "requested_limit": 660.0, "default_limit": 700.0}
    assert gpu.readings["power.max_limit_watts"] == 720.0


def test_xml_becomes_the_same_kind_of_snapshot() -> None:
    snapshot = machine(XML)
    (gpu,) = snapshot.devices
    assert gpu.readings["memory.used_bytes"] == 40 << 20
    assert gpu.readings["retired_pages.double_bit"] == 3
    assert gpu.missing["remapped_rows.failure"].reason == "not_supported"
    assert [(one.pid, one.type, one.name) for one in snapshot.processes] == [(7, "G", "Xorg")]
    assert next((one.id, one.severity) for one in explain(XML.splitlines()).findings) == ("hardware.fault", "warning")


def test_the_rules_of_a_live_machine_judge_it() -> None:
    healthy = explain(TEXT.format(thermal="Not Active", failed="No").splitlines())
    assert "remapped" not in str(healthy.findings)
    assert explain(TEXT.format(thermal="Not Active", failed="Yes").splitlines()).primary == "hardware.fault"
    assert "throttle.thermal" in {
        one.id for one in explain(TEXT.format(thermal="Active", failed="No").splitlines()).findings
    }


def test_the_log_around_it_is_read_and_the_last_output_counts() -> None:
    early, late = TEXT.format(thermal="Active", failed="Yes"), TEXT.format(thermal="Not Active", failed="No")
    error = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    found = explain([*early.splitlines(), *late.splitlines(), error])
    assert found.lines == 2 * len(late.splitlines()) + 1
    assert found.machine is not None
    assert found.machine.devices[0].readings["remapped_rows.failure"] == "no"
    assert any("ECC" in line for one in found.findings for line in one.evidence)


@pytest.mark.parametrize("count", [2, 3])
def test_of_outputs_in_a_row_the_last_counts_and_each_line_is_one(count: int) -> None:
    text = TEXT.format(failed="No", thermal="Not Active")
    last = text.replace("51 C", "77 C")
    after = ["Traceback (most recent call last):", "RuntimeError: CUDA error: an illegal memory access was encountered"]
    found = explain([*(text * (count - 1) + last).splitlines(), *after])
    assert found.machine is not None
    assert found.machine.devices[0].readings["temperature.gpu_celsius"] == 77
    assert found.lines == len(text.splitlines()) * count + 2
    assert {one.id for one in explain(after).findings} <= {one.id for one in found.findings}, "what follows is read"


@pytest.mark.parametrize(
    "text",
    [
        "==============NVSMI LOG==============",
        "==============NVSMI LOG==============\nGPU 00000000:41:00.0\n",
        "<nvidia_smi_log>" + "<a>" * 50_000,
        "<nvidia_smi_log>\n" + "<gpu id='1'>\n" * 5000 + "</gpu>\n" * 9000,
        "<nvidia_smi_log>\n<gpu>\n" + "<x>1</x></y>\n" * 5000,
        "==============NVSMI LOG==============\nGPU 00000000:41:00.0\n" + " " * 4000 + "a : b\n" * 3000,
    ],
    ids=["head", "no fields", "deep", "many GPUs", "unbalanced", "indented"],
)
def test_broken_and_hostile_output_is_no_machine_and_no_crash(text: str) -> None:
    reader = SmiQueryReader()
    for line in text.split("\n"):
        reader.take(line)
    snapshot = reader.snapshot()
    assert snapshot is None or all(not device.readings.get("memory.total_bytes") for device in snapshot.devices)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_report_is_read(tmp_path: Path, compress: object) -> None:
    path = tmp_path / "nvidia-bug-report.log.gz"
    assert callable(compress)
    lspci = "\tInterrupt: pin A routed to IRQ 181\n\tCapabilities: [100] Advanced Error Reporting\n"
    path.write_bytes(compress((lspci + TEXT.format(thermal="Not Active", failed="No")).encode() * 2))
    result = gpuwatch("explain", str(path))
    assert "NVIDIA H100 80GB HBM3" in result.out
    assert "driver        590.10, CUDA 13.1" in result.out
    assert "IRQ" not in result.out
    path.write_bytes(path.read_bytes()[:-40])
    result = gpuwatch("explain", str(path))
    assert (result.code, result.err.count("\n")) == (2, 1)


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no captures of real machines here")
@pytest.mark.parametrize("path", sorted([*CAPTURES.glob("nge_*"), *CAPTURES.glob("tg_*")]), ids=lambda path: path.name)
def test_a_real_machine_is_recognised(path: Path) -> None:
    """Each printed memory, clock, power and temperature is a reading with the same value."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    snapshot = machine(text)
    (gpu,) = snapshot.devices
    total = gpu.number("memory.total_bytes")
    assert total is not None
    assert f"{total / (1 << 20):.0f} MiB" in text
    for metric, unit in {"power.draw_watts": "W", "clocks.sm_mhz": "MHz", "temperature.gpu_celsius": "C"}.items():
        value = gpu.number(metric)
        assert value is not None
        assert f": {value:.2f} {unit}" in text or f"{value:g} {unit}" in text or f"{value:.2f} {unit}" in text
    assert not [one for one in explain(text.splitlines()).findings if one.severity == "error"]


@pytest.mark.parametrize(("client", "over"), [("590.10", True), ("580.65.06", False)])
def test_a_mismatch_with_the_version_that_answers_is_over(client: str, over: bool) -> None:
    """A bug report has the kernel's log of days before, too."""
    log = f"""May  1 09:00:00 vm kernel: [  9.5] NVRM: API mismatch: the client has the version {client}, but
May  1 09:00:00 vm kernel: [  9.5] NVRM: this kernel module has the version 570.86.15.  Please
"""
    found = explain((log + TEXT.format(thermal="Not Active", failed="No")).splitlines())
    assert ("driver.mismatch" in [finding.id for finding in found.findings]) is not over
    assert any("that is over" in finding.title for finding in found.findings) is over


@pytest.mark.parametrize(("text", "before", "after"), [(TEXT, ": 590.10", ": 595.58"), (XML, ">535.1<", ">595.58<")])
def test_diff_compares_the_machines_of_two_outputs(tmp_path: Path, text: str, before: str, after: str) -> None:
    first, second, log = tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "c.log"
    first.write_text(text)
    second.write_text(text.replace(before, after))
    log.write_text("step 1\n")
    done = gpuwatch("diff", str(first), str(second))
    assert (done.code, done.err) == (3, "")
    assert "595.58" in done.out
    assert gpuwatch("diff", str(first), str(first)).code == 0
    refused = gpuwatch("diff", str(first), str(log))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "is not a gpuwatch document" in refused.err
