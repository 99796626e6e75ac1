"""SVG and HTML to PNG, and PNGs to an animation."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image


def chromium() -> str:
    """The browser that draws; a browser honours the widths that an SVG states for its text, rsvg-convert does not."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return found
    raise SystemExit("the pictures need a browser: apt install chromium")


def draw(page: Path, picture: Path, width: int, height: int) -> None:
    """Draws a page of ``width`` x ``height`` CSS pixels; without network."""
    subprocess.run(
        [
            chromium(),
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
            *("--disable-background-networking", "--force-device-scale-factor=1", "--timeout=20000"),
            "--run-all-compositor-stages-before-draw",  # on a busy machine a tile may come late
            f"--window-size={width},{height}",
            f"--screenshot={picture}",
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )


def draw_svg(svg: str, picture: Path, *, small: bool = True) -> None:
    """Draws a screen that Textual exported, at the size that its view box states; ``small`` gives it a palette."""
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    assert box is not None
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "screen.svg"
        page.write_text(svg)
        draw(page, picture, round(float(box[1])), round(float(box[2])))
    if small:
        shrink(picture)


def shrink(picture: Path) -> None:
    """A picture of a screen has few colours: a palette makes it a third as large."""
    _with_palette(Image.open(picture)).save(picture, optimize=True)


def _with_palette(image: Image.Image) -> Image.Image:
    """In 256 colours, among them those of few pixels: a green word is not grey."""
    return image.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def animate(frames: Sequence[tuple[str, float]], picture: Path) -> None:
    """Writes an animated GIF of screens, each with the seconds that it stays, three quarters as large."""
    with tempfile.TemporaryDirectory() as folder:
        images = []
        for number, (svg, _) in enumerate(frames):
            path = Path(folder) / f"{number}.png"
            draw_svg(svg, path, small=False)
            image = Image.open(path).convert("RGB")
            smaller = image.resize((image.width * 3 // 4, image.height * 3 // 4), Image.Resampling.LANCZOS)
            images.append(_with_palette(smaller))
    images[0].save(
        picture,
        save_all=True,
        append_images=images[1:],
        duration=[round(seconds * 1000) for _, seconds in frames],
        loop=0,
        optimize=True,
    )
