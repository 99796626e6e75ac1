"""``gpuwatch capture``: what a machine's driver answers, in a file without private names that ``--sim`` takes."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from gpuwatch.core.model.nvml_return import NvmlReturn
from gpuwatch.machine.recording.cut_recording import cut_out
from gpuwatch.machine.recording.reader import Recording
from gpuwatch.session.capture_driver_answers import SMI_FILE_NAME, mask_ids
from gpuwatch.sim import faults
from gpuwatch.sim.simulated_machine import FOR_EVER, SimMachine
from tests.conftest import gpuwatch

FIXTURE = Path(__file__).parents[1] / "fixtures" / "recording-3.gpuwatch"


def test_a_capture_has_values_and_error_codes_and_is_a_machine(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    machine, path = sim_machine("2x24GiB"), tmp_path / "gpu.gpuwatch"
    machine.inject("nvmlDeviceGetFanSpeed*", code=3, device=1, count=FOR_EVER, label="fan")
    environment = machine.environment(os.environ)
    done = gpuwatch("capture", "-o", str(path), "--for", "2s", environment=environment)
    assert done.code == 0, done.err
    assert done.out == ""
    uuids = [device.uuid for device in machine.devices()]
    assert not any(uuid.encode() in path.read_bytes() for uuid in uuids)
    with Recording(path) as recording:
        (kept, *_) = recording.snapshots()
        assert recording.notes["redacted"]
    assert _attached(path) == [], "nvidia-smi knows nothing of simulated GPUs"
    assert kept.snapshot.host.hostname == "host-1"
    codes = [
        device.missing["fan.speed_percent"].code if "fan.speed_percent" in device.missing else None
        for device in kept.snapshot.devices
    ]
    assert codes == [None, 3]
    again = json.loads(gpuwatch("snapshot", "--json", "--sim", str(path)).out)
    assert [device["missing"].get("fan.speed_percent", {}).get("code") for device in again["devices"]] == codes


def _attached(path: Path) -> list[str]:
    """The texts that are kept beside the samples."""
    with closing(sqlite3.connect(path)) as db:
        return [text for (text,) in db.execute("SELECT value FROM notes WHERE name LIKE 'file: %'")]


def test_without_a_gpu_or_over_a_file_nothing_is_written(
    sim_machine: Callable[[str], SimMachine], tmp_path: Path
) -> None:
    machine, path = sim_machine("1x2GiB"), tmp_path / "gpu.gpuwatch"
    faults.fail_init(machine, NvmlReturn["DRIVER_NOT_LOADED"], None)
    done = gpuwatch("capture", "-o", str(path), "--for", "1s", environment=machine.environment(os.environ))
    assert done.code == 1
    assert "there is nothing to capture" in done.err
    assert list(tmp_path.iterdir()) == []
    path.write_text("mine")
    assert gpuwatch("capture", "-o", str(path)).code == 2
    assert path.read_text() == "mine"


def test_what_nvidia_smi_printed_has_no_names(tmp_path: Path) -> None:
    program = "<host>node07</host><p>/home/alice/t.py</p>"
    smi = f"<nvidia_smi_log><driver_version>595.71</driver_version>{program}</nvidia_smi_log>"
    with Recording(FIXTURE) as recording:
        cut_out(recording, *recording.extent(), tmp_path / "cut.gpuwatch", redact=True, attached={SMI_FILE_NAME: smi})
    (text,) = _attached(tmp_path / "cut.gpuwatch")
    with Recording(tmp_path / "cut.gpuwatch") as recording:
        assert set(recording.notes) == {"cut", "redacted"}
    assert "alice" not in text
    assert text.startswith("<nvidia_smi_log><driver_version>595.71</driver_version>")
    assert text.endswith("</p></nvidia_smi_log>")


_IDS = (
    "<serial>1650000000000</serial>", "<uuid>GPU-11111111-2222-3333-4444-555555555555</uuid>",
    "<pdi>0x0123456789abcdef</pdi>", "<host_id>1</host_id>", "<gpu_fabric_guid>0x12</gpu_fabric_guid>",
    "<chassis_serial_number>821</chassis_serial_number>", "<cliqueId>3</cliqueId>",
    "<named_later>0x0123456789abcdef</named_later>", "<named_later>11111111-2222-3333-4444-555555555555</named_later>",
)  # fmt: skip


def test_ids_of_cards_and_of_their_places_are_masked_whatever_a_driver_calls_them() -> None:
    """580.159.04 prints <pdi>, the number of the chip."""
    kept = "<memory_temp>40 C</memory_temp><pci_device_id>233510DE</pci_device_id><host_id>N/A</host_id>"
    text = mask_ids("".join(_IDS) + kept)
    assert text.count(">masked<") == len(_IDS)
    assert text.endswith(kept)
