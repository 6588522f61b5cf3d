"""The offset checkpoints of a log directory: recovery points, log starts, high watermarks."""

from __future__ import annotations

from blumfeld.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    MalformedFile,
    decode_offsets,
    encode_offsets,
)
from blumfeld.spi.completion import Completion
from blumfeld.spi.storage import TopicPartition
from blumfeld_storage_local.directory import LogDirectory

Offsets = dict[TopicPartition, int]


def _read_offsets(home: LogDirectory, name: str) -> Offsets:
    """One checkpoint file; one that can't be read counts as empty, which is safe: more is recovered."""
    path = f"{home.path}/{name}"
    try:
        return decode_offsets(home.files.read_bytes(path), path)
    except FileNotFoundError:
        return {}
    except MalformedFile as error:
        home.events.warning("checkpoint unreadable, begun anew", error=str(error))
        return {}


class Checkpoints:
    """The three offset checkpoints of a directory.

    Recovery points are written at once, on the loop: they change only when something was synced, and one that is too
    high after a truncation would spare torn segments from recovery. The others are written off the loop, one after the
    other, the latest state last.
    """

    def __init__(self, home: LogDirectory) -> None:
        self._home = home
        self.recovery_points, self.log_starts, self.high_watermarks = (
            _read_offsets(home, name) for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)
        )
        self._written = self._encoded()
        self._writing: Completion[None] | None = None

    def _encoded(self) -> dict[str, bytes]:
        files = (
            (RECOVERY_POINTS, self.recovery_points),
            (LOG_STARTS, self.log_starts),
            (HIGH_WATERMARKS, self.high_watermarks),
        )
        return {name: encode_offsets(sorted(offsets.items())) for name, offsets in files}

    def _changed(self) -> dict[str, bytes]:
        return {name: data for name, data in self._encoded().items() if self._written.get(name) != data}

    def forget(self, partition: TopicPartition) -> None:
        """Its log was deleted."""
        for offsets in (self.recovery_points, self.log_starts, self.high_watermarks):
            offsets.pop(partition, None)

    def save_recovery_points(self) -> None:
        """Durable when this returns. Raises ``OSError``."""
        data = self._encoded()[RECOVERY_POINTS]
        if self._written.get(RECOVERY_POINTS) != data:
            self._home.files.write_atomically(f"{self._home.path}/{RECOVERY_POINTS}", data)
            self._written[RECOVERY_POINTS] = data

    def save_soon(self) -> Completion[None]:
        """Write what has changed; completes when all that stands now is durable, or the directory is offline."""
        self.save_recovery_points()
        if self._writing is None:
            if not self._changed():
                return Completion.of(None)
            self._writing = Completion()
            self._home.runtime.spawn(self._write(self._writing), "checkpoint")
        return self._writing

    async def _write(self, ended: Completion[None]) -> None:
        try:
            while changed := self._changed():
                await self._home.runtime.offload(_write_files, self._home, changed)
                self._written.update(changed)
        except OSError as error:
            self._home.fail(error)
        finally:
            self._writing = None
            ended.complete(None)

    async def save_all(self) -> None:
        """At the end: write every file, also those that say nothing. Raises ``OSError``."""
        if self._writing is not None:
            await self._writing
        self._home.check()
        await self._home.runtime.offload(_write_files, self._home, self._encoded())


def _write_files(home: LogDirectory, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        home.files.write_atomically(f"{home.path}/{name}", data)
