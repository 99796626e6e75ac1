"""GPU memory that is held while its device does nothing, and memory that nobody visible holds."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.diagnosis.overtime.look import Look
from gpuwatch.diagnosis.overtime.registry import LastingRule, lasting
from gpuwatch.diagnosis.overtime.stretch import Sign, Stretch
from gpuwatch.diagnosis.overtime.words import lasted, mean, span
from gpuwatch.diagnosis.registry import finding
from gpuwatch.diagnosis.rules.words import HELD_LEAST, HELD_SHARE, IDLE, command, seen_as, setting_of, who
from gpuwatch.formatting.text import printable
from gpuwatch.formatting.units import size
from gpuwatch.model.findings import Finding
from gpuwatch.model.snapshot import WSL, Device, Process

_YOUNG = 120.0
"""Seconds for which a process may load its data before its idleness means anything."""
_LONG = 300.0
"""Seconds of idleness from which it is a warning."""
_UNEXPLAINED_SHARE = 0.05
_WORKS = 80.0
"""Percent of one core from which a process that is idle on its GPU works on the CPU."""


@lasting
class Held(LastingRule):
    """A process holds much memory while it does not compute."""

    causes = ("idle.memory-held",)
    looks_for = "processes that hold GPU memory while idle"
    needs = ("utilization.gpu_percent", "memory.total_bytes")
    appears = 60.0
    leaves = 15.0

    def signs(self, look: Look) -> Iterator[Sign]:
        """Unknown utilization is not idle, and one who has just begun is not either."""
        for uuid, rows in look.processes.items():
            device = look.devices.get(uuid)
            total = device.number("memory.total_bytes") if device is not None else None
            if device is None or not total:
                continue
            least = max(HELD_LEAST, HELD_SHARE * total)
            for row in rows:
                held = row.number("gpu_memory_bytes")
                if held is None or held < least or row.type == "G":
                    continue
                idle = _idle(row, device, rows)
                if idle is None:
                    yield Sign(cause="idle.memory-held", device=device, process=row, holds=None)
                elif idle and not _young(row, look.at):
                    yield Sign(
                        cause="idle.memory-held",
                        device=device,
                        process=row,
                        numbers={
                            "held": held,
                            "busy": device.number("utilization.gpu_percent"),
                            "cpu": row.number("cpu_percent"),
                        },
                    )

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """A note at first, a warning once it is long."""
        device, process = stretch.sign.device, stretch.sign.process
        assert device is not None
        assert process is not None
        lasts = look.at - stretch.since
        held, total = process.number("gpu_memory_bytes"), device.number("memory.total_bytes")
        rows = look.of.get((process.pid, process.create_time), [])
        elsewhere = [row for row in rows if row.device_uuid != device.uuid and (row.number("sm_percent") or 0) > IDLE]
        action = setting_of(process)
        if process.note.startswith("zombie"):
            action = "End the parent of this zombie process: only then the driver frees its memory."
        elif elsewhere:
            used = ", ".join(str(row.device_index) for row in elsewhere)
            action = f"It computes on GPU {used} only: CUDA_VISIBLE_DEVICES={used} at its start keeps this one free."
        age = process.number("run_seconds")
        busy = stretch.figure("busy")
        alone = busy is not None and busy.mean <= IDLE
        where = f"idle {seen_as(device)}" if alone else f"{seen_as(device)} and does not compute there"
        whose = "" if alone else ", by others: the driver has no sample of a kernel of this process"
        return finding(
            "idle.memory-held",
            "warning" if lasts >= _LONG else "info",
            "fact" if alone else "likely",
            title=f"{who(process)} holds {size(held)} on {where}",
            evidence=(
                f"process {process.pid} holds {size(held)} of {size(total)}",
                f"idle {lasted(stretch, look.at)} (utilization {mean(stretch, 'busy', '%')}{whose})",
                f"it has run for {span(age)}" if age is not None else "",
                f"framework: {printable(process.framework)}" if process.framework else "",
                _instead(stretch),
                command(process),
            ),
            action=action,
            device_uuid=device.uuid,
            pid=process.pid,
        )


def _instead(stretch: Stretch) -> str:
    """Who computes meanwhile has its ops elsewhere: silent soft placement looks like this from outside."""
    cpu = stretch.figure("cpu")
    if cpu is None or cpu.mean < _WORKS:
        return ""
    return (
        f"meanwhile it uses {cpu.mean:.0f} % of a CPU core: its work may run on the CPU"
        " (gpuwatch run --placement shows where)"
    )


def _idle(row: Process, device: Device, rows: list[Process]) -> bool | None:
    """Where the device works, the driver's samples per process say for whom; no sample is no kernel."""
    busy = device.number("utilization.gpu_percent")
    if busy is not None and busy <= IDLE:
        return True
    own = row.number("sm_percent")
    if own is not None:
        return own <= 0
    unsampled = row.missing.get("sm_percent")
    others = any((other.number("sm_percent") or 0) > IDLE for other in rows if other.pid != row.pid)
    if unsampled is not None and unsampled.reason == "no_sample" and others:
        return True
    return None if busy is None or others or len(rows) > 1 else False


