"""Names, suffixes, writing to disk, masking, and the comparison."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.errors import GpuwatchError, UsageError
from gpuwatch.core.masking.mask_secrets import MASK, mask_text
from gpuwatch.core.masking.masked_documents import masked
from gpuwatch.share.reports.report_formats import FORMATS, format_for, render, write
from gpuwatch.share.reports.runs_side_by_side import run_cells
from tests.every import every
from tests.reports.documents import bare_run, full_run, full_snapshot


@pytest.mark.parametrize(
    ("name", "format_name"),
    [("a.html", "html"), ("a.md", "markdown"), ("a.JSON", "json"), ("a.csv", "csv"), ("a.b.txt", "text")],
)
def test_the_suffix_chooses_the_format(name: str, format_name: str) -> None:
    assert format_for(Path(name)) == format_name


@pytest.mark.parametrize("name", ["a", "a.pdf", "html"])
def test_an_unknown_suffix_is_rejected_with_the_known_ones(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        format_for(Path(name))
    for entry in FORMATS:
        assert entry.suffix in caught.value.hint


def test_an_unknown_format_is_rejected() -> None:
    with pytest.raises(KeyError, match="yaml"):
        render(bare_run(), "yaml")


@pytest.mark.parametrize("suffix", [entry.suffix for entry in FORMATS])
def test_a_report_is_written_whole_and_leaves_nothing_else(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"report{suffix}"
    path.write_text("old")
    write(full_run(), path)
    assert "soft-missing" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")

    def refuses(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuses)
    with pytest.raises(GpuwatchError, match="No space left on device") as caught:
        write(full_run(), path)
    assert "\n" not in caught.value.message
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(GpuwatchError, match="cannot write") as caught:
        write(bare_run(), tmp_path / "nowhere" / "report.html")
    assert caught.value.exit_code == 1


# -- masking --------------------------------------------------------------------------------------


@every(
    [
        ("git clone https://joe:pw@host/x", f"git clone https://{MASK}@host/x"),
        ("redis://:pw@host", f"redis://{MASK}@host"),
        ("python t.py --api-key sk-1 --lr 2", f"python t.py --api-key {MASK} --lr 2"),
        ("python t.py --token=abc", f"python t.py --token={MASK}"),
        ("WANDB_API_KEY=abc python t.py", f"WANDB_API_KEY={MASK} python t.py"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {MASK}"),
        ("mysql -u joe -p hunter2 db", f"mysql -u joe -p {MASK} db"),
        ("job --password -x9 --lr 2", f"job --password {MASK} --lr 2"),
        ("job --pass hunter2", f"job --pass {MASK}"),
        ("docker run -p 8080:80 x", "docker run -p 8080:80 x"),
        ("python -P t.py --password --lr 2", "python -P t.py --password --lr 2"),
        ("mkdir -p /data", "mkdir -p /data"),
        ("ps -p 47110", "ps -p 47110"),
        ("login hf_" + "a1" * 17, f"login {MASK}"),
        ("push ghp_" + "a1" * 18, f"push {MASK}"),
        ("ask sk-proj-" + "a1" * 18, f"ask {MASK}"),
        ("post xoxb-123456789012-abc", f"post {MASK}"),
        ("aws AKIAIOSFODNN7EXAMPLE s3", f"aws {MASK} s3"),
        ("pip install hf_transfer sk-learn", "pip install hf_transfer sk-learn"),
        ("the tokenizer failed on token 7", "the tokenizer failed on token 7"),
        ("KeyError: 'x'", "KeyError: 'x'"),
        ("mail joe@example.org", "mail joe@example.org"),
    ]
)
def test_what_is_masked_in_text(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@given(st.text(max_size=80))
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


def test_masking_changes_secrets_and_nothing_else() -> None:
    run = full_run()
    clean = masked(run)
    assert clean.environment["HF_TOKEN"] == MASK
    assert clean.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert run.environment["HF_TOKEN"] == "hf_verysecret"
    assert msgspec.structs.replace(clean, environment={}, log_tail=()) == msgspec.structs.replace(
        run, environment={}, log_tail=()
    )
    assert masked(full_snapshot()).devices == full_snapshot().devices


def test_cells_of_a_run_with_everything_and_of_one_with_nothing() -> None:
    full = run_cells(full_run())
    assert full["granted"] == "21.0 GiB"
    assert full["device_map"] == "GPU:0→1"
    assert full["fell_back"] == "GPU:7→GPU:0"
    assert full["steps_per_second"] == "412 ±6"
    bare = run_cells(bare_run())
    assert {name for name, value in bare.items() if value == "–"} == {
        "asked",
        "granted",
        "seen_by_nvml",
        "device_map",
        "on_gpu_percent",
        "fell_back",
        "steps_per_second",
    }
