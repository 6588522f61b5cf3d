"""The offset checkpoints of a log directory: recovery points, log starts, high watermarks, cleaner offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from blumfeld.log.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    MalformedFile,
    decode_offsets,
    encode_offsets,
)
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directories.places import MOVE_MARKS, decode_marks, encode_marks
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import can_be_undone

Offsets = dict[TopicPartition, int]
Content: TypeAlias = dict[TopicPartition, Any]
"""Content of one file: offsets by partition, or marks of moves."""
T = TypeVar("T")


class Checkpoints:
    """The checkpoint files of a directory: Kafka's four files of offsets, and our marks of moves.

    Recovery points are written at once, on the loop. They change only with a sync; and one that stayed too high after
    a truncation would keep recovery away from torn segments. The other files are written by a worker, one after the
    other, the latest state last. An offset is taken as the file says it, even outside of its log. The files of the
    cleaner and of moves are made only when there is something to put into them.
    """

    def __init__(self, home: LogDirectory) -> None:
        self._home = home
        self._made: set[str] = set()
        self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets = (
            self._read(name, decode_offsets)
            for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)
        )
        self.moves = self._read(MOVE_MARKS, decode_marks)
        self._written: dict[str, Content] = {name: dict(content) for name, content in self._contents()}
        self._writing: Completion[None] | None = None

    def _read(
        self, name: str, decode: Callable[[bytes, str], dict[TopicPartition, T]]
    ) -> dict[TopicPartition, T]:
        """Read one file. One that can't be read counts as empty: that is safe, as more is recovered or cleaned then."""
        path = f"{self._home.path}/{name}"
        try:
            data = self._home.files.read_bytes(path)
            self._made.add(name)
            return decode(data, path)
        except FileNotFoundError:
            return {}
        except MalformedFile as error:
            self._home.events.warning("checkpoint unreadable, begun anew", error=str(error))
            return {}

    def _contents(self) -> Iterator[tuple[str, Content]]:
        """Yield the name and the present content of each file."""
        yield RECOVERY_POINTS, self.recovery_points
        yield LOG_STARTS, self.log_starts
        yield HIGH_WATERMARKS, self.high_watermarks
        if self.cleaner_offsets or CLEANER_OFFSETS in self._made:
            yield CLEANER_OFFSETS, self.cleaner_offsets
        if self.moves or MOVE_MARKS in self._made:
            yield MOVE_MARKS, self.moves

    def _changed(self) -> dict[str, Content]:
        """Return copies of the contents that a worker is to write."""
        return {
            name: dict(content)
            for name, content in self._contents()
            if name != RECOVERY_POINTS and self._written.get(name) != content
        }

    def forget(self, partition: TopicPartition) -> None:
        """Drop all entries of a log that was deleted or lies elsewhere."""
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets):
            offsets.pop(partition, None)
        self.moves.pop(partition, None)

    def may_name(self, partition: TopicPartition) -> bool:
        """Return whether a file may have an entry for it, on the disk or when it is written next."""
        if self._writing is not None:
            return True
        contents = [content for _, content in self._contents()]
        return any(partition in content for content in [*contents, *self._written.values()])

    def save_recovery_points(self) -> None:
        """Write the recovery points; durable when this returns. Raises ``OSError``."""
        self._save_now(RECOVERY_POINTS, self.recovery_points)

    def save_cleaner_offsets(self) -> None:
        """Write the cleaner offsets; durable when this returns.

        One that stayed too high after a truncation would count new records as clean: they would keep old values of
        their keys, and tombstones would go before the records that they delete.
        """
        if self.cleaner_offsets or CLEANER_OFFSETS in self._made:
            self._save_now(CLEANER_OFFSETS, self.cleaner_offsets)

    def _save_now(self, name: str, offsets: Offsets) -> None:
        if self._written.get(name) != offsets:
            _write_files(self._home, {name: offsets})
            self._written[name] = dict(offsets)

    def save_soon(self) -> Completion[None]:
        """Write what has changed. Completes when the present state is durable, or the directory is offline.

        On a full disk it fails and the old files stay. The next save tries again.
        """
        self.save_recovery_points()
        if self._writing is None:
            if not self._changed():
                return Completion.of(None)
            self._writing = Completion()
            self._home.runtime.spawn(self._write(self._writing), "checkpoint")
        return self._writing

    def save_in_time(self) -> None:
        """Do the same for a caller that need not know when, nor that the disk is full: the next save tries again."""
        try:
            self.save_soon()
        except OSError as error:
            self._not_written(error)

    def _not_written(self, error: OSError) -> None:
        if can_be_undone(error):
            self._home.events.warning("checkpoint not written", path=self._home.path, error=str(error))
        else:
            self._home.fail(error)

    async def _write(self, ended: Completion[None]) -> None:
        try:
            while changed := self._changed():
                await self._home.runtime.offload(_write_files, self._home, changed)
                self._written.update(changed)
                self._made.update(changed)
        except OSError as error:
            self._writing = None
            self._not_written(error)
            if self._home.error is None:
                ended.fail(error)
                return
        self._writing = None
        ended.complete(None)

    async def save_all(self) -> None:
        """Write every file, even an empty one, at the stop. Raises ``OSError``."""
        if self._writing is not None:
            await self._writing
        self._home.check()
        await self._home.runtime.offload(_write_files, self._home, dict(self._contents()))


def _write_files(home: LogDirectory, files: Mapping[str, Content]) -> None:
    """Encode and write. Encoding ten thousand lines takes milliseconds, so a worker does that too."""
    for name, content in files.items():
        encode: Callable[[Any], bytes] = encode_marks if name == MOVE_MARKS else _encode
        home.files.write_atomically(f"{home.path}/{name}", encode(content))


def _encode(offsets: Offsets) -> bytes:
    return encode_offsets(offsets.items())
