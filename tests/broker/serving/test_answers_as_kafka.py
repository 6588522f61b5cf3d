"""The same requests to Apache Kafka 4.3.1 and to our broker: the answers must be the same, but for what each calls its
own (ports, ids, times, words). What differs on purpose stands in ``ON_PURPOSE``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from blumfeld.wire.api import response_class
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_acls import AclCreation, CreateAclsRequest
from blumfeld.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from blumfeld.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from blumfeld.wire.messages.describe_acls import DescribeAclsRequest
from blumfeld.wire.messages.describe_cluster import DescribeClusterRequest
from blumfeld.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from blumfeld.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from blumfeld.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from blumfeld.wire.schema import Message
from blumfeld_kit.fakes.runtime import EPOCH_MS
from campaigns.raw_connection import RawConnection
from tests.broker.batches import batch, declaring, produce
from tests.broker.harness import BrokerHarness
from tests.kafka_peer import kafka_on, peer_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OWN = (
    "error_message",
    "topic_id",
    "host",
    "port",
    "rack",
    "cluster_id",
    "controller_id",
    "throttle_time_ms",
    "session_id",
    "record_errors",
    "batch_index_error_message",
)
"""Fields that each broker fills in its own way."""
TOPICS = {
    "t": {},
    "compacted": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": "200"},
    "packed": {"compression.type": "zstd"},
}


class Pair:
    """Both brokers with the same topics."""

    def __init__(self, kafka: RawConnection) -> None:
        self.kafka = kafka
        self.ours = BrokerHarness()
        self.ours.runtime.jump_clock(int(time.time() * 1000) - EPOCH_MS)
        topics = []
        for name, config in TOPICS.items():
            configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
            topics.append(CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=configs))
            self.ours.metadata.create_topic(name, 2, config)
        self.of_kafka(CreateTopicsRequest(topics=topics, timeout_ms=10_000), 5)
        self.ours.runtime.run_turn()
        self._wait_for_topics()

    def _wait_for_topics(self) -> None:
        for _ in range(50):
            answer = self.of_kafka(MetadataRequest(topics=None), 9)
            led = [p.leader_id for t in answer.topics for p in t.partitions]
            if len(led) >= 2 * len(TOPICS) and -1 not in led and self._lead_everywhere():
                return
            time.sleep(0.1)

    def _lead_everywhere(self) -> bool:
        """Whether Kafka has opened what its metadata already shows."""
        answer = self.of_kafka(ends(*((name, (0, 1)) for name in TOPICS)), 1)
        return not any(p.error_code for t in answer.topics for p in t.partitions)

    def of_kafka(self, request: Message, version: int) -> Any:
        assert request.meta.key is not None
        return self.kafka.ask(request, version, response_class(request.meta.key))

    def both(self, request: Message, version: int) -> tuple[Any, Any]:
        return plain(self.of_kafka(request, version)), plain(self.ours.ask(request, version))

    def agree(self, request: Message, version: int, what: object = "") -> Any:
        """Check that both give the same answer; returns it."""
        kafka, ours = self.both(request, version)
        assert ours == kafka, f"{what or request} in v{version}"
        return ours


def ends(*topics: tuple[str, Sequence[int]], timestamp: int = -1) -> ListOffsetsRequest:
    """ListOffsets of these partitions."""
    return ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=p, timestamp=timestamp) for p in partitions],
            )
            for name, partitions in topics
        ],
    )


def plain(value: Any) -> Any:
    """As comparable builtins; records as (base offset, next offset) of each batch."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__ if name not in OWN}
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, memoryview):
        return [(b.base_offset, b.next_offset) for b in split_batches(value, allow_partial=True)]
    return value


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with (
        kafka_on(peer_script(), tmp_path_factory.mktemp("kafka")) as address,
        RawConnection(address) as kafka,
    ):
        yield Pair(kafka)


