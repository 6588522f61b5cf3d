"""The names of objects are those of Kafka's LocalTieredStorage."""

from __future__ import annotations

import pytest

from blumfeld.wire.primitives import uuid_bytes
from blumfeld_storage_tiered.catalog.segment import TopicIdPartition
from blumfeld_storage_tiered.objects.names import (
    MANIFEST,
    SegmentFile,
    SegmentName,
    object_key,
    parse_key,
    partition_prefix,
)

# Written by Apache Kafka 4.3.1 with LocalTieredStorage: topic "ticks", one partition, 1 MiB segments, a producer that
# aborted transactions. Below its storage.dir each segment has exactly these six files.
KAFKA_WROTE = (
    "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.index",
    "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.leader_epoch_checkpoint",
    "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.log",
    "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.snapshot",
    "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.timeindex",
    "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.txnindex",
)
NAME = SegmentName(
    TopicIdPartition(uuid_bytes("qUiBghE1SjWuUlRKwlHGrQ"), 0, "ticks"),
    903,
    uuid_bytes("XrQlh8GbRfq72WiwM1JrJg"),
)


def test_the_files_of_a_segment_have_the_names_that_kafka_gives_them() -> None:
    assert sorted(object_key(NAME, kind.value) for kind in SegmentFile) == list(KAFKA_WROTE)


def test_a_key_that_kafka_wrote_is_parsed_to_its_segment() -> None:
    assert {parse_key(key) for key in KAFKA_WROTE} == {(NAME, kind.value) for kind in SegmentFile}


def test_a_manifest_has_a_key_of_its_own() -> None:
    assert parse_key(object_key(NAME, MANIFEST)) == (NAME, MANIFEST)


@pytest.mark.parametrize("topic", ["a-1", "a-1-b", "x.y_z", "-", "9"])
def test_topics_that_look_like_a_partition_are_kept_apart(topic: str) -> None:
    partition = TopicIdPartition(bytes(range(240, 256)), 17, topic)
    name = SegmentName(partition, 0, bytes([0xFB]) * 16)  # its text has '-' and '_'
    assert parse_key(object_key(name, "log")) == (name, "log")
    assert object_key(name, "log").startswith(partition_prefix(partition))


@pytest.mark.parametrize(
    "key",
    [
        "blumfeld-cluster.json",
        "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.tmp",
        "ticks-0-qUiBghE1SjWuUlRKwlHGrQ/903-XrQlh8GbRfq72WiwM1JrJg.log",
        "ticks-00-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.log",
        "x/ticks-0-qUiBghE1SjWuUlRKwlHGrQ/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.log",
        "ticks-0-qUiBghE1SjWuUlRKwlHGrR/00000000000000000903-XrQlh8GbRfq72WiwM1JrJg.log",
    ],
)
def test_an_object_that_we_would_not_name_so_is_no_part_of_a_segment(key: str) -> None:
    assert parse_key(key) is None
