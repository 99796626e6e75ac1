"""Text and documents where the locale shows only ASCII."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.forked import run_gpuwatch

LOG = Path(__file__).parents[1] / "logs" / "fixtures" / "stub_tf215_gpu_bfc_oom.txt"
PLAIN = [
    {"LC_ALL": "C"},
    {"LANG": "C"},
    {"LC_CTYPE": "C"},
    {"LC_CTYPE": "POSIX", "LANG": "de_DE.UTF-8"},
    {"LC_ALL": "C", "PYTHONUTF8": "0"},
]
WITH_AND_WITHOUT_UTF8 = (PLAIN[0], PLAIN[-1])
"""What Python itself makes of such a locale: it reads and writes UTF-8 all the same, or ASCII."""


def ran(where: Path, locale: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    return run_gpuwatch(*arguments, cwd=where, env={**kept, **locale, "COLUMNS": "80"})


@pytest.mark.parametrize("locale", PLAIN, ids=str)
def test_text_has_the_signs_of_the_dashboard_in_ascii(tmp_path: Path, locale: dict[str, str]) -> None:
    told = ran(tmp_path, locale, "explain", str(LOG)).stdout.decode("ascii")
    assert told.splitlines()[1].startswith("  108 lines - tensorflow -")
    assert "x memory.request-too-large: Out of memory: one" in told
    assert "    > Split this tensor" in told
    assert "?" not in told
    assert "\\u" not in told


def test_a_locale_with_utf8_or_none_shows_everything(tmp_path: Path) -> None:
    for locale in ({"LC_ALL": "C.UTF-8"}, {"LC_CTYPE": "C.UTF-8", "LANG": "C"}, {}):
        assert "✖ memory.request-too-large" in ran(tmp_path, locale, "explain", str(LOG)).stdout.decode()


def test_json_is_the_same_everywhere(tmp_path: Path) -> None:
    log = tmp_path / "ö→.txt"
    log.write_bytes(LOG.read_bytes())
    told = [
        json.loads(ran(tmp_path, locale, "explain", str(log), "--json").stdout)["findings"]
        for locale in ({"LC_ALL": "C.UTF-8"}, *WITH_AND_WITHOUT_UTF8)
    ]
    assert told[0] == told[1] == told[2] != []
    page = ran(tmp_path, {"LC_ALL": "C"}, "cause", "memory.fragmented", "--json").stdout
    assert "≤" in json.loads(page)["markdown"]


@pytest.mark.parametrize("locale", WITH_AND_WITHOUT_UTF8, ids=str)
def test_an_undecodable_file_name_is_printed_with_escapes(tmp_path: Path, locale: dict[str, str]) -> None:
    done = ran(tmp_path, locale, "explain", str(LOG), "-o", "ö.md")
    assert done.stderr == b"written: \\xc3\\xb6.md\n"
    assert os.listdir(os.fsencode(tmp_path)) == ["ö.md".encode()]
    assert "✖" in (tmp_path / "ö.md").read_text(encoding="utf-8")
    missing = ran(tmp_path, locale, "explain", str(LOG), "-o", "ü/ö.md")
    assert missing.stderr.startswith(b"gpuwatch: cannot write \\xc3\\xbc/\\xc3\\xb6.md: its folder does not exist")
    assert missing.returncode == 2


def test_a_file_name_is_printed_unchanged_if_possible(tmp_path: Path) -> None:
    assert ran(tmp_path, {"LC_ALL": "C.UTF-8"}, "explain", str(LOG), "-o", "ö.md").stderr.decode() == "written: ö.md\n"


@pytest.mark.parametrize("command", ["report", "compare"])
def test_a_log_is_distinguished_from_a_broken_document(tmp_path: Path, command: str) -> None:
    log, broken = tmp_path / "oom 1.log", tmp_path / "broken.json"
    log.write_bytes(LOG.read_bytes())
    broken.write_text('{"schema": "gpuwatch.run/1"')
    utf8 = {"LC_ALL": "C.UTF-8"}
    told = ran(tmp_path, utf8, command, log.name)
    assert told.returncode == 2
    assert told.stderr.decode() == (
        "gpuwatch: oom 1.log is not a gpuwatch document (for a log, use gpuwatch explain 'oom 1.log')\n"
    )
    assert b"explain" not in ran(tmp_path, utf8, command, broken.name).stderr


def test_an_undecodable_file_name_breaks_no_document(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.txt")
    (tmp_path / name).write_bytes(LOG.read_bytes())
    done = ran(tmp_path, {"LC_ALL": "C.UTF-8"}, "explain", name, "--json")
    assert done.stderr == b""
    assert json.loads(done.stdout)["source"] == "\\xff.txt"


@pytest.mark.parametrize("given", [{}, {"LC_CTYPE": "C"}, {"LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}], ids=str)
def test_a_started_program_gets_the_users_locale(tmp_path: Path, given: dict[str, str]) -> None:
    done = ran(tmp_path, given, "sim", "--tier", "driver", "--", "sh", "-c", "echo $LC_CTYPE,$LANG")
    assert done.stdout.decode() == f"{given.get('LC_CTYPE', '')},{given.get('LANG', '')}\n"
