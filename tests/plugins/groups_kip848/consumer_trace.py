"""Scripts of KIP-848 groups: as ``migration_trace``, with all that a ConsumerGroupHeartbeat can say,
and what else is done with such a group.

A client sends its name as its member id unless told; it joins with all that a first heartbeat needs, and says later
what the script says: ``hb a owned=t0+t1``. ``full`` says all again.
"""

from __future__ import annotations

from typing import Any

from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.cluster import GROUP_RESOURCE
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from blumfeld.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest
from blumfeld.wire.messages.group_coordinator_records import ConsumerGroupRegularExpressionKey
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from blumfeld_groups_kip848.record_types import RECORD_TYPES
from tests.coordinator.fakes import topic
from tests.coordinator.groups_fixture import Groups
from tests.plugins.groups_both.migration_trace import MigrationScript, by_topic
from tests.plugins.groups_classic.classic_trace import GROUP, Client, code

CONFIG = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
}


class ConsumerScript(MigrationScript):
    """Runs the commands of one script."""

    def __init__(self) -> None:
        super().__init__()
        self.config.update(CONFIG)
        self._ids: dict[str, bytes] = {}

    @property
    def groups(self) -> Groups:
        """With an image that says when it has changed, as a broker's does."""
        fresh = self._groups is None
        groups = super().groups
        if fresh:
            groups.image.features_epoch = 1
        return groups

    def topic_ids(self) -> dict[str, bytes]:
        """The id of every topic, deleted ones too."""
        self._ids.update(super().topic_ids())
        return self._ids

    def _described(self, item: CoordinatorRecord) -> str:
        decoded = decode_record(RECORD_TYPES, item)
        if decoded is not None and isinstance(decoded[1], ConsumerGroupRegularExpressionKey):
            _, key, value = decoded
            topics = "gone" if value is None else ",".join(value.topics)  # type: ignore[attr-defined]
            return f"regex {key.regular_expression} {topics}".rstrip()  # type: ignore[attr-defined]
        return super()._described(item)

    def do_topic(self, names: list[str], options: dict[str, str]) -> None:
        """``topic t 6``: it has so many partitions from now on; 0: it is deleted."""
        self.topic_ids()
        image = self.groups.image
        name, count = names[0], int(names[1])
        if count:
            image.topics[name] = topic(name, count)
        else:
            del image.topics[name]
        image.features_epoch += 1

    def do_set(self, names: list[str], options: dict[str, str]) -> None:
        """The group's own configuration, from now on."""
        self.groups.image.configs[GROUP_RESOURCE, GROUP] = options
        self.groups.image.features_epoch += 1

    def do_hb(self, names: list[str], options: dict[str, str]) -> None:
        """ConsumerGroupHeartbeat in the member's epoch; ``epoch=0`` is a first one."""
        client = self._client(names[0])
        client.instance = options.get("instance", client.instance) or None
        version = int(options.get("v", "1"))
        given = options.get("id", client.member_id or (names[0] if version else ""))
        if given.strip():
            self._meet(client, given)
        epoch = int(options.get("epoch", max(client.generation, 0)))
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=given,
            member_epoch=epoch,
            instance_id=client.instance,
            rack_id=options.get("rack"),
            server_assignor=options.get("assignor"),
            subscribed_topic_regex=options.get("regex") if version else None,
        )
        full = epoch == 0 or "full" in names
        if full or "rebalance" in options:
            request.rebalance_timeout_ms = int(options.get("rebalance", "60000"))
        if "topics" in options or (full and "regex" not in options):
            topics = options.get("topics", client.protocols.split(":")[1])
            client.protocols = f"range:{topics}"
            request.subscribed_topic_names = [name for name in topics.split(",") if name]
        if topics_of_none(options):
            request.subscribed_topic_names = None
        if full or "owned" in options:
            request.topic_partitions = self._partitions(options.get("owned", ""))
        self._send(client, f"hb {epoch}", request, version, self._beaten)

    def _partitions(self, owned: str) -> list[TopicPartitions] | None:
        if owned == "null":
            return None
        ids = self.topic_ids()
        return [
            TopicPartitions(topic_id=ids[name], partitions=numbers)
            for name, numbers in by_topic(owned).items()
        ]

    def _beaten(self, client: Client, response: Any) -> str:
        if response.error_code:
            return f": {response.error_message}" if response.error_message else ""
        self._meet(client, response.member_id)
        client.generation = response.member_epoch
        interval = f" every {response.heartbeat_interval_ms}" if response.heartbeat_interval_ms else ""
        return f" epoch={response.member_epoch}{self._assigned(response.assignment)}{interval}"

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetCommit of ``p=t0+t1`` in the member's epoch; ``nobody`` is a consumer outside of any group."""
        client = self._client(names[0])
        outside = names[0] == "nobody"
        request = OffsetCommitRequest(
            group_id=GROUP,
            member_id="" if outside else client.member_id or names[0],
            generation_id_or_member_epoch=int(options.get("epoch", -1 if outside else client.generation)),
            group_instance_id=client.instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=n, committed_offset=7) for n in numbers
                    ],
                )
                for name, numbers in by_topic(options.get("p", "t0")).items()
            ],
        )
        response = self.groups.ask(request, int(options.get("v", "9")), client_id=client.name)
        self._note_records()
        codes = [f"{t.name}{p.partition_index}={code(p)}" for t in response.topics for p in t.partitions]
        self._said.append(f"{client.name} commit {' '.join(sorted(codes))}")

    def do_fetch(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetFetch of t0; ``nobody`` doesn't say who it is."""
        client = self._client(names[0])
        outside = names[0] == "nobody"
        group = OffsetFetchRequestGroup(
            group_id=self.group_id,
            member_id=None if outside else client.member_id or names[0],
            member_epoch=int(options.get("epoch", -1 if outside else client.generation)),
            topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
        )
        response = self.groups.ask(OffsetFetchRequest(groups=[group]), 9)
        (answer,) = response.groups
        offsets = [str(p.committed_offset) for t in answer.topics for p in t.partitions]
        self._said.append(f"{client.name} fetch {code(answer)} {' '.join(offsets)}".rstrip())

    def do_describe848(self, names: list[str], options: dict[str, str]) -> None:
        """ConsumerGroupDescribe, with what describes the members."""
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id], include_authorized_operations=True)
        (group,) = self.groups.ask(request, int(options.get("v", "1"))).groups
        if group.error_code:
            self._said.append(f"{code(group)}: {group.error_message}".replace(self.group_id, GROUP))
            return
        self._said.append(f"{group.group_state} {group.assignor_name} {group.authorized_operations:#b}")
        for member in group.members:
            topics = ",".join(member.subscribed_topic_names)
            self._said.append(
                f"  {self.name_of(member.member_id)} {member.client_id} [{topics}] {member.subscribed_topic_regex!r}"
                f" {member.rack_id} type={member.member_type}"
            )

    def do_describe_classic(self, names: list[str], options: dict[str, str]) -> None:
        """DescribeGroups, which is not for such groups."""
        request = DescribeGroupsRequest(groups=[GROUP])
        (group,) = self.groups.ask(request, int(options.get("v", "6"))).groups
        text = f": {group.error_message}" if group.error_message else ""
        self._said.append(f"{group.group_state} {code(group)}{text}".replace(self.group_id, GROUP))


def topics_of_none(options: dict[str, str]) -> bool:
    """Whether a script says that there is no list of topics at all."""
    return options.get("topics") == "null"
