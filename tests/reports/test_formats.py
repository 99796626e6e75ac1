"""Every format draws every document: full, nearly empty, and hostile."""

from __future__ import annotations

import base64
import csv
import hashlib
import html.parser
import io
import itertools
import re

import msgspec
import pytest

from gpuwatch.core.formatting.palettes import DARK, LIGHT, QUANTITIES, rgb
from gpuwatch.core.model.json_codec import Document
from gpuwatch.core.model.metrics import METRICS
from gpuwatch.core.model.run import Run
from gpuwatch.core.model.run_memory import DeviceMemory, Memory
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.explain_log import explain
from gpuwatch.explain.diagnosis.rule_engine import diagnose
from gpuwatch.share.reports.explanation_report import explanation_content
from gpuwatch.share.reports.formats import text as text_format
from gpuwatch.share.reports.report_by_document_kind import content_of
from gpuwatch.share.reports.report_formats import FORMATS, render
from gpuwatch.share.reports.runs_side_by_side import compare
from gpuwatch.ui.drawing.text_styles import style_colors
from tests.every import every
from tests.reports import diagnostics
from tests.reports.documents import (
    UUID,
    bare_run,
    bare_snapshot,
    empty_usage,
    experiment,
    full_experiment,
    full_run,
    full_snapshot,
    full_usage,
    hostile_experiment,
    hostile_run,
    hostile_usage,
    searched_experiment,
    used,
)

DOCUMENTS: dict[str, Document] = {
    "full run": full_run(),
    "bare run": bare_run(),
    "hostile run": hostile_run(),
    "snapshot": full_snapshot(),
    "bare snapshot": bare_snapshot(),
    "comparison": compare([full_run(), bare_run(), hostile_run()]),
    "empty comparison": compare([]),
    "diagnostic": diagnostics.died(),
    "diagnostic without a driver": diagnostics.without_driver(),
    "diagnostic of nothing": diagnostics.nothing(),
    "hostile diagnostic": diagnostics.hostile(),
    "experiment": full_experiment(),
    "searched experiment": searched_experiment(),
    "empty experiment": experiment(),
    "hostile experiment": hostile_experiment(),
    "usage": full_usage(),
    "usage by process": full_usage(by="process"),
    "hostile usage": hostile_usage(),
    "empty usage": empty_usage(),
}
NAMES = [entry.name for entry in FORMATS]
# Everything that moves a cursor or hides text; newlines are the format's own.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def whole(document: Document, name: str) -> str:
    """As it is written to a file."""
    return next(entry for entry in FORMATS if entry.name == name).render(document)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_format_draws_every_document_without_control_characters(name: str, document: Document) -> None:
    for drawn in (render(document, name), whole(document, name)):
        assert drawn.endswith("\n")
        assert not CONTROLS.search(drawn)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("document", [full_run(), full_snapshot(), compare([full_run()]), diagnostics.hostile()])
def test_no_secret_leaves_in_any_format(name: str, document: Document) -> None:
    drawn = render(document, name)
    for secret in ("hf_verysecret", "abcd1234secret", "hunter2", "sk-verysecret"):
        assert secret not in drawn


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
@pytest.mark.parametrize("document", [full_run(), full_snapshot(), compare([full_run()])])
def test_simulated_is_at_the_top(name: str, document: Document) -> None:
    drawn = render(document, name)
    at = drawn.index("SIMULATED")
    assert at < min(drawn.index(word) for word in ("RTX 4090", "GRANTED") if word in drawn)
    plain = render(bare_run(), name)
    assert "SIMULATED" not in plain


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
def test_unknown_is_a_dash_and_never_zero(name: str) -> None:
    drawn = whole(bare_run(), name)
    assert "–" in drawn
    visible = re.sub(r"<(style|script)[^>]*>.*?</\1>|<[^>]+>|2026-11-20 06:30:00", "", drawn, flags=re.S)
    assert not re.search(r"(?<![\w#])0(?:\.0+)?(?: (?:B|GiB|%))?(?![\w.])", visible)


