"""The output of ``gpuwatch pick --json``: which GPUs are free, and why the others are not. ``gpuwatch.pick/1``.

Of many hosts, which of them: ``gpuwatch.host-pick/1``.
"""

from __future__ import annotations

import datetime

import msgspec


class PickedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or MIG instance to use."""

    uuid: str
    """``GPU-...`` or ``MIG-...``, for CUDA_VISIBLE_DEVICES."""
    index: int
    """NVML's index of the GPU."""
    name: str
    mig_instance: str | None = None
    """``1/0``: GPU instance and compute instance; null for a whole GPU."""
    memory_free_bytes: int | None
    """Null if it could not be read."""
    processes: int
    """Processes that compute on it."""


class RefusedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or MIG instance that does not meet the conditions."""

    uuid: str | None
    index: int
    """NVML's index of the GPU."""
    mig_instance: str | None = None
    """``1/0``: GPU instance and compute instance; null for a whole GPU."""
    reason: str
    """Why, in words."""


class Pick(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.pick/1"):
    """The GPUs to use. ``chosen`` is empty if fewer than ``wanted`` meet the conditions."""

    taken_at: datetime.datetime
    wanted: int
    """Number of GPUs asked for."""
    chosen: tuple[PickedGpu, ...]
    """In the order of preference: no processes, not busy, most free memory. Of several that are equal in the first two,
    those that are connected best."""
    connection: str | None = None
    """The slowest connection between two of ``chosen``, in the terms of ``nvidia-smi topo -m``: ``NV4``, ``PIX``,
    ``SYS``. Null for one GPU, and if it is not known."""
    spare: int
    """How many more meet the conditions; if ``chosen`` is empty, how many do at all."""
    refused: tuple[RefusedGpu, ...]
    """GPUs that do not meet the conditions, each with its reason."""


class FittingHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host on which enough GPUs meet the conditions."""

    host: str
    fitting: int
    """How many of its GPUs do."""


class SilentHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host of which nothing is known now."""

    host: str
    reason: str
    """Why, in words."""


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host on which too few GPUs meet the conditions."""

    host: str
    fitting: int
    """How many of its GPUs do."""
    refused: tuple[RefusedGpu, ...]
    """The others, each with its reason."""


class HostPick(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="gpuwatch.host-pick/1"):
    """The host to log in to, by what hosts report: nothing is reserved. ``host`` is null if none has enough GPUs."""

    taken_at: datetime.datetime
    wanted: int
    """Number of GPUs asked for, all on one host."""
    host: str | None
    chosen: tuple[PickedGpu, ...]
    """GPUs of this host, in the order of preference."""
    others: tuple[FittingHost, ...]
    """Further hosts that have enough, in the order of preference."""
    refused: tuple[RefusedHost, ...]
    """Hosts that have too few."""
    silent: tuple[SilentHost, ...]
    """Hosts that did not answer."""
