"""When a write is on the device: what the options say, what an ack then means, which errors a disk may recover from."""

from __future__ import annotations

import errno
from typing import Literal

import msgspec

from blumfeld.spi.storage import LACKS

FlushMode = Literal["never", "interval", "every"]

FLUSH_INTERVAL_MS = 1000
"""Of ``flush = "interval"``, unless said otherwise: what Redis's ``appendfsync everysec`` made the custom."""

FLUSH_UNASKED = (1 << 63) - 1
"""Kafka's default of ``flush.messages`` and ``flush.ms``: never."""

_UNDONE = LACKS | {errno.EFBIG, errno.EINTR, errno.EAGAIN, errno.EINVAL}


class Durability(msgspec.Struct, frozen=True):
    """When the logs of a node are synced beyond what their topics ask for (``flush.messages``, ``flush.ms``)."""

    mode: FlushMode = "never"
    interval_ms: int = FLUSH_INTERVAL_MS
    flush_messages: int = FLUSH_UNASKED
    """What topics ask for that say nothing themselves: ``log.flush.interval.messages``, for the promise only."""
    flush_ms: int = FLUSH_UNASKED
    """The same of ``log.flush.interval.ms``."""

    @property
    def acks_after_sync(self) -> bool:
        """Nothing counts as written before it is on the device."""
        return self.mode == "every"

    @property
    def shares_rounds(self) -> bool:
        """All logs of a directory sync together, one round at a time."""
        return self.mode != "never"

    def promise(self) -> str:
        """What an ack means, for ``plan`` and ``bench``."""
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
        asked = [
            name if value >= FLUSH_UNASKED else f"{name} = {value}"
            for name, value in (("flush.messages", self.flush_messages), ("flush.ms", self.flush_ms))
        ]
        return (
            f"page cache: acks=1 outlives the process, a power cut only once flushed ({', '.join(asked)}, on "
            "roll); acks=all unless all in-sync replicas lose power at once"
        )


FLUSH_NEVER = Durability()
"""Kafka's: the operating system flushes, unless a topic asks for more."""


def can_be_undone(error: OSError) -> bool:
    """Whether a write failed for want of something (room, descriptors, memory), and the disk is as good as before.

    Kafka takes the log directory offline for any ``IOException`` of an append. Here a full disk costs the batch, and
    the directory serves on once there is room. Every other error (EIO; EROFS: a file system that was remounted
    read-only after an error) is the disk's, and takes the directory offline.
    """
    return error.errno in _UNDONE
