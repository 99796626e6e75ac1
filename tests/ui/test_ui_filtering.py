"""The filter language: what words mean, and how invalid ones are reported."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.core.model.snapshot import MappedDevice, Process
from gpuwatch.ui.screens.help_sheet import help_groups
from gpuwatch.ui.tables.filter_language import FilterError, _words
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID, COLUMNS, Column, time_column_text
from gpuwatch.ui.tables.process_filter import FIELD_OPERATORS, FIELDS, FILTER_WORDS, _number_field, parse_process_filter
from gpuwatch.ui.tables.process_table_rows import filtered_rows, sorted_rows
from tests.every import every
from tests.ui import machines

GIB = machines.GIB
AT = machines.NOON.timestamp()
MAP = (MappedDevice(ordinal=0, uuid="GPU-b", index=1), MappedDevice(ordinal=1, uuid="GPU-a", index=0))
ALICE = machines.process(
    0,
    gpu=1,
    pid=12540,
    framework="tensorflow 2.21.0",
    cuda_visible_devices="1,0",
    device_map=MAP,
    create_time=AT - 7200,
    readings={"gpu_memory_bytes": 4 * GIB, "sm_percent": 40, "threads": 4},
)
BOB = machines.process(
    1,
    gpu=0,
    pid=12541,
    framework="torch 2.11.0",
    cuda_visible_devices="10,GPU-9f3f",
    device_map=(MappedDevice(ordinal=0, uuid="GPU-a", index=0),),
    mig_instance="7/0",
    create_time=AT - 60,
    command="python train.py --lr=0.1 http://host:8080",
    readings={
        "gpu_memory_bytes": GIB // 2,
        "sm_percent": 10,
        "threads": 40,
        "encoder_percent": 3,
        "decoder_percent": 0,
    },
)


def kept(text: str) -> list[str | None]:
    wanted = parse_process_filter(text)
    assert wanted is not None
    return [process.user for process in (ALICE, BOB) if wanted(process, AT)]


@every(
    [
        ("mem>2GiB", ["alice"]),
        ("mem>2g", ["alice"]),
        ("mem>2048MiB", ["alice"]),
        ("mem<1GB", ["bob"]),
        ("mem=4g", ["alice"]),
        ("mem=512MiB", ["bob"]),
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
        ('cmd:"train.py --lr"', ["bob"]),
        ('cmd:"python --lr"', []),
        ('-"train.py --lr"', ["alice"]),
        ('"http://host', ["bob"]),
        ('"host:8080"', ["bob"]),
        ("user:a cmd:train", ["alice"]),
        ("time>1h30m", ["alice"]),
        ("time>2h30m", []),
        ("time<1:59:59", ["bob"]),
        ("time=2:00:00", ["alice"]),
        ('time<"1d 00:00"', ["alice", "bob"]),
        ("time>=0d00:01", ["alice", "bob"]),
        ("pid:12540", ["alice"]),
        ("pid:1254", []),
        ("pid>12540", ["bob"]),
        ("pid>100 pid<12541", ["alice"]),
        ("-pid:12540", ["bob"]),
        ("framework:tf", ["alice"]),
        ('framework:"tf 2.21"', ["alice"]),
        ("framework:tensorflow", ["alice"]),
        ('framework:"tensorflow 2.21.0"', ["alice"]),
        ("framework:torch", ["bob"]),
        ("tf", ["alice"]),
        ("threads>5", ["bob"]),
        ("thr>5", ["bob"]),
        ("THR=4", ["alice"]),
        ("enc>0", ["bob"]),
        ("ENC%>0", ["bob"]),
        ("dec=0", ["bob"]),
        ("visible:1", ["alice"]),
        ("visible:10", ["bob"]),
        ("visible:1,0", ["alice"]),
        ("visible:gpu-9f", ["bob"]),
        ("visible:3f", []),
        ("mig:7/0", ["bob"]),
        ("mig:7", ["bob"]),
        ("mig:0", []),
        ("sees:0", ["alice", "bob"]),
        ("sees:1", ["alice"]),
        ("sees:0→1", ["alice"]),
        ("sees:0>1", ["alice"]),
        ("sees:1>1", []),
        ("GPU-MEM>2g", ["alice"]),
        ("memory>2g", ["alice"]),
        ("command:--lr", ["bob"]),
    ]
)
def test_words(text: str, users: list[str]) -> None:
    assert kept(text) == users


@every(
    [
        ("mem>", "mem is compared with a number such as 2GiB"),
        ("mem>lots", "mem is compared with a number such as 2GiB, not “lots”"),
        ("mem>2XB", "“xb” is not a unit of mem"),
        ("mem>1.2.3", "mem is compared with a number such as 2GiB, not “1.2.3”"),
        ("sm>2GiB", "“gib” is not a unit of sm"),
        ("cpu<", "cpu is compared with a number"),
        ("time>2w", "“w” is not a unit of time"),
        ("mem:2GiB", "mem is a number: write mem>2GiB"),
        ("user>alice", "user is text: write user:alice"),
        ("gpu=1", "gpu is text: write gpu:1"),
        ("gpu:one", "gpu is the number of a GPU, or cpu, not “one”"),
        ("pid:a", "pid is a number, not “a”"),
        ("pid>1k", "“k” is not a unit of pid"),
        ("threads>5%", "“%” is not a unit of threads"),
        ("time>1:30", "time is compared with a time such as 90s or 1h30m, not “1:30”"),
        ("time>1m2h", "time is compared with a time such as 90s or 1h30m, not “1m2h”"),
        ("sees:a", "sees is the number of a GPU, or 0>1 for its own device 0 on GPU 1, not “a”"),
        ("thread>5", "there is no field “thread”; did you mean threads?"),
        ("colour:red", "there is no field “colour”; quote it to search for the text"),
        ("x>3", "there is no field “x”; quote it to search for the text"),
        ("alpha:8080", "there is no field “alpha”; quote it to search for the text"),
        ("usr:alice", "there is no field “usr”; did you mean user?"),
        ("meme>3", "there is no field “meme”; did you mean mem?"),
        ("-mem>lots", "mem is compared with a number such as 2GiB, not “lots”"),
        ("mem>\x1b[31m", r"mem is compared with a number such as 2GiB, not “\x1b[31m”"),
    ]
)
def test_invalid_words_are_reported(text: str, message: str) -> None:
    with pytest.raises(FilterError) as wrong:
        parse_process_filter(text)
    assert str(wrong.value) == message


def test_the_other_words_are_still_there() -> None:
    with pytest.raises(FilterError) as wrong:
        parse_process_filter("python mem>lots -xorg")
    rest = wrong.value.rest
    assert rest is not None
    assert rest.text == "python -xorg"
    with pytest.raises(FilterError) as alone:
        parse_process_filter("mem>")
    assert alone.value.rest is None


def test_every_field_has_its_sign() -> None:
    assert set(FIELD_OPERATORS) == set(FIELDS)


@every(COLUMNS)
def test_every_column_is_a_field_by_its_id_and_by_its_head(column: Column) -> None:
    for name in (column.id, column.title):
        for sign in (":1", ">1"):
            message = message_of(f"{name}{sign}")
            assert not message or "write" in message, message  # it takes one of the two signs
            if not message:
                kept(f"{name}{sign}")


def test_a_number_that_is_no_reading_is_compared_as_the_table_sorts_it() -> None:
    def held(process: Process) -> float | None:
        return float(len(process.device_map)) if process.pid == ALICE.pid else None

    get = _number_field(Column("devices", "DEVICES", 7, 7, "how many GPUs it sees", value=held)).get
    assert (get(ALICE, AT), get(BOB, AT)) == (2, None)


@pytest.mark.parametrize("word", [word for word, _ in FILTER_WORDS])
def test_help_names_words_that_are_understood(word: str) -> None:
    assert message_of(word) == ""


def test_help_spells_out_the_headings_that_are_short() -> None:
    """The chooser of columns explains all of them."""
    named = " ".join(word for group in help_groups("overview") for word, _ in group.rows)
    assert {COLUMN_BY_ID[name].title for name in ("sees", "idle", "mbw")} <= set(named.split())


def test_help_names_every_field() -> None:
    help_text = " ".join(part for entry in FILTER_WORDS for part in entry)
    assert all(name in help_text for name in FIELDS)


def message_of(text: str) -> str:
    try:
        assert parse_process_filter(text) is not None
    except FilterError as error:
        return str(error)
    return ""


@given(st.text(alphabet='ab":x> -', max_size=20))
def test_quotes_never_hide_a_word(text: str) -> None:
    assert "".join(word.typed for word in _words(text)).replace(" ", "") == text.replace(" ", "")


_letters = st.text(alphabet='abcmesugp:<>=-.0123456789GiB%"hd→ \x1b', max_size=30)


_parts = st.sampled_from(
    [*FIELDS, *':<>=-"', "->", "d", "h", ":00:00", "GiB", "%", " ", "٣", "0" * 5000, "9" * 400, "9" * 4400, "x" * 5000]
)


@given(st.one_of(st.text(max_size=60), _letters, st.lists(_parts, max_size=6).map("".join)))
@example(f"gpu:{'9' * 4400}")
@example(f"time>{'9' * 4400}d")
@example(f"mem>{'9' * 4400}GiB")
@example(f"time>{'9' * 4400}:00:00")
@example(f"sees:1>{'9' * 4400}")
def test_any_text_is_a_filter_or_an_error_in_one_line(text: str) -> None:
    hidden: Process = machines.denied_process()
    message = ""
    try:
        wanted = parse_process_filter(text)
    except FilterError as error:
        message, wanted = str(error), error.rest
    assert message.isprintable()
    assert len(message) < 200
    for process in (ALICE, BOB, hidden):
        assert wanted is None or wanted(process, AT) in (True, False)


@pytest.mark.parametrize("mib", [2047.6, 2048.4])
def test_a_filter_of_memory_agrees_with_what_the_table_shows(mib: float) -> None:
    """Both are shown as 2.0 GiB: neither is more than 2 GiB, nor less."""
    process = msgspec.structs.replace(ALICE, readings={"gpu_memory_bytes": int(mib * 2**20)})
    for text, matches in (("mem>2GiB", False), ("mem<2GiB", False), ("mem=2GiB", True), ("mem>=2GiB", True)):
        wanted = parse_process_filter(text)
        assert wanted is not None
        assert wanted(process, AT) is matches, text


def test_idle_processes_are_found_and_shown_by_the_minute() -> None:
    at = 1_800_000_000.0
    seconds = (None, at, 59, 61, 7300, 200_000)
    rows = [
        msgspec.structs.replace(machines.process(number), readings={} if ago is None else {"idle_since": int(at - ago)})
        for number, ago in enumerate(seconds)
    ]
    column = COLUMN_BY_ID["idle"]
    assert [time_column_text(column, row, at) for row in rows] == ["–", "busy", "<1m", "1m", "2h", "2d"]
    assert [row.pid for row in sorted_rows(rows, column, reverse=True)] == [rows[n].pid for n in (5, 4, 3, 2, 1, 0)]
    wanted = parse_process_filter("idle>1m")
    assert wanted is not None
    assert [row.pid for row in filtered_rows(rows, wanted, at)] == [row.pid for row in rows[3:]]
