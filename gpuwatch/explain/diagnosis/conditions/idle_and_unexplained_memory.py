"""GPU memory held by an idle process, and memory that no listed process holds."""

from __future__ import annotations

from collections.abc import Iterator

from gpuwatch.core.formatting.durations import steady_duration
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.findings import Finding, Severity
from gpuwatch.core.model.process_activity import MAX_IDLE_PERCENT, is_idle
from gpuwatch.core.model.reading import number
from gpuwatch.core.model.snapshot import IDLE_SINCE, WSL, Device, Process
from gpuwatch.core.safe_text import printable
from gpuwatch.explain.diagnosis.conditions.condition import Condition, Occurrence, Sign, condition
from gpuwatch.explain.diagnosis.conditions.sample_context import SampleContext
from gpuwatch.machine.history.process_labels import command_line, label_in_sentence

HELD_SHARE = 0.2
"""Share of a device's memory from which an idle process holds much of it."""
MIN_HELD_BYTES = 1 << 30
"""Bytes. Less than this, or than :data:`HELD_SHARE` of the device, does not disturb others."""
_LONG_HELD_SECONDS = 300.0
"""Seconds that a process holds memory idle from which it is a warning."""
_YOUNG_SECONDS = 120.0
"""Age in seconds below which a process may still be loading data."""
_UNEXPLAINED_SHARE = 0.05
"""Share of a device's memory that no process explains from which it is reported."""
_MIN_WORKING_CPU_PERCENT = 80.0
"""Percent of one core from which a process that is idle on its GPU is working on the CPU."""
_SETTINGS = {
    "tensorflow": "Set memory growth (TF_FORCE_GPU_ALLOW_GROWTH=true), with a memory_limit where others share the GPU;"
    " allocated memory is freed when the process exits.",
    "torch": "End the process or restart the notebook's kernel; torch.cuda.empty_cache() frees only unused blocks.",
    "jaxlib": "Set XLA_PYTHON_CLIENT_PREALLOCATE=false, or XLA_PYTHON_CLIENT_MEM_FRACTION; otherwise end the process.",
}


@condition
class IdleMemory(Condition):
    """A process holds much memory without computing."""

    name = "idle-memory"
    causes = ("idle.memory-held",)
    judges_processes = True
    looks_for = "processes that hold GPU memory while idle"
    needed_metrics = ("utilization.gpu_percent", "memory.total_bytes")
    report_after_seconds = 60.0
    end_after_seconds = 0.0  # one kernel, and it is not idle
    reported_from_one_sample = True

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """Unknown utilization is not idle, nor is a process that has just started."""
        for uuid, rows in context.rows_by_device.items():
            device = context.devices.get(uuid)
            total = device.number("memory.total_bytes") if device is not None else None
            if device is None or not total:
                continue
            least = max(MIN_HELD_BYTES, HELD_SHARE * total)
            for row in rows:
                held = number(row.readings.get("gpu_memory_bytes"))
                if held is None or held < least or row.type == "G":
                    continue
                idle = _is_idle(row, device, rows)
                if idle is None:
                    yield Sign(cause="idle.memory-held", device=device, process=row, holds=None)
                elif idle and ((age := row.run_seconds(context.at)) is None or age >= _YOUNG_SECONDS):
                    others = (other.number("sm_percent") or 0.0 for other in rows if other is not row)
                    busy, since = device.number("utilization.gpu_percent"), row.number(IDLE_SINCE)
                    numbers = {"others": max(others, default=0.0), "busy": busy, "cpu": row.number("cpu_percent")}
                    yield Sign(cause="idle.memory-held", device=device, process=row, since=since, numbers=numbers)

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """A note at first, a warning after some minutes. A single sample counts only if the whole device is idle."""
        device, process = occurrence.device, occurrence.process
        single = occurrence.samples < 2 and not occurrence.known_before_seconds
        held, total = process.number("gpu_memory_bytes"), device.number("memory.total_bytes")
        rows = context.rows_of_process.get((process.pid, process.create_time), [])
        others = [row for row in rows if row.device_uuid != device.uuid]
        elsewhere = [row for row in others if (row.number("sm_percent") or 0) > MAX_IDLE_PERCENT]
        action = _advice_by_framework(process)
        if process.note.startswith("zombie"):
            action = "End the parent of this zombie process: only then does the driver free its memory."
        elif elsewhere:
            used = ", ".join(str(row.device_index) for row in elsewhere)
            action = f"It only computes on GPU {used}: start it with CUDA_VISIBLE_DEVICES={used} to keep this one free."
        age = process.run_seconds(context.at)
        busy = occurrence.statistics.get("busy")
        alone = busy is not None and busy.mean <= MAX_IDLE_PERCENT
        if single and not alone:
            return None
        where = f"idle GPU {device.index}" if alone else f"GPU {device.index} and does not compute there"
        used_by_others = occurrence.statistics.get("others")
        by_others = ", by others" * (used_by_others is not None and used_by_others.maximum > MAX_IDLE_PERCENT)
        cpu, on_cpu = occurrence.statistics.get("cpu"), ""
        if cpu is not None and cpu.mean >= _MIN_WORKING_CPU_PERCENT:  # so silent soft placement looks from outside
            where_shown = "its work may run on the CPU (gpuwatch run --placement shows where)"
            on_cpu = f"meanwhile it uses {cpu.mean:.0f} % of a CPU core: {where_shown}"
        whose = "" if alone else f"{by_others}: the driver has no kernel sample of this process"
        return self.make_finding(
            occurrence,
            "warning" if context.at - occurrence.since >= _LONG_HELD_SECONDS else "info",
            "fact" if busy is not None and not busy.maximum and not single else "likely",
            title=f"{label_in_sentence(process)} holds {memory(held)} on {where}",
            evidence=(
                f"process {process.pid} holds {memory(held)} of {size(total)}",
                f"idle {occurrence.time_text(context.at)} (utilization {occurrence.mean_text('busy', '%')}{whose})",
                f"running for {steady_duration(age)}" if age is not None else "",
                f"framework: {printable(process.framework)}" if process.framework else "",
                on_cpu,
                command_line(process),
            ),
            action=action,
        )


