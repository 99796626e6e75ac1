"""Out-of-memory reports: combines TensorFlow's allocator dump with the errors around it.

One failure has many lines (head, bins, chunks, pool, stats, OP_REQUIRES, rendezvous, Python's error, "2 root
error(s)"), which become one :class:`Oom`. Formats of 1.0 to 2.21: 2.21 writes ``Limit: 256.00MiB`` where 2.20 wrote
``Limit: 268435456``.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import Any

import msgspec

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.logs.sizes_and_device_names import device_name, size_bytes, tensor_bytes

MAX_OOMS = 100
_MAX_OTHER_OOMS = 15
_ROUNDING_SHARE = 0.006  # 1.00GiB may be 1.0049
_ALIGNMENT_BYTES = 256  # BFC rounds requests up to multiples of 256 bytes

_HEAD = re.compile(
    r"(?:Allocator \((\S+?)\) )?[Rr]an out of memory trying to allocate "
    r"\**([\d.]{1,24} ?[KMGTP]?i?B?)\**(?: \(rounded to (\d{1,18})\))?"
)
_TENSOR = re.compile(
    r"OOM when allocating (?:temporary )?tensor (?:of|with) shape ?\[([\d,\s]*)\]"
    r"(?: and type (\w+))?(?: on (\S+))?(?: by allocator (\w+))?"
)
_FREE = re.compile(r"Free\s+at \S+ (?:next \d+ )?of size (\d{1,18})(?!\d)")
_FREE_IN_BIN = re.compile(r"Size: ([\d.]{1,24}\w{0,8}) \| Requested Size: \S+ \| in_use: 0")
_POOL = re.compile(r"memory_limit_: ([\d.]{1,24} ?\w{0,8})")
_ROOM = re.compile(r"available (?:size|bytes): ([\d.]{1,24} ?\w{0,8})")
_REGION = re.compile(r"Next region of size (\d{1,18})")
_CHUNKS = re.compile(r"(\d{1,12}) Chunks of size (\d{1,18}) totalling")
_TOTAL_IN_USE = re.compile(r"Sum Total of in-use chunks: ([\d.]{1,24} ?\w{0,8})")
_STAT = re.compile(r"(?:^|[\s:|\]>])(Limit|InUse|MaxInUse):\s+([\d.]{1,24} ?\w{0,8})$")
_REFUSED = re.compile(r"failed to allocate ([\d.]{1,24}\w{0,8}) \((\d{1,18}) bytes\) from device")
_XLA = re.compile(
    r"Out of memory (?:while trying to allocate|allocating) ([\d,]{1,24}(?:\.\d{1,9})?)\s?(bytes|[KMGTP]i?B\b|B\b)"
    r"(?: with allocator (\S{1,80}) on device (\d{1,6}))?"
    r"(?: \(allocated so far: ([\d,]{1,24}) bytes(?:, limit set to: ([\d,]{1,24}) bytes)?)?"
)
"""XLA's message, since 2025 with a rounded size and the allocator's name; and CuPy's, with what its pool holds."""
# Host memory: PyTorch's CPU allocator, NumPy. GPU memory (_OTHERS): ONNX Runtime, Paddle.
_HOST = re.compile(
    r"DefaultCPUAllocator: (?:not enough memory|can't allocate memory): you tried to allocate (\d{1,18}) bytes"
    r"|MemoryError: Unable to allocate ([\d.]{1,24} [KMGT]?i?B) for an array"
)
_OTHERS = re.compile(
    r"Failed to allocate memory for requested buffer of size (\d{1,18})"
    r"|Cannot allocate ([\d.]{1,24}[KMGT]?B) memory on GPU (\d{1,6})"
)
_ASYNC = re.compile(r"(?<!\S)(\S{1,80}) cuMemAllocAsync failed to allocate (\d{1,18})(?!\d)")
# JAX's allocator, and TensorFlow before 0.7.
_REQUEST = re.compile(r"Failed to allocate request for \S{1,24} \((\d{1,18})B\) on device ordinal (\d{1,6})")
_NO_SHAPE = re.compile(r"OOM when allocating (?:temporary )?tensor(?: (?:with|of) shape ?)?$")
_MAP = re.compile(r"[*_x]{50,100}")
"""The last line of a dump: a map of the memory in a hundred characters."""
_FIRST = re.compile(r"OOM when allocating tensor with shapedim \{ size: \d+ \}(?: dim \{ size: \d+ \}){0,10}")
_ORDINAL = re.compile(r"(?:device ordinal |StreamExecutor for CUDA:|on GPU:)(\d{1,6})")
_ALLOCATOR_DEVICE = re.compile(r"(?:GPU|PluggableDevice)_(\d+)_bfc|gpu_async_(\d+)|gpu_host_bfc")
_COPY = re.compile(r"to (\S*?GPU:\d+) in order to run")

