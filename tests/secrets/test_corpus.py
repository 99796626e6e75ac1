"""The corpus itself: complete, consistent, the same every time. What masking makes of it is tested elsewhere."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.secrets import corpus
from tests.secrets.corpus import INNOCENTS, SECRETS
from tests.secrets.entry import END, LONG, START

FINGERPRINT = (
    "import hashlib; from tests.secrets.corpus import SECRETS, INNOCENTS;"
    "print(hashlib.sha256(repr((SECRETS, INNOCENTS)).encode()).hexdigest())"
)


LEAST = 230


def test_size():
    assert len(SECRETS) >= LEAST
    assert len({secret.kind for secret in SECRETS}) >= 65
    assert len(INNOCENTS) >= LEAST


def test_ids_and_texts_are_unique():
    entries = (*SECRETS, *INNOCENTS)
    assert len({entry.id for entry in entries}) == len(entries)
    assert len({entry.text for entry in entries}) == len(entries)


def test_every_secret_stands_in_its_text():
    for entry in SECRETS:
        parts = (entry.text,) if isinstance(entry.text, str) else entry.text
        assert entry.whole, entry.id
        for secret in (*entry.whole, *entry.secret):
            assert len(secret) >= 4, entry.id
            assert any(secret in part for part in parts), (entry.id, secret)


def test_innocent_lines_have_no_secret():
    """Else no masking could satisfy the entry."""
    for entry in SECRETS:
        rest = entry.line
        for secret in sorted(entry.whole, key=len, reverse=True):
            rest = rest.replace(secret, "\n")
        assert not [secret for secret in entry.secret if secret in rest], entry.id
        assert not [kept for kept in entry.keeps if kept not in rest], entry.id


def test_no_marks_are_left():
    for entry in (*SECRETS, *INNOCENTS):
        assert START not in entry.line, entry.id
        assert END not in entry.line, entry.id


def test_contexts_are_well_formed():
    for entry in (*SECRETS, *INNOCENTS):
        assert entry.line.strip(), entry.id
        assert isinstance(entry.text, tuple) == (entry.context == "argv"), entry.id
        if entry.context == "environment":
            assert re.match(r"\w+=", entry.line), entry.id
        if entry.context == "traceback":
            assert entry.line.startswith("Traceback (most recent call last):\n"), entry.id
    assert {entry.context for entry in SECRETS} == {"argv", "environment", "log", "traceback", "text"}
    assert {entry.context for entry in INNOCENTS} == {"argv", "environment", "log", "traceback", "text"}


def test_every_second_entry_of_a_kind_is_held_out():
    for entries in (SECRETS, INNOCENTS):
        seen: Counter[str] = Counter()
        for entry in entries:
            seen[entry.kind] += 1
            assert entry.held_out == (seen[entry.kind] % 2 == 0), entry.id
        assert sum(entry.held_out for entry in entries) > 0.4 * len(entries)


def test_built_twice_it_is_the_same():
    assert corpus.build_secrets() == SECRETS
    assert corpus.build_innocents() == INNOCENTS


def test_another_process_builds_the_same():
    here = Path(__file__).parents[2]
    prints = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            cwd=here,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(prints) == 1


def test_no_long_secret_stands_literally_in_the_files():
    sources = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    for entry in SECRETS:
        for secret in entry.whole:
            assert len(secret) < LONG or secret not in sources, entry.id
