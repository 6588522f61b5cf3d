"""Syncs the topic ids of new logs, many at once and off the path of their creation.

A new log writes ``partition.metadata`` before it serves. The file need not be on the device by then: a start that finds
none, or a torn one, beside no records writes it anew from the cluster's metadata. Records without it are set aside, for
they may be those of a deleted topic of the same name. So the first flush of a log covers the file too.

Two syncs for each new log, and the file creations that wait beside them, took more than two thirds of the time that
thousands of new topics took. So a worker syncs the files in groups, soon after the last one was made. Kafka leaves it
to its background scheduler in the same way.

The files still have to reach the device soon: a power cut may leave records that no flush covered, and they are served
only with a topic id.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

from blumfeld.log.checkpoints import PARTITION_METADATA, encode_partition_metadata
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Files, Runtime, Timer
from blumfeld_storage_local.sync.small_file import sync_bytes, write_unsynced

QUIET_MS = 1_000.0
"""Pause without a new log before the sync begins: a burst of creations is not slowed down by syncs."""
WAIT_MAX_MS = 5_000.0
"""The sync begins after this time however many logs still come: Kafka's distance between two checkpoints."""
SYNCED_AT_ONCE = 64
"""Logs that one job of a worker syncs."""


class NewLogs:
    """The logs of one directory whose topic id no sync has covered yet.

    :param path: the log directory
    :param failed: told when a sync fails
    """

    def __init__(self, runtime: Runtime, path: str, failed: Callable[[OSError], None]) -> None:
        self._runtime = runtime
        self._path = path
        self._failed = failed
        self._unsynced: dict[str, None] = {}
        self._timer: Timer | None = None
        self._first_ms = self._last_ms = 0.0
        self._syncing: Completion[None] | None = None

    def __len__(self) -> int:
        """The number of logs that wait for their sync."""
        return len(self._unsynced)

    def add(self, directory: str) -> None:
        """Take a new log, for which :func:`write_topic_id` was called."""
        now_ms = self._last_ms = self._runtime.monotonic_ms()
        if not self._unsynced:
            self._first_ms = now_ms
        self._unsynced[directory] = None
        if self._timer is None and self._syncing is None:
            self._timer = self._runtime.call_later(QUIET_MS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._unsynced:
            return
        quiet_at_ms = min(self._last_ms + QUIET_MS, self._first_ms + WAIT_MAX_MS)
        left_ms = quiet_at_ms - self._runtime.monotonic_ms()
        if left_ms > 0:
            self._timer = self._runtime.call_later(left_ms, self._look)
        elif self._syncing is None:
            self._runtime.spawn(self.settle(), "sync new logs")

    async def settle(self) -> None:
        """Sync all ids that wait now. A failure goes to ``failed`` and is not raised."""
        while self._syncing is not None:
            await self._syncing
        done = self._syncing = Completion()
        some: list[str] = []
        try:
            while self._unsynced:
                some = list(self._unsynced)[:SYNCED_AT_ONCE]
                for directory in some:
                    del self._unsynced[directory]
                await self._runtime.offload(_sync, self._runtime.files, self._path, some)
        except OSError as error:
            # Too few descriptors: nothing was synced, and the disk is sound.
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._unsynced |= dict.fromkeys(some)
                self._first_ms = self._last_ms = self._runtime.monotonic_ms()
                self._timer = self._timer or self._runtime.call_later(QUIET_MS, self._look)
            else:
                self._failed(error)
        finally:
            self._syncing = None
            done.complete(None)

    def stop(self) -> None:
        """Begin no sync any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._unsynced.clear()


def write_topic_id(files: Files, directory: str, topic_id: bytes) -> None:
    """Write ``partition.metadata``. After a kill it is whole or absent; a power cut may still take it."""
    write_unsynced(files, f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))


def sync_topic_id(files: Files, directory: str) -> None:
    """Sync the bytes of a log's ``partition.metadata``, not its name. Blocks. Raises ``OSError``."""
    sync_bytes(files, f"{directory}/{PARTITION_METADATA}")


def _sync(files: Files, path: str, directories: Sequence[str]) -> None:
    """Sync these ids, in a worker. A log that was deleted or moved meanwhile is passed over."""
    for directory in directories:
        with suppress(FileNotFoundError):
            sync_topic_id(files, directory)
            files.sync_dir(directory)
    files.sync_dir(path)
