"""The verdict on an out-of-memory failure: from its numbers to its cause, with the arithmetic as evidence."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from gpuwatch.core.formatting.sentences import count_text
from gpuwatch.core.formatting.units import memory, size
from gpuwatch.core.model.run import HOST_ALLOCATORS, Oom
from gpuwatch.explain.diagnosis.evidence import Evidence
from gpuwatch.explain.diagnosis.memory.memory_growth import equal_blocks, one_block_per_step
from gpuwatch.explain.diagnosis.memory.oom_facts import OomFacts, growth_of, is_host_oom, oom_facts, with_limit


@dataclass(frozen=True, slots=True)
class OomVerdict:
    """A cause id and its evidence."""

    cause: str
    lines: list[str]
    certain: bool = False
    title: str = ""
    action: str = ""


_ALLOCATOR_ADVICE = "export TF_GPU_ALLOCATOR=cuda_malloc_async, and keep batch shapes constant."
_AMPLE_FACTOR = 2
"""If this many times the request is free in all, its blocks are the reason, whatever the program needs next."""
_SMALLER_OR_FRAGMENTED_ADVICE = (
    "Make the batch or the model smaller, or use mixed precision. If a step of this size ran before, memory is"
    " fragmented: set TF_GPU_ALLOCATOR=cuda_malloc_async, and keep batch shapes constant."
)
_MIB = 1 << 20
_ROUND_STEPS_MIB = (256, 1000)
_SMALL_SHARE = 0.8
_MAX_CONTEXT_BYTES = 800 << 20
_MAX_RESERVE_BYTES, _SMALL_RESERVE_BYTES, _SMALL_RESERVE_BELOW_BYTES = 1800 << 20, 225 << 20, 2 << 30
"""An allocator limit below this share of the device, and below what remains after a CUDA context and TensorFlow's
largest reserve (``MinSystemMemory`` in ``gpu_device.cc``), means that others held memory or that somebody set it."""


REFUSED_TITLE = "The driver refused memory for no known reason"
REFUSED_ACTION = (
    "Run it again while nvidia-smi -l 1 is watching the device: another process may hold memory briefly, or in "
    "another container."
)
_LARGE_REQUEST_BYTES = 64 << 20
"""A single request below this fails on any full device, whoever filled it; one beyond it is large in itself."""
_FITS_ANY_CARD_BYTES = 4 << 30
"""Who needs less than this in all does not fill a GPU alone; its size is unknown in an allocator's own report."""
UNKNOWN_HOLDER_TITLE = "Out of GPU memory; it is not known who held it"
UNEXPLAINED_TITLES = frozenset({REFUSED_TITLE, UNKNOWN_HOLDER_TITLE})
"""Titles of findings ``unknown`` that are about memory."""
_UNKNOWN_HOLDER_ACTION = (
    "Run it again with gpuwatch run, which sees who holds the GPU. Or add more of the log: the rest of the message, or"
    " the allocator's report (Limit, InUse), has the numbers."
)
OTHERS_UNKNOWN = "not known here: whether other processes held memory on the device"
_ESTIMATED_CONTEXT_BYTES = 1 << 30
"""Estimate for a CUDA context, libraries outside the allocator and the driver's part, if unknown."""
# PyTorch
_MOST_OF_DEVICE_SHARE = 0.5
_MINOR_SHARE = 0.2
"""Share of the device: a process, or others, that hold less are not why the device is full."""
_FULL_FREE_BYTES = 20 << 20
"""A device with less free is full, whatever the request: the driver keeps a few MiB back, and refuses 2 of 6."""
_NOTABLE_UNALLOCATED_SHARE = 0.1
"""Share of what the process may use: less than this is unallocated in any process, and is not why a request fails."""
_SMALL_BUFFER_BYTES = 2 << 20
"""PyTorch's request to the driver for tensors of up to 1 MiB (``kSmallBuffer`` in ``CUDACachingAllocator.cpp``), which
have a separate pool: blocks of larger tensors are no room for them. Tensors are rounded up in ``torch_snapshot.py``."""

