"""Collects the out-of-memory failures of a log: all messages about one failure, of any framework, become one Oom."""

from __future__ import annotations

from operator import attrgetter

from gpuwatch.core.model.run import Oom
from gpuwatch.explain.logs.allocator_dump import OomDraft, starts_in_dump
from gpuwatch.explain.logs.oom_messages import (
    is_tensor_request_cut_off,
    may_be_same_bytes,
    parse_dump_head,
    parse_oom_without_dump,
    parse_tensor_request,
)

MAX_OOMS = 100
_MAX_OTHER_DUMPS = 15
_IDENTITY = attrgetter("allocator", "requested_bytes", "limit_bytes", "in_use_bytes")
"""Two dumps with the same are of one failure."""


class OomCollector:
    """Takes messages, keeps distinct failures."""

    def __init__(self) -> None:
        self.drafts: list[OomDraft] = []
        self._dumps: list[OomDraft] = []
        """The dumps that are being read, the latest last: several processes may write to one log at the same time."""
        self._retried_request = Oom()
        """The latest refusal that its caller, such as XLA, reports itself if it is a failure."""

    def in_dump(self) -> bool:
        """Whether plain lines (``Limit: …``) may belong to a dump."""
        return bool(self._dumps)

    def is_full(self) -> bool:
        """Whether no more failures will be kept."""
        return len(self.drafts) >= MAX_OOMS

    def take_dump_head(self, message: str, thread: str | None = None) -> bool:
        """``ran out of memory trying to allocate``: True for a failure, False for "this is not a failure"."""
        if (head := parse_dump_head(message)) is None:
            return False
        if "is not a failure" in message:
            self._retried_request = head
            return False
        if self._dumps and self._dumps[-1].thread == thread:
            self._finish_dump()
        self._dumps = [*self._dumps[-_MAX_OTHER_DUMPS:], OomDraft(head, thread=thread)]
        return True

    def take_headless_dump(self, message: str, thread: str) -> bool:
        """Takes a dump without its head, as in a shortened post; False for other lines, or if a failure is known."""
        if self._dumps or self.drafts or not starts_in_dump(message):
            return False
        self._dumps = [OomDraft(thread=thread)]
        return True

    def add_complete(self, oom: Oom) -> None:
        """A failure that was reported with all its numbers (PyTorch)."""
        self._merge_or_add(OomDraft(oom, exact=True))

    def take_dump_line(self, message: str, thread: str | None = None) -> None:
        """A line of ``bfc_allocator.cc``, or of the Stats block, which has no prefix (``thread`` None)."""
        several = len(self._dumps) > 1 or thread is not None
        for draft in [draft for draft in reversed(self._dumps) if not several or draft.thread == thread][:1]:
            draft.add_dump_line(message)

    def take_tensor_message(self, message: str) -> bool:
        """``OOM when allocating tensor with shape``: a new failure, or part of the last dump's."""
        request = parse_tensor_request(message)
        if request is None:
            cut_off = is_tensor_request_cut_off(message)
            if cut_off and not (self.drafts or self._dumps):
                self._merge_or_add(OomDraft())
            return cut_off
        candidates = (*reversed(self._dumps), *reversed(self.drafts))
        known = next((draft for draft in candidates if _may_be_of(request, draft)), None)
        if known is None:
            self._finish_dump()
            self._add(OomDraft(request, exact=True))
            return True
        known.change(allocator=known.oom.allocator or request.allocator, device=request.device or known.oom.device)
        if request.requested_bytes is not None:
            known.change(requested_bytes=request.requested_bytes)
            known.exact = True
        if any(known is draft for draft in self._dumps):
            self._dumps = [draft for draft in self._dumps if draft is not known]
            self._add_unless_known(known)
        return True

    def take_message_without_dump(self, message: str) -> bool:
        """Failures without a dump: context creation, XLA, the async allocator, copies to a device, other libraries."""
        draft = parse_oom_without_dump(message)
        if draft is not None:
            retried, requested = self._retried_request, draft.oom.requested_bytes
            same = retried.requested_bytes and requested and may_be_same_bytes(retried.requested_bytes, requested)
            if same and draft.oom.device is None:
                draft.change(allocator=retried.allocator, device=retried.device)
            self._merge_or_add(draft)
        return draft is not None

    def take_bare_exception(self, message: str) -> bool:
        """Takes an exception without numbers, if no other failure is known; False for anything else."""
        if "CUDA_ERROR_OUT_OF_MEMORY" not in message or self.drafts or self._dumps:
            return False
        self._merge_or_add(OomDraft())
        return True

    def result(self) -> list[Oom]:
        """The failures so far; an unfinished dump counts."""
        ooms = [draft.oom for draft in (*self.drafts, *self._dumps)]
        # An exception without numbers passes on a failure that was already reported.
        return [oom for oom in ooms if (oom.requested_bytes, oom.limit_bytes, oom.verdict) != (None,) * 3] or ooms

    def _finish_dump(self) -> None:
        if self._dumps:
            self._add_unless_known(self._dumps.pop())

    def _add_unless_known(self, draft: OomDraft) -> None:
        """Keeps a complete dump, unless it is a duplicate."""
        if all(_IDENTITY(known.oom) != _IDENTITY(draft.oom) for known in self.drafts):
            self._add(draft)

    def _add(self, draft: OomDraft) -> None:
        if len(self.drafts) < MAX_OOMS:
            self.drafts.append(draft)

    def _merge_or_add(self, draft: OomDraft) -> None:
        self._finish_dump()
        new = draft.oom
        for known in self.drafts:
            old, requested = known.oom, new.requested_bytes
            if (
                old.verdict == new.verdict
                and (old.device_total_bytes is None) == (new.device_total_bytes is None)
                and (old.requested_bytes is None) == (requested is None)
                and (
                    old.requested_bytes == requested
                    if draft.exact
                    else may_be_same_bytes(requested, old.requested_bytes)
                )
                and (old.device == new.device or None in (old.device, new.device))
            ):
                known.change(device=old.device or new.device)
                return
        self._add(draft)


def _may_be_of(request: Oom, draft: OomDraft) -> bool:
    """Whether a message's request may be the one of a failure."""
    oom = draft.oom
    if oom.verdict is not None:
        return False
    # The name may be cut off.
    if request.allocator and oom.allocator and not oom.allocator.startswith(request.allocator):
        return False
    if request.device and oom.device and request.device != oom.device:
        return False
    if draft.exact and None not in (request.requested_bytes, oom.requested_bytes):
        return request.requested_bytes == oom.requested_bytes
    # Without "(rounded to N)", the head is rounded to three digits: 2.25GiB.
    return may_be_same_bytes(request.requested_bytes, oom.requested_bytes)