def _advice_by_framework(process: Process) -> str:
    """The framework's own setting against holding memory."""
    name = (process.framework or "").partition(" ")[0]
    owner = printable(process.user) if process.user else "its owner"
    if name not in _SETTINGS and process.create_time is None:
        return f"Find out on the host (nvidia-smi) whose process {process.pid} is, and whether it is still needed."
    return _SETTINGS.get(name, f"Ask {owner} whether the process is still needed.")


def _is_idle(row: Process, device: Device, rows: list[Process]) -> bool | None:
    """As the collector judged it; samples that were recorded before it did are judged here."""
    since = row.number(IDLE_SINCE)
    if since is not None:
        return since > 0
    unsampled = row.missing.get("sm_percent")
    only_others = unsampled is not None and unsampled.reason == "no_sample"
    own = [value for value in (row.number("sm_percent"), row.number("memory_percent")) if value is not None]
    return is_idle(
        device.number("utilization.gpu_percent"),
        max(own, default=None),
        only_others=only_others
        and any((other.number("sm_percent") or 0) > MAX_IDLE_PERCENT for other in rows if other is not row),
        alone=len(rows) == 1,
    )


@condition
class UnexplainedMemory(Condition):
    """Much memory is used that no listed process holds."""

    name = "unexplained-memory"
    causes = ("container.pid-namespace", "memory.other-process")
    looks_for = "GPU memory that no listed process holds"
    needed_metrics = ("memory.unexplained_bytes", "memory.total_bytes")
    report_after_seconds = 20.0
    end_after_seconds = 20.0

    def signs(self, context: SampleContext) -> Iterator[Sign]:
        """One for the machine, without devices in MIG mode, whose processes belong to the instances."""
        cause = "container.pid-namespace" if context.snapshot.host.container else "memory.other-process"
        parts = _unexplained_bytes(context)
        if parts:
            amount = sum(held for _, held in parts)
            yield Sign(cause=cause, variant="unexplained", numbers={"amount": amount})
        elif not any(_is_comparable(device) for device in context.devices.values()):
            yield Sign(cause=cause, holds=None, variant="unexplained")

    def finding(self, occurrence: Occurrence, context: SampleContext) -> Finding | None:
        """Says who it may be; which of them it is cannot be seen from here."""
        parts = _unexplained_bytes(context, 0.5)  # reported until well below the threshold
        if not parts:
            return None
        host = context.snapshot.host
        amount = size(sum(held for _, held in parts))
        where = f"GPU {parts[0][0].index}" if len(parts) == 1 else f"{len(parts)} GPUs"
        severity: Severity = "warning"
        whose = "no listed process"
        why = "possibly a worker whose parent was killed, a container's process, or an MPS client"
        nodes = " ".join(f"/dev/nvidia{device.index}" for device, _ in parts)
        action = f"As root: fuser -v {nodes} shows who has the devices open; end leftover processes."
        if host.container:
            windows = host.container == WSL
            severity, whose = "info", "processes that are not visible here"
            where = "Linux under Windows" if windows else f"a container ({host.container})"
            why = f"this is {where}, which does not list processes outside it"
            action = "Check on the host (nvidia-smi, or gpuwatch there), or start this container with --pid=host."
            if windows:
                action = "Check Windows Task Manager (Details, column Dedicated GPU memory)."
        return self.make_finding(
            occurrence,
            severity,
            "likely",
            title=f"{amount} on {where} held by {whose}",
            evidence=(
                *(_unexplained_text(device, held, context) for device, held in parts),
                occurrence.time_text(context.at),
                why,
            ),
            action=action,
            device_uuid=parts[0][0].uuid if len(parts) == 1 else None,
        )


def _is_comparable(device: Device) -> bool:
    """Whether its memory can be compared with its processes' memory."""
    amount, total = device.number("memory.unexplained_bytes"), device.number("memory.total_bytes")
    return amount is not None and bool(total) and device.readings.get("mig.mode") != "enabled"


def _unexplained_bytes(context: SampleContext, share: float = 1.0) -> list[tuple[Device, float]]:
    """Devices with much memory that no listed process holds, in bytes; ``share`` of the threshold is enough."""
    parts = []
    for device in filter(_is_comparable, context.devices.values()):
        amount, total = device.number("memory.unexplained_bytes") or 0, device.number("memory.total_bytes") or 0
        if amount >= share * max(MIN_HELD_BYTES, _UNEXPLAINED_SHARE * total):
            parts.append((device, amount))
    return parts


def _unexplained_text(device: Device, amount: float, context: SampleContext) -> str:
    count = len(context.processes_on(device.uuid))
    listed = f"the {count} listed process{'es' if count != 1 else ''} hold{'s' if count == 1 else ''}"
    return f"GPU {device.index}: {size(device.number('memory.used_bytes'))} used; {listed} {size(amount)} less"
