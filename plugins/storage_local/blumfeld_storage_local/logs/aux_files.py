"""The small files beside a log: all files in its directory but the logs and indexes of segments."""

from __future__ import annotations

from contextlib import suppress

from blumfeld.log.segments.file_names import parse_segment_name
from blumfeld.spi.runtime import Files
from blumfeld_storage_local.compaction.swap_plan import SWAP_PLAN
from blumfeld_storage_local.segments.segment import SUFFIXES


class AuxDirectory:
    """``AuxFiles`` of one log's directory. Every method may raise ``OSError``."""

    __slots__ = ("_files", "directory", "touched")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory
        self.touched: set[str] | None = None
        """Names that were written or deleted while a move copies the log; ``None`` without a move."""

    def names(self) -> list[str]:
        """Return all names, sorted. Files of segments, and files that wait to be removed, are not among them."""
        return [name for name in self._files.list_dir(self.directory) if self._is_ours(name)]

    def _is_ours(self, name: str) -> bool:
        if name.endswith(".tmp") or name == SWAP_PLAN:
            return False
        segment = parse_segment_name(name)
        return segment is None or (segment.suffix not in SUFFIXES and not segment.mark)

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes, or ``None`` if there is no such file."""
        try:
            return self._files.read_bytes(self._path(name))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file; durable when this returns."""
        self._files.write_atomically(self._path(name), data)
        if self.touched is not None:
            self.touched.add(name)

    def delete(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(FileNotFoundError):
            self._files.unlink(self._path(name))
        if self.touched is not None:
            self.touched.add(name)

    def _path(self, name: str) -> str:
        if "/" in name or not self._is_ours(name):
            raise ValueError(f"{name!r} can't stand beside a log")
        return f"{self.directory}/{name}"
