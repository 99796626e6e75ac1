"""A module pynvml that is not NVIDIA's, or too old: it is named, and the driver is not blamed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from gpuwatch.core.model.snapshot import FAILED_ITSELF, Problem
from gpuwatch.machine.sources.nvidia import nvml_binding
from gpuwatch.share.reports import snapshot_report
from gpuwatch.ui.panes.verdict import why_no_gpus
from tests.conftest import gpuwatch
from tests.ui import machines

OLD = "class NVMLError(Exception): pass\ndef nvmlInit(): pass\nNVML_ERROR_NOT_FOUND = 6\n"


def standing_in_the_way(folder: Path, source: str, package: str | None) -> dict[str, str]:
    """An environment in which the module comes from ``folder``, as the package's where one is named."""
    (folder / "pynvml.py").write_text(source)
    if package is not None:
        info = folder / f"{package.replace('-', '_')}-7.352.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 7.352.0\n")
        (info / "RECORD").write_text("pynvml.py,,\n")
        (info / "top_level.txt").write_text("pynvml\n")
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.parametrize(
    ("source", "package", "named", "helps"),
    [
        (OLD, "nvidia-ml-py3", "belongs to nvidia-ml-py3 7.352.0", "uninstall nvidia-ml-py3; then"),
        (OLD, None, "belongs to no installed package", "rename that file"),
        ("raise RuntimeError('no luck')", "pynvml", "cannot be imported (RuntimeError: no luck)", "uninstall pynvml"),
    ],
)
def test_a_foreign_module_is_named_at_once(
    tmp_path: Path, source: str, package: str | None, named: str, helps: str
) -> None:
    environment = standing_in_the_way(tmp_path, source, package)
    done = gpuwatch("snapshot", "--sim", "1x1GiB", "--json", environment=environment)
    document = json.loads(done.out)
    (found,) = [problem for problem in document["problems"] if problem["source"] == "nvml"]
    assert found["reason"] == FAILED_ITSELF
    assert named in found["detail"]
    assert str(tmp_path / "pynvml.py") in found["detail"]
    assert helps in found["hint"]
    assert document["took_seconds"] < 5, "nothing was waited for"
    assert done.code == 1
    assert "driver.missing" not in {finding["id"] for finding in document["findings"]}


def test_doctor_and_text_name_it_too(tmp_path: Path) -> None:
    environment = standing_in_the_way(tmp_path, OLD, "nvidia-ml-py3")
    text = gpuwatch("snapshot", "--sim", "1x1GiB", environment=environment).out
    assert "could not query the driver" in text
    assert "not answering" not in text
    done = gpuwatch("doctor", "--sim", "1x1GiB", "--framework", "torch", "--json", environment=environment)
    (check,) = [one for one in json.loads(done.out)["checks"] if one["id"] == "driver.pynvml"]
    assert check["state"] == "warn"
    assert "nvidia-ml-py3" in check["detail"]


def test_the_dashboard_does_not_blame_the_driver() -> None:
    lack = nvml_binding.why_unusable(SimpleNamespace(nvmlInit=None), None)
    assert lack is not None
    snapshot = machines.snapshot((), (), problems=(lack,), driver=None)
    assert why_no_gpus(snapshot)[1] == "gpuwatch could not query the driver: GPUs unknown"


@pytest.mark.parametrize("reason", ["driver.bad-state", "container.lost-devices"])
def test_the_dashboard_and_snapshot_have_one_wording_for_a_driver_that_reports_an_error(reason: str) -> None:
    problem = Problem(source="nvml", reason=reason, detail="Unknown Error")
    snapshot = machines.snapshot((), (), problems=(problem,), driver=None)
    words = why_no_gpus(snapshot)[1].removesuffix(": GPUs unknown")
    assert words == "the driver reports an error"
    assert snapshot_report._silence_text(snapshot) == words


def test_nvidias_own_module_is_no_problem_and_one_that_is_missing_is() -> None:
    assert nvml_binding.why_unusable(pynvml, None) is None
    without = SimpleNamespace(**dict.fromkeys(nvml_binding._NEEDED[:-1]))
    assert nvml_binding.why_unusable(without, None) is not None
