"""``--sim FILE``: a simulated machine reports what its file states, and nothing where the file says N/A."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from gpuwatch import sim
from gpuwatch.cli.sim_options import _snapshot_of, machine_from_file
from gpuwatch.core.model.json_codec import from_json
from gpuwatch.core.model.metrics import METRICS, Lane
from gpuwatch.core.model.snapshot import Device, MigInstance, Snapshot
from gpuwatch.sim.gpu_models import MODELS
from gpuwatch.sim.machine_shape import SimShape
from tests.conftest import gpuwatch
from tests.traces.test_smi_q import TEXT as LAYOUT
from tests.traces.test_smi_q import XML

TEXT = LAYOUT.format(failed="No", thermal="Not Active")
FIXTURES = Path(__file__).parents[1] / "fixtures"
CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "captures"
REAL = sorted(FIXTURES.glob("h200-*.json"))
"""What ``gpuwatch snapshot --gpm --json`` found on real GPUs, ids and names replaced (tests/gpu/README.md)."""
OPTED = frozenset(spec.id for spec in METRICS if spec.lane is Lane.GPM)
DERIVED = OPTED | {spec.id for spec in METRICS if not spec.call}
"""Rates, which need a counter that grows, and what the processes of the file explain: they do not run here."""


def simulated(given: Path | str) -> Snapshot:
    result = gpuwatch("snapshot", "--json", "--sim", str(given))
    assert result.code == 0, result.err
    found = from_json(result.out.encode())
    assert isinstance(found, Snapshot)
    return found


def differences(stated: Snapshot, found: Snapshot) -> list[str]:
    """Each value that both have a field for and that differs, and each that only the simulated machine has."""
    assert len(stated.devices) == len(found.devices)
    pairs: list[tuple[Device | MigInstance, Device | MigInstance]] = []
    for one, other in zip(stated.devices, found.devices, strict=True):
        assert one.name == other.name
        pairs += [(one, other), *zip(one.mig_instances, other.mig_instances, strict=True)]
    return [
        f"{metric}: {one.readings.get(metric)} is {other.readings.get(metric)}"
        for one, other in pairs
        for metric in {*one.readings, *one.missing} - DERIVED
        if one.readings.get(metric) != pytest.approx(other.readings.get(metric), rel=1e-3)
        or getattr(one, "multiprocessors", None) != getattr(other, "multiprocessors", None)
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [("machine.txt", TEXT), ("machine.xml", XML.replace("100 MiB", "2000 MiB").replace("60 MiB", "1960 MiB"))],
    ids=["text", "xml"],
)
def test_a_machine_that_nvidia_smi_printed(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    stated, found = _snapshot_of(path, None), simulated(path)
    assert not differences(stated, found)
    assert found.simulated
    assert found.driver is not None
    assert stated.driver is not None
    assert found.driver.version == stated.driver.version
    (gpu,) = found.devices
    if name == "machine.txt":
        assert {gpu.missing[one].code for one in ("fan.speed_percent", "utilization.gpu_percent")} == {3}
    assert "energy_joules" not in gpu.readings, "nvidia-smi prints none"


def test_a_snapshot_and_each_moment_of_a_recording(tmp_path: Path) -> None:
    """A snapshot of a simulated machine gives the same readings; a recording those of the moment that was asked for."""
    first = tmp_path / "first.json"
    first.write_text(gpuwatch("snapshot", "--json", "--sim", "3x2GiB").out)
    stated = from_json(first.read_bytes())
    assert isinstance(stated, Snapshot)
    assert not differences(stated, simulated(first))
    recording = FIXTURES / "recording-3.gpuwatch"
    stated = _snapshot_of(recording, None)
    assert not differences(stated, simulated(recording))
    begin = _snapshot_of(recording, "@1000")
    assert begin.taken_at < stated.taken_at
    assert not differences(begin, simulated(f"{recording}@@1000"))


def test_what_a_program_does_shows_besides(tmp_path: Path) -> None:
    path = tmp_path / "busy.txt"
    path.write_text(TEXT.replace("Enabled\n    MIG Device", "Disabled\n    MIG Device"))
    machine = machine_from_file(path, None)
    try:
        before = simulated(path).devices[0]
        machine.attach(os.getpid(), 0, 1 << 30, sm_percent=80)
        after = simulated(path).devices[0]
        assert after.readings["memory.used_bytes"] == (1100 << 20) + (1 << 30)
        assert (before.readings["power.limit_watts"], after.readings["power.limit_watts"]) == (700, 700)
        assert (before.readings["temperature.gpu_celsius"], after.readings["temperature.gpu_celsius"]) != (51, 51)
        assert "utilization.gpu_percent" not in after.readings, "N/A stays N/A"
        refused = gpuwatch("sim", "fault", "set", "0", "fan_percent", "50", "--sim", str(path))
        assert refused.code != 0
        assert "made from a file" in refused.err
    finally:
        machine.remove()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no machine", "does not contain nvidia-smi"),
        ("{}", "cannot simulate"),
        (XML, "512 MiB"),
        (TEXT.replace("81559 MiB", "N/A"), "how much memory"),
    ],
    ids=["text", "json", "small", "memory"],
)
def test_a_file_without_a_machine_gets_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(text)
    for given in (str(path), f"{path}@14:05", str(tmp_path / "none.xml")):
        result = gpuwatch("snapshot", "--sim", given)
        assert (result.code, result.err.count("\n")) == (2, 1), result.err
    assert said in gpuwatch("snapshot", "--sim", str(path)).err


def test_a_pipe_that_could_not_be_read_twice_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused = gpuwatch("snapshot", "--sim", str(tmp_path / "pipe"))
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "is a pipe" in refused.err


@pytest.mark.parametrize(
    "path", [*REAL, *sorted([*CAPTURES.glob("nge_*"), *CAPTURES.glob("tg_*")])], ids=lambda path: path.name
)
def test_a_real_machine_comes_up_as_its_file_states(path: Path) -> None:
    stated, found = _snapshot_of(path, None), simulated(path)
    assert not differences(stated, found)
    assert sum(len(gpu.readings) for gpu in found.devices) > 30
    assert json.loads(msgspec.json.encode(found.driver))["version"] == stated.driver.version  # type: ignore[union-attr]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_a_machine_that_gpuwatch_ran_on_lacks_what_it_lacked(path: Path) -> None:
    (stated,), (found,) = _snapshot_of(path, None).devices, simulated(path).devices
    assert found.compute_capability == stated.compute_capability
    codes, ours = ({name: why.code for name, why in device.missing.items()} for device in (stated, found))
    assert codes.items() <= ours.items()


def test_a_file_of_another_encoding_is_read_as_a_log_is(tmp_path: Path) -> None:
    """PowerShell writes UTF-16."""
    plain, wide = tmp_path / "q.txt", tmp_path / "wide.txt"
    plain.write_text(TEXT, encoding="utf-8")
    wide.write_text(TEXT, encoding="utf-16")
    assert _snapshot_of(wide, None).devices == _snapshot_of(plain, None).devices


def test_the_page_of_simulated_gpus_says_what_each_model_was_compared_with() -> None:
    page = (Path(sim.__file__).parents[1] / "docs" / "simulated.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "`--sim`" not in line]
    assert rows == [f"| {model.name} | `{key}` | {model.known_from} |" for key, model in MODELS.items()]


NOT_MODELLED = {
    *("bar1.total_bytes", "bar1.used_bytes", "clocks.video_mhz", "clocks.video_max_mhz"),
    *("identity.vbios", "identity.serial", "identity.part_number", "identity.gsp_version"),
}
"""What real GPUs of the captures report and those of ``--sim 1xMODEL`` do not: figures of one board."""
OF_THE_CARD = ("clocks.sm_max_mhz", "clocks.memory_max_mhz", "power.default_limit_watts")
MODEL_OF = {
    "rtx-5090": "rtx5090",
    "rtx-2080": "rtx2080super",
    "rtx-4080": "rtx4080super",
    "rtx-4000": "rtx4000ada",
    "h100-mig": "h100mig",
    "h100-80gb": "h100",
    "h200-mig": "h200mig",
    "h200": "h200",
    "l40s": "l40s",
    "a100": "a100mig",
    "a10g": "a10g",
    "t4": "t4",
}


@pytest.mark.parametrize(
    "path", [*REAL, *sorted([*CAPTURES.glob("nge_*"), *CAPTURES.glob("tg_*")])], ids=lambda path: path.name
)
def test_a_model_supports_what_the_real_one_supports(path: Path) -> None:
    model = next(key for word, key in MODEL_OF.items() if word in path.name) + "windows" * ("windows" in path.name)
    (real,), (ours,) = _snapshot_of(path, None).devices, simulated(f"1x{model}").devices
    assert (ours.name, ours.readings["memory.total_bytes"]) == (real.name, real.readings["memory.total_bytes"])
    assert ours.readings["identity.architecture"] == real.readings["identity.architecture"]
    assert real.readings.keys() - ours.readings.keys() <= NOT_MODELLED | OPTED
    lacks = {metric for metric, why in real.missing.items() if why.reason == "not_supported"}
    if path in REAL:
        lacks -= {"fabric.state"}  # NVLink was switched off there (NvLinkDisable=1 in the driver's parameters)
    assert not lacks & ours.readings.keys()
    assert {name: ours.readings[name] for name in OF_THE_CARD} == {name: real.readings[name] for name in OF_THE_CARD}


def test_models_differ_in_what_they_support_and_programs_work_on_them() -> None:
    assert {str(SimShape.parse(f"2X{model}")) for model in MODELS} == {f"2x{model}" for model in MODELS}
    assert SimShape.parse("H100") == SimShape.parse("1xh100")
    metrics = ("fan.speed_percent", "ecc.mode", "mig.mode", "mode.persistence", "temperature.memory_celsius")
    found = {}
    for model in ("rtx2080super", "rtx2080superwindows", "h100", "t4"):
        (gpu,) = simulated(f"1x{model}").devices
        found[model] = [metric for metric in metrics if metric not in gpu.readings]
        assert {gpu.missing[metric].code for metric in found[model]} == {3}
    assert found == {
        "rtx2080super": ["ecc.mode", "mig.mode", "temperature.memory_celsius"],
        "rtx2080superwindows": ["ecc.mode", "mig.mode", "mode.persistence", "temperature.memory_celsius"],
        "h100": ["fan.speed_percent"],
        "t4": ["fan.speed_percent", "mig.mode", "temperature.memory_celsius"],
    }
    capabilities = {model: simulated(f"1x{model}").devices[0].compute_capability for model in ("t4", "h100")}
    assert capabilities == {"t4": "7.5", "h100": "9.0"}
    assert len(simulated("1xh100mig").devices[0].mig_instances) == 4
    (unified,) = simulated("1xgb10").devices
    assert unified.unified_memory
    assert not {"power.limit_watts", "clocks.memory_mhz", "bar1.total_bytes"} & unified.readings.keys()
    listed = gpuwatch("sim", "--sim", "2xh100@models", "--", "sh", "-c", "echo $GPUWATCH_SIM")
    assert listed.out.strip() == "2xh100"
