"""The report that TensorFlow's allocator (BFC) writes when memory runs out: bins, chunks, regions, pool, statistics.

Formats of 1.0 to 2.21: 2.21 writes ``Limit: 256.00MiB`` where 2.20 wrote ``Limit: 268435456``.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.size_texts import size_bytes

ALIGNMENT_BYTES = 256  # BFC rounds requests up to multiples of 256 bytes
_ROUNDING_SHARE = 0.006  # 1.00GiB may be 1.0049
_FREE_CHUNK = re.compile(r"Free\s+at \S+ (?:next \d+ )?of size (\d{1,18})(?!\d)")
_FREE_IN_BIN = re.compile(r"Size: ([\d.]{1,24}\w{0,8}) \| Requested Size: \S+ \| in_use: 0")
_POOL = re.compile(r"memory_limit_: ([\d.]{1,24} ?\w{0,8})")
_AVAILABLE = re.compile(r"available (?:size|bytes): ([\d.]{1,24} ?\w{0,8})")
_REGION = re.compile(r"Next region of size (\d{1,18})")
_CHUNK_SUMMARY = re.compile(r"(\d{1,12}) Chunks of size (\d{1,18}) totalling")
_TOTAL_IN_USE = re.compile(r"Sum Total of in-use chunks: ([\d.]{1,24} ?\w{0,8})")
_STAT = re.compile(r"(?:^|[\s:|\]>])(Limit|InUse|MaxInUse):\s+([\d.]{1,24} ?\w{0,8})$")
_MEMORY_MAP = re.compile(r"[*_x]{50,100}")
"""The last line of a dump: a map of the memory in a hundred characters."""
_DUMP_STARTS = (
    "Bin (", "Bin for ", "Next region", "Summary of in-use", "Sum Total of", "Stats", "InUse at", "Chunk at",
    "Free  at",
)  # fmt: skip


class OomDraft(msgspec.Struct):
    """A failure whose lines are being read."""

    oom: Oom = Oom()
    exact: bool = False
    """Whether the requested bytes are exact; else they are rounded to three digits."""
    free_listed: bool = False
    """Whether the dump listed each free chunk."""
    regions_bytes: int = 0
    chunks_bytes: int = 0
    """Sums of the listed regions and chunks: exact, while the dump's totals are rounded to three digits."""
    thread: str | None = None
    """The thread that writes the dump (2.17 and later); empty if its lines do not name it."""

    def change(self, **fields: Any) -> None:
        """Changes fields of the failure."""
        self.oom = msgspec.structs.replace(self.oom, **fields)

    def add_dump_line(self, message: str) -> None:
        """Adds a line of ``bfc_allocator.cc``, or of the Stats block, which has no prefix."""
        if message.startswith("InUse at"):
            return
        if match := _FREE_CHUNK.search(message):
            # Exact; the bins before it were rounded to three digits.
            largest = (self.oom.largest_free_bytes or 0) if self.free_listed else 0
            self.change(largest_free_bytes=max(largest, int(match[1])))
            self.free_listed = True
        elif match := _FREE_IN_BIN.search(message):
            if not self.free_listed:
                self.change(largest_free_bytes=max(self.oom.largest_free_bytes or 0, size_bytes(match[1]) or 0))
        elif match := _REGION.search(message):
            self.regions_bytes += int(match[1])
        elif match := _CHUNK_SUMMARY.search(message):
            count, block_bytes = int(match[1]), int(match[2])
            self.chunks_bytes += count * block_bytes
            if count * block_bytes > (self.oom.equal_blocks or 0) * (self.oom.equal_block_bytes or 0):
                self.change(equal_blocks=count, equal_block_bytes=block_bytes)
            if self.oom.requested_bytes is not None and 0 <= block_bytes - self.oom.requested_bytes < ALIGNMENT_BYTES:
                self.change(alike_blocks=count)
        elif match := _TOTAL_IN_USE.search(message):
            self.change(in_use_bytes=_exact_or_rounded(self.chunks_bytes, match[1]))
        elif match := _POOL.search(message):
            available = _AVAILABLE.search(message)
            unused = size_bytes(available[1]) if available is not None else None
            limit = _exact_or_rounded(self.regions_bytes + unused if unused is not None else 0, match[1])
            self.change(limit_bytes=limit or self.oom.limit_bytes)
            if unused is not None and self.oom.limit_bytes is not None:
                self.change(pool_bytes=self.oom.limit_bytes - unused)
            if self.oom.largest_free_bytes is None:
                self.change(largest_free_bytes=0)
        elif match := _STAT.search(message):
            amount = size_bytes(match[2])
            if match[1] == "Limit":
                # The pool line's memory_limit_ is exact; Limit may be 2^64 or rounded.
                self.change(limit_bytes=self.oom.limit_bytes or amount)
            elif match[1] == "InUse":
                self.change(in_use_bytes=_exact_or_rounded(self.chunks_bytes, match[2]))


def starts_in_dump(message: str) -> bool:
    """Whether a message is a line of a dump after its head, as where a shortened post begins."""
    starts = message.lstrip().startswith(_DUMP_STARTS) or " Chunks of size " in message
    return starts or _MEMORY_MAP.fullmatch(message) is not None


def _exact_or_rounded(summed: int, reported: str) -> int | None:
    """The sum of the parts if ``reported`` is the same number rounded; otherwise ``reported``."""
    amount = size_bytes(reported)
    if amount is None or not summed or amount == summed:
        return amount
    return summed if abs(summed - amount) <= amount * _ROUNDING_SHARE else amount
