"""The follower's side of one partition in one leader epoch: its place in the log, and its fetcher."""

from __future__ import annotations

from typing import Protocol

from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.replication import FollowerHost
from blumfeld_replication_isr.fetcher_rules import Key, Position


class Fetches(Protocol):
    """The methods of the fetcher that a follower calls: :class:`blumfeld_replication_isr.fetcher.Fetcher`."""

    def written(self, follower: IsrFollower) -> None:
        """The appended batches are written, up to the follower's position."""
        ...

    def append_failed(self, follower: IsrFollower, error: OSError) -> None:
        """The append failed, and its batches are gone from the log."""
        ...

    def image_came(self, follower: IsrFollower) -> None:
        """The controller changed the partition in the same leader epoch."""
        ...

    def remove(self, follower: IsrFollower) -> None:
        """Fetch it no more."""
        ...


class IsrFollower:
    """Implements ``FollowerReplica``."""

    __slots__ = ("fetcher", "host", "image", "key", "leader_high_watermark", "refusals", "stopped")

    fetcher: Fetches
    """Set by the fetcher, when it takes the follower."""

    def __init__(self, host: FollowerHost, image: PartitionImage) -> None:
        self.host = host
        self.image = image
        self.key: Key = (host.topic_id, host.partition.partition)
        self.stopped = False
        self.refusals = 0
        """Answers in a row with an error that passes by itself."""
        self.leader_high_watermark = -1
        """The leader's own, as of its last answer; -1 before that. Ours is no higher than our log's end."""

    @property
    def has_caught_up(self) -> bool:
        """Whether the log has all that was committed when the leader answered last. So has each member of the ISR, and
        no throttle may slow one down (KIP-73)."""
        return 0 <= self.leader_high_watermark <= self.host.log.placed_end_offset

    def position(self) -> Position:
        """Returns the next fetch: from the end of the log."""
        host = self.host
        log = host.log
        return Position(
            self.image.leader_epoch, log.placed_end_offset, host.latest_epoch, log.log_start_offset
        )

    def written(self, end_offset: int) -> None:
        """As ``FollowerReplica.written``. The outcome of an earlier write may come first, where it waits for a sync."""
        if end_offset >= self.host.log.placed_end_offset:
            self.fetcher.written(self)

    def append_failed(self, end_offset: int, error: OSError) -> None:
        """As ``FollowerReplica.append_failed``."""
        self.fetcher.append_failed(self, error)

    def update(self, image: PartitionImage) -> None:
        """As ``FollowerReplica.update``."""
        self.image = image
        self.fetcher.image_came(self)

    def stop(self) -> None:
        """As ``FollowerReplica.stop``."""
        self.stopped = True
        self.fetcher.remove(self)