def test_produce(pair: Pair) -> None:
    now = int(time.time() * 1000)

    def made(*values: bytes, **options: Any) -> bytearray:
        return batch(*values, **{"timestamp": now, **options})

    broken, old = made(), made()
    broken[-1] ^= 1
    old[16] = 1
    batches = {
        "whole": made(b"a", b"b"),
        "empty": bytearray(),
        "two": made() + made(),
        "beginning of a second": made() + made()[:20],
        "broken": broken,
        "old format": old,
        "control": made(control=True),
        "wrong count": made(b"a", b"b", last_offset_delta=5),
        "offset given": made(base_offset=7),
        "no sequence": made(producer_id=5, producer_epoch=0),
        "cut off": made()[:-3],
        "cut in the header": made()[:20],
        "from the future": made(timestamp=now + 7_200_000),
        "from long ago": made(timestamp=5),
        "transactional": made(transactional=True, producer_id=5, producer_epoch=0, base_sequence=0),
        "no key": made(key=None),
        "gzip": made(codec=Codec.GZIP),
        "zstd": made(codec=Codec.ZSTD),
        "large": made(bytes(300)),
        "more records than bytes": declaring(made(), 1 << 20),
        **{
            f"more records than {codec.name} can hold": declaring(made(bytes(40), codec=codec), 1 << 24)
            for codec in Codec
        },
        "large and broken": bytearray(made(bytes(300))[:-1] + b"!"),
    }
    for name, data in batches.items():
        for topic in TOPICS:
            for version in (3, 6, 7, 8, 9, 11):
                pair.agree(produce(data, topic=topic), version, f"{name} to {topic}")
    for acks in (2, -2, -1):
        pair.agree(produce(made(), acks=acks), 9, f"acks {acks}")
    for topic, partition in (("no", 0), ("t", 7), ("t", -1)):
        pair.agree(produce(made(), topic=topic, partition=partition), 9, f"{topic}-{partition}")


def test_sequences(pair: Pair) -> None:
    now = int(time.time() * 1000)
    for sequence, epoch in ((0, 0), (0, 0), (2, 0), (1, 0), (0, 1), (1, 0), (1, 1), (1, 1), (5, 2), (0, 2)):
        data = batch(timestamp=now, producer_id=77, producer_epoch=epoch, base_sequence=sequence)
        pair.agree(produce(data, partition=1), 9, f"sequence {sequence} in epoch {epoch}")


def test_fetch(pair: Pair) -> None:
    pair.both(produce(batch(timestamp=int(time.time() * 1000)), partition=1), 9)

    def asked(topic: str = "t", partition: int = 1, isolation: int = 0, **values: Any) -> FetchRequest:
        partitions = [FetchPartition(partition=partition, **{"partition_max_bytes": 1 << 20, **values})]
        topics = [FetchTopic(topic=topic, partitions=partitions)]
        return FetchRequest(min_bytes=1, isolation_level=isolation, topics=topics)

    for version in range(4, 13):
        for request in (
            asked(),
            asked(isolation=1),
            asked(fetch_offset=10**6),
            asked(fetch_offset=-1),
            asked(partition_max_bytes=1),
            asked(topic="no"),
            asked(partition=9),
            asked(topic="packed", partition=0),
        ):
            pair.agree(request, version)
    for epoch in (0, 1, 5):
        for request in (asked(current_leader_epoch=epoch), asked(last_fetched_epoch=epoch, fetch_offset=1)):
            pair.agree(request, 12)
    answer = pair.agree(FetchRequest(session_id=5, session_epoch=1), 12)
    assert answer["error_code"] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_limits_of_a_fetch_over_two_partitions(pair: Pair) -> None:
    """A first batch that doesn't fit: of the first partition it is given whole, of the second nothing is given."""
    large = batch(bytes(3000), timestamp=int(time.time() * 1000))
    size = len(large)
    offsets = []
    for partition in (0, 1):
        answer = pair.agree(produce(large, partition=partition), 9, "large")
        offsets.append(answer["responses"][0]["partition_responses"][0]["base_offset"])

    def asked(bytes_max: int, partition_bytes_max: int, min_bytes: int = 1) -> FetchRequest:
        partitions = [
            FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=partition_bytes_max)
            for p, offset in enumerate(offsets)
        ]
        return FetchRequest(
            max_wait_ms=10_000,
            min_bytes=min_bytes,
            max_bytes=bytes_max,
            topics=[FetchTopic(topic="t", partitions=partitions)],
        )

    for version in (4, 11, 12):
        for left in (-size, 0, 1, 16, 17, 100, size - 1, size):
            for request in (
                asked(size + left, 1 << 20),
                asked(1 << 20, max(left, 0)),
                asked(size + max(left, 0), 1 << 20, min_bytes=size + max(left, 0)),
            ):
                pair.agree(request, version, f"{left} left, {request}")


