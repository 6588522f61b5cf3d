"""Answers are parts, not bytes (docs/design.md, rule 5): buffers and regions of files, which the transport gathers and
sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias


class FileRegion(Protocol):
    """``size_bytes`` bytes of a file from ``position``, sent without being copied.

    It keeps its file open, and its bytes unchanged, until :meth:`release`, even when the segment is deleted meanwhile.
    Its holder calls ``release`` exactly once, also when the connection dies before it is sent.
    """

    size_bytes: int
    position: int

    def fileno(self) -> int:
        """The descriptor for ``sendfile``/``splice``. Raises ``OSError`` where there is none (memory,
        simulation).
        """
        ...

    def pread(self, offset: int = 0, size: int | None = None) -> bytes:
        """``size`` bytes from ``offset`` within the region: for TLS, simulation and decoding."""
        ...

    def release(self) -> None:
        """Give the file back. A second call raises ``RuntimeError``."""
        ...


Part: TypeAlias = bytes | bytearray | memoryview | FileRegion
Parts: TypeAlias = Sequence[Part]


def size_of(parts: Parts) -> int:
    """The bytes of all parts together."""
    if len(parts) == 1 and type(part := parts[0]) is bytes:
        return len(part)  # nearly every answer
    return sum(len(p) if isinstance(p, (bytes, bytearray, memoryview)) else p.size_bytes for p in parts)


def join(parts: Parts) -> bytes:
    """All parts as one piece of bytes, file regions read (and not released)."""
    return b"".join([p if isinstance(p, (bytes, bytearray, memoryview)) else p.pread() for p in parts])


def release(parts: Parts) -> None:
    """Release every file region among the parts."""
    for part in parts:
        if not isinstance(part, (bytes, bytearray, memoryview)):
            part.release()
