"""The settings file: valid and invalid content, and that saving loses nothing."""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.errors import GpuwatchError
from gpuwatch.core.formatting.palettes import PALETTES
from gpuwatch.ui.drawing.overview_layout import LAYOUT_CHOICES
from gpuwatch.ui.panes.key_line import HELP_AND_QUIT_CELLS
from gpuwatch.ui.settings import settings_file
from gpuwatch.ui.settings.preferences import SETTINGS, Preferences
from gpuwatch.ui.settings.settings_file import (
    InvalidSettingsFile,
    LoadedSettings,
    load_settings,
    parse_settings,
    save_settings,
    setting_comment,
)
from gpuwatch.ui.settings.tabs import TABS
from gpuwatch.ui.tables.gpu_fields import FIELDS, GRAPHS
from gpuwatch.ui.tables.process_columns import COLUMN_BY_ID
from tests.ui.conftest import Stage

EVERYTHING = """\
# mine
theme = "gpuwatch-light"   # for the projector
ascii = true
interval = 2
read-only = true
gpm = true
own-collector = true
notify = true
tab = "events"

[processes]
# what I look at
columns = ["pid", "memory",   "command"]
sort = "cpu"
descending = false
tree = true
filter = "user:alice mem>2GiB"

[gpus]
fields = ["temperature", "power"]
layout = "lines"
order = "memory"
graphs = ["power", "utilization"]

[thresholds]
utilization = [50, 90]
memory = [70]
temperature = []
power = [99.5]
clock = [70, 30]
"""


def test_every_preference_has_its_key() -> None:
    assert {setting.field for setting in SETTINGS} == {field.name for field in dataclasses.fields(Preferences)}
    assert len({setting.name for setting in SETTINGS}) == len(SETTINGS)


def test_everything_is_read() -> None:
    found, problems, unknown = parse_settings(EVERYTHING)
    assert (problems, unknown) == ((), ())
    assert found == Preferences(
        theme="gpuwatch-light",
        ascii=True,
        interval=2.0,
        read_only=True,
        gpm=True,
        own_collector=True,
        notify=True,
        tab="events",
        columns=("pid", "memory", "command"),
        sort="cpu",
        descending=False,
        tree=True,
        filter="user:alice mem>2GiB",
        gpu_fields=("temperature", "power"),
        layout="lines",
        gpu_order="memory",
        graphs=("power", "utilization"),
        utilization_thresholds=(50.0, 90.0),
        memory_thresholds=(70.0,),
        temperature_thresholds=(),
        power_thresholds=(99.5,),
        clock_thresholds=(70.0, 30.0),
    )