@pytest.mark.parametrize("name", ["html", "markdown", "text"])
def test_the_cause_and_what_to_do_come_before_the_tables(name: str) -> None:
    drawn = whole(full_run(), name)
    assert drawn.index("MatMul ran on GPU:0 instead of GPU:7") < drawn.index("Ask for a device that exists.")
    assert drawn.index("Ask for a device that exists.") < drawn.index("Device map")


class Collecting(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "onclick", "onerror")]
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag


@every(DOCUMENTS.values())
def test_html_is_one_well_formed_file_without_requests(document: Document) -> None:
    drawn = render(document, "html")
    parser = Collecting()
    parser.feed(drawn)
    assert parser.open == []
    assert all(link.startswith("#") for link in parser.links)
    assert not {"link", "img", "iframe", "object", "form", "audio", "video"} & set(parser.tags)
    assert not re.search(r"url\((?!#)|@import|https?://(?!evil)", drawn.partition("</style>")[0])


@every(DOCUMENTS.values())
def test_the_name_of_a_button_begins_with_what_it_shows(document: Document) -> None:
    for attributes, shown in re.findall(r"<button ([^>]*)>([^<]*)</button>", render(document, "html")):
        name = re.search(r'aria-label="([^"]*)"', attributes)
        assert shown
        assert name is None or name[1].startswith(shown)


@every(DOCUMENTS.values())
def test_the_only_script_is_the_one_whose_hash_the_policy_names(document: Document) -> None:
    drawn = render(document, "html")
    (script,) = re.findall(r"<script>(.*?)</script>", drawn, flags=re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', drawn)
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_html_shows_the_memory_timeline_up_to_the_total() -> None:
    drawn = render(full_run(), "html")
    assert drawn.count("GPU memory over") == 1
    for series in ("line device", "line process", "line allocator"):
        assert f'class="{series}"' in drawn
    assert "24.0 GiB" in drawn
    assert "GPU memory over" not in render(bare_run(), "html")


def test_gaps_in_the_timeline_are_gaps_in_the_line() -> None:
    run = full_run()
    points = list(run.memory.timeline)
    for i in (20, 21):
        points[i] = type(points[i])(t=points[i].t)
    gappy = msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, timeline=tuple(points)))
    (path,) = re.findall(r'class="line device" d="([^"]+)"', render(gappy, "html"))
    assert path.count("M") == 2
    (unbroken,) = re.findall(r'class="line device" d="([^"]+)"', render(run, "html"))
    assert unbroken.count("M") == 1


def test_html_has_both_colour_schemes_and_a_print_style() -> None:
    drawn = render(full_run(), "html")
    assert "prefers-color-scheme: dark" in drawn
    assert "@media print" in drawn


def test_markdown_rows_have_as_many_cells_as_heads() -> None:
    for document in DOCUMENTS.values():
        cells = None
        for line in render(document, "markdown").splitlines():
            if not line.startswith("|"):
                cells = None
                continue
            count = len(re.findall(r"(?<!\\)\|", line))
            assert cells in (None, count), line
            cells = count


def test_markdown_lets_nobody_be_notified_and_no_tag_through() -> None:
    drawn = render(hostile_run(), "markdown")
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", drawn, flags=re.S)
    assert "<script" not in outside
    assert "@everyone" not in outside
    assert drawn.count("<details>") == drawn.count("\n</details>")


def test_a_log_cannot_close_its_own_code_block() -> None:
    drawn = render(hostile_run(), "markdown")
    opened = re.findall(r"^(`{3,})$", drawn, flags=re.M)
    assert opened[0] == opened[-1] == "````"


def rows(drawn: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(drawn)))


def test_csv_of_a_snapshot_has_a_column_per_metric() -> None:
    first, second = rows(render(full_snapshot(), "csv"))
    assert {spec.id for spec in METRICS} <= set(first)
    assert (first["uuid"], first["utilization.gpu_percent"]) == (UUID, "97")
    assert first["temperature.gpu_celsius"] == ""
    assert second["memory.used_bytes"] == ""