_WHOLE_DEVICE = re.compile(r"(?:XLA_)?[CG]PU:\d+")

_CONTEXT = (
    "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY",
    "Bad StatusOr access: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY",
    "cuCtxCreate: CUDA_ERROR_OUT_OF_MEMORY",
    "might have already set an error? Error 2: out of memory",
    "failed. Status: out of memory",  # cudaSetDevice(), the runtime's implicit initialization
)
_ELSEWHERE = (
    "Dst tensor is not",
    "Failed to allocate request for",
    "unable to allocate output tensor",
    "failed to allocate memory",
    "cudaMalloc failed: out of memory",
    "cudaMalloc retry failed: out of memory",
)
_MAYBE = ("DefaultCPUAllocator", "Unable to allocate", "requested buffer of size", "Cannot allocate")
"""Lines that match :data:`_HOST` or :data:`_OTHERS` contain one of these."""
_DUMP_STARTS = (
    "Bin (", "Bin for ", "Next region", "Summary of in-use", "Sum Total of", "Stats", "InUse at", "Chunk at",
    "Free  at",
)  # fmt: skip


_NUMBERS = attrgetter("allocator", "requested_bytes", "limit_bytes", "in_use_bytes")
"""Two dumps with the same are of one failure."""


class Draft(msgspec.Struct):
    """A failure whose lines are being read."""

    oom: Oom = Oom()
    exact: bool = False
    free_listed: bool = False
    """Whether the dump listed each free chunk."""
    regions: int = 0
    chunks: int = 0
    """Sums in bytes of the listed regions and chunks: exact, while the dump's totals are rounded to three digits."""
    writer: str | None = None
    """The thread that writes the dump (2.17 and later); empty if its lines do not name it."""

    def set(self, **changes: Any) -> None:
        """Changes fields of the failure."""
        self.oom = msgspec.structs.replace(self.oom, **changes)


