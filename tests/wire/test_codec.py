"""The codec's promises beyond right bytes: what fits no version, parts without a copy, one error each way."""

from __future__ import annotations

import pytest

from blumfeld.wire import codec
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from blumfeld.wire.messages.group_coordinator_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.primitives import DecodeError, EncodeError, Part


class Region:
    """Stands for a region of a file: a size, and bytes that nobody may ask for."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


def produce(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=1, records=records)
    return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[partition])])


def fetched(*records: Part | list[Part] | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=i, records=r) for i, r in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


def test_an_ignorable_field_is_dropped_where_the_version_has_none() -> None:
    response = MetadataResponse(throttle_time_ms=7, cluster_id="c", controller_id=3)
    assert codec.decode(MetadataResponse, codec.encode(response, 0), 0) == MetadataResponse()


def test_any_other_value_is_refused_and_the_error_names_the_field() -> None:
    request = HeartbeatRequest(group_id="g", group_instance_id="i")
    assert codec.decode(HeartbeatRequest, codec.encode(request, 3), 3) == request
    with pytest.raises(EncodeError, match=r"HeartbeatRequest\.group_instance_id .* version 2"):
        codec.encode(request, 2)


def test_null_where_none_may_stand_is_refused() -> None:
    assert codec.encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError, match="topics is None"):
        codec.encode(MetadataRequest(topics=None), 0)
    with pytest.raises(DecodeError, match="topics is null"):
        codec.decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (HeartbeatRequest(generation_id=2**31), "generation_id"),
        (HeartbeatRequest(group_id="x" * 32768), "group_id"),
        (HeartbeatRequest(member_id="\ud800"), "member_id"),
        (HeartbeatRequest(group_id=b"bytes"), "group_id"),  # type: ignore[arg-type]
        (CreateTopicsRequest(topics=[CreatableTopic(name=None)]), r"topics\[0\]\.name"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("version", [2, 4])
def test_a_value_without_a_form_is_refused_by_its_path(
    request_: HeartbeatRequest | CreateTopicsRequest, field: str, version: int
) -> None:
    with pytest.raises(EncodeError, match=field):
        codec.encode(request_, version + 3 if isinstance(request_, CreateTopicsRequest) else version)


def test_a_string_of_the_greatest_length_passes_in_both_forms() -> None:
    request = HeartbeatRequest(group_id="x" * 32767)
    for version in (0, 4):
        assert codec.decode(HeartbeatRequest, codec.encode(request, version), version) == request


def test_a_uuid_has_sixteen_bytes() -> None:
    request = ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")])
    with pytest.raises(EncodeError, match="16 bytes"):
        codec.encode(request, 13)


def test_unknown_versions_are_refused_both_ways() -> None:
    with pytest.raises(DecodeError, match="versions 3-13, not 2"):
        codec.decode(ProduceRequest, b"", 2)
    with pytest.raises(EncodeError, match="versions 3-13, not 14"):
        codec.encode(ProduceRequest(), 14)


def test_bytes_behind_the_message_are_refused() -> None:
    data = codec.encode(HeartbeatRequest(), 0)
    with pytest.raises(DecodeError, match="1 bytes too many"):
        codec.decode(HeartbeatRequest, data + b"\0", 0)
    assert codec.decode_from(HeartbeatRequest, b"head" + data + b"\0", 0, 4) == (
        HeartbeatRequest(),
        4 + len(data),
    )


def test_unknown_tagged_fields_are_skipped() -> None:
    """A newer peer may add a tag within a version: here tags 5 and 300 to a Heartbeat."""
    data = codec.encode(HeartbeatRequest(group_id="g"), 4)[:-1] + b"\x02\x05\x01\xaa\xac\x02\x00"
    assert codec.decode(HeartbeatRequest, data, 4) == HeartbeatRequest(group_id="g")


def test_a_tagged_field_that_does_not_fill_its_size_is_refused() -> None:
    """FetchRequest's tag 0 is the cluster id: one byte of text in a tag of four bytes."""
    data = codec.encode(FetchRequest(), 12)[:-1]
    assert codec.decode(FetchRequest, data + b"\x01\x00\x02\x02c", 12).cluster_id == "c"
    with pytest.raises(DecodeError, match="cluster_id"):
        codec.decode(FetchRequest, data + b"\x01\x00\x04\x02cxx", 12)


def test_a_default_is_not_written_as_a_tag_but_a_null_beside_it_is() -> None:
    """The default of this nullable struct is the empty one, so null must be said (KIP-848's records)."""
    default = codec.encode(ConsumerGroupMemberMetadataValue(), 0)
    null = codec.encode(ConsumerGroupMemberMetadataValue(classic_member_metadata=None), 0)
    assert null == default[:-1] + b"\x01\x00\x01\x00"
    assert codec.decode(ConsumerGroupMemberMetadataValue, null, 0).classic_member_metadata is None
    decoded = codec.decode(ConsumerGroupMemberMetadataValue, default, 0)
    assert decoded.classic_member_metadata == ClassicMemberMetadata()


@pytest.mark.parametrize("version", [7, 9])
def test_records_are_a_view_of_the_frame(version: int) -> None:
    frame = bytearray(codec.encode(produce(b"r" * 100), version))
    records = codec.decode(ProduceRequest, frame, version).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records == b"r" * 100
    frame[frame.index(b"rrr")] = ord("R")
    assert records[0] == ord("R")


@pytest.mark.parametrize("version", [11, 12])
def test_large_records_are_parts_of_their_own(version: int) -> None:
    view, region = memoryview(b"v" * 5000), Region(10_000)
    message = fetched(b"small", view, None, region, [b"head", region, view, b"tail"])
    parts = codec.encode_parts(message, version, b"HEADER")
    assert [p for p in parts if not isinstance(p, bytes)] == [view, region, region, view]
    assert bytes(parts[0]).startswith(b"HEADER")  # type: ignore[arg-type]
    assert parts[1] is view
    sizes = [p.size_bytes if isinstance(p, Region) else len(p) for p in parts]  # type: ignore[arg-type]
    joined = b"".join(b"#" * p.size_bytes if isinstance(p, Region) else p for p in parts)  # type: ignore[misc]
    assert sum(sizes) == len(joined)
    decoded = codec.decode(FetchResponse, joined[len(b"HEADER") :], version)
    record_parts = [p.records for p in decoded.responses[0].partitions]
    composed = b"head" + b"#" * 10_000 + bytes(view) + b"tail"
    assert record_parts == [b"small", view, None, b"#" * 10_000, composed]


def test_what_is_not_in_memory_has_no_bytes() -> None:
    with pytest.raises(EncodeError, match="not in memory"):
        codec.encode(fetched(Region(10)), 12)


def test_the_bare_callables_are_made_once() -> None:
    assert codec.decoder(ProduceRequest, 9) is codec.decoder(ProduceRequest, 9)
    assert codec.encoder(ProduceRequest, 9) is codec.encoder(ProduceRequest, 9)
    assert codec.decoder(ProduceRequest, 9) is not codec.decoder(ProduceRequest, 8)
