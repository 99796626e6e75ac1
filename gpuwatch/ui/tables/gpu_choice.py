"""What the user chose to see of each GPU. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.ui.tables.gpu_fields import DEFAULT_FIELDS
from gpuwatch.ui.tables.gpu_graphs import DEFAULT_GRAPHS
from gpuwatch.ui.tables.gpu_order import GpuOrder
from gpuwatch.ui.tables.load_levels import DEFAULT_THRESHOLDS, Thresholds


class GpuChoice(NamedTuple):
    """Fields and graphs in order, where loads rank high, and the order of the GPUs."""

    fields: Sequence[str] = DEFAULT_FIELDS
    graphs: Sequence[str] = DEFAULT_GRAPHS
    thresholds: Thresholds = DEFAULT_THRESHOLDS
    order: GpuOrder = "index"