class OomCollector:
    """Takes messages, keeps distinct failures."""

    def __init__(self) -> None:
        self.drafts: list[Draft] = []
        self._open: Draft | None = None
        """The dump that is being read."""
        self._beside: list[Draft] = []
        """Dumps of other processes that write to the same log at the same time."""
        self._asked: tuple[str | None, int | None] = (None, None)
        """Allocator and bytes of the latest refusal that its caller, such as XLA, reports itself where it is one."""

    def in_dump(self) -> bool:
        """Whether plain lines (``Limit: …``) may belong to a dump."""
        return self._open is not None

    def full(self) -> bool:
        """Whether no more failures will be kept."""
        return len(self.drafts) >= MAX_OOMS

    def head(self, message: str, writer: str | None = None) -> bool:
        """``ran out of memory trying to allocate``: True for a failure, False for "this is not a failure"."""
        match = _HEAD.search(message)
        if match is None:
            return False
        requested = int(match[3]) if match[3] else size_bytes(match[2])
        if "is not a failure" in message:
            self._asked = match[1], requested
            return False
        if self._open is not None and self._open.writer != writer:
            self._beside = [*self._beside[-_MAX_OTHER_OOMS:], self._open]
        else:
            self._finish()
        self._open = Draft(
            Oom(allocator=match[1], device=_allocator_device(match[1]), requested_bytes=requested), writer=writer
        )
        return True

    def orphan(self, message: str, writer: str) -> bool:
        """A dump without its head, as in a shortened post; False for other lines, or if a failure is known."""
        begins = message.lstrip().startswith(_DUMP_STARTS) or " Chunks of size " in message or _MAP.fullmatch(message)
        if not begins or self._open is not None or self.drafts:
            return False
        self._open = Draft(writer=writer)
        return True

    def reported(self, oom: Oom) -> None:
        """A failure that was reported with all its numbers (PyTorch)."""
        self._add_once(Draft(oom, exact=True))

    def dump_line(self, message: str, writer: str | None = None) -> None:
        """A line of ``bfc_allocator.cc``, or of the Stats block, which has no prefix (``writer`` None)."""
        draft = self._open
        if draft is not None and (self._beside or writer is not None):
            candidates = [entry for entry in (draft, *self._beside) if entry.writer == writer]
            draft = candidates[0] if candidates else None
        if draft is None:
            return
        if message.startswith("InUse at"):
            return
        if match := _FREE.search(message):
            # Exact; the bins before it were rounded to three digits.
            draft.set(
                largest_free_bytes=max((draft.oom.largest_free_bytes or 0) if draft.free_listed else 0, int(match[1]))
            )
            draft.free_listed = True
        elif match := _FREE_IN_BIN.search(message):
            if not draft.free_listed:
                draft.set(largest_free_bytes=max(draft.oom.largest_free_bytes or 0, size_bytes(match[1]) or 0))
        elif match := _REGION.search(message):
            draft.regions += int(match[1])
        elif match := _CHUNKS.search(message):
            count, each = int(match[1]), int(match[2])
            draft.chunks += count * each
            if count * each > (draft.oom.equal_blocks or 0) * (draft.oom.equal_block_bytes or 0):
                draft.set(equal_blocks=count, equal_block_bytes=each)
            if draft.oom.requested_bytes is not None and 0 <= each - draft.oom.requested_bytes < _ALIGNMENT_BYTES:
                draft.set(alike_blocks=count)
        elif match := _TOTAL_IN_USE.search(message):
            draft.set(in_use_bytes=_exact(draft.chunks, match[1]))
        elif match := _POOL.search(message):
            room = _ROOM.search(message)
            left = size_bytes(room[1]) if room is not None else None
            draft.set(
                limit_bytes=_exact(draft.regions + left if left is not None else 0, match[1]) or draft.oom.limit_bytes
            )
            if left is not None and draft.oom.limit_bytes is not None:
                draft.set(pool_bytes=draft.oom.limit_bytes - left)
            if draft.oom.largest_free_bytes is None:
                draft.set(largest_free_bytes=0)
        elif match := _STAT.search(message):
            amount = size_bytes(match[2])
            if match[1] == "Limit":
                # The pool line's memory_limit_ is exact; Limit may be 2^64 or rounded.
                draft.set(limit_bytes=draft.oom.limit_bytes or amount)
            elif match[1] == "InUse":
                draft.set(in_use_bytes=_exact(draft.chunks, match[2]))

    def tensor(self, message: str) -> bool:
        """``OOM when allocating tensor with shape``: a new failure, or part of the last dump's."""
        match = _TENSOR.search(message)
        if match is None:
            if first := _FIRST.search(message):
                shape = ",".join(re.findall(r"\d+", first[0]))
                self._add_once(Draft(Oom(requested_bytes=tensor_bytes(shape, None)), exact=True))
            elif _NO_SHAPE.search(message):
                if not self.drafts and self._open is None:
                    self._add_once(Draft())
                return True
            return first is not None
        allocator = match[4]
        where: str | None = device_name(match[3] or "")
        if _WHOLE_DEVICE.fullmatch(where or "") is None or not (match[3] or "")[-1:].isdigit():
            where = _allocator_device(allocator)  # no device was named, or its name is cut off
        exact = tensor_bytes(match[1], match[2])
        candidates = [*([] if self._open is None else [self._open]), *self._beside, *reversed(self.drafts)]
        known = next((draft for draft in candidates if _same(draft, allocator, where, exact)), None)
        if known is None:
            self._finish()
            self._add(Draft(Oom(allocator=allocator, device=where, requested_bytes=exact), exact=True))
            return True
        known.set(allocator=known.oom.allocator or allocator, device=where or known.oom.device)
        if exact is not None:
            known.set(requested_bytes=exact)
            known.exact = True
        if known is self._open:
            self._finish()
        elif known in self._beside:
            self._beside.remove(known)
            self._keep_new(known)
        return True

    def other(self, message: str) -> bool:
        """Failures without a dump: context creation, XLA, the async allocator, a copy to the device."""
        draft = _without_dump(message)
        if draft is not None:
            allocator, asked = self._asked
            if (
                draft.oom.device is None
                and asked
                and draft.oom.requested_bytes
                and _near(asked, draft.oom.requested_bytes)
            ):
                draft.set(allocator=allocator, device=_allocator_device(allocator))
            self._add_once(draft)
        return draft is not None

    def unnamed(self, message: str) -> bool:
        """An exception without numbers, if no other failure is known; False for anything else."""
        if "CUDA_ERROR_OUT_OF_MEMORY" not in message or self.drafts or self._open is not None:
            return False
        self._add_once(Draft())
        return True

    def result(self) -> list[Oom]:
        """The failures so far; an unfinished dump counts."""
        ooms = [draft.oom for draft in (*self.drafts, *self._beside, *([] if self._open is None else [self._open]))]
        # An exception without numbers passes on a failure that was already reported.
        return [oom for oom in ooms if (oom.requested_bytes, oom.limit_bytes, oom.verdict) != (None,) * 3] or ooms

    def _finish(self) -> None:
        if self._open is not None:
            draft, self._open = self._open, self._beside.pop() if self._beside else None
            self._keep_new(draft)

    def _keep_new(self, draft: Draft) -> None:
        """Keeps a complete dump, unless it is a duplicate."""
        if all(_NUMBERS(known.oom) != _NUMBERS(draft.oom) for known in self.drafts):
            self._add(draft)

    def _add(self, draft: Draft) -> None:
        if len(self.drafts) < MAX_OOMS:
            self.drafts.append(draft)

    def _add_once(self, draft: Draft) -> None:
        self._finish()
        new = draft.oom
        for known in self.drafts:
            old, asked = known.oom, new.requested_bytes
            if (
                old.verdict == new.verdict
                and (old.device_total_bytes is None) == (new.device_total_bytes is None)
                and (old.requested_bytes is None) == (asked is None)
                and (old.requested_bytes == asked if draft.exact else _near(asked, old.requested_bytes))
                and (old.device == new.device or None in (old.device, new.device))
            ):
                known.set(device=old.device or new.device)
                return
        self._add(draft)