_NEARLY_ALL_SHARE = 0.9
"""Share of a device: a limit that allows this much is not the reason for a failure."""
_SMALLER_ADVICE = "Make the batch, the sequence or the model smaller (gradient checkpointing, accumulation, bfloat16)"
_OTHER_HOLDERS_ADVICE = (
    "See in nvidia-smi who holds the {} beside this process: if another program does, end it or use another GPU"
    " (CUDA_VISIBLE_DEVICES). Else {}."
)
_RESTART_ADVICE = (
    "Restart the program, then the driver (reboot) if it keeps refusing memory that it reports as free;"
    " on Windows, enlarge the paging file, which must cover GPU memory too."
)
_CAUSES_OF_GROWTH = ("memory.model-too-large", "memory.limit-too-small")
"""What a program reaches that keeps tensors, whatever its model and its limit are."""


def verdict_on(evidence: Evidence, oom: Oom) -> OomVerdict:
    """An OOM's cause: that memory grew from step to step comes before what the last request met."""
    found = judge(oom, oom_facts(evidence, oom))
    run = evidence.run
    if run is None or oom.expected or is_host_oom(oom) or found.cause not in _CAUSES_OF_GROWTH:
        return found
    has_steps = run.throughput is not None or bool(run.step_times)
    grew = has_steps and (growth_of(run) is not None or one_block_per_step(oom, run.throughput))
    return OomVerdict("memory.growing", found.lines) if grew else found


def with_verdicts(evidence: Evidence, ooms: tuple[Oom, ...]) -> tuple[Oom, ...]:
    """The failures, each with its verdict."""
    facts = [with_limit(evidence, oom) for oom in ooms]
    return tuple(msgspec.structs.replace(oom, verdict=verdict_on(evidence, oom).cause) for oom in facts)


def _verdict(oom: Oom, cause: str, *why: str, certain: bool = False, title: str = "", action: str = "") -> OomVerdict:
    """A verdict whose evidence is the failure's numbers, then ``why``."""
    return OomVerdict(cause, [_numbers_text(oom), *why], certain, title, action)


