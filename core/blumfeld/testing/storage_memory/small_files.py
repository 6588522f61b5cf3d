"""The small files beside a log in memory."""

from __future__ import annotations


class MemoryAux:
    """Small files in a dictionary."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._files)

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or ``None``."""
        return self._files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Replace the file."""
        self._files[name] = bytes(data)

    def delete(self, name: str) -> None:
        """Remove the file. It may be absent."""
        self._files.pop(name, None)