def test_csv_of_runs_has_a_row_each() -> None:
    shown = rows(render(DOCUMENTS["comparison"], "csv"))
    assert [row["config"] for row in shown][:2] == ["soft-missing", "growth"]
    assert shown[0]["granted_bytes"] == str(21464 << 20)
    assert shown[1]["steps_per_second"] == ""


FORMULAS = [f"{before}{sign}SUM(A1)" for before in ("", " ", "\u00a0") for sign in "=+-@\uff1d\uff0b\uff0d\uff20|%"]
"""What spreadsheets run: their signs, also after blanks."""


@every(FORMULAS)
def test_csv_cells_are_no_formulas(text: str) -> None:
    shown = rows(render(full_run(config=text), "csv"))[0]["config"]
    assert shown.startswith("'")
    assert shown.endswith("SUM(A1)")


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_text_fits_the_width_where_the_numbers_leave_room(width: int) -> None:
    drawn = text_format.render(full_run(), width, details=False)
    story = drawn[: drawn.index("Device map")]
    assert max(len(line) for line in story.splitlines()[1:]) <= max(width, 105)


def test_ids_are_shortened_for_a_terminal_and_whole_in_a_file() -> None:
    drawn = text_format.render(full_run(), 90, details=False)
    assert UUID not in drawn
    assert f"{UUID[:12]}…" in drawn
    assert UUID in text_format.render(full_run(), 90)


def test_text_for_the_terminal_is_the_story_and_the_file_has_everything() -> None:
    brief, full = render(full_run(), "text", width=110), whole(full_run(), "text")
    for name in ("asked", "granted", "seen by NVML", "happened", "speed", "Findings"):
        assert name in brief
    assert "Environment" not in brief
    assert "Environment" in full
    assert "412 ±6 steps/s" in brief


def test_snapshot_text_is_one_line_per_gpu() -> None:
    drawn = text_format.render(full_snapshot(), 140)
    (line,) = [line for line in drawn.splitlines() if "97 %" in line]
    for part in ("NVIDIA RTX 4090", "12.0 / 24.0 GiB", "311 / 450 W", "2520 MHz", "–"):
        assert part in line
    assert any(re.search(r"lost +fallen off the bus", line) for line in drawn.splitlines())
    assert "permission_denied" in drawn


@pytest.mark.parametrize("lines", [[], ["hello", "world"]], ids=["empty", "another program's"])
@pytest.mark.parametrize("name", ["text", "markdown", "html"])
def test_a_log_in_which_nothing_was_recognised_is_not_called_healthy(name: str, lines: list[str]) -> None:
    document = explain(lines)
    for told in (document, msgspec.structs.replace(document, primary=None, findings=())):
        content = explanation_content(told)
        assert (content.state, content.verdict, content.findings) == ("unknown", "unknown", ())
        drawn = render(told, name)
        assert "healthy" not in drawn
        assert "recognizes nothing" in drawn


