"""Scripts of committed offsets: a text file of what is asked, and the whole of what comes of it.

As ``classic_trace``, whose verbs may be used too; what is here is not bound to one group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.coordinator.groups.shard import ForgetTopics
from blumfeld.coordinator.runtime.shard_contract import TransactionalRecord, TransactionMarker
from blumfeld.spi.groups import CoordinatorRecord, GroupProtocol
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from blumfeld.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from blumfeld.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from blumfeld.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from blumfeld.wire.schema import Message
from blumfeld_groups_classic import ClassicGroupProtocol
from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol
from tests.coordinator.fakes import FakeLog, topic_id
from tests.coordinator.groups_fixture import Groups
from tests.plugins.groups_classic.classic_trace import GROUP, Script, code, described
from tests.plugins.groups_kip848.consumer_trace import ConsumerScript


class OffsetsScript(Script):
    """Runs the commands of one script. Places are written ``t-0=5``: topic, partition, and an offset."""

    @property
    def groups(self) -> Groups:
        """Made with the first request, after all ``config``; the build has transactions."""
        if self._groups is None:
            self._groups = Groups(self.config, log=FakeLog(), transactions=True)
        return self._groups

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetCommit of the places, by the client ``by``, or by nobody's member; ``retain`` of its own, in ms."""
        group, places = _named(names[0]), names[1:]
        client = self._client(options.get("by", "nobody"))
        version = int(options.get("v", "9"))
        request = OffsetCommitRequest(
            group_id=group,
            member_id=options.get("id", client.member_id),
            generation_id_or_member_epoch=int(options.get("generation", client.generation)),
            group_instance_id=client.instance if version >= 7 else None,
            retention_time_ms=int(options.get("retain", "-1")) if version < 5 else -1,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.topic_id(topic),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=options.get("metadata", ""),
                        )
                    ],
                )
                for topic, partition, offset in map(_place, places)
            ],
        )
        self._tell("commit", request, version, self._codes)

    def do_txn(self, names: list[str], options: dict[str, str]) -> None:
        """TxnOffsetCommit of the places by the producer ``pid``, for the client ``by``, or for nobody's member."""
        group, places = _named(names[0]), names[1:]
        client = self._client(options.get("by", "nobody"))
        version = int(options.get("v", "5"))
        known = version >= 3
        request = TxnOffsetCommitRequest(
            transactional_id="x",
            group_id=group,
            producer_id=int(options["pid"]),
            producer_epoch=int(options.get("epoch", "0")),
            generation_id=int(options.get("generation", client.generation)) if known else -1,
            member_id=options.get("id", client.member_id) if known else "",
            group_instance_id=client.instance if known else None,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata="m" * int(options.get("metadata", "0")),
                        )
                    ],
                )
                for topic, partition, offset in map(_place, places)
            ],
        )
        self._tell("txn", request, version, self._codes)

    def do_marker(self, names: list[str], options: dict[str, str]) -> None:
        """WriteTxnMarkers has placed one: ``commit`` or ``abort``."""
        self.groups.end_transaction(int(options["pid"]), names[0] == "commit")

    def do_fetch(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetFetch of the places, or of all; ``stable``: those of open transactions are told apart."""
        group, stable = _named(names[0]), "stable" in names
        places = [name for name in names[1:] if name != "stable"]
        version = int(options.get("v", "9"))
        topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=self.topic_id(topic), partition_indexes=[partition])
            for topic, partition, _ in map(_place, places)
        ]
        group_request = OffsetFetchRequestGroup(group_id=group, topics=topics if places else None)
        if "member" in options:
            group_request.member_id, group_request.member_epoch = options["member"], int(options["epoch"])
        response = self.groups.ask(OffsetFetchRequest(groups=[group_request], require_stable=stable), version)
        (answer,) = response.groups
        words = [
            f"{self._name(topic)}-{p.partition_index}={code(p) if p.error_code else p.committed_offset}"
            for topic in answer.topics
            for p in topic.partitions
        ]
        self._said.append(" ".join(["fetch", code(answer), *words]))

    def do_uncommit(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetDelete of the places."""
        request = OffsetDeleteRequest(
            group_id=_named(names[0]),
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition, _ in map(_place, names[1:])
            ],
        )
        self._tell("uncommit", request, 0, lambda response: f" {code(response)}{self._codes(response)}")

    def do_delete(self, names: list[str], options: dict[str, str]) -> None:
        """DeleteGroups."""
        request = DeleteGroupsRequest(groups_names=[*map(_named, names)] or [GROUP])
        self._tell("delete", request, 2, lambda r: "".join(f" {x.group_id}={code(x)}" for x in r.results))

    def do_list(self, names: list[str], options: dict[str, str]) -> None:
        """ListGroups, with ``states`` and ``types`` as filters."""
        request = ListGroupsRequest(
            states_filter=[word for word in options.get("states", "").split(",") if word],
            types_filter=[word for word in options.get("types", "").split(",") if word],
        )
        version = int(options.get("v", "5"))
        self._tell(
            "list",
            request,
            version,
            lambda r: "".join(
                f" {g.group_id}/{g.group_state}/{g.group_type}/{g.protocol_type}" for g in r.groups
            ),
        )

    def do_describe(self, names: list[str], options: dict[str, str]) -> None:
        """DescribeGroups."""
        request = DescribeGroupsRequest(groups=[*map(_named, names)] or [GROUP])
        version = int(options.get("v", "6"))
        self._tell(
            "describe",
            request,
            version,
            lambda r: "".join(
                f" {g.group_id}={g.group_state}/{code(g)}/{g.protocol_type}/{g.protocol_data}/{g.error_message}"
                for g in r.groups
            ),
        )

    def do_untopic(self, names: list[str], options: dict[str, str]) -> None:
        """A topic was deleted."""
        for name in names:
            self.groups.image.topics.pop(name)
        self.groups.coordinator.submit_to_all(ForgetTopics(tuple(names)), None)

    def topic_id(self, name: str) -> bytes:
        """What stands for the name from v10 on."""
        return topic_id(name)

    def _name(self, topic: Any) -> str:
        names = {self.topic_id(name): name for name in ("t", "u", "nowhere")}
        name = getattr(topic, "name", "")
        return str(name) or names[topic.topic_id]

    def _codes(self, response: Any) -> str:
        return "".join(
            f" {self._name(topic)}-{p.partition_index}={code(p)}"
            for topic in response.topics
            for p in topic.partitions
        )

    def _tell(
        self, verb: str, request: Message, version: int, more: Callable[[Any], str] = lambda _: ""
    ) -> None:
        response = self.groups.ask(request, version)
        self._note_records()
        self._said.append(f"{verb}{more(response)}")

    def _note_records(self) -> None:
        items = self._groups.log.items if self._groups else []
        self._said += [f"log {self._shown(item)}" for item in items[self._written :]]
        self._written = len(items)

    def _shown(self, item: Any) -> str:
        if isinstance(item, TransactionMarker):
            return f"marker {item.producer_id} {'commit' if item.committed else 'abort'}"
        if isinstance(item, TransactionalRecord):
            return f"in transaction of {item.producer.producer_id}: {self._described(item.record)}"
        return self._described(item)

    def _described(self, item: CoordinatorRecord) -> str:
        return described(item)


def _named(word: str) -> str:
    return "" if word == "''" else word


def _place(word: str) -> tuple[str, int, int]:
    place, _, offset = word.partition(":")
    topic, _, partition = place.rpartition("-")
    return topic, int(partition), int(offset or "-1")


class BothTypesScript(OffsetsScript, ConsumerScript):
    """The same with KIP-848 groups beside classic ones; ``hb`` and the like are theirs."""

    @property
    def groups(self) -> Groups:
        """The groups of both types."""
        if self._groups is None:
            protocols: list[GroupProtocol] = [ClassicGroupProtocol(), ConsumerGroupProtocol()]
            self._groups = Groups(self.config, log=FakeLog(), protocols=protocols, transactions=True)
            self._groups.image.features_epoch = 1
        return self._groups

    def _described(self, item: CoordinatorRecord) -> str:
        return ConsumerScript._described(self, item)


def script_of(name: str) -> type[OffsetsScript]:
    """Runs the script of that name."""
    return BothTypesScript if name.startswith("offsets_consumer") else OffsetsScript
