"""The leader's side of one partition: drives the ISR rules with what happens, and asks the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from blumfeld.metadata.partitions.directories import directory_of
from blumfeld.spi.cluster import PartitionImage
from blumfeld.spi.replication import ReplicaHost
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld_replication_isr.isr_changes import IsrChange, IsrChanges
from blumfeld_replication_isr.isr_rules import IsrRules
from blumfeld_replication_isr.node import Node

if TYPE_CHECKING:
    from blumfeld.wire.messages.alter_partition import ResponsePartitionData

_NONE = ErrorCode.NONE
REFUSED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
"""The ISR stays as it was; a later check may ask again."""
WAIT_FOR_IMAGE = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
"""The controller knows something that we don't yet: no other change before its image has come."""
RETRY_MS = 1_000
"""Pause before a change is asked for again that the controller answered with another error."""


class IsrLeader:
    """Implements ``LeaderReplica``. ``high_watermark`` is a plain attribute: it is read on every request.

    :param changes: takes changes of the ISR to the controller
    :param gone: called when the leader has stopped
    """

    __slots__ = (
        "_change",
        "_changes",
        "_gone",
        "_host",
        "_node",
        "_stopped",
        "high_watermark",
        "image",
        "isr",
        "rules",
    )

    def __init__(
        self,
        node: Node,
        changes: IsrChanges,
        host: ReplicaHost,
        image: PartitionImage,
        high_watermark: int,
        gone: Callable[[IsrLeader], object],
    ) -> None:
        self._node = node
        self._changes = changes
        self._host = host
        self._gone = gone
        self._stopped = False
        self._change: IsrChange | None = None
        """The change that the controller hasn't decided on."""
        self.image = image
        self.rules = IsrRules(
            leader_id=image.leader,
            replicas=image.replicas,
            isr=image.isr,
            partition_epoch=image.partition_epoch,
            min_insync_replicas=host.min_insync_replicas,
            log_end_offset=host.log.written_end_offset,
            # What is placed and not written yet is of an earlier epoch, too.
            epoch_start_offset=host.log.placed_end_offset,
            high_watermark=high_watermark,
            lag_max_ms=node.lag_max_ms,
            now_ms=node.runtime.monotonic_ms(),
            eligible=self._eligible,
        )
        self.high_watermark = self.rules.high_watermark
        self.isr = self.rules.isr

    @property
    def partition(self) -> str:
        """Name of the partition, for the log."""
        return str(self._host.partition)

    def log_end_moved(self) -> None:
        """The written end moved: with an ISR of one, so does the high watermark."""
        rules = self.rules
        rules.min_insync_replicas = self._host.min_insync_replicas
        # The clock matters only where there are followers.
        now_ms = self._node.runtime.monotonic_ms() if rules.followers else 0.0
        if rules.log_end_moved(self._host.log.written_end_offset, now_ms):
            self._moved()

    def check_append_all(self) -> ErrorCode:
        """NOT_ENOUGH_REPLICAS while the ISR is smaller than ``min.insync.replicas``."""
        enough = len(self.isr) >= self._host.min_insync_replicas
        return _NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS

    def check_committed(self, end_offset: int) -> ErrorCode | None:
        """As ``LeaderReplica.check_committed``."""
        if self.high_watermark < end_offset:
            return None
        enough = len(self.isr) >= self._host.min_insync_replicas
        return _NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int
    ) -> ErrorCode:
        """A follower has everything below ``fetch_offset``; it may have earned its place in the ISR."""
        rules = self.rules
        follower = rules.followers.get(replica_id)
        if follower is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= broker_epoch < self._node.epoch_of(replica_id):
            # An earlier process of that broker (KIP-903). Its successor may have lost what this one has written.
            # Only the image is asked, as in Kafka: an epoch that a request brought may be anybody's.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        start_before = follower.log_start_offset
        now_ms = self._node.runtime.monotonic_ms()
        if rules.follower_fetched(replica_id, broker_epoch, fetch_offset, now_ms, log_start_offset):
            self._moved()
        if log_start_offset > start_before:
            self._host.low_watermark_moved()
        self._propose(rules.expansion(replica_id))
        return ErrorCode.NONE

    @property
    def low_watermark(self) -> int:
        """As ``LeaderReplica.low_watermark``."""
        start = self._host.log.log_start_offset
        return self.rules.low_watermark(start, self._node.alive) if self.rules.followers else start

    @property
    def max_lag(self) -> int:
        """Records that the slowest follower lacks. One that hasn't fetched yet lacks the whole log."""
        start = self._host.log.log_start_offset
        ends = [max(follower.log_end_offset, start) for follower in self.rules.followers.values()]
        return max(0, self.rules.log_end_offset - min(ends)) if ends else 0

    def preferred_read_replica(self, rack: str, fetch_offset: int) -> int:
        """As ``LeaderReplica.preferred_read_replica``."""
        return self.rules.preferred_read_replica(rack, fetch_offset, self._node.rack_of)

    def check_lag(self) -> None:
        """Called periodically: remove each follower from the ISR that has lagged for too long."""
        if not self._stopped:
            self._propose(self.rules.shrinkage(self._node.runtime.monotonic_ms()))

    def update(self, image: PartitionImage) -> None:
        """The controller changed ISR or replicas within the same leader epoch."""
        self.image = image
        rules = self.rules
        rules.set_replicas(image.replicas)
        if image.partition_epoch > rules.partition_epoch:
            self._withdraw()
            self._settle(image.isr, image.partition_epoch)
        elif rules.advance(self._node.runtime.monotonic_ms()):
            # An image that is no newer than our last answer decides on no change that was asked for since.
            self._moved()
        self._host.low_watermark_moved()

    def stop(self) -> None:
        """Leadership has gone."""
        self._stopped = True
        self._withdraw()
        self._gone(self)

    def _withdraw(self) -> None:
        if self._change is not None:
            self._changes.withdraw(self._change)
            self._change = None

    def _eligible(self, replica_id: int) -> bool:
        """Whether a replica may be in the ISR, by the process that fetched last: after a restart its position says
        nothing before the next fetch (KIP-903). One in a lost directory can't be written, and would hold up acks=all.
        """
        if not self._node.eligible(replica_id, directory_of(self.image, replica_id)):
            return False
        fetched, shown = self.rules.broker_epoch_of(replica_id), self._node.epoch_of(replica_id)
        # An image without broker epochs (ZooKeeper mode) leaves the check to the controller, which is told ``fetched``.
        return fetched < 0 or shown < 0 or fetched == shown

    def _moved(self) -> None:
        self.high_watermark = self.rules.high_watermark
        self._host.high_watermark_moved()

    def _settle(self, isr: tuple[int, ...] | None, partition_epoch: int | None) -> None:
        rules = self.rules
        moved = rules.settle(
            isr, partition_epoch, self._node.runtime.monotonic_ms(), self._host.min_insync_replicas
        )
        if rules.isr != self.isr:
            self._changes.count(self.isr, rules.isr)
        self.isr = rules.isr
        if moved:
            self._moved()

    def _propose(self, isr: tuple[int, ...] | None) -> None:
        if isr is None:
            return
        from blumfeld.wire.messages.alter_partition import BrokerState, RequestPartitionData

        self.rules.propose(isr)
        states = [
            BrokerState(
                broker_id=r,
                broker_epoch=self._node.own_epoch()
                if r == self.rules.leader_id
                else self.rules.broker_epoch_of(r),
            )
            for r in isr
        ]
        data = RequestPartitionData(
            partition_index=self._host.partition.partition,
            leader_epoch=self.image.leader_epoch,
            new_isr_with_epochs=states,
            # Recovered, also behind an unclean election (KIP-704): nothing is left to do when a log is led. While the
            # partition recovers, the controller takes no ISR but the leader alone.
            leader_recovery_state=0,
            partition_epoch=self.rules.partition_epoch,
        )
        self._ask(IsrChange(self.partition, self._host.topic_id, data, self._decided))

    def _ask(self, change: IsrChange) -> None:
        self._change = change
        self._changes.ask(change)

    def _decided(self, partition: ResponsePartitionData) -> None:
        change, self._change = self._change, None
        assert change is not None, "a change that was withdrawn gets no answer"
        if partition.error_code == ErrorCode.NONE:
            self._settle(tuple(partition.isr), partition.partition_epoch)
        elif partition.error_code in REFUSED:
            self._settle(None, None)
        elif partition.error_code not in WAIT_FOR_IMAGE:
            # It may have been decided all the same, so it isn't taken back.
            self._change = change
            self._node.say_refused(
                "the controller refused a change of an ISR",
                BrokerError(known_code(partition.error_code)),
                partition=self.partition,
            )
            self._node.runtime.call_later(RETRY_MS, lambda: self._ask_again(change))

    def _ask_again(self, change: IsrChange) -> None:
        if self._change is change:
            self._changes.ask(change)