def judge(oom: Oom, facts: OomFacts) -> OomVerdict:
    """The cause of one out-of-memory failure, with its evidence."""
    requested, limit, used, largest = oom.requested_bytes, oom.limit_bytes, oom.in_use_bytes, oom.largest_free_bytes
    if (torch_verdict := _judge_torch(oom)) is not None:
        return torch_verdict
    if oom.verdict is not None:
        again = judge(msgspec.structs.replace(oom, verdict=None), facts)
        if again.cause == oom.verdict:
            return again
        held = [f"others held {size(facts.others_max_bytes)} on the device"] if facts.others_max_bytes else []
        return _verdict(oom, oom.verdict, *held, certain=True)
    if requested is None or limit is None or (used is None and largest is None and requested <= limit):
        return _verdict_without_limit(oom, facts)
    free = oom.free_bytes if oom.free_bytes is not None else limit - (used or 0)
    limits, total = facts.limits_bytes, facts.total_bytes
    refused = requested <= free and bool(facts.refusals or not largest)
    if refused and limits and total and limits + facts.overhead_bytes > total:
        return _overcommitted_verdict(oom, facts, limits, total)
    pool_free = oom.pool_bytes - used if oom.pool_bytes is not None and used is not None else None
    growable = limit - oom.pool_bytes if oom.pool_bytes is not None else None  # what the driver may still give
    # Without a free block, or with less in all of them, the driver refused the allocator more, if it might have more.
    blocks_decide = pool_free is None or pool_free >= requested or (growable is not None and growable < requested)
    need = requested + (used or 0)
    if requested <= free and largest is not None and 0 < largest < requested and blocks_decide:
        if facts.refusals and used is not None and used + largest < limit / 2 and not facts.limit_set:
            return _driver_refusal_verdict(oom, facts, f"the driver refused {count_text(facts.refusals, 'allocation')}")
        why = f"{size(requested)} ≤ {size(free)} free in all, but > {size(largest)} in the largest block"
        if growable and (pool_free or 0) < requested:
            why += f", and > {size(growable)} that the allocator may still get"
        if facts.peak_bytes is not None and facts.peak_bytes < need and free < _AMPLE_FACTOR * requested:
            unknown = (
                f"at most {size(facts.peak_bytes)} were in use before, and {size(need)} with this request: it is not "
                f"known whether what the program needs next would fit"
            )
            return _verdict(oom, "memory.model-too-large", why, unknown, action=_SMALLER_OR_FRAGMENTED_ADVICE)
        return _fragmented_verdict(oom, facts, why, limit, free)
    if requested <= free:
        on_host = oom.allocator in HOST_ALLOCATORS
        system = "system" if on_host else "driver"
        why = f"{size(requested)} ≤ {size(free)} below the limit: the {system} had no more to give"
        return _verdict(oom, "memory.model-too-large", why) if on_host else _driver_refusal_verdict(oom, facts, why)
    if total is not None and need <= total and not (facts.total_from_name and requested > limit):
        found = _verdict_on_shared_device(oom, facts, limit, need, total)
        if found is not None:
            return found
    if requested > limit:
        why = f"{size(requested)} > limit of {size(limit)}: not even an empty allocator could hold it"
        return _verdict(oom, "memory.request-too-large", why, certain=True)
    sign = "≈" if oom.rounded else "="
    blocks = f", in blocks of at most {size(largest)}" if largest is not None and largest < free else ""
    sum_text = f"{_requested_text(oom)} > {size(limit)} limit − {size(used)} in use {sign} {size(free)} free{blocks}"
    return OomVerdict("memory.model-too-large", [sum_text], certain=True)


def _verdict_on_shared_device(oom: Oom, facts: OomFacts, limit: int, need: int, total: int) -> OomVerdict | None:
    """The cause if the device is large enough, so that its limit or others are the reason; None if they are not."""
    against_limit = _need_against_limit(need, limit)
    if facts.limit_set:
        why = f"{against_limit}, on a device of {size(total)}"
        if (equal := equal_blocks(oom)) is not None and equal.are_many and equal.is_requested_size:
            full = f"{equal.count} equal tensors of {size(equal.each_bytes)} fill the memory limit"
            title = f"{full}: a list or cache that grows, or a model of equal layers"
            return _verdict(oom, "memory.growing", why, title=title)
        action = _raise_limit_advice(facts, need)
        return _verdict(oom, "memory.limit-too-small", why, certain=True, action=action)
    if facts.others_held_memory:
        return _verdict_beside_others(oom, facts, limit, need, total)
    if not (is_small_limit(limit, total) and is_small_limit(need, total)):
        return None
    if facts.others_bytes is None and is_round_limit(limit):
        why = f"a round number, so probably set by a person, on a device of about {size(total)}"
        return _verdict(oom, "memory.limit-too-small", f"{against_limit}: {why}")
    if facts.held_by_others is False:
        why = f"{against_limit}, although no one else held any of the device's {size(total)}"
        title = f"Out of memory at a limit of {size(limit)}, on a device of {size(total)}"
        return _verdict(oom, "memory.limit-too-small", why, title=title)
    if facts.others_bytes is not None:
        return None
    why = "the work would have fit on the empty device; what the program would request next is unknown"
    return _verdict(oom, "memory.other-process", _small_grant_text(facts, total, limit), why)


def _need_against_limit(need: int, limit: int) -> str:
    """The need against the limit, in a way that rounding does not turn into a contradiction."""
    if size(need) != size(limit):
        return f"{size(need)} needed > limit of {size(limit)}"
    return f"{size(need - limit)} more needed than the limit of {size(limit)}, which was nearly all in use"


