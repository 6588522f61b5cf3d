"""A member of a KIP-848 group: it sends only ConsumerGroupHeartbeat, at the interval that the server returns.

Like real clients it reports its ownership at once after each new assignment. Other heartbeats carry no unchanged
fields.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.client.errors import COORDINATOR_MOVES, error_name
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.rebalance.members.member import FAR_NS, RETRY_NS, Group, Member, answer, request

VERSION = 1
LEAVE_EPOCH = -1
ASSIGNOR = "uniform"
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ConsumerMember(Member):
    """One member. The seed draws its id; the member makes it itself, as clients do from ConsumerGroupHeartbeat v1 on
    (KIP-1082).
    """

    def __init__(self, group: Group, index: int) -> None:
        super().__init__(group, index)
        self._member_id = f"{group.draw.getrandbits(128):032x}"
        self._interval_ns = 0
        self._beat = b""
        self._quiet = b""
        """The answer that reports no change, byte for byte."""

    def begin(self, now_ns: int) -> bytes:
        """Return the first heartbeat: epoch 0, with all fields that the group must know."""
        self.epoch = 0
        self.idle = False
        self.heard_ns = self.group.told_ns = now_ns
        self.wake_ns = FAR_NS
        message = ConsumerGroupHeartbeatRequest(
            group_id=self.group.group_id,
            member_id=self._member_id,
            member_epoch=0,
            rebalance_timeout_ms=self.group.rebalance_timeout_ms,
            subscribed_topic_names=[self.group.topic],
            server_assignor=ASSIGNOR,
            topic_partitions=[],
        )
        return request(message, VERSION)

    def due(self, now_ns: int) -> bytes:
        """Return a heartbeat without changes or, after a refusal, the first one again."""
        if not self._beat:
            return self.begin(now_ns)
        self.heard_ns = now_ns
        self.wake_ns = FAR_NS
        return self._beat

    def answered(self, frame: bytes, now_ns: int) -> bytes | None:
        """See :class:`Member`."""
        if frame == self._quiet:
            self.wake_ns = self.heard_ns + self._interval_ns
            return None
        response = answer(ConsumerGroupHeartbeatResponse, frame, VERSION)
        if response.error_code:
            return self._failed(response.error_code, now_ns)
        self._told(response, frame, now_ns)
        if response.assignment is not None:
            wanted = [
                partition for topic in response.assignment.topic_partitions for partition in topic.partitions
            ]
            before = set(self.group.ownership.owned(self.index))
            if before != set(wanted):
                self.group.ownership.change(now_ns, self.index, wanted)
                return self._acknowledge(wanted, now_ns)
        self.wake_ns = self.heard_ns + self._interval_ns
        return None

    def leave(self) -> bytes:
        """Return the last heartbeat: epoch -1."""
        return self._heartbeat(LEAVE_EPOCH)

    def _told(self, response: ConsumerGroupHeartbeatResponse, frame: bytes, now_ns: int) -> None:
        self._interval_ns = response.heartbeat_interval_ms * 1_000_000
        self.idle = True
        if response.member_epoch != self.epoch or not self._beat:
            self.epoch = response.member_epoch
            self.group.told_ns = now_ns
            self._beat = self._heartbeat(self.epoch)
        self._quiet = frame if response.assignment is None else b""

    def _acknowledge(self, owned: Sequence[int], now_ns: int) -> bytes:
        """Report the owned partitions at once; the next heartbeat is due an interval after this one."""
        self.heard_ns = now_ns
        self.wake_ns = FAR_NS
        mine = [TopicPartitions(topic_id=self.group.topic_id, partitions=sorted(owned))] if owned else []
        return self._heartbeat(self.epoch, mine)

    def _heartbeat(self, epoch: int, owned: list[TopicPartitions] | None = None) -> bytes:
        message = ConsumerGroupHeartbeatRequest(
            group_id=self.group.group_id,
            member_id=self._member_id,
            member_epoch=epoch,
            topic_partitions=owned,
        )
        return request(message, VERSION)

    def _failed(self, code: int, now_ns: int) -> bytes | None:
        """Retry later or, where the coordinator fences the member, give up all partitions and begin again."""
        if code in COORDINATOR_MOVES:
            self.wake_ns = now_ns + RETRY_NS
            return None
        if code not in _FENCED:
            raise DriverError(f"a member was refused: {error_name(code)}")
        self.fault(code)
        self.stop_owning(now_ns)
        self._beat = self._quiet = b""
        return self.begin(now_ns)
