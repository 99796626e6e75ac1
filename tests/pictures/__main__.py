"""Makes every picture in ``screenshots/``: ``python -m tests.pictures``, about ten minutes on a quiet machine.

Nothing in them is made up: TensorFlow programs and probes run on four simulated GPUs, watched by the real dashboard.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.pictures.browser import animate, draw, draw_svg, shrink
from tests.pictures.scene import take

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0
"""Seconds that the finding about idle memory may take to come."""


def main() -> None:
    """Runs itself again on simulated GPUs, then draws what was taken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--on-simulated-gpus", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    if not asked.on_simulated_gpus:
        with tempfile.TemporaryDirectory() as state:
            again = [sys.executable, "-m", "tests.pictures", "--on-simulated-gpus", "-o", str(asked.out)]
            command = [
                sys.executable,
                "-m",
                "gpuwatch",
                "--sim",
                f"4x24GiB@pictures-{os.getpid()}",
                "sim",
                "--",
                *again,
            ]
            # Runs and settings of whoever makes the pictures are not shown.
            own = {"XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state}
            raise SystemExit(subprocess.run(command, env={**os.environ, **own}, cwd=ROOT, check=False).returncode)
    taken = asyncio.run(take(PATIENCE))
    for name, svg in taken.pictures.items():
        draw_svg(svg, asked.out / f"{name}.png")
    animate(taken.tour, asked.out / "tour.gif")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "diag.html"
        page.write_text(taken.report)
        draw(page, asked.out / "report.png", 1100, 1300)
        shrink(asked.out / "report.png")


if __name__ == "__main__":
    main()
