"""The contract of group types, for the two that come with the broker."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from blumfeld.client.classic_group import subscription_bytes
from blumfeld.spi.groups import GroupProtocol, GroupShard
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from blumfeld_kit import GroupProtocolContract
from blumfeld_kit.groups.contract import GROUP
from blumfeld_kit.groups.driven_group import GroupUnderTest
from campaigns.groups.__main__ import protocols_of
from campaigns.groups.oracle import VOLATILE, in_flight_of


class TestClassic(GroupProtocolContract):
    """``groups_classic``. A rebalance in flight is in no record (ADR 0006)."""

    volatile = VOLATILE

    def make_protocol(self) -> GroupProtocol:
        return protocols_of(("groups_classic",))[0]

    def in_flight(self, shard: GroupShard) -> Collection[str]:
        return in_flight_of(shard)

    def test_commands_write_no_state(self) -> None:
        pytest.skip("a rebalance is volatile from its first request to its end")

    def life(self, group: GroupUnderTest) -> None:
        a = self.join(group, "a")
        static = self.join(group, "b", instance="i")
        a = self.join(group, "a", a.member_id)
        self.sync(group, a, [a.member_id, static.member_id])
        self.sync(group, static, [])
        group.wait(3_000)
        for member in (a, static):
            beat = HeartbeatRequest(
                group_id=GROUP, generation_id=member.generation_id, member_id=member.member_id
            )
            beat.group_instance_id = "i" if member is static else None
            group.ask(beat)
        again = self.join(group, "b", instance="i")
        self.sync(group, again, [a.member_id, again.member_id])
        leaving = [MemberIdentity(member_id=a.member_id)]
        group.ask(LeaveGroupRequest(group_id=GROUP, members=leaving))
        group.wait(200_000)

    def join(self, group: GroupUnderTest, name: str, member_id: str = "", instance: str | None = None) -> Any:
        """Join, and join again with the id that was given."""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=subscription_bytes("t", (), -1, None))
            ],
        )
        answer = group.ask(request, client_id=name)
        if answer.done and answer.result().error_code == 79:
            request.member_id = answer.result().member_id
            answer = group.ask(request, client_id=name)
        group.wait(20_000 if not answer.done else 0)
        assert answer.done
        return answer.result()

    def sync(self, group: GroupUnderTest, member: Any, everyone: list[str]) -> None:
        """The leader assigns; everyone asks."""
        given = everyone if member.leader == member.member_id else []
        group.ask(
            SyncGroupRequest(
                group_id=GROUP,
                generation_id=member.generation_id,
                member_id=member.member_id,
                group_instance_id="i" if member.member_id.startswith("i-") else None,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[SyncGroupRequestAssignment(member_id=m, assignment=b"") for m in given],
            )
        )


class TestConsumer(GroupProtocolContract):
    """``groups_kip848``. Nothing is volatile but timers and jobs."""

    config: Mapping[str, str | int | float | bool] = {"group.consumer.assignment.interval.ms": 0}

    def make_protocol(self) -> GroupProtocol:
        return protocols_of(("groups_kip848",))[0]

    def life(self, group: GroupUnderTest) -> None:
        self.beat(group, "a", 0)
        self.beat(group, "b", 0, instance="i")
        self.beat(group, "c", 0, regex="u|t")
        epochs = dict.fromkeys("abc", 0)
        for _ in range(4):
            for name in "abc":
                epochs[name] = self.beat(group, name, epochs[name] or 1, all_told=True)
        self.beat(group, "a", epochs["a"], timeout_ms=45_000)
        self.beat(group, "b", -2, instance="i")
        self.beat(group, "b2", 0, instance="i")
        group.cluster.create("t", 6)
        group.wait(3_000)
        self.beat(group, "a", epochs["a"])
        self.beat(group, "a", -1)
        group.wait(1_000)
        self.beat(group, "c", 99)
        group.wait(100_000)

    def beat(
        self,
        group: GroupUnderTest,
        name: str,
        epoch: int,
        *,
        instance: str | None = None,
        regex: str | None = None,
        all_told: bool = False,
        timeout_ms: int = -1,
    ) -> int:
        """A heartbeat of one who obeys at once; its epoch afterwards."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=name,
            member_epoch=epoch,
            instance_id=instance or ("i" if name == "b" else None),
            rebalance_timeout_ms=timeout_ms,
        )
        if epoch == 0:
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = [] if regex else ["t", "u"]
            request.subscribed_topic_regex = regex
            request.topic_partitions = []
        elif all_told:
            member = self.groups_of(group.shard)[GROUP].members[name]
            request.member_epoch = member.epoch
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in member.assigned.items()
            ]
        answer: Any = group.ask(request, client_id=name).result()
        return int(answer.member_epoch)
