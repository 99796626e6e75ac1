"""Output of other tools that gpuwatch does not read, recognized by its first lines."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINES, MAX_CHARS = 4, 400
"""The first lines of a file, and characters of each, that are enough to recognize a format."""


class UnreadFormat(NamedTuple):
    """A format, by regular expressions of its first lines and its last one."""

    name: str
    begins: re.Pattern[str]
    ends: re.Pattern[str] | None
    """None: the last line has as many commas as the first or the second one: a header may lack some."""
    action: str


_SAMPLES_ACTION = (
    "For what may be wrong with a GPU, give it the output of nvidia-smi -q. gpuwatch record takes samples, and judges"
    " them."
)
_NUMBER_WITH_UNIT = r" ?[\d.]{1,12} (?:%|MiB|W|MHz)"
_FORMATS = (
    UnreadFormat(
        "a trace of times in Chrome's format, such as torch.profiler's",
        re.compile(r'(?s:[{\[].*?)"(?:schemaVersion"\s*:|traceEvents"\s*:|displayTimeUnit"\s*:|ph"\s*:\s*"\w")'),
        re.compile(r".*[}\]]$"),
        "Open it at https://ui.perfetto.dev. For memory, give gpuwatch what torch.cuda.memory._dump_snapshot or the"
        " profiler's export_memory_timeline (*.raw.json.gz) writes.",
    ),
    UnreadFormat(
        "samples of nvidia-smi --query-gpu",
        re.compile(
            r"(?:[\w.]{1,60}(?: \[[^\]]{1,12}\])?, ?)*"
            r"(?:utilization\.\w+|memory\.(?:used|total|free)|power\.draw[\w.]*|temperature\.\w+|clocks\.[\w.]+|pci\.bus_id)"
            r"(?: \[[^\]]{1,12}\])?(?:, ?[\w.]|\s*\n)"
        ),
        None,
        _SAMPLES_ACTION,
    ),
    UnreadFormat(
        "samples of nvidia-smi --query-gpu without their header",
        re.compile(
            rf"(?:[^,\n]{{1,60}},){{0,12}}{_NUMBER_WITH_UNIT},(?:[^,\n]{{1,60}},){{0,12}}{_NUMBER_WITH_UNIT}\s*(?:[,\n]|$)"
        ),
        None,
        _SAMPLES_ACTION,
    ),
    UnreadFormat(
        "samples of a GPU as a table (CSV)",
        re.compile(
            r"(?=.{0,400}?(?:gpu|vram|nvidia))(?=(?s:.{0,600}?)(?:util|mem|temp|power|clock|watt))"
            r"(?:[^,:=\n]{1,40},){2,80}[^,:=\n]{1,40}\n[\"']?\d",
            re.IGNORECASE,
        ),
        None,
        _SAMPLES_ACTION,
    ),
    UnreadFormat(
        "samples of nvidia-smi dmon or pmon",
        re.compile(r"# ?gpu .{5,300}\n# ?Idx "),
        re.compile(r"#|\d{1,3} +[\d-]"),
        _SAMPLES_ACTION,
    ),
    UnreadFormat(
        "samples of tegrastats",
        re.compile(r"(?:[\d:. -]{8,24} )?RAM \d{1,7}/\d{1,7}MB \(lfb "),
        re.compile(r".*RAM \d"),
        "",
    ),
    UnreadFormat(
        "a matrix of nvidia-smi topo",
        re.compile(r"(?:\x1b\[4m)?\s*GPU0\s+(?:GPU1|NIC0|mlx\d_0|CPU Affinity)\b"),
        re.compile(r"(?:GPU|NIC|mlx5_|ibp)\w*\b|.{1,6} += "),
        "gpuwatch snapshot --topology shows how the GPUs of a machine are connected.",
    ),
)


def unread_format(start: str, last_line: str) -> UnreadFormat | None:
    """The format of a file by its first lines and its last; None for a log, or for what gpuwatch reads."""
    start, last_line = start.lstrip(), last_line.strip()
    commas = {line.count(",") for line in start.split("\n")[:2]}
    for known in _FORMATS:
        if known.begins.match(start) is not None:
            same = last_line.count(",") in commas if known.ends is None else known.ends.match(last_line)
            return known if same else None
    return None
