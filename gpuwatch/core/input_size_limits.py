"""How large an input each reader accepts: the one table of limits. Larger input is refused in one line.

What a file costs in memory and time grows with its bytes and nesting alone. Readers of text that has no end (logs,
what a program prints) keep constant memory and bound a line. How long is waited for an answer stands where it is waited
for.
"""

from __future__ import annotations

from typing import NamedTuple


class Limit(NamedTuple):
    """The limits of one reader."""

    what: str
    bytes: int
    """Unpacked, if it is compressed."""
    depth: int = 0
    """Levels of nesting; 0 if it has none, or what is read of it is at a fixed depth."""

    @property
    def size_text(self) -> str:
        """``32 MiB``."""
        unit = next(step for step in range(3, -1, -1) if self.bytes >> 10 * step)
        return f"{self.bytes >> 10 * unit} {('bytes', 'KiB', 'MiB', 'GiB')[unit]}"

    @property
    def too_large(self) -> str:
        """Why something larger is refused."""
        return f"it is larger than {self.size_text}, the maximum"

    @property
    def too_deep(self) -> str:
        """Why something deeper is refused."""
        return f"it is nested more than {self.depth:,} deep"


LOG_LINE = Limit("a line of a log; longer ones are cut", 64 << 10)
LOG = Limit("a log, nvidia-smi output or bug report in gzip, bzip2, xz or zstd", 2 << 30)
UNPACKING = Limit("memory for unpacking xz and zstd", 256 << 20)
"""xz -9 needs 65 MiB; a file may claim gigabytes."""
NVIDIA_SMI = Limit("one value of nvidia-smi -q", 200, depth=16)
ALLOCATOR_SNAPSHOT = Limit("a PyTorch memory snapshot", 512 << 20, depth=10_000)
MEMORY_TIMELINE = Limit("a PyTorch memory timeline", 128 << 20, depth=2)
TENSORFLOW_PROFILE = Limit("a TensorFlow profile", 512 << 20)
JAX_PROFILE = Limit("a JAX memory profile", 512 << 20)
DCGM = Limit("the output of dcgmi diag -j", 16 << 20)
RUN_MEMORY = Limit("what run --memory recorded", 256 << 20)
DOCUMENT = Limit("a gpuwatch document, as JSON or in an HTML report", 64 << 20, depth=64)
RECORDING = Limit("a block of a recording", 64 << 20)
SETTINGS = Limit("the settings file", 64 << 10, depth=64)
WEB_CONFIGURATION = Limit("the exporter's web configuration", 64 << 10)
TOKEN = Limit("a file with a bearer token", 16 << 10)
PROMETHEUS = Limit("an answer from Prometheus", 32 << 20)
"""125 hosts with 8 GPUs have about 4 MB; decoded it is ten times as large."""
HOSTS = Limit("a list of hosts", 128 << 10, depth=1)
HOST_LINE = Limit("a line from gpuwatch on another host", 32 << 20)
"""16 GPUs with 5,000 processes have 5 MB."""
NODE_CHATTER = Limit("a node's output besides its document", 4 << 20)
FILTER = Limit("a filter", 4 << 10)
TOOL_OUTPUT = Limit("output of nvidia-smi or dmesg; only the end is read", 8 << 20)
MCP_MESSAGE = Limit("a message to gpuwatch mcp", 8 << 20)
MCP_LOG = Limit("a log that an assistant names", 64 << 20)
MCP_TEXT = Limit("a log that an assistant gives as text", 1 << 20)
MCP_DOCUMENT = Limit("a document that an assistant names", 16 << 20)

ALL_LIMITS = tuple(limit for limit in list(globals().values()) if isinstance(limit, Limit))