def _young(row: Process, at: float) -> bool:
    age = row.number("run_seconds")
    if age is None and row.create_time is not None:
        age = at - row.create_time
    return age is not None and age < _YOUNG


@lasting
class Unexplained(LastingRule):
    """Much memory is used, and the processes that the driver lists do not hold it."""

    causes = ("container.pid-namespace", "memory.other-process")
    looks_for = "GPU memory that no visible process holds"
    needs = ("memory.unexplained_bytes", "memory.total_bytes")
    appears = 20.0
    leaves = 20.0

    def signs(self, look: Look) -> Iterator[Sign]:
        """Not on a divided device, whose instances have processes of their own."""
        for device in look.devices.values():
            amount, total = device.number("memory.unexplained_bytes"), device.number("memory.total_bytes")
            cause = "container.pid-namespace" if look.snapshot.host.container else "memory.other-process"
            if amount is None or not total or device.readings.get("mig.mode") == "enabled":
                yield Sign(cause=cause, device=device, holds=None, about="unexplained")
            elif amount >= max(HELD_LEAST, _UNEXPLAINED_SHARE * total):
                yield Sign(cause=cause, device=device, about="unexplained", numbers={"amount": amount})

    def tell(self, stretch: Stretch, look: Look) -> Finding | None:
        """Who it may be; which of them it is cannot be seen from here."""
        device, figure = stretch.sign.device, stretch.figure("amount")
        assert device is not None
        assert figure is not None
        host = look.snapshot.host
        listed = look.on(device.uuid)
        lines = (
            f"used {size(device.number('memory.used_bytes'))}; the {len(listed)} listed"
            f" process{'es' if len(listed) != 1 else ''} hold {size(figure.last)} less",
            lasted(stretch, look.at),
        )
        if host.container:
            windows = host.container == WSL
            where = "Linux under Windows" if windows else f"a container ({host.container})"
            action = "Look on the host (nvidia-smi, or gpuwatch there), or start this container with --pid=host."
            if windows:
                action = "Look in the Task Manager of Windows (Details, with the column of dedicated GPU memory)."
            return finding(
                "container.pid-namespace",
                "info",
                "likely",
                title=f"{size(figure.last)} on {seen_as(device)} belong to nobody who can be seen from here",
                evidence=(*lines, f"this is {where}: processes of others are not listed in it"),
                action=action,
                device_uuid=device.uuid,
            )
        return finding(
            "memory.other-process",
            "warning",
            "likely",
            title=f"{size(figure.last)} on {seen_as(device)} are held by no process that is listed",
            evidence=(
                *lines,
                "it may be a worker whose parent was killed, a process of a container, or an MPS client",
            ),
            action=f"As root: fuser -v /dev/nvidia{device.index} names who has the device open; end what is left over.",
            device_uuid=device.uuid,
        )