def _without_dump(message: str) -> Draft | None:
    if any(text in message for text in _CONTEXT):
        ordinal = _ORDINAL.search(message)
        return Draft(Oom(device=f"GPU:{ordinal[1]}" if ordinal else None, verdict="memory.context-failed"))
    if match := _ASYNC.search(message):
        return Draft(
            Oom(allocator=match[1], device=_allocator_device(match[1]), requested_bytes=int(match[2])), exact=True
        )
    if match := _XLA.search(message):
        asked, limit, used = (None if part is None else part.replace(",", "") for part in match.group(1, 6, 5))
        return Draft(
            Oom(
                allocator=match[3] or ("cupy" if used else None),
                device=f"GPU:{match[4]}" if match[4] else None,
                requested_bytes=size_bytes(f"{asked} {match[2]}"),
                limit_bytes=int(limit) if limit else None,
                in_use_bytes=int(used) if used else None,
            ),
            exact=match[2] in ("bytes", "B"),
        )
    if match := _HOST.search(message):
        amount = int(match[1]) if match[1] else size_bytes(match[2])
        return Draft(Oom(requested_bytes=amount, device="CPU:0", allocator="cpu"))
    if match := _OTHERS.search(message):
        where = f"GPU:{int(match[3])}" if match[3] else None
        return Draft(Oom(requested_bytes=int(match[1]) if match[1] else size_bytes(match[2]), device=where))
    if match := _REQUEST.search(message):
        return Draft(Oom(requested_bytes=int(match[1]), device=f"GPU:{match[2]}"), exact=True)
    if "Dst tensor is not initialized" in message:
        copy = _COPY.search(message)
        return Draft(Oom(device=device_name(copy[1]) if copy else None))
    if "failed to query event: CUDA_ERROR_OUT_OF_MEMORY" in message or is_oom_without_dump(message):
        return Draft()
    return None


