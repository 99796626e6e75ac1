"""What the wheel and the sdist hold, and what a package index would say of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ("gpuwatch", "probes")
REPOSITORY = "https://example.org/somebody/gpuwatch"

pytestmark = pytest.mark.slow


def _files(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this checkout and the wheel built from that sdist, with a repository's address."""
    out, source = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source")
    for name in (*SHIPPED, "tests", ".github"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "CHANGELOG.md", ".gitignore"):
        shutil.copy(ROOT / name, source)
    project = (ROOT / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(re.sub('(?m)^repository = ".*"$', f'repository = "{REPOSITORY}"', project))
    done = subprocess.run(
        [sys.executable, "-m", "build", "-o", str(out), str(source)], capture_output=True, text=True, check=False
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


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(f"{_information(wheel)}/METADATA").decode())


def _information(wheel: zipfile.ZipFile) -> str:
    (folder,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    return folder


def test_every_link_can_be_followed_from_an_index(metadata: Message) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", str(metadata.get_payload()))
    assert len(targets) > 10
    assert {target.split("/HEAD/")[0] for target in targets} == {f"{REPOSITORY}/blob", f"{REPOSITORY}/raw"}
    for target in targets:
        kind, _, path = target.removeprefix(f"{REPOSITORY}/").partition("/HEAD/")
        assert (ROOT / path).exists(), target
        assert (kind == "raw") == path.endswith(".png"), target
    assert f"Repository, {REPOSITORY}" in metadata.get_all("Project-URL", [])


def test_metadata_names_the_licence_and_both_commands(wheel: zipfile.ZipFile, metadata: Message) -> None:
    folder = _information(wheel)
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
