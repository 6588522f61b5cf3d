"""Files beside a log that are too large to be read or written whole: metadata snapshots, which move by chunks
(KIP-630).

A storage that has no such files of its own gets them by :func:`in_chunks`, from whole files in memory.
"""

from __future__ import annotations

from typing import Protocol, cast

from blumfeld.spi.storage import AuxFiles


class AuxDraft(Protocol):
    """A file that arrives in chunks. Nobody sees it before :meth:`commit`; a crash before that leaves none of it.

    Every method but :meth:`abort` raises ``OSError``, and all but :meth:`settle` ``ValueError`` once the draft has
    ended. All but :meth:`put` may block: call them through ``Runtime.offload``, one at a time.
    """

    size_bytes: int
    """Bytes that were appended."""

    def append(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes at the end. After an ``OSError`` none of them count, and it may be tried again."""
        ...

    def flush(self) -> None:
        """Make what was appended last, so that the commit of a large file takes no longer than its last chunk."""
        ...

    def commit(self) -> None:
        """Put the file in its place, whole, in one step; durable when this returns. Ends the draft, also if it fails:
        then the old file is there, or the new one.
        """
        ...

    def put(self) -> None:
        """Put the file, which was flushed, in its place, whole, in one step, and wait for no device: the loop may call
        it. Until :meth:`settle` has returned a power cut may bring the old file back. Ends the draft.
        """
        ...

    def settle(self) -> None:
        """Make what :meth:`put` did durable."""
        ...

    def abort(self) -> None:
        """Forget the draft. May be called twice, and after the end."""
        ...


class ChunkedAuxFiles(AuxFiles, Protocol):
    """``AuxFiles`` that are read and written by chunks, too. All three methods may block: call them through
    ``Runtime.offload``. They raise ``OSError``.
    """

    def size(self, name: str) -> int | None:
        """The file's size in bytes, or ``None`` if there is none."""
        ...

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes | None:
        """``size_bytes`` of the file from ``position`` on, fewer only at its end; ``None`` if there is no file."""
        ...

    def begin(self, name: str) -> AuxDraft:
        """Begin a file that will replace the one of this name. It ends an older draft of the name.

        Drafts that a crash left are removed when the log is opened.
        """
        ...


def in_chunks(aux: AuxFiles) -> ChunkedAuxFiles:
    """Returns the same files, if their storage has chunks; otherwise a view that holds a file in memory."""
    return cast("ChunkedAuxFiles", aux) if hasattr(aux, "begin") else _WholeFiles(aux)


class _WholeFiles:
    """Chunks of files that their storage has only whole."""

    def __init__(self, aux: AuxFiles) -> None:
        self._aux = aux
        self._drafts: dict[str, _WholeDraft] = {}
        self.names, self.read, self.delete = aux.names, aux.read, aux.delete
        self.write, self.write_unsynced = aux.write, aux.write_unsynced

    def size(self, name: str) -> int | None:
        data = self._aux.read(name)
        return None if data is None else len(data)

    def read_at(self, name: str, position: int, size_bytes: int) -> bytes | None:
        data = self._aux.read(name)
        return None if data is None else data[position : position + size_bytes]

    def begin(self, name: str) -> AuxDraft:
        if name in self._drafts:
            self._drafts[name].abort()
        draft = self._drafts[name] = _WholeDraft(self._aux, name)
        return draft


class _WholeDraft:
    def __init__(self, aux: AuxFiles, name: str) -> None:
        self._aux = aux
        self._name = name
        self._data: bytearray | None = bytearray()
        self.size_bytes = 0

    def append(self, data: bytes | bytearray | memoryview) -> None:
        self._open().extend(data)
        self.size_bytes += len(data)

    def flush(self) -> None:
        self._open()

    def commit(self) -> None:
        data, self._data = self._open(), None
        self._aux.write(self._name, bytes(data))

    def put(self) -> None:
        self.commit()

    def settle(self) -> None:
        pass

    def abort(self) -> None:
        self._data = None

    def _open(self) -> bytearray:
        if self._data is None:
            raise ValueError(f"the draft of {self._name} has ended")
        return self._data
