"""What a wheel gets when it is made: links to the repository, and simulated GPUs.

The simulated GPUs are compiled into it, so that whoever installs it needs no compiler.

The variable GPUWATCH_WHEEL chooses: ``x86_64`` or ``aarch64`` (libraries for that machine, glibc 2.17 or later),
``pure`` (none: they are compiled on first use). Without it: this machine's own if it lacks a C or C++ compiler, else
pure, so that nobody with a compiler downloads another.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_ZIG = "ziglang==0.17.1"
_GLIBC = (2, 17)


class CustomMetadataHook(MetadataHookInterface):
    """The project's links and README, whose links to files a package index cannot follow unless they are absolute."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fills in what pyproject.toml calls dynamic. Without an address links stay as they are."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address = self.config["repository"]
        metadata["urls"] = {}
        if address:
            metadata["urls"] = {
                "Repository": address,
                "Documentation": f"{address}/blob/HEAD/gpuwatch/docs/README.md",
                "Changelog": f"{address}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
            text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\1{address}/raw/HEAD/", text)
            text = re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\1{address}/blob/HEAD/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the libraries to a wheel, and names it for the machine that they are for."""

    work = ""

    def dependencies(self) -> list[str]:
        """What hatchling installs for this build."""
        return [_ZIG] if _machine() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compiles; hatchling calls this before it collects the files. An editable install compiles on first use."""
        machine = _machine()
        if version == "editable" or not machine:
            return
        sys.path.insert(0, self.root)
        from gpuwatch.sim import shipped_libraries

        self.app.display_waiting("compiling the simulated GPUs (a minute)")
        self.work = tempfile.mkdtemp(prefix="gpuwatch-wheel-")
        folder, sources = Path(self.work, machine), Path(self.root, "gpuwatch", "sim", "csrc")
        os.environ["ZIG_GLOBAL_CACHE_DIR"] = os.environ["ZIG_LOCAL_CACHE_DIR"] = str(Path(self.work, "cache"))
        zig = [sys.executable, "-m", "ziglang"]
        glibc = ".".join(map(str, _GLIBC))
        # Without paths and times, so that the same sources give the same bytes.
        options = ["-target", f"{machine}-linux-gnu.{glibc}", "-s", f"-ffile-prefix-map={sources}=."]
        cpu = (f"-mcpu={shipped_libraries.CPU_OF_MACHINE[machine]}",)
        shipped_libraries.compile_for_wheel(folder, sources, [*zig, "cc", *options], [*zig, "c++", *options], cpu)
        build_data["force_include"][str(folder)] = f"gpuwatch/sim/{shipped_libraries.SHIPPED_FOLDER}/{machine}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{_GLIBC[0]}_{_GLIBC[1]}_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Removes what was compiled, which is in the wheel now."""
        if self.work:
            shutil.rmtree(self.work, ignore_errors=True)


def _machine() -> str:
    """The machine to compile for; empty: nothing is compiled."""
    wanted = os.environ.get("GPUWATCH_WHEEL", "")
    if wanted:
        return "" if wanted == "pure" else wanted
    compilers = any(map(shutil.which, ("cc", "gcc", "clang"))) and any(map(shutil.which, ("c++", "g++", "clang++")))
    here = platform.machine()
    glibc = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
    return here if glibc and not compilers and here in ("x86_64", "aarch64") else ""
