"""Equal findings and texts of several GPUs as one, for lists and reports that people read; JSON has each of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TypeVar

from msgspec.structs import replace

from gpuwatch.core.formatting.sentences import number_ranges
from gpuwatch.core.model.findings import Finding
from gpuwatch.core.model.snapshot import Device

AnyFinding = TypeVar("AnyFinding", bound=Finding)
_PLURAL_VERBS = {"is": "are", "has": "have", "needs": "need", "does": "do"}


def grouped_findings(findings: Iterable[AnyFinding], devices: Iterable[Device]) -> list[AnyFinding]:
    """The findings in their order; those with equal title and action but for their GPU are one, where the first was.

    It is of no single GPU: its title names all of them, its evidence the GPUs of a line that is not of all, and its
    time is from the first beginning to the last end.
    """
    indices = {device.uuid: device.index for device in devices}
    earlier_of_gpu: Counter[object] = Counter()
    groups: dict[object, dict[int, AnyFinding]] = {}
    for finding in findings:
        index = indices.get(finding.device_uuid or "", -1)
        title, action = (_of_gpus(text, index, "#", "#") for text in (finding.title, finding.action))
        if title == finding.title:
            groups[id(finding)] = {index: finding}
            continue
        alike = (finding.id, finding.severity, finding.certainty, finding.pid, finding.until is None, title, action)
        groups.setdefault((alike, earlier_of_gpu[alike, index]), {})[index] = finding
        earlier_of_gpu[alike, index] += 1
    return [_merged(group) for group in groups.values()]


def grouped_texts(texts: Iterable[tuple[int, str]]) -> list[str]:
    """The same of texts, each with the index of its GPU, -1 without one."""
    groups: dict[str, dict[int, str]] = {}
    for index, text in texts:
        groups.setdefault(_of_gpus(text, index, "#", "#"), {})[index] = text
    firsts = [(*next(iter(group.items())), group) for group in groups.values()]
    return [_of_gpus(text, index, *_numbers(group)) if len(group) > 1 else text for index, text, group in firsts]


def _numbers(gpus: Collection[int]) -> tuple[str, str]:
    """``0-2,4`` for people and ``0,1,2,4`` for nvidia-smi."""
    return number_ranges(gpus), ",".join(map(str, sorted(gpus)))


def _of_gpus(text: str, index: int, ranges: str, listed: str) -> str:
    """A text about a GPU as one about others; ``listed``: them, as nvidia-smi's -i takes them."""
    text = re.sub(rf"\bGPU {index}\b", f"GPU {ranges}", re.sub(rf"-i {index}\b", f"-i {listed}", text))
    verb = rf"\bGPU {ranges} ({'|'.join(_PLURAL_VERBS)})\b"
    return re.sub(verb, lambda found: f"GPUs {ranges} {_PLURAL_VERBS[found[1]]}", text)


def _merged(group: dict[int, AnyFinding]) -> AnyFinding:
    (index, first), *others = group.items()
    if not others:
        return first
    gpus_by_line: dict[tuple[int, str], list[int]] = {}
    for gpu, finding in group.items():
        for place, line in enumerate(finding.evidence):
            gpus_by_line.setdefault((place, line), []).append(gpu)
    lines = sorted(gpus_by_line.items(), key=lambda entry: entry[0][0])
    oldest = min(group.values(), key=lambda finding: finding.since.timestamp() if finding.since is not None else 0.0)
    numbers = _numbers(group)
    return replace(
        first,
        title=_of_gpus(first.title, index, *numbers),
        action=_of_gpus(first.action, index, *numbers),
        evidence=tuple(
            line if len(gpus) == len(group) else f"GPU {number_ranges(gpus)}: {line}" for (_, line), gpus in lines
        ),
        device_uuid=None,
        since=oldest.since,
        may_be_older=oldest.may_be_older,
        until=max((finding.until for finding in group.values() if finding.until is not None), default=None),
    )
