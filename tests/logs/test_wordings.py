"""Every wording of the table, bare and as collectors and launchers hand it on."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from gpuwatch.core.model.findings import CAUSES
from gpuwatch.explain.diagnosis.explain import explain
from tests.logs.wordings import ALL, HEALTHY, Wording
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


@pytest.mark.parametrize("wording", OTHERS, ids=lambda entry: entry.text[:60].encode("ascii", "replace").decode())
def test_what_other_programs_mean(wording: Wording) -> None:
    """However it is handed on; and what is inferred is not told as a fact."""
    for way, hand in HANDED_ON.items():
        found = explain([hand(line) for line in wording.text.split("\n")])
        assert found.primary in wording.causes.split(), way
        assert found.findings[0].evidence
        for name in wording.libraries.split():
            assert any(name in library for library in found.missing_libraries), way


@pytest.mark.parametrize("wording", OTHERS, ids=lambda entry: entry.text[:60].encode("ascii", "replace").decode())
def test_letter_case_changes_nothing_of_what_cuda_says(wording: Wording) -> None:
    """Programs write "CUDA Error", "Cuda error", "cuda error"; names of exceptions and files are left out."""
    if "CUDA error" in wording.text or "CUDA Error" in wording.text or "unknown error" in wording.text:
        text = wording.text.replace("CUDA error", "Cuda Error").replace("unknown error", "Unknown Error")
        assert explain(text.split("\n")).primary in wording.causes.split()


@pytest.mark.parametrize("wording", ALL, ids=lambda wording: wording.text[:50].encode("ascii", "replace").decode())
def test_what_it_means(wording: Wording) -> None:
    told = {way: explain([hand(line) for line in wording.text.split("\n")]) for way, hand in HANDED_ON.items()}
    wrong = {way: found.primary for way, found in told.items() if found.primary not in wording.causes.split()}
    assert not wrong
    for name in wording.libraries.split():
        assert [way for way, found in told.items() if not any(name in one for one in found.missing_libraries)] == []


@pytest.mark.parametrize("wording", [entry for entry in ALL if entry not in HEALTHY], ids=lambda entry: entry.text[:40])
def test_it_stands_out_of_a_healthy_log(wording: Wording) -> None:
    """Before it and after it, a program that says nothing of GPUs."""
    noise = [f"step {i}: loss {i / 7:.4f}" for i in range(40)]
    found = explain([*noise, *wording.text.split("\n"), *noise])
    assert found.primary in {*wording.causes.split(), *(["healthy"] if "unknown" in wording.causes else [])}
    assert found.findings[0].severity == "info" or found.findings[0].evidence


@pytest.mark.parametrize("wording", HEALTHY, ids=lambda entry: entry.text[:40].encode("ascii", "replace").decode())
def test_noise_is_no_failure(wording: Wording) -> None:
    found = explain(wording.text.split("\n"))
    assert [entry.severity for entry in found.findings] == ["info"]


def test_the_table_names_known_causes() -> None:
    for wording in ALL:
        assert wording.text
        assert set(wording.causes.split()) <= set(CAUSES)
