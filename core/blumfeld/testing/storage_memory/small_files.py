"""The small files beside a log in memory."""

from __future__ import annotations


class MemoryAux:
    """Small files in a dictionary."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """All of them, sorted."""
        return sorted(self._files)

    def read(self, name: str) -> bytes | None:
        """The file's bytes, or ``None``."""
        return self._files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Replace it."""
        self._files[name] = bytes(data)

    def delete(self, name: str) -> None:
        """Remove it; it may be absent."""
        self._files.pop(name, None)