def ran_out(message: str) -> bool:
    """Whether an exception's message says by itself that a GPU's memory ran out."""
    draft = _without_dump(message)
    return _TENSOR.search(message) is not None or (draft is not None and draft.oom.device != "CPU:0")


def _near(named: int | None, requested: int | None) -> bool:
    """Whether a size of three digits may be that of a request."""
    return named is None or requested is None or abs(named - requested) <= max(_ALIGNMENT_BYTES, requested // 100)


def _exact(summed: int, reported: str) -> int | None:
    """The sum of the parts if ``reported`` is the same number rounded; otherwise ``reported``."""
    amount = size_bytes(reported)
    if amount is None or not summed or amount == summed:
        return amount
    return summed if abs(summed - amount) <= amount * _ROUNDING_SHARE else amount


def requested_bytes(line: str) -> int | None:
    """Bytes that a line about memory that ran out names, by its tensor's shape or rounded up; None without them."""
    if (match := _TENSOR.search(line)) is not None:
        return tensor_bytes(match[1], match[2])
    if (match := _HEAD.search(line)) is not None:
        return int(match[3]) if match[3] else size_bytes(match[2])
    return None


def same_request(line: str, requested: int | None) -> bool:
    """Whether a line may be about a request of this size."""
    return _near(requested_bytes(line), requested)


def is_oom_without_dump(message: str) -> bool:
    """Whether a copy, a transfer between devices or another library ran out of memory."""
    if any(text in message for text in _ELSEWHERE):
        return True
    maybe = any(text in message for text in _MAYBE)
    return maybe and (_HOST.search(message) or _OTHERS.search(message)) is not None


def refused_bytes(message: str) -> int | None:
    """Bytes of ``failed to allocate … from device``, which by itself is not a failure."""
    match = _REFUSED.search(message)
    return int(match[2]) if match else None


def _allocator_device(allocator: str | None) -> str | None:
    match = _ALLOCATOR_DEVICE.match(allocator or "")
    if match is None or not (match[1] or match[2]):
        return "CPU:0" if allocator in ("cpu", "mklcpu") else None
    return f"GPU:{match[1] or match[2]}"


def _same(draft: Draft, allocator: str | None, where: str | None, exact: int | None) -> bool:
    if draft.oom.verdict is not None:
        return False
    # The name may be cut off.
    if allocator and draft.oom.allocator and not draft.oom.allocator.startswith(allocator):
        return False
    if where and draft.oom.device and where != draft.oom.device:
        return False
    if draft.exact and None not in (exact, draft.oom.requested_bytes):
        return exact == draft.oom.requested_bytes
    # Without "(rounded to N)", the head is rounded to three digits: 2.25GiB.
    return _near(exact, draft.oom.requested_bytes)
