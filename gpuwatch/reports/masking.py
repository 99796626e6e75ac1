"""What of a document may leave: no secrets, ever."""

from __future__ import annotations

from gpuwatch.formatting.masking import masked
from gpuwatch.formatting.secrets import MASK, mask_text, secret_name

__all__ = ["MASK", "mask_text", "masked", "secret_name"]