def test_no_file_says_nothing(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "none.toml") == LoadedSettings(tmp_path / "none.toml")
    assert load_settings(tmp_path / "none" / "settings.toml").notice == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('theme = "gpuwach-light"', "theme is “gpuwach-light”, not a known theme; did you mean gpuwatch-light?"),
        ("theme = 3", "theme is 3, not text in quotes"),
        ('ascii = "yes"', "ascii is “yes”, not true or false"),
        ("interval = 0.01", "interval is 0.01, not a number from 0.25 to 60"),
        ("interval = nan", "interval is nan, not a number"),
        ("interval = true", "interval is True, not a number"),
        ('tab = "procces"', "tab is “procces”, not a known tab; did you mean process?"),
        (
            '[processes]\ncolumns = ["pid", "memroy"]',
            "has the unknown column “memroy”; did you mean memory?",
        ),
        ('[processes]\ncolumns = ["pid", "pid"]', "names a column twice"),
        ("[processes]\ncolumns = []", "is empty"),
        ('[processes]\ncolumns = "pid"', "not a list of names in quotes"),
        ('[processes]\nsort = "mem"', "is “mem”, not a known column; did you mean memory?"),
        ('[processes]\nfilter = "mem>lots"', "processes.filter is invalid: mem is compared with a number"),
        ("processes = 3", "processes is a table: write [processes]"),
        ('[gpus]\nfields = ["tempratur"]', "has the unknown field “tempratur”; did you mean temperature?"),
        ('theme = "gpuwatch', "line 2: unterminated string"),
        ("a = 1\na = 2", "line 3: Cannot overwrite a value"),
        ("theme = \x00", "line 2: Invalid value"),
        (f"interval = {'9' * 5000}", "a number has thousands of digits"),
        ("x = " + "[" * 5000, "at its end: maximum recursion depth exceeded"),
        ('theme = "\\u001b[31m"', "theme is “\\x1b[31m”, not a known theme"),
        ("theme", "line 2: "),
    ],
)
def test_a_problem_is_one_line_and_the_rest_is_used(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("read-only = true\n" + text + "\n")
    loaded = load_settings(path)
    assert loaded.notice.startswith("settings.toml: ")
    assert message in loaded.notice
    assert "\n" not in loaded.notice
    assert loaded.notice.isprintable()
    assert loaded.preferences.read_only
    before = path.read_bytes()
    with pytest.raises(InvalidSettingsFile) as refused:
        save_settings(Preferences(), path)
    assert "not saved: settings.toml: " in refused.value.message
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["settings.toml"], "nothing is left beside it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colums = []", "unknown key colums (did you mean columns in [processes]?)"),
        ("[proceses]\nsort = 1", "unknown key proceses (did you mean processes?)"),
        ('[processes]\ncolums = ["pid"] # mine', "unknown key processes.colums (did you mean columns?)"),
        ("[[zoo]]\nx = {y = 1}\n[[zoo]]\n\n[processes]\nqqqq = 0x1F", "unknown keys zoo, processes.qqqq"),
    ],
)
def test_an_unknown_key_is_one_line_and_kept_by_saving(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"interval = 2  # slow\n{text}\n")
    loaded = load_settings(path)
    assert (loaded.preferences, loaded.problems) == (Preferences(interval=2), ())
    assert loaded.lines == (loaded.notice,) == (f"settings.toml: ignored {message}",)
    assert loaded.fit_notice(200) == loaded.notice
    assert loaded.fit_notice(30) == f"settings.toml: {len(loaded.unknown)} unknown key{'s' * (len(loaded.unknown) > 1)}"
    save_settings(dataclasses.replace(loaded.preferences, interval=5, sort="pid", gpm=True), path)
    after = path.read_text()
    assert after.startswith("interval = 5  # slow\n")
    assert all(line in after for line in text.splitlines())
    assert load_settings(path) == dataclasses.replace(loaded, preferences=Preferences(interval=5, sort="pid", gpm=True))


def test_good_columns_of_a_list_with_a_bad_one_are_used() -> None:
    found, problems, _ = parse_settings('[processes]\ncolumns = ["pid", "memroy", "command"]')
    assert len(problems) == 1
    assert found.columns == ("pid", "command")


def test_the_rest_of_a_file_that_is_no_toml_is_used() -> None:
    broken = EVERYTHING.replace('"memory",   "command"]', '"memory"').replace("interval = 2", "interval = = 2")
    found, problems, _ = parse_settings(broken)
    assert len(problems) == 1
    assert problems[0].startswith("line 4: ")
    assert found == dataclasses.replace(
        parse_settings(EVERYTHING)[0], interval=Preferences().interval, columns=Preferences().columns
    )


def test_several_problems_are_counted_and_the_first_is_shown() -> None:
    loaded = LoadedSettings(Path("/x/settings.toml"), *parse_settings("ascii = 1\ngpm = 2\ntree = 0\ntheme = 3"))
    first = "theme is 3, not text in quotes"
    assert loaded.notice == f"settings.toml: 3 problems (w): {first}"
    whole = f"settings.toml: 3 problems (w): {first}"
    assert loaded.fit_notice(len(whole)) == whole
    assert loaded.fit_notice(len(whole) - 1) == "settings.toml: 3 problems (w): theme is 3"
    assert loaded.fit_notice(40) == "settings.toml: 3 problems, w shows them"
    assert [line.split()[1] for line in loaded.lines] == ["theme", "ascii", "gpm", "ignored"]


