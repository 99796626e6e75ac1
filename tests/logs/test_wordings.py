"""Every wording of the table, bare and as collectors and launchers hand it on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gpuwatch.core.model.causes import CAUSES
from gpuwatch.explain.diagnosis.explain_log import explain
from tests.logs.wordings import ALL, HEALTHY
from tests.logs.wordings_programs import OTHERS

HANDED_ON: dict[str, Callable[[str], str]] = {
    "bare": lambda line: line,
    "of a rank": lambda line: f"[rank3]: {line}",
    "logged": lambda line: f"2026-11-20 07:00:01,512 - train - ERROR - {line}",
    "in JSON": lambda line: json.dumps({"log": line + "\n", "stream": "stderr"}),
    "of a launcher": lambda line: f"[1,0]<stderr>:{line}",
    "of a container": lambda line: f"trainer-1  | {line}",
    "of a kubelet": lambda line: f"2026-11-20T07:00:01.5Z stderr F {line}",
    "typeset": lambda line: "> " + line.replace('"', "\u201d").replace("'", "\u2019"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", HANDED_ON)
def test_what_it_means(way: str) -> None:
    """However it is handed on, and what is inferred is not told as a fact."""
    wrong: list[tuple[str, object]] = []
    for wording in (*ALL, *OTHERS):
        found = explain([HANDED_ON[way](line) for line in wording.text.split("\n")])
        lacks = [name for name in wording.libraries.split() if not any(name in one for one in found.missing_libraries)]
        if found.primary not in wording.causes.split() or lacks:
            wrong.append((wording.text, lacks or found.primary))
        if wording in OTHERS and not found.findings[0].evidence:
            wrong.append((wording.text, "no evidence"))
    assert not wrong


def test_letter_case_changes_nothing_of_what_cuda_says() -> None:
    """Programs write "CUDA Error", "Cuda error", "cuda error"; names of exceptions and files are left out."""
    wrong, tried = [], 0
    for wording in OTHERS:
        if "CUDA error" in wording.text or "CUDA Error" in wording.text or "unknown error" in wording.text:
            text = wording.text.replace("CUDA error", "Cuda Error").replace("unknown error", "Unknown Error")
            tried += 1
            if (primary := explain(text.split("\n")).primary) not in wording.causes.split():
                wrong.append((text, primary))
    assert not wrong
    assert tried > 10


@pytest.mark.thorough
def test_it_stands_out_of_a_healthy_log() -> None:
    """Before it and after it, a program that says nothing of GPUs."""
    noise = [f"step {i}: loss {i / 7:.4f}" for i in range(40)]
    wrong = []
    for wording in (entry for entry in ALL if entry not in HEALTHY):
        found = explain([*noise, *wording.text.split("\n"), *noise])
        fair = {*wording.causes.split(), *(["healthy"] if "unknown" in wording.causes else [])}
        if found.primary not in fair or not (found.findings[0].severity == "info" or found.findings[0].evidence):
            wrong.append((wording.text, found.primary))
    assert not wrong


def test_noise_is_no_failure() -> None:
    told = {wording.text: explain(wording.text.split("\n")).findings for wording in HEALTHY}
    assert [text for text, found in told.items() if [entry.severity for entry in found] != ["info"]] == []


def test_the_table_names_known_causes() -> None:
    for wording in ALL:
        assert wording.text
        assert set(wording.causes.split()) <= set(CAUSES)
