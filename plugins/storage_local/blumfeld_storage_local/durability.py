"""Durability modes: when a write is synced, what an ack then promises, and from which errors a disk recovers."""

from __future__ import annotations

import errno
from typing import Literal

import msgspec

from blumfeld.spi.storage import LACKS

FlushMode = Literal["never", "interval", "every"]

FLUSH_INTERVAL_MS = 1000
"""Default interval of ``flush = "interval"``: that of Redis's ``appendfsync everysec``, which made it the custom."""

FLUSH_UNASKED = (1 << 63) - 1
"""Kafka's default of ``flush.messages`` and ``flush.ms``: never."""

_UNDONE = LACKS | {errno.EFBIG, errno.EINTR, errno.EAGAIN, errno.EINVAL}


class Durability(msgspec.Struct, frozen=True):
    """The syncs of a node's logs beyond what their topics ask for (``flush.messages``, ``flush.ms``)."""

    mode: FlushMode = "never"
    interval_ms: int = FLUSH_INTERVAL_MS
    flush_messages: int = FLUSH_UNASKED
    """``log.flush.interval.messages``, which topics without ``flush.messages`` inherit. For the promise only."""
    flush_ms: int = FLUSH_UNASKED
    """``log.flush.interval.ms``, likewise."""

    @property
    def acks_after_sync(self) -> bool:
        """Records count as written only once they are on the device."""
        return self.mode == "every"

    @property
    def shares_rounds(self) -> bool:
        """All logs of a directory are synced together, one round at a time."""
        return self.mode != "never"

    def promise(self) -> str:
        """Return what an ack promises, for ``plan`` and ``bench``."""
        if self.mode == "every" or self.flush_messages == 1:
            return (
                "on the device: an ack comes after the fdatasync that covers it, which many requests share; acks=1 "
                "outlives a power cut of the leader, acks=all one of every replica at once"
                + ("" if self.mode == "every" else " (but of topics with a flush.messages of their own)")
            )
        if self.mode == "interval":
            return (
                f"page cache, synced within {self.interval_ms} ms: acks=1 outlives the process, and a power cut but "
                "for that last while; acks=all unless all in-sync replicas lose power at once"
            )
        thresholds = [
            name if value >= FLUSH_UNASKED else f"{name} = {value}"
            for name, value in (("flush.messages", self.flush_messages), ("flush.ms", self.flush_ms))
        ]
        return (
            f"page cache: acks=1 outlives the process, a power cut only once flushed ({', '.join(thresholds)}, on "
            "roll); acks=all unless all in-sync replicas lose power at once"
        )


FLUSH_NEVER = Durability()
"""Kafka's way: the operating system flushes, unless a topic asks for more."""


def can_be_undone(error: OSError) -> bool:
    """Return whether a write failed for want of room, descriptors or memory, so that the disk is as good as before.

    Kafka takes the log directory offline for any ``IOException`` of an append. Here a full disk costs the batch, and
    the directory serves on once there is room. Every other error means that the disk is bad (EIO, or EROFS after the
    kernel has remounted the file system read-only), and takes the directory offline.
    """
    return error.errno in _UNDONE
