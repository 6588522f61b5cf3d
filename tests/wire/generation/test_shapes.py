"""Runs with arrays in them: the same bytes as the interpreted codec's, whatever the counts, and no end of shapes."""

from __future__ import annotations

import struct
from itertools import product

import pytest

from blumfeld.wire import codec, interpreted_codec
from blumfeld.wire.generation.shapes import SHAPES_MAX, PackersByShape
from blumfeld.wire.messages.fetch import FetchRequest, ForgottenTopic
from blumfeld.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.primitives import EncodeError, Records, put_uvarint

COUNTS = (0, 1, 3, 126, 127, 128, 129, 300, 16_383, 16_384)
"""On both sides of where a compact count takes one byte more."""


def described(*counts: int) -> MetadataResponse:
    replicas, in_sync, offline = ([7 * n for n in range(count)] for count in counts)
    partition = MetadataResponsePartition(
        partition_index=5, replica_nodes=replicas, isr_nodes=in_sync, offline_replicas=offline
    )
    return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition, partition])])


@pytest.mark.parametrize("version", [8, 12])
def test_arrays_of_every_length_pass_in_both_forms(version: int) -> None:
    for counts in [*product((0, 3, 127, 128), repeat=3), *((n, 2, n) for n in COUNTS)]:
        message = described(*counts)
        data = codec.encode(message, version)
        assert data == interpreted_codec.encode(message, version)
        assert codec.decode(MetadataResponse, data, version) == message


@pytest.mark.parametrize("version", [11, 12])
def test_an_array_alone_between_variable_fields(version: int) -> None:
    for count in COUNTS:
        forgotten = ForgottenTopic(topic="gone", partitions=list(range(count)))
        message = FetchRequest(forgotten_topics_data=[forgotten, ForgottenTopic(topic="too")], rack_id="r")
        assert codec.encode(message, version) == interpreted_codec.encode(message, version)


@pytest.mark.parametrize("count", [3, 200])
def test_an_element_out_of_range_is_refused_by_its_path(count: int) -> None:
    message = described(count, 0, 0)
    message.topics[0].partitions[0].replica_nodes = [1] * (count - 1) + [2**31]
    with pytest.raises(EncodeError, match=rf"topics\[0\]\.partitions\[0\]\.replica_nodes\[{count - 1}\]"):
        codec.encode(message, 12)


def test_only_so_many_shapes_are_kept_and_the_others_are_packed_as_well() -> None:
    packers = PackersByShape(["h", "B*i"])
    for count in range(2 * SHAPES_MAX):
        items = range(count)
        expected = struct.pack(">h", 9) + put_uvarint(count + 1) + struct.pack(f">{count}i", *items)
        assert packers[count + 1](9, count + 1, *items) == expected
    assert len(packers) == SHAPES_MAX


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 1023, 1024, 1025, 16_382, 16_383, 16_384, 2_100_000])
def test_records_of_every_size_and_kind_are_the_same_bytes(version: int, size: int) -> None:
    content = b"r" * size
    kinds: list[Records] = [content, bytearray(content), memoryview(content), [content[:3], content[3:]]]
    for records in kinds:
        partition = PartitionProduceData(index=1, records=records)
        message = ProduceRequest(
            topic_data=[TopicProduceData(name="t", partition_data=[partition, partition])]
        )
        data = codec.encode(message, version)
        assert data == interpreted_codec.encode(message, version)
        decoded = codec.decode(ProduceRequest, data, version).topic_data[0].partition_data
        assert [decoded_message.records for decoded_message in decoded] == [content, content]
