"""What the wheel and the sdist hold, and what a package index would say of them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("gpuwatch", "probes")

pytestmark = pytest.mark.slow


def _files(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this checkout and the wheel built from that sdist."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "-o", str(out), str(ROOT)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> zipfile.ZipFile:
    (path,) = built.glob("*.whl")
    return zipfile.ZipFile(path)


def test_wheel_holds_the_package_the_probes_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    manual = {name for name in _files("gpuwatch") if name.startswith("gpuwatch/docs/man/")}
    package = _files("gpuwatch") - manual | {f"gpuwatch/{name}" for name in _files("probes")}
    (data,) = {name.split("/")[0] for name in held if ".data/" in name}
    assert manual, "there are no man pages"
    assert held == package | {f"{data}/data/share/man/man1/{Path(name).name}" for name in manual}


def test_sdist_holds_what_a_packager_needs(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames()}
    for folder in (*SHIPPED, "tests"):
        assert _files(folder) <= held
    assert {"LICENSE", "README.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", "pyproject.toml"} <= held


def test_metadata_names_the_licence_and_both_commands(wheel: zipfile.ZipFile) -> None:
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    metadata = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert wheel.read(f"{folder}/licenses/LICENSE").decode() == (ROOT / "LICENSE").read_text()
    commands = wheel.read(f"{folder}/entry_points.txt").decode()
    # `uvx` and `pipx run` start the script that has the distribution's name.
    assert f"\n{metadata['Name']} = " in commands
    assert "\ngpuwatch = " in commands


def test_an_index_would_take_both(built: Path) -> None:
    files = [str(path) for path in built.iterdir()]
    checked = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
