"""The small files beside a log in memory."""

from __future__ import annotations


class MemoryAux:
    """``ChunkedAuxFiles`` in a dictionary."""

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._drafts: dict[str, MemoryDraft] = {}

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._files)

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or ``None``."""
        return self._files.get(name)

    def write(self, name: str, data: bytes) -> None:
        """Replace the file."""
        self._files[name] = bytes(data)

    def write_unsynced(self, name: str, data: bytes) -> None:
        """Replace the file."""
        self.write(name, data)

    def delete(self, name: str) -> None:
        """Remove the file. It may be absent."""
        self._files.pop(name, None)

    def size(self, name: str) -> int | None:
        """Return the file's size in bytes, or ``None``."""
        data = self._files.get(name)
        return None if data is None else len(data)

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes | None:
        """Return a part of the file, or ``None``."""
        data = self._files.get(name)
        return None if data is None else data[position : position + size_bytes]

    def begin(self, name: str) -> MemoryDraft:
        """Begin a file that arrives in chunks."""
        if name in self._drafts:
            self._drafts[name].abort()
        draft = self._drafts[name] = MemoryDraft(self, name)
        return draft


class MemoryDraft:
    """``AuxDraft`` in memory."""

    def __init__(self, aux: MemoryAux, name: str) -> None:
        self._aux = aux
        self._name = name
        self._chunks: list[bytes] = []
        self._ended = False
        self.size_bytes = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end."""
        self._check()
        self._chunks.append(bytes(data))
        self.size_bytes += len(data)

    def flush(self) -> None:
        """Do nothing: nothing here is more durable than memory."""
        self._check()

    def commit(self) -> None:
        """Put the file in its place."""
        self._check()
        self._ended = True
        self._aux.write(self._name, b"".join(self._chunks))

    def put(self) -> None:
        """Put the file in its place."""
        self.commit()

    def settle(self) -> None:
        """Do nothing, as :meth:`flush`."""

    def abort(self) -> None:
        """Forget the draft."""
        self._ended = True
        self._chunks.clear()

    def _check(self) -> None:
        if self._ended:
            raise ValueError(f"the draft of {self._name} has ended")
