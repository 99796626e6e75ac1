"""nvidia-smi's tables in a log, in the layouts of several drivers."""

from __future__ import annotations

import pytest

from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.logs.log_parser import parse
from gpuwatch.explain.logs.nvidia_tool_output import MAX_TABLE_LINES
from tests.logs.logs import MIB, text

OLD = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 396.37                 Driver Version: 396.37                    |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Quadro P5000        Off  | 00000000:17:00.0 Off |                  Off |
| 26%   41C    P0    45W / 180W |  15980MiB / 16278MiB |     97%      Default |
+-------------------------------+----------------------+----------------------+

+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0      7711      C   /opt/sim/bin/solver                         15969MiB |
+-----------------------------------------------------------------------------+
"""
NEW = """\
Mon May  4 10:11:12 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
+-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A30                     On  |   00000000:31:00.0 Off |                   On |
| N/A   34C    P0             29W /  165W |      14MiB /  24576MiB |     N/A      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA RTX 6000 Ada Gene...    Off |   00000000:B1:00.0  On |                  Off |
| 30%   55C    P2            280W /  300W |   46001MiB /  49140MiB |     99%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |
|  0    1   0   0  |              12MiB / 11968MiB    | 28      0 |  2   0    2    0    0 |
+------------------+----------------------------------+-----------+-----------------------+

+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    1   N/A  N/A            2210      G   /usr/lib/xorg/Xorg                       88MiB |
|    1   N/A  N/A           40321      C   python3                               45890MiB |
+-----------------------------------------------------------------------------------------+
"""


def test_an_old_table() -> None:
    found = parse(OLD)
    (card,) = found.gpus
    assert (card.name, card.pci_bus_id) == ("Quadro P5000", "0000:17:00.0")
    assert (card.total_bytes, card.free_bytes) == (16278 * MIB, 298 * MIB)
    (row,) = found.smi_processes
    assert (row.gpu, row.pid, row.type, row.name, row.held_bytes) == (0, 7711, "C", "/opt/sim/bin/solver", 15969 * MIB)
    assert found.kernel_module_version == "396.37"


@pytest.mark.parametrize("quote", ["", "> ", "    ", "# "])
def test_a_new_table_with_instances(quote: str) -> None:
    found = parse("\n".join(quote + line for line in NEW.splitlines()))
    assert [(card.name, card.total_bytes) for card in found.gpus] == [
        ("NVIDIA A30", 24576 * MIB),
        ("NVIDIA RTX 6000 Ada Gene...", 49140 * MIB),
    ]
    assert [(row.gpu, row.pid, row.type) for row in found.smi_processes] == [(1, 2210, "G"), (1, 40321, "C")]


def test_who_held_the_memory_stands_beside_the_failure() -> None:
    found = explain([*OLD.splitlines(), *text("stub_tf218_ctx_oom").splitlines()])
    assert found.primary == "memory.context-failed"
    assert any("GPU 0: /opt/sim/bin/solver" in line for line in found.findings[0].evidence)


def test_a_table_proves_the_driver() -> None:
    cuinit = "E0504 10:11:12.1 77 cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device"
    assert explain([cuinit]).primary == "driver.missing"
    assert explain([*NEW.splitlines(), cuinit]).primary == "container.lost-devices"


@pytest.mark.parametrize("model", ["WDDM", " TCC", "MCDM"])
def test_a_table_of_windows(model: str) -> None:
    found = parse(OLD.replace("        Off  | 00000000:17", f"       {model}  | 00000000:17"))
    assert [(card.name, card.pci_bus_id, card.total_bytes) for card in found.gpus] == [
        ("Quadro P5000", "0000:17:00.0", 16278 * MIB)
    ]


def test_what_follows_a_table_is_read() -> None:
    found = parse(NEW + text("stub_tf221_map_default"))
    assert len(found.device_map) == 2
    found = parse(NEW.splitlines()[2] + "\n" + "| x |\n" * (MAX_TABLE_LINES + 5) + text("stub_tf221_map_default"))
    assert len(found.device_map) == 2


def test_a_mode_supports_what_it_kept_out() -> None:
    busy = "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"
    found = explain((OLD.replace("     Default |", "  E. Process |") + busy).splitlines())
    assert found.primary == "mode.exclusive"
    assert "E. Process |" in str(found.findings[0].evidence)


KEY_ERROR = """\
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    use(row)
KeyError: 'label'
"""


@pytest.mark.parametrize(("after", "cause"), [("", "healthy"), (KEY_ERROR, "program.error")])
def test_a_mode_that_a_table_shows_is_no_error(after: str, cause: str) -> None:
    """Many clusters set it on all GPUs; a program that it keeps out says so."""
    assert explain((OLD.replace("     Default |", "  E. Process |") + after).splitlines()).primary == cause


def test_a_driver_that_is_half_removed_is_no_container() -> None:
    log = """\
May  1 09:00:00 vm kernel: [  9.5] NVRM: The NVIDIA probe routine was not called for 1 device(s).
May  1 09:00:00 vm kernel: [ 99.5] NVRM: API mismatch: the client has the version 550.54.14, but
May  1 09:00:00 vm kernel: [ 99.5] NVRM: this kernel module has the version 535.183.01.  Please
libnvidia-gtk3.so: cannot open shared object file: No such file or directory
nvidia-persistenced[88]: Failed to open libnvidia-cfg.so.1: libnvidia-cfg.so.1: cannot open shared object file
NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is \
properly installed and present in your system.
"""
    found = explain(log.splitlines())
    assert [finding.id for finding in found.findings] == ["driver.mismatch"]
    assert "API mismatch" in found.findings[0].evidence[0]