def is_small_limit(limit: int, free: int) -> bool:
    """Whether TensorFlow's own limit would have been higher with ``free`` bytes, on any card."""
    reserve = _MAX_RESERVE_BYTES if free >= _SMALL_RESERVE_BELOW_BYTES else _SMALL_RESERVE_BYTES
    return limit < min(_SMALL_SHARE * free, free - _MAX_CONTEXT_BYTES - reserve)


def is_round_limit(limit: int) -> bool:
    """Whether a person probably set it: TensorFlow's own limit (free less a reserve) is hardly ever round."""
    return limit % _MIB == 0 and any(limit // _MIB % step == 0 for step in _ROUND_STEPS_MIB)


def _verdict_without_limit(oom: Oom, facts: OomFacts) -> OomVerdict:
    """The cause of a failure without a limit, from the device's memory alone."""
    requested = oom.requested_bytes
    others, total = facts.others_max_bytes if facts.held_by_others is not False else None, facts.total_bytes
    if requested is not None and facts.least_free_bytes is not None and facts.least_free_bytes >= requested:
        return _refused_despite_room_verdict(oom, facts.least_free_bytes)
    if requested is not None and total is not None and requested > total and not facts.total_from_name:
        why = f"{size(requested)} > {size(total)}, the whole device"
        return _verdict(oom, "memory.request-too-large", why, certain=True)
    may_fit = requested is None or total is None or requested + facts.overhead_bytes <= total
    if (
        others
        and total
        and others > total / 2
        and may_fit
        and not (requested and requested + others + _ESTIMATED_CONTEXT_BYTES <= total)
    ):
        return _verdict(oom, "memory.other-process", f"others held {size(others)} of {size(total)}")
    # Whether anything but the request is known of the program's own memory; host memory has no other GPU programs.
    own = (oom.in_use_bytes, oom.largest_free_bytes, oom.pool_bytes, oom.equal_blocks, oom.process_bytes)
    on_host = oom.allocator in HOST_ALLOCATORS
    why = ""
    if facts.held_by_others is None and not on_host and all(number is None for number in own):
        by_limit = _verdict_by_limit(oom, facts)
        if by_limit is not None:
            return by_limit
        if requested is not None and requested < _LARGE_REQUEST_BYTES:
            why = f"a request of {size(requested)} fails on any full GPU, no matter who filled it"
    elif facts.held_by_others is not None or total is not None or on_host:
        return _verdict(oom, "memory.model-too-large")
    elif requested is not None and oom.in_use_bytes is not None:
        need = requested + oom.in_use_bytes
        why = f"{size(need)} with this request: nearly every GPU has more" if need < _FITS_ANY_CARD_BYTES else ""
    if why:
        return _verdict(oom, "unknown", why, title=UNKNOWN_HOLDER_TITLE, action=_UNKNOWN_HOLDER_ACTION)
    return _verdict(oom, "memory.model-too-large", OTHERS_UNKNOWN)


def _verdict_by_limit(oom: Oom, facts: OomFacts) -> OomVerdict | None:
    """The cause by what TensorFlow granted its allocator at its start: nearly all memory that was free then."""
    limit, total = oom.limit_bytes, facts.total_bytes
    if limit is None or total is None:
        return None
    if not is_small_limit(limit, total):
        if facts.total_from_name:
            return None  # a card of this name may be larger
        why = f"its allocator was granted {size(limit)} of {size(total)}: others held little when it started"
        return _verdict(oom, "memory.model-too-large", why)
    if facts.limit_set or is_round_limit(limit):
        why = f"limit of {size(limit)}: probably set by a person, on a device of about {size(total)}"
        return _verdict(oom, "memory.limit-too-small", why)
    return _verdict(oom, "memory.other-process", _small_grant_text(facts, total, limit))


def _refused_despite_room_verdict(oom: Oom, free: int, *why: str) -> OomVerdict:
    """By NVML the device always had room, so that no other process explains the refusal."""
    had_room = f"NVML: at least {size(free)} were free on the device the whole time, more than was requested"
    return _verdict(oom, "unknown", *why, had_room, title=REFUSED_TITLE, action=REFUSED_ACTION)


def _verdict_beside_others(oom: Oom, facts: OomFacts, limit: int, need: int, total: int) -> OomVerdict | None:
    """The cause if it is known what others held; None if the work would not have fitted an empty device either.

    TensorFlow grants its allocator the free memory less a reserve, so each byte that others hold is missing there.
    """
    others, against_limit = facts.others_bytes or 0, _need_against_limit(need, limit)
    if is_round_limit(limit) and is_small_limit(limit, total - others):
        left = f"{size(total - others)} of the device's {size(total)} were not held by others"
        why = f"{against_limit}: a round number, so probably set by a person; {left}"
        return _verdict(oom, "memory.limit-too-small", why, action=_raise_limit_advice(facts, need))
    if need > limit + others:
        return None
    return _verdict(
        oom,
        "memory.other-process",
        f"others held {size(others)} of {size(total)}; TensorFlow granted its allocator {size(limit)} of the rest",
        f"{against_limit}; without the others the limit would have been about {size(limit + others)}; what the program"
        " would request next is unknown",
    )


def _raise_limit_advice(facts: OomFacts, need: int) -> str:
    """The advice to raise a limit if others leave no room for that; else empty."""
    total, others = facts.total_bytes, facts.others_max_bytes or 0
    if total is None or not facts.others_held_memory or need + others + facts.overhead_bytes <= total:
        return ""
    return (
        f"Raise the memory limit or fraction, and free the device first: others held {size(others)} of {size(total)}."
    )


def _small_grant_text(facts: OomFacts, total: int, limit: int) -> str:
    capacity = f"with {size(total)} or more by its name" if facts.total_from_name else f"of {size(total)}"
    return f"TensorFlow granted its allocator only {size(limit)}, on a device {capacity}"


def _fragmented_verdict(oom: Oom, facts: OomFacts, why: str, limit: int, free: int) -> OomVerdict:
    """Free blocks are too small; if the program itself limits the allocator, raising the limit is the remedy."""
    total, others = facts.total_bytes, facts.others_bytes or 0
    room = total - others - facts.overhead_bytes - limit if total is not None else 0
    own = facts.limit_set or facts.held_by_others is False or (facts.others_bytes is None and is_round_limit(limit))
    if total is None or not own or not is_small_limit(limit, total - others) or room <= 0:
        return _verdict(oom, "memory.fragmented", why, certain=True)
    if facts.total_from_name:
        limit_text = f"limit of {size(limit)}: a round number, probably set by a person, of about {size(total)}"
        action = f"If the program set the limit of {size(limit)}, raise or remove it. Else: {_ALLOCATOR_ADVICE}"
        return _verdict(oom, "memory.fragmented", why, limit_text, certain=True, action=action)
    sure = facts.limit_set or is_round_limit(limit)
    return _verdict(
        oom,
        "memory.fragmented",
        why,
        f"limit of {size(limit)} on a device of {size(total)}: {'' if sure else 'probably '}the program's own,"
        f" because TensorFlow allocates nearly all free memory; {size(room)} of the device are left",
        certain=True,
        title=f"Fragmented within the program's own memory limit of {size(limit)}: {size(free)} free, in small blocks",
        action=f"Raise or remove the memory limit of {size(limit)}: {size(room)} of the device are free. If the "
        f"limit must stay: {_ALLOCATOR_ADVICE}",
    )


def _driver_refusal_verdict(oom: Oom, facts: OomFacts, why: str) -> OomVerdict:
    """Another process, unless there was none, or there was room."""
    requested, total, others = oom.requested_bytes or 0, facts.total_bytes, facts.others_max_bytes
    if facts.least_free_bytes is not None and facts.least_free_bytes >= requested:
        return _refused_despite_room_verdict(oom, facts.least_free_bytes, why)
    need = requested + (oom.in_use_bytes or 0) + facts.overhead_bytes
    if total is not None and others is not None and not facts.total_from_name:
        if need + others + _ESTIMATED_CONTEXT_BYTES <= total:
            fits = f"{size(need)} needed in all and {size(others)} held by others fit the device's {size(total)}"
            return _verdict(oom, "unknown", why, fits, title=REFUSED_TITLE, action=REFUSED_ACTION)
        if need > total:
            exceeds = f"{size(need)} needed in all > {size(total)} of the device, even without other processes"
            return _verdict(oom, "memory.model-too-large", why, exceeds)
    if facts.held_by_others is False:
        return _verdict(oom, "memory.model-too-large", why, "no other process held memory on the device")
    if others is None or total is None:
        return _verdict(oom, "memory.other-process", why)
    sum_text = f"{size(need)} needed in all + {size(others)} held by others against {size(total)} of the device"
    return _verdict(oom, "memory.other-process", why, sum_text)


def _overcommitted_verdict(oom: Oom, facts: OomFacts, sum_of_limits: int, total: int) -> OomVerdict:
    """The limits of the framework's devices add up to more than the GPU has."""
    beside = f" + {size(facts.overhead_bytes)} for the driver and the CUDA context" if facts.overhead_bytes else ""
    return _verdict(
        oom,
        "memory.model-too-large",
        f"limits on this GPU add up to {size(sum_of_limits)}{beside} > {size(total)} of the device",
        certain=True,
        title=f"The limits add up to {size(sum_of_limits)}, but the device has only {size(total)}",
        action="Use fewer or smaller parts: --virtual times --memory-limit, and a CUDA context, must fit.",
    )


def _judge_torch(oom: Oom) -> OomVerdict | None:
    """The verdict on a failure of PyTorch, whose message has the device's numbers; None if it is insufficient.

    It says how much reserved memory is not handed out, but not the size of free blocks: fragmentation is likely at best
    (notes "CUDA semantics", PYTORCH_CUDA_ALLOC_CONF).
    """
    requested, total, free = oom.requested_bytes, oom.device_total_bytes, oom.device_free_bytes
    if requested is None or total is None:
        return None

    def verdict(cause: str, why: str, *, certain: bool = False, action: str = "") -> OomVerdict:
        holders = (f"process {holder.pid} held {memory(holder.held_bytes)}" for holder in oom.others)
        return _verdict(oom, cause, why, *holders, certain=certain, action=action)

    own, spare, allowed = oom.process_bytes or 0, oom.unallocated_bytes, oom.limit_bytes
    if requested > total:
        return verdict("memory.request-too-large", f"{size(requested)} > {size(total)}, the whole device", certain=True)
    # A fraction limits what PyTorch reserves; its context and other libraries do not count.
    reserved = oom.in_use_bytes + spare if oom.in_use_bytes is not None and spare is not None else own
    if allowed is not None and reserved + requested > allowed:
        why = f"{size(requested)} + {size(reserved)} of this process > {size(allowed)} allowed to it"
        withheld = f"the limit withholds only {size(total - allowed)} of the device, so raising it helps little."
        action = f"{_SMALLER_ADVICE}: {withheld}" if allowed >= _NEARLY_ALL_SHARE * total else ""
        return verdict("memory.limit-too-small", why, certain=True, action=action)
    room = free is not None and free >= max(requested, _FULL_FREE_BYTES)
    if allowed is not None and allowed < total and room:
        why = f"{size(requested)} refused with {size(free or 0)} free on the device:"
        why += f" this process is allowed {size(allowed)}"
        return verdict("memory.limit-too-small", why)
    if oom.process_bytes is None and not oom.others and not room:
        return None  # the message is cut off: what this process held is not known
    held = sum(holder.held_bytes for holder in oom.others)
    taken = held or max(total - (free or 0) - own, 0)
    sign = ">" if requested > (free or 0) else "≤"
    against_free = f"{size(requested)} {sign} {size(free or 0)} free on a device of {size(total)}"
    # In a container this process may be one of the others where the message does not say.
    own_text = "" if oom.process_bytes is None else f", this process {size(oom.process_bytes)}"
    of_others = verdict(
        "memory.other-process",
        f"{against_free}: others held {size(taken)}{own_text}",
        certain=held > 0 and oom.process_bytes is not None,
        action=_end_processes_advice(oom),
    )
    # Others hold most of a full device, so that this process's few blocks do not matter.
    if free is not None and not room and own + max(free, requested) < _MINOR_SHARE * total:
        return of_others
    if oom.in_use_bytes is not None and oom.in_use_bytes > total:  # as Windows and WSL allow
        why = f"{size(oom.in_use_bytes)} in use > {size(total)} of the device: the rest is in host memory"
        return verdict("memory.model-too-large", why)
    notable = spare is not None and spare >= _NOTABLE_UNALLOCATED_SHARE * min(allowed or total, total)
    if spare is not None and notable and spare >= requested > _SMALL_BUFFER_BYTES and not room:
        why = f"{size(requested)} ≤ {size(spare)} reserved by PyTorch and unallocated, in blocks that are too small"
        return verdict("memory.fragmented", why)
    together = spare is not None and free is not None and spare + free >= requested > free and spare > free
    if spare is not None and free is not None and notable and together and requested > _SMALL_BUFFER_BYTES:
        why = f"{size(requested)} ≤ {size(spare)} reserved by PyTorch and unallocated + {size(free)} free on the device"
        return verdict("memory.fragmented", why)
    if free is None:
        return verdict("memory.model-too-large", f"{size(requested)} requested, {size(own)} of {size(total)} in use")
    minor = own < _MOST_OF_DEVICE_SHARE * total
    if minor and room and free > requested + requested // 100:  # the message rounds both
        why = f"{against_free}, of which this process held {size(own)}: no other process explains it"
        return verdict("driver.bad-state", why, action=_RESTART_ADVICE)
    if not room and (own + free < _MOST_OF_DEVICE_SHARE * total or (minor and held > own)):
        return of_others
    why = f"{against_free}: this process held {size(own)}"
    if oom.process_bytes is None or taken < _NOTABLE_UNALLOCATED_SHARE * total:
        return verdict("memory.model-too-large", why, certain=requested > free)
    enough = taken >= max(requested - free, _MINOR_SHARE * total)
    action = _OTHER_HOLDERS_ADVICE.format(size(taken), f"m{_SMALLER_ADVICE[1:]}") if enough else ""
    why = f"{why}, and {size(taken)} were held by others or outside PyTorch"
    return verdict("memory.model-too-large", why, action=action)


def _end_processes_advice(oom: Oom) -> str:
    if not oom.others:
        return ""
    named = ", ".join(f"{holder.pid} ({memory(holder.held_bytes)})" for holder in oom.others)
    word = "process" if len(oom.others) == 1 else "processes"
    return f"Stop {word} {named} if it is not needed, or choose another GPU with CUDA_VISIBLE_DEVICES."


def _requested_text(oom: Oom) -> str:
    text = "requested " + (size(oom.requested_bytes) if oom.requested_bytes is not None else "memory")
    return text + (f" on {oom.device}" if oom.device else "") + (f" from {oom.allocator}" if oom.allocator else "")


def _numbers_text(oom: Oom) -> str:
    numbers = {
        "limit": oom.limit_bytes,
        "in use": oom.in_use_bytes,
        "reserved and unallocated": oom.unallocated_bytes,
        "largest free block": oom.largest_free_bytes,
    }
    listed = ", ".join(f"{name} {size(value)}" for name, value in numbers.items() if value is not None)
    return _requested_text(oom) + (f": {listed}" if listed else "")