@pytest.mark.parametrize("name", ["text", "markdown"])
def test_a_problem_that_is_a_finding_is_shown_once(name: str) -> None:
    bare = bare_snapshot()
    assert "driver.missing" in render(bare, name)
    told = msgspec.structs.replace(bare, findings=diagnose(Evidence(snapshot=bare)))
    drawn = render(told, name)
    assert drawn.count("driver.missing") == 1
    assert drawn.count("libnvidia-ml.so.1 is not there") == 1
    assert "Problems" not in drawn


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    """As WCAG 2 defines it: 1 to 21."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_of_text_and_charts_have_contrast(scheme: int) -> None:
    css = render(bare_run(), "html").partition("</style>")[0]
    blocks = re.findall(r":root \{(.*?)\}", css, flags=re.S)  # the dashboard's three come first
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[scheme] + blocks[3 + scheme]))
    for ink, ground in (
        *((ink, ground) for ink in ("ink", "dim", "ok", "warn", "bad", "info") for ground in ("card", "bg")),
        *((state, f"{state}-bg") for state in ("ok", "warn", "bad", "info")),
    ):
        assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
    for part in ("c0", "c1", "c2", "c3", "c4", "c5", "rest", "reserved", *QUANTITIES):
        assert _contrast(colours[part], colours["card"]) >= 3, part


def test_a_quantity_has_the_colour_that_the_dashboard_gives_it() -> None:
    css = render(bare_run(), "html").partition("</style>")[0]
    blocks = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", one)) for one in re.findall(r":root \{(.*?)\}", css)]
    for palette, block in zip((LIGHT, DARK, LIGHT), blocks, strict=False):
        for name in QUANTITIES:
            assert rgb(block[name]) == style_colors(palette, name, "background")[0]
        states = [style_colors(palette, style, "background")[0] for style in ("ok", "warning", "error")]
        assert [rgb(block[name]) for name in ("ok", "warn", "bad")] == states
        assert len({block[name] for name in QUANTITIES}) == 5, "each its own"


def test_headings_go_down_one_level_at_a_time_and_tables_have_heads() -> None:
    for document in DOCUMENTS.values():
        drawn = render(document, "html")
        levels = [int(level) for level in re.findall(r"<h([1-6])", drawn)]
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels)), levels
        assert drawn.count("<th ") + drawn.count("<th>") == drawn.count('<th scope="col"')
        for svg in re.findall(r"<svg [^>]*>", drawn):
            assert 'aria-label="' in svg or 'aria-hidden="true"' in svg


def test_memory_is_shown_for_each_gpu_by_index() -> None:
    run = full_run()
    assert re.search(r"process \S+ \S+, GPU 1 ", _story(run))
    devices = tuple(
        DeviceMemory(uuid=f"GPU-{index}", index=index, total_bytes=24 << 30, used_bytes=used << 30, process_bytes=held)
        for index, used, held in ((0, 22, 21 << 30), (1, 2, None))
    )
    told = _story(msgspec.structs.replace(run, memory=msgspec.structs.replace(run.memory, devices=devices)))
    assert "GPU 1: process –, all 2.0 GiB" in told


def test_a_program_that_used_no_gpu_is_told_as_that() -> None:
    idle = Memory(nvml_device_peak_bytes=0, nvml_before_bytes=0, device_total_bytes=24 << 30)
    run = msgspec.structs.replace(bare_run(), memory=idle, gpus=("0 A", "1 B"), device_map=(), problems=())
    assert "none of its processes" in _story(run)
    for name in NAMES:
        assert "process –" not in render(run, name)
    assert all(table.title != "Memory" for table in content_of(run).tables)
    busy = msgspec.structs.replace(idle, nvml_device_peak_bytes=5 << 30)
    told = _story(msgspec.structs.replace(run, memory=busy))
    assert "; others held 5.0 GiB" in told
    mapped = msgspec.structs.replace(run, device_map=full_run().device_map)
    assert "NVML did not list" in _story(mapped)


def _story(run: Run) -> str:
    return " ".join(f"{name} {value}" for name, value in content_of(run).facts)


def test_the_headline_of_a_watched_program_is_its_command() -> None:
    run = full_run(group="run", config="run", title="python train.py --epochs 3", workload="run")
    assert content_of(run).title == "python train.py --epochs 3"
    assert content_of(run).subtitle == "gpuwatch run · node07 · 2026-11-20 06:30:00 UTC"
    long = full_run(group="run", config="run", title="python " + "x" * 200, workload="run")
    assert content_of(long).title == "gpuwatch run"
    assert content_of(long).subtitle == f"{long.title} · node07 · 2026-11-20 06:30:00 UTC"


def test_the_story_says_how_long_it_took() -> None:
    run = full_run()
    timed = msgspec.structs.replace(run, phases=msgspec.structs.replace(run.phases, total_seconds=12.5))
    assert "took 12.5" in _story(timed)
    untimed = msgspec.structs.replace(run, phases=msgspec.structs.replace(run.phases, total_seconds=None))
    assert "took" not in dict(content_of(untimed).facts)


def test_a_container_called_all_has_its_owner() -> None:
    groups = (used(container="all"), used(container="b", user="bob"))
    table = content_of(full_usage(by="container", groups=groups)).tables[0]
    owner = table.heads.index("Owner")
    assert [row[owner] for row in table.rows] == ["alice", "bob", ""]
