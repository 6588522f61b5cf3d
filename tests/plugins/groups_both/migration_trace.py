"""Scripts of groups that change from one protocol to the other: as ``classic_trace``, with both types
composed, and with what consumers really send: subscriptions and assignments in the bytes of their protocol.

Partitions are written ``t0``; a member is shown by its client's name, and a number if it has had other ids before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from blumfeld.coordinator.groups.offsets import OFFSET_RECORD_TYPES
from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.groups import CoordinatorRecord, GroupProtocol
from blumfeld.wire.codec import decode_from, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
)
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from blumfeld.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from blumfeld_groups_kip848.record_types import RECORD_TYPES
from tests.coordinator.fakes import FakeLog, topic
from tests.coordinator.groups_fixture import Groups
from tests.plugins.groups_classic.classic_trace import GROUP, TYPES, Client, Script, code
from tests.plugins.groups_classic.classic_trace import described as described_classic

ALL_TYPES = {**TYPES, **RECORD_TYPES}
CONFIG = {"group.consumer.assignment.interval.ms": "0", "group.consumer.min.assignment.interval.ms": "0"}
VERSION = 3


def by_topic(partitions: str) -> dict[str, list[int]]:
    """``t0+t1+u0`` as partitions of topics."""
    numbers_by_topic: dict[str, list[int]] = {}
    for item in partitions.split("+"):
        if item:
            numbers_by_topic.setdefault(item[0], []).append(int(item[1:]))
    return numbers_by_topic


def shown(topics: Iterable[tuple[str, Iterable[int]]]) -> str:
    """Partitions of topics as ``t0+t1+u0``, in ascending order."""
    return "+".join(sorted(f"{name}{partition}" for name, partitions in topics for partition in partitions))


def subscription(topics: Sequence[str], owned: str, version: int = VERSION, user_data: bytes = b"") -> bytes:
    """What a consumer says in JoinGroup."""
    said = ConsumerProtocolSubscription(topics=list(topics), user_data=user_data or None)
    said.owned_partitions = [
        ConsumerProtocolSubscriptionTopicPartition(topic=name, partitions=partitions)
        for name, partitions in by_topic(owned).items()
    ]
    return version.to_bytes(2) + encode(said, version)


def assignment(partitions: str, version: int = VERSION, user_data: bytes = b"") -> bytes:
    """What a leader says in SyncGroup."""
    given = ConsumerProtocolAssignment(user_data=user_data or None)
    given.assigned_partitions = [
        ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=numbers)
        for name, numbers in by_topic(partitions).items()
    ]
    return version.to_bytes(2) + encode(given, version)


def read(data: bytes) -> str:
    """An assignment as it is written here, with its version."""
    if len(data) < 2:
        return "nothing"
    version = int.from_bytes(data[:2])
    if version > VERSION:
        return repr(data)
    given, _ = decode_from(ConsumerProtocolAssignment, data, version, 2)
    return f"v{version}:{shown((item.topic, item.partitions) for item in given.assigned_partitions)}"


class MigrationScript(Script):
    """Runs the commands of one script, of both protocols."""

    def __init__(self) -> None:
        super().__init__()
        self.config = dict(CONFIG)
        self.names: dict[str, str] = {}

    @property
    def groups(self) -> Groups:
        """Made with the first request, after all ``config``."""
        if self._groups is None:
            protocols: list[GroupProtocol] = [ClassicGroupProtocol(), ConsumerGroupProtocol()]
            self._groups = Groups(self.config, log=FakeLog(), protocols=protocols, topics={"t": 4, "u": 1})
        return self._groups

    def topic_ids(self) -> dict[str, bytes]:
        """The id of every topic."""
        return {name: topic.topic_id for name, topic in self.groups.image.topics.items()}

    def name_of(self, member_id: str) -> str:
        """How a member is shown."""
        return self.names.get(member_id, member_id)

    def _meet(self, client: Client, member_id: str) -> None:
        """A client goes by this member id from now on."""
        if member_id and member_id not in self.names:
            before = sum(name.split("/")[0] == client.name for name in self.names.values())
            self.names[member_id] = f"{client.name}/{before}" if before else client.name
        client.member_id = member_id or client.member_id

    def do_topic(self, names: list[str], options: dict[str, str]) -> None:
        """``topic t 6``: it has so many partitions from now on."""
        self.groups.image.topics[names[0]] = topic(names[0], int(names[1]))

    def do_join(self, names: list[str], options: dict[str, str]) -> None:
        """JoinGroup with a subscription of ``topics`` and ``owned`` partitions, the same for all ``protocols``."""
        client = self._client(names[0])
        if "id" in options:
            self._meet(client, options["id"])
            client.member_id = options["id"]
        client.instance = options.get("instance", client.instance)
        client.protocols = options.get("protocols", client.protocols).split(":")[0]
        topics = [name for name in options.get("topics", "t").split(",") if name]
        metadata = subscription(topics, options.get("owned", ""), int(options.get("sub", VERSION)))
        metadata = options["bytes"].encode() if "bytes" in options else metadata
        chosen = [name for name in client.protocols.split(",") if name != "none"]
        self._join(client, options, [(name, metadata) for name in chosen])

    def _joined(self, client: Client, response: Any) -> str:
        if response.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            self._meet(client, response.member_id)
        named = f" id={self.name_of(response.member_id)}" if response.member_id else ""
        if response.error_code:
            return named
        client.generation, client.protocol = response.generation_id, response.protocol_name
        skip = " skip-assignment" if response.skip_assignment else ""
        return (
            f"{named} generation={response.generation_id} {response.protocol_name}"
            f" leader={self.name_of(response.leader) or 'nobody'} members={len(response.members)}{skip}"
        )

    def do_sync(self, names: list[str], options: dict[str, str]) -> None:
        """SyncGroup; ``assign`` is the leader's word: client:t0+t1,…."""
        client = self._client(names[0])
        pairs = [item.split(":") for item in options.get("assign", "").split(",") if item]
        user_data = options.get("user_data", "").encode()
        given = {name: assignment(data, user_data=user_data) for name, data in pairs}
        self._sync(client, options, given, read)

    def do_hb(self, names: list[str], options: dict[str, str]) -> None:
        """ConsumerGroupHeartbeat in the member's epoch; all is said with epoch 0."""
        client = self._client(names[0])
        client.instance = options.get("instance", client.instance)
        if not client.member_id or "id" in options:
            self._meet(client, options.get("id", names[0]))
        epoch = int(options.get("epoch", max(client.generation, 0)))
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            member_epoch=epoch,
            instance_id=client.instance,
            server_assignor=options.get("assignor"),
        )
        if epoch == 0 or "topics" in options:
            request.rebalance_timeout_ms = int(options.get("rebalance", "60000"))
            topics = options.get("topics", "t")
            request.subscribed_topic_names = [name for name in topics.split(",") if name]
        if epoch == 0 or "owned" in options:
            ids = self.topic_ids()
            request.topic_partitions = [
                TopicPartitions(topic_id=ids[name], partitions=numbers)
                for name, numbers in by_topic(options.get("owned", "")).items()
            ]
        self._send(client, f"hb {epoch}", request, 1, self._beaten)

    def _beaten(self, client: Client, response: Any) -> str:
        if response.error_code:
            return ""
        client.generation = response.member_epoch
        return f" epoch={response.member_epoch}{self._assigned(response.assignment)}"

    def _assigned(self, given: Assignment | None) -> str:
        if given is None:
            return ""
        names = {topic_id: name for name, topic_id in self.topic_ids().items()}
        return f" [{shown((names[bytes(t.topic_id)], t.partitions) for t in given.topic_partitions)}]"

    def do_leave(self, names: list[str], options: dict[str, str]) -> None:
        """LeaveGroup, with members by their names."""
        super().do_leave(names, options)
        last = self._said[-1] if self._said else ""
        for member_id, name in sorted(self.names.items(), key=lambda known: -len(known[0])):
            last = last.replace(f" {member_id}=", f" {name}=")
        self._said[-1:] = [last]

    def do_describe(self, names: list[str], options: dict[str, str]) -> None:
        """What ListGroups says of it, and DescribeGroups or ConsumerGroupDescribe."""
        listed = [g for g in self.groups.ask(ListGroupsRequest(), 5).groups if g.group_id == self.group_id]
        for group in listed:
            self._said.append(f"{group.group_type} {group.group_state} {group.protocol_type}")
            if group.group_type == "classic":
                self._describe_classic()
            else:
                self._describe_consumer()
        if not listed:
            self._said.append("no group")

    group_id = GROUP

    def _describe_classic(self) -> None:
        (group,) = self.groups.ask(DescribeGroupsRequest(groups=[GROUP]), 6).groups
        for member in sorted(group.members, key=lambda m: self.name_of(m.member_id)):
            static = f" {member.group_instance_id}" if member.group_instance_id else ""
            self._said.append(f"  {self.name_of(member.member_id)}{static} {read(member.member_assignment)}")

    def _describe_consumer(self) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
        (group,) = self.groups.ask(request, 1).groups
        self._said.append(f"  epoch={group.group_epoch} target={group.assignment_epoch}")
        for member in sorted(group.members, key=lambda m: self.name_of(m.member_id)):
            kind = "classic" if member.member_type == 0 else "consumer"
            static = f" {member.instance_id}" if member.instance_id else ""
            has, wants = (
                shown((t.topic_name, t.partitions) for t in given.topic_partitions)
                for given in (member.assignment, member.target_assignment)
            )
            name = self.name_of(member.member_id)
            self._said.append(f"  {name}{static} {kind} epoch={member.member_epoch} has [{has}] of [{wants}]")

    def _note_records(self) -> None:
        items = self.groups.log.items if self._groups else []
        self._said += [f"log {self._described(item)}" for item in items[self._written :]]
        self._written = len(items)

    def _described(self, item: CoordinatorRecord) -> str:
        decoded = decode_record(ALL_TYPES, item)
        assert decoded is not None
        number, key, value = decoded
        if number in OFFSET_RECORD_TYPES:
            return described_classic(item)
        if number == 2:
            return self._classic(value)
        member = self.name_of(getattr(key, "member_id", ""))
        what = {
            3: "epoch",
            5: f"member {member}",
            6: "target epoch",
            7: f"target {member}",
            8: f"has {member}",
        }
        return f"{what[number]} {'gone' if value is None else self._value(number, value)}".rstrip()

    def _classic(self, value: Any) -> str:
        if value is None:
            return "classic group gone"
        members = " ".join(f"{self.name_of(m.member_id)}={read(bytes(m.assignment))}" for m in value.members)
        leader = self.name_of(value.leader or "") or "nobody"
        return f"classic group generation={value.generation} {value.protocol} leader={leader} [{members}]"

    def _value(self, number: int, value: Any) -> str:
        names = {topic_id: name for name, topic_id in self.topic_ids().items()}

        def held(topics: Any) -> str:
            return shown((names[bytes(t.topic_id)], t.partitions) for t in topics)

        if number == 5:
            classic = value.classic_member_metadata
            protocols = "" if classic is None else ",".join(p.name for p in classic.supported_protocols)
            return f"{','.join(value.subscribed_topic_names)} {protocols}".rstrip()
        if number == 7:
            return held(value.topic_partitions)
        if number == 8:
            revoking = held(value.partitions_pending_revocation)
            return f"epoch={value.member_epoch} {held(value.assigned_partitions)}" + (
                f" giving up {revoking}" if revoking else ""
            )
        return str(value.epoch if number == 3 else value.assignment_epoch)


__all__ = ["MigrationScript", "code"]