def test_look_ups(pair: Pair) -> None:
    now = int(time.time() * 1000)
    places = (("t", 1, -1), ("t", 1, 5), ("t", 9, -1), ("no", 0, -1), ("small", 1, -1))
    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, now * 2):
            for topic, partition, epoch in places:
                request = ends((topic, [partition]), timestamp=timestamp)
                request.topics[0].partitions[0].current_leader_epoch = epoch if version > 3 else -1
                pair.agree(request, version, f"{timestamp} of {topic}-{partition}")
    for version in (2, 3, 4):
        for epoch in (-1, 0, 1, 5):
            asked = OffsetForLeaderPartition(partition=1, leader_epoch=epoch)
            of_epoch = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
            )
            pair.agree(of_epoch, version, f"epoch {epoch}")


def test_look_ups_of_partitions_that_are_named_twice(pair: Pair) -> None:
    """The order of an answer is that of a hash table in Kafka."""

    def sorted_topics(answer: Any) -> list[Any]:
        topics = sorted(answer["topics"], key=lambda topic: str(topic["name"]))
        return [(t["name"], sorted(t["partitions"], key=lambda p: int(p["partition_index"]))) for t in topics]

    requests: tuple[tuple[tuple[str, tuple[int, ...]], ...], ...] = (
        (("t", (0, 0, 1)),),
        (("t", (0,)), ("small", (1, 1, 0)), ("t", (1, 0))),
        (("no", (0, 0)), ("t", (7, 7))),
        (("t", ()), ("small", (0,))),
        (("t", ()),),
    )
    for version in (1, 5, 11):
        for topics in requests:
            kafka, ours = pair.both(ends(*topics, timestamp=-2), version)
            assert sorted_topics(ours) == sorted_topics(kafka), f"{topics} in v{version}"


def test_requests_on_acls(pair: Pair) -> None:
    """Kafka closes the connection at an ACL of no type; we don't look at ACLs."""
    filters = ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    any_acl: dict[str, Any] = dict.fromkeys(filters, 1)
    acl = AclCreation(resource_type=2, resource_name="t", operation=3, permission_type=3)
    for version in (1, 2, 3):
        for request in (
            DescribeAclsRequest(**any_acl),
            CreateAclsRequest(),
            CreateAclsRequest(creations=[acl]),
            DeleteAclsRequest(filters=[DeleteAclsFilter(**any_acl)]),
        ):
            pair.agree(request, version)


def test_descriptions(pair: Pair) -> None:
    for version in range(14):
        for names in (["t"], ["t", "t"], ["a b", ""], ["no"]):
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=version < 4,
                include_topic_authorized_operations=version >= 8,
                include_cluster_authorized_operations=8 <= version <= 10,
            )
            if version < 4 and "no" in names:
                continue  # would make the topic
            pair.agree(request, version, names)
    cursors = (("t", 1), ("t", 9), ("t", -1), ("no", 0), ("a", 0), ("o", 0), ("zz", 0), ("", 0))
    limits: list[tuple[int, tuple[str, int] | None]] = [(limit, None) for limit in (2000, 2, 1, 0)]
    for limit, cursor in (*limits, *((5, cursor) for cursor in cursors)):
        described = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in ("t", "no", "?", "unknown")],
            response_partition_limit=limit,
            cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
        )
        pair.agree(described, 0, f"{limit} from {cursor}")
    for version, kind in ((0, 1), (1, 1), (2, 1), (1, 2), (1, 9)):
        cluster = DescribeClusterRequest(endpoint_type=kind, include_cluster_authorized_operations=True)
        pair.agree(cluster, version, f"endpoint type {kind}")
