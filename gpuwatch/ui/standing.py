"""What stands against "all well" beside the lasting causes: who does not answer, and what has just been seen.

The rules over time judge what lasts, and say it after some seconds. What the events, the cards and the
header tell at once is put among the findings here, so that no part of the screen contradicts another. Pure.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from gpuwatch.formatting.text import printable
from gpuwatch.history.happened import BAD_STATES, Happened
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import Device, Snapshot
from gpuwatch.monitor.feed import FeedStatus

NO_DRIVER = "The driver does not answer"
NO_COLLECTOR = "The process that asks the driver does not work"
FEED_TITLES = frozenset({NO_DRIVER, NO_COLLECTOR})
"""Titles of the findings that the header tells in words of its own, with the seconds."""

_FAULTS = {"lost": "has fallen off the bus", "reset-required": "needs a reset", "failed": "does not answer"}
_ACTIONS = {
    "throttle": "Look at its temperature and power on the GPU tab; where it lasts, its cause is told here.",
    "memory": "Sort the processes by GPU memory to see which one grows; save its work before the memory is full.",
}
_JUST_SEEN = "seen just now, and told among the events; whether it lasts is not judged yet"
_REPLACED = "gpuwatch asks the driver in a process of its own; no sample came before another had begun"
_OLD = "what is on the screen is from before, and nothing is judged meanwhile"


def merged(
    findings: tuple[Finding, ...],
    signs: Sequence[Happened],
    snapshot: Snapshot | None,
    status: FeedStatus,
) -> tuple[Finding, ...]:
    """``findings`` with what they do not tell yet; the same object where there is nothing to add."""
    if snapshot is None:
        return findings
    found, more = list(findings), list[Finding]()
    silent = any(sign.kind == "collector.stalled" for sign in signs)
    for sign in signs:
        if silent and sign.kind == "collector.replaced":
            continue  # a part of the same story, and told with it
        device = snapshot.device(sign.device_uuid)
        if sign.device_uuid is not None and (device is None or device.state in BAD_STATES):
            continue  # what is wrong with it is told of its state
        told = _of(sign, status)
        place = _place(found, told)
        if place is None:
            more.append(told)
        elif found[place].severity == "info":
            found[place] = msgspec.structs.replace(found[place], severity=told.severity)
        else:
            continue
    for device in snapshot.devices:
        if device.state in BAD_STATES and not any(
            one.device_uuid == device.uuid and one.until is None and one.severity == "error" for one in found
        ):
            more.append(_faulty(device))
    if not more and all(one is other for one, other in zip(found, findings, strict=True)):
        return findings
    return (*more, *(one for one in found if one.id != "healthy"))


def _place(found: Sequence[Finding], sign: Finding) -> int | None:
    """Where the finding is that tells what ``sign`` tells."""
    if sign.id == "unknown" or sign.title in FEED_TITLES:
        return None
    for number, one in enumerate(found):
        if one.until is None and one.device_uuid == sign.device_uuid and one.id == sign.id:
            return number
    return None


def _of(sign: Happened, status: FeedStatus) -> Finding:
    since = datetime.datetime.fromtimestamp(sign.at, datetime.UTC)
    if sign.kind == "collector.stalled":
        return _silent(status, since)
    return Finding(
        id=_cause(sign),
        severity="error" if sign.severity == "error" else "warning",
        certainty=sign.certainty,
        title=printable(sign.text),
        evidence=(_REPLACED if sign.kind == "collector.replaced" else _JUST_SEEN,),
        action=_ACTIONS.get(sign.kind.partition(".")[0], "The Events tab tells what came before it."),
        device_uuid=sign.device_uuid,
        since=since,
    )


def _silent(status: FeedStatus, since: datetime.datetime) -> Finding:
    waited = f"no sample has come since {since.astimezone():%H:%M:%S}; {_OLD}"
    if status.blame:
        return Finding(
            id="unknown",
            severity="error",
            certainty="fact",
            title=NO_COLLECTOR,
            evidence=(f"the collector, a process of gpuwatch itself, {printable(status.blame)}", waited),
            action="Wait: gpuwatch replaces it by itself.",
            since=since,
        )
    times = "once" if status.replaced == 1 else f"{status.replaced} times"
    replaced = f"it was replaced {times} so far" if status.replaced else ""
    return Finding(
        id="driver.bad-state",
        severity="error",
        certainty="likely",
        title=NO_DRIVER,
        evidence=(waited, "the process that asks it runs, and waits for an answer", *([replaced] if replaced else [])),
        action="If it lasts: look for Xid or NVRM lines in dmesg, and whether nvidia-smi hangs as well.",
        since=since,
    )


def _cause(sign: Happened) -> str:
    family = sign.kind.partition(".")[0]
    if family == "throttle":
        return "throttle.thermal" if "heat" in sign.text else "throttle.power"
    if family == "memory":
        return "memory.model-too-large"
    return "unknown" if family == "collector" else "hardware.fault"


def _faulty(device: Device) -> Finding:
    return Finding(
        id="hardware.fault",
        severity="error",
        certainty="fact",
        title=f"GPU {device.index} {_FAULTS.get(device.state, device.state)}",
        evidence=(printable(device.state_detail),) if device.state_detail else (),
        action="Look for Xid lines in dmesg; drain the node, then reset the GPU (nvidia-smi -r) or reboot.",
        device_uuid=device.uuid,
    )
