"""The pages about causes: one for each, whole, and naming only what exists."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gpuwatch.cli.main import cli
from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.model.causes import CAUSES
from gpuwatch.experiment.probing.probe_scripts import find_probes
from gpuwatch.explain.diagnosis.reference import cause_pages as pages
from tests.every import every
from tests.forked import forked
from tests.manpages import INDEX, index_page
from tests.probing.test_recipe import undefined

FOLDER = Path(pages.__file__).parents[3] / pages.FOLDER
SECTIONS = ["What it is", "How it is recognized", "Common mistakes", "What to do", "Reproduce it", "Sources"]
PROBES = set(find_probes())


def test_there_is_one_page_for_each_cause_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*CAUSES, "README"}


def test_the_index_is_the_one_that_the_table_of_causes_gives() -> None:
    assert INDEX.read_text(encoding="utf-8") == index_page(), "python -m tests.manpages"


def test_every_cause_stands_below_one_heading() -> None:
    listed = [cause for _, causes in pages.causes_by_heading() for cause in causes]
    assert sorted(listed) == sorted(CAUSES)
    assert all(causes for _, causes in pages.causes_by_heading())


@every(CAUSES)
def test_a_page_is_whole(cause: str) -> None:
    text = pages.page(cause)
    lines = text.splitlines()
    assert lines[0] == f"# {cause}"
    assert lines[2] == f"{CAUSES[cause]}."
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == SECTIONS
    for body in re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]:
        assert body.strip(), "an empty section"
    assert 30 <= len(lines) <= 65
    assert text.count("```") % 2 == 0
    assert "fact" in text.lower() or "likely" in text.lower()


@every(CAUSES)
def test_a_page_names_only_what_exists(cause: str) -> None:
    text = pages.page(cause)
    named = set(re.findall(r"--config ([a-z0-9-]+)", text))
    assert named <= PROBES
    commands = {word for word in re.findall(r"gpuwatch ([a-z]+)\b(?! ?—)", text) if f"`gpuwatch {word}" in text}
    commands |= set(re.findall(r"^gpuwatch ([a-z]+)", text, re.MULTILINE))
    assert commands <= set(cli.list_commands(None)), commands  # type: ignore[arg-type]
    assert named or "gpuwatch doctor" in text or "gpuwatch snapshot" in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (FOLDER / target).is_file(), target
    for option in re.findall(r"gpuwatch probe --config \S+ (--[a-z-]+)", text):
        assert option in {parameter for entry in _probe_options() for parameter in entry}, option


def _probe_options() -> list[list[str]]:
    from gpuwatch.cli.probe import probe

    return [list(parameter.opts) for parameter in probe.params]


def test_every_probe_that_stands_for_a_cause_is_on_its_page() -> None:
    """The verdicts that probes end in, expected ones included, are shown by the pages."""
    shown = {
        "visibility.misspelt": "misspelt-env",
        "config.too-late": "late-config",
        "config.inconsistent": "mixed-growth",
        "placement.device-missing": "hard-missing",
        "placement.no-kernel": "no-kernel-hard",
        "visibility.bad-ordinal": "visible-invalid-first",
        "visibility.hidden": "cpu-only",
        "memory.other-process": "contention",
        "memory.context-failed": "occupied",
        "memory.fragmented": "fragmentation",
        "memory.model-too-large": "largest-batch",
    }
    for cause, config in shown.items():
        assert f"--config {config}" in pages.page(cause)


def test_an_unknown_id_has_no_page() -> None:
    with pytest.raises(KeyError):
        pages.page("../../errors")


def test_a_page_whose_file_is_missing_is_an_error_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "FOLDER", str(tmp_path))
    with pytest.raises(GpuwatchError, match=r"memory\.fragmented") as caught:
        pages.page("memory.fragmented")
    assert caught.value.hint


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("memory.fragmentd", "memory.fragmented"),
        ("fragmented", "memory.fragmented"),
        ("Memory.Other_Process", "memory.other-process"),
        ("no kernel", "placement.no-kernel"),
        ("throttle", "throttle.thermal"),
        ("visibility.misspelled", "visibility.misspelt"),
        ("xid", "hardware.fault"),
    ],
)
def test_a_misspelt_id_is_understood(word: str, meant: str) -> None:
    assert meant in pages.suggested_causes(word)


@pytest.mark.parametrize("word", ["", "zzzzqqq", "\x1b[31m", "e"])
def test_nothing_is_made_up_for_other_words(word: str) -> None:
    assert set(pages.suggested_causes(word)) <= set(CAUSES)
    assert not pages.suggested_causes("zzzzqqq")


def code_of(page: str) -> list[str]:
    """The Python of a page."""
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_code_that_measures_without_input_is_a_whole_program() -> None:
    (source,) = code_of((FOLDER / "input.bound.md").read_text())
    assert undefined(source) == set()


@pytest.mark.tensorflow
def test_the_code_that_measures_without_input_runs() -> None:
    (source,) = code_of((FOLDER / "input.bound.md").read_text())
    with forked(["-c", source], os.environ) as program:
        out, error = program.communicate(timeout=200)
    assert program.returncode == 0, error[-2000:]
    assert [line.split(" ")[0] for line in out.splitlines()] == ["input", "one"]


@pytest.mark.parametrize(
    ("name", "told", "wrong"),
    [
        ("hardware.fault", "Xid 63 says that a bad row was remapped", "63, 64, 79, 94, 95 are the card"),
        ("throttle.power", "-pl WATTS", "-pl 350"),
        ("driver.mismatch", "gpuwatch sim fault mismatch", "`gpuwatch sim fault` makes"),
        ("config.inconsistent", "grow-to-limit", "are not supported in any 2.x"),
    ],
)
def test_what_pages_once_said_wrong(name: str, told: str, wrong: str) -> None:
    text = (FOLDER / f"{name}.md").read_text()
    assert told in text
    assert wrong not in text
