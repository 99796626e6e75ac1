"""The filter language: what words mean, and what is said of those that mean nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.snapshot import Process
from gpuwatch.ui.filtering import FIELDS, SIGNS, FilterError, parse
from tests.ui import machines

GIB = machines.GIB
ALICE = machines.process(0, gpu=1, readings={"gpu_memory_bytes": 4 * GIB, "run_seconds": 7200, "sm_percent": 40})
BOB = machines.process(
    1,
    gpu=0,
    command="python train.py --lr=0.1 http://host:8080",
    readings={"gpu_memory_bytes": GIB // 2, "run_seconds": 60, "sm_percent": 10},
)


def kept(text: str) -> list[str | None]:
    wanted = parse(text)
    assert wanted is not None
    return [process.user for process in (ALICE, BOB) if wanted(process)]


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("mem>2GiB", ["alice"]),
        ("mem>2g", ["alice"]),
        ("mem>2048MiB", ["alice"]),
        ("mem<1GB", ["bob"]),
        ("mem=4g", ["alice"]),
        ("time>1h", ["alice"]),
        ("time>=7200s", ["alice"]),
        ("sm>39%", ["alice"]),
        ("sm<=40 user:alice", ["alice"]),
        ("-mem>2GiB", ["bob"]),
        ("USER:Alice", ["alice"]),
        ("gpu:0", ["bob"]),
        ("gpu:", ["alice", "bob"]),
        ("--lr=0.1", ["bob"]),
        ("lr=0.1", ["bob"]),
        ("http://host", ["bob"]),
        ("//host:8080", ["bob"]),
        ("-", ["alice", "bob"]),
        ("finetune.py", []),
    ],
)
def test_words(text: str, users: list[str]) -> None:
    assert kept(text) == users


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mem>", "mem is compared with a number such as 2GiB"),
        ("mem>lots", "mem is compared with a number such as 2GiB, not “lots”"),
        ("mem>2XB", "“xb” is no unit of mem"),
        ("mem>1.2.3", "mem is compared with a number such as 2GiB, not “1.2.3”"),
        ("sm>2GiB", "“gib” is no unit of sm"),
        ("cpu<", "cpu is compared with a number"),
        ("time>2w", "“w” is no unit of time"),
        ("mem:2GiB", "mem is a number: write mem>2GiB"),
        ("user>alice", "user is text: write user:alice"),
        ("gpu=1", "gpu is text: write gpu:1"),
        ("gpu:one", "gpu is the number of a GPU, not “one”"),
        ("usr:alice", "there is no field “usr”; did you mean user?"),
        ("meme>3", "there is no field “meme”; did you mean mem?"),
        ("-mem>lots", "mem is compared with a number such as 2GiB, not “lots”"),
        ("mem>\x1b[31m", r"mem is compared with a number such as 2GiB, not “\x1b[31m”"),
    ],
)
def test_what_means_nothing_is_said(text: str, said: str) -> None:
    with pytest.raises(FilterError) as wrong:
        parse(text)
    assert str(wrong.value) == said


def test_the_other_words_are_still_there() -> None:
    with pytest.raises(FilterError) as wrong:
        parse("python mem>lots -xorg")
    rest = wrong.value.rest
    assert rest is not None
    assert rest.text == "python -xorg"
    with pytest.raises(FilterError) as alone:
        parse("mem>")
    assert alone.value.rest is None


def test_every_field_has_its_sign() -> None:
    assert set(SIGNS) == set(FIELDS)


_words = st.text(alphabet="abcmesugp:<>=-.0123456789GiB% \x1b", max_size=30)


@given(st.one_of(st.text(max_size=60), _words))
def test_any_text_is_a_filter_or_an_error_in_one_line(text: str) -> None:
    hidden: Process = machines.denied_process()
    said = ""
    try:
        wanted = parse(text)
    except FilterError as error:
        said, wanted = str(error), error.rest
    assert said.isprintable()
    for process in (ALICE, BOB, hidden):
        assert wanted is None or wanted(process) in (True, False)