def test_a_problem_that_does_not_fit_is_not_cut() -> None:
    loaded = LoadedSettings(Path("/x/settings.toml"), *parse_settings("interval = 'abc'"))
    assert loaded.fit_notice(80) == loaded.notice == "settings.toml: interval is “abc”, not a number from 0.25 to 60"
    assert loaded.fit_notice(80 - HELP_AND_QUIT_CELLS) == loaded.notice, "there is room for it beside help and quit"
    assert loaded.fit_notice(55) == "settings.toml: interval is “abc” (w)"
    assert loaded.fit_notice(30) == "settings.toml: 1 problem, w shows it"
    assert LoadedSettings(Path("/x/settings.toml")).fit_notice(55) == ""


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"theme = '\xe9'"])
def test_a_file_that_is_not_utf8_is_reported(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(content)
    assert "is not UTF-8" in load_settings(path).notice
    with pytest.raises(InvalidSettingsFile):
        save_settings(Preferences(), path)


def test_a_folder_in_its_place_is_reported(tmp_path: Path) -> None:
    assert "cannot be read" in load_settings(tmp_path).notice
    with pytest.raises(InvalidSettingsFile):
        save_settings(Preferences(), tmp_path)


def test_a_new_file_holds_what_differs_and_the_rest_as_comments(tmp_path: Path) -> None:
    path = tmp_path / "new" / "settings.toml"
    save_settings(Preferences(theme="gpuwatch-light", columns=("pid", "command")), path)
    assert tomllib.loads(path.read_text()) == {
        "theme": "gpuwatch-light",
        "processes": {"columns": ["pid", "command"]},
        "gpus": {},
        "thresholds": {},
    }
    assert path.read_text().startswith("# ")
    assert "# interval = 1.0  # seconds between samples" in path.read_text(), "a default is a comment"
    assert load_settings(path).preferences == Preferences(theme="gpuwatch-light", columns=("pid", "command"))


def test_comments_order_and_layout_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(EVERYTHING)
    was = load_settings(path).preferences
    save_settings(was, path)
    assert path.read_text() == EVERYTHING, "every setting is there, so not a byte changes"
    save_settings(dataclasses.replace(was, theme="gpuwatch", sort="sm", descending=None), path)
    expected = EVERYTHING.replace('"gpuwatch-light"', '"gpuwatch"').replace('sort = "cpu"', 'sort = "sm"')
    lines = [line for line in path.read_text().splitlines() if not line.startswith("# descending = true  # ")]
    assert lines == expected.replace("descending = false\n", "").splitlines()


def test_every_setting_has_a_meaning_and_its_comment_is_read_as_its_default() -> None:
    for setting in SETTINGS:
        assert setting.help, setting.name
        line = setting_comment(setting).removeprefix("# ")
        assert len(line.partition("  # ")[2]) == len(setting.help)
        found, problems, unknown = parse_settings(f"[{setting.table}]\n{line}" if setting.table else line)
        assert (problems, unknown) == ((), ()), line
        default = getattr(Preferences(), setting.field)
        assert getattr(found, setting.field) == (default if default is not None else setting.example)


def test_saving_again_changes_nothing_and_a_set_value_replaces_its_comment(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    save_settings(Preferences(), path)
    first = path.read_text()
    assert all(setting_comment(setting) in first.splitlines() for setting in SETTINGS)
    assert load_settings(path).preferences == Preferences()
    save_settings(Preferences(), path)
    assert path.read_text() == first
    save_settings(Preferences(interval=2.0, tree=True), path)
    text = path.read_text()
    assert "interval = 1.0" not in text
    assert "# tree = false" not in text
    assert re.search(r"^interval = 2.0 # seconds", text, re.M)
    assert re.search(r"^tree = true # show", text, re.M)
    save_settings(Preferences(interval=2.0, tree=True), path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    "before",
    [
        '# my file\ntheme = "gpuwatch-light"\n# interval = 5\n\n# the list\n[processes]\n# mine\ntree = true # x\n',
        "[mine]\nkey = 1\n# end\n",
        'processes.tree = true\nfuture = """\n[gpus]\n"""\n',
        "processes = {tree = true}\n",
        "[processes]\r\ntree = true\r\n",
    ],
    ids=["comments", "unknown", "dotted", "inline", "crlf"],
)
def test_comments_of_the_user_and_unknown_keys_stay(tmp_path: Path, before: str) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(before, newline="")
    was = load_settings(path)
    save_settings(was.preferences, path)
    after = path.read_bytes().decode()
    assert load_settings(path) == was
    assert ("\r\n" in before) == ("\r\n" in after)
    rest = iter(after.splitlines())
    assert all(line in rest for line in before.splitlines()), "every line is there, in order"
    assert after.count("interval = ") == 1 or "future" in before
    save_settings(was.preferences, path)
    assert path.read_bytes().decode() == after


def test_a_link_stays_a_link_and_permissions_stay(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "settings.toml"
    real.parent.mkdir()
    real.write_text("interval = 5\n")
    real.chmod(0o640)
    link = tmp_path / "settings.toml"
    link.symlink_to(real)
    save_settings(Preferences(interval=2), link)
    assert link.is_symlink()
    assert real.read_text().startswith("interval = 2\n")
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_an_impossible_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GpuwatchError, match=r"cannot save to .*: (Not a directory|File exists)"):
        save_settings(Preferences(theme="gpuwatch-light"), tmp_path / "file" / "settings.toml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_reported(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(GpuwatchError, match="Permission denied"):
        save_settings(Preferences(theme="gpuwatch-light"), tmp_path / "settings.toml")


def test_a_write_that_fails_leaves_the_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("interval = 5\n")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(settings_file.os, "fsync", full)
    with pytest.raises(GpuwatchError, match="No space left"):
        save_settings(Preferences(interval=2), path)
    assert path.read_text() == "interval = 5\n"
    assert [one.name for one in tmp_path.iterdir()] == ["settings.toml"]


def test_the_other_path_is_free(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    (tmp_path / "settings-1.toml").touch()
    assert settings_file.unused_path_beside(path) == tmp_path / "settings-2.toml"


async def test_the_problem_stands_beside_help_and_quit(make_stage: Callable[..., Stage], tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("interval = 'abc'\n")
    stage = make_stage(settings=load_settings(path))
    async with stage.app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        line = stage.app.overview.keys.plain
        assert "interval is “abc”, not a number from 0.25 to 60" in line
        assert line.rstrip().endswith("? help  q quit")


def test_a_read_only_file_is_reported_and_not_replaced(tmp_path: Path) -> None:
    """Also for root, who could."""
    path = tmp_path / "ro.toml"
    path.write_text("interval = 2\n")
    path.chmod(0o444)
    with pytest.raises(GpuwatchError, match=r"ro\.toml is read-only") as raised:
        save_settings(Preferences(interval=5), path)
    assert raised.value.hint == "chmod u+w ro.toml unlocks it"
    assert path.read_text() == "interval = 2\n"
    assert [one.name for one in tmp_path.iterdir()] == ["ro.toml"]
    path.chmod(0o644)
    save_settings(Preferences(interval=5), path)
    assert "interval = 5" in path.read_text()


_percentages = st.lists(st.integers(0, 200).map(float), max_size=2).map(lambda found: tuple(sorted(found)))
_some = st.builds(
    Preferences,
    theme=st.sampled_from([palette.name for palette in PALETTES]),
    ascii=st.sampled_from([None, True, False]),
    interval=st.sampled_from([0.25, 1.0, 2.5, 60.0]),
    read_only=st.booleans(),
    gpm=st.booleans(),
    own_collector=st.booleans(),
    notify=st.booleans(),
    tab=st.sampled_from([tab.id for tab in TABS]),
    columns=st.lists(st.sampled_from(sorted(COLUMN_BY_ID)), min_size=1, unique=True).map(tuple),
    sort=st.one_of(st.none(), st.sampled_from(sorted(COLUMN_BY_ID))),
    descending=st.sampled_from([None, True, False]),
    tree=st.booleans(),
    filter=st.sampled_from(["", "user:alice", "-xorg “quoted” é", 'a"b\\c']),
    gpu_fields=st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, unique=True).map(tuple),
    layout=st.sampled_from(LAYOUT_CHOICES),
    graphs=st.lists(st.sampled_from(sorted(GRAPHS)), min_size=1, unique=True).map(tuple),
    utilization_thresholds=_percentages,
    memory_thresholds=_percentages,
    clock_thresholds=_percentages.map(lambda found: tuple(reversed(found))),
)
_before = st.sampled_from(
    ["", EVERYTHING, "# only this\n", "[gpus]\n", "interval = 3 # x", "[processes]\r\nsort = 'pid'\r\n"]
)


@settings(max_examples=60, deadline=None)
@given(_some, _before)
def test_what_is_saved_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, some: Preferences, before: str
) -> None:
    path = tmp_path_factory.mktemp("some") / "settings.toml"
    path.write_text(before, newline="")
    save_settings(some, path)
    assert load_settings(path) == LoadedSettings(path, some)
    for line in before.splitlines():
        if line.startswith("#"):
            assert line in path.read_text()


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
@settings(deadline=None)
def test_any_text_is_understood_or_explained(text: str) -> None:
    found, problems, unknown = parse_settings(text)
    assert all(problem.isprintable() for problem in (*problems, *unknown))
    assert isinstance(found, Preferences)


@given(st.sampled_from(EVERYTHING.splitlines()), st.text(alphabet='[]="#,\n ab1', max_size=12), st.integers(0, 400))
@settings(deadline=None)
def test_a_spoilt_file_never_fails(line: str, spoiler: str, place: int) -> None:
    text = EVERYTHING[:place] + spoiler + EVERYTHING[place:]
    _, problems, _ = parse_settings(text)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert problems
