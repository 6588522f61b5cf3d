"""The offset checkpoints of a log directory: recovery points, log starts, high watermarks, where the cleaner is."""

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
from blumfeld_storage_local.directories.directory import LogDirectory
from blumfeld_storage_local.directories.placing import MOVE_MARKS, decode_marks, encode_marks
from blumfeld_storage_local.sync.durability import can_be_undone

Offsets = dict[TopicPartition, int]
Content: TypeAlias = dict[TopicPartition, Any]
"""Of one file: offsets, or marks of moves."""
T = TypeVar("T")


class Checkpoints:
    """The checkpoint files of a directory: Kafka's four of offsets, and our marks of moves that change over.

    Recovery points are written at once, on the loop: they change only when something was synced, and one that is too
    high after a truncation would spare torn segments from recovery. The others are written off the loop, one after the
    other, the latest state last. An offset is taken as it stands in the file, also one outside of its log. The files of
    the cleaner and of moves are not made before they have something to say.
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
        """One that can't be read counts as empty, which is safe: more is recovered, or cleaned, than must be."""
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
        """What each file is to say, under its name."""
        yield RECOVERY_POINTS, self.recovery_points
        yield LOG_STARTS, self.log_starts
        yield HIGH_WATERMARKS, self.high_watermarks
        if self.cleaner_offsets or CLEANER_OFFSETS in self._made:
            yield CLEANER_OFFSETS, self.cleaner_offsets
        if self.moves or MOVE_MARKS in self._made:
            yield MOVE_MARKS, self.moves

    def _changed(self) -> dict[str, Content]:
        """Copies of what is to be written off the loop."""
        return {
            name: dict(content)
            for name, content in self._contents()
            if name != RECOVERY_POINTS and self._written.get(name) != content
        }

    def forget(self, partition: TopicPartition) -> None:
        """Its log was deleted, or lies elsewhere."""
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks, self.cleaner_offsets):
            offsets.pop(partition, None)
        self.moves.pop(partition, None)

    def may_name(self, partition: TopicPartition) -> bool:
        """Whether a file may say something of it, on the disk or when it is written next."""
        if self._writing is not None:
            return True
        contents = [content for _, content in self._contents()]
        return any(partition in content for content in [*contents, *self._written.values()])

    def save_recovery_points(self) -> None:
        """Durable when this returns. Raises ``OSError``."""
        self._save_now(RECOVERY_POINTS, self.recovery_points)

    def save_cleaner_offsets(self) -> None:
        """The same for where the cleaner is: one that is too high after a truncation would keep new records dirty, and
        let tombstones go before what they delete.
        """
        if self.cleaner_offsets or CLEANER_OFFSETS in self._made:
            self._save_now(CLEANER_OFFSETS, self.cleaner_offsets)

    def _save_now(self, name: str, offsets: Offsets) -> None:
        if self._written.get(name) != offsets:
            _write_files(self._home, {name: offsets})
            self._written[name] = dict(offsets)

    def save_soon(self) -> Completion[None]:
        """Write what has changed; completes when all that stands now is durable, or the directory is offline.

        A full disk fails it, and what was there stays: the next time tries again.
        """
        self.save_recovery_points()
        if self._writing is None:
            if not self._changed():
                return Completion.of(None)
            self._writing = Completion()
            self._home.runtime.spawn(self._write(self._writing), "checkpoint")
        return self._writing

    def save_in_time(self) -> None:
        """As :meth:`save_soon`, for who need not know when, nor that a disk is full: the next time tries again."""
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
        """At the end: write every file, also those that say nothing. Raises ``OSError``."""
        if self._writing is not None:
            await self._writing
        self._home.check()
        await self._home.runtime.offload(_write_files, self._home, dict(self._contents()))


def _write_files(home: LogDirectory, files: Mapping[str, Content]) -> None:
    """Encoded here, off the loop where it can be: ten thousand lines take milliseconds."""
    for name, content in files.items():
        encode: Callable[[Any], bytes] = encode_marks if name == MOVE_MARKS else _encode
        home.files.write_atomically(f"{home.path}/{name}", encode(content))


def _encode(offsets: Offsets) -> bytes:
    return encode_offsets(offsets.items())
