"""Text files of a log directory: as Kafka writes them, and what is said when they are damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from blumfeld.log.checkpoints import (
    MalformedFile,
    MetaProperties,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    uuid_of,
)
from blumfeld.spi.storage import TopicPartition

TOPIC_ID_TEXT = "7TbC0zN1TC-YP0N1Sx22gA"
TOPIC_ID = uuid_of(TOPIC_ID_TEXT)
BY_KAFKA_META = b"""#
#Sat Nov 21 10:14:31 UTC 2026
node.id=1
directory.id=7_rXO9fkDawVbr_9UO62LQ
version=1
cluster.id=MkU3OEVBNTcwNTJENDM2Qg
"""


def test_an_offset_checkpoint_is_kafkas_text() -> None:
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b.c-d", 11): 0}
    text = b"0\n2\na 0 5\nb.c-d 11 0\n"
    assert encode_offsets(offsets.items()) == text
    assert decode_offsets(text, "x") == offsets


def test_a_checkpoint_without_entries_may_be_an_empty_file() -> None:
    assert encode_offsets([]) == b"0\n0\n"
    assert decode_offsets(b"0\n0\n", "x") == {}
    assert decode_offsets(b"", "x") == {}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"0\n", "first two lines"),
        (b"1\n0\n", "line 1: unknown version '1'"),
        (b"0\nmany\n", "line 2: 'many'"),
        (b"0\n-1\n", "line 2: '-1'"),
        (b"0\n2\na 0 5\n", "1 entries, where line 2 says 2"),
        (b"0\n1\na 0\n", "line 3: 'a 0' should be a topic, a partition and an offset"),
        (b"0\n1\na 0 5 6\n", "line 3"),
        (b"0\n1\na x 5\n", "line 3"),
        (b"0\n1\na -1 5\n", "line 3"),
        (b"0\n1\n\xff\n", "not UTF-8 at byte 4"),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_file_and_line(data: bytes, message: str) -> None:
    with pytest.raises(MalformedFile) as caught:
        decode_offsets(data, "dir/recovery-point-offset-checkpoint")
    assert str(caught.value).startswith("dir/recovery-point-offset-checkpoint: ")
    assert message in str(caught.value)


@given(st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    for decode in (decode_offsets, decode_partition_metadata, decode_meta_properties, decode_properties):
        try:
            decode(data, "x")
        except MalformedFile:
            continue
    assert decode_clean_shutdown(data) >= -1


def test_partition_metadata_is_kafkas_text() -> None:
    text = b"version: 0\ntopic_id: 7TbC0zN1TC-YP0N1Sx22gA"
    assert encode_partition_metadata(TOPIC_ID) == text
    assert decode_partition_metadata(text) == TOPIC_ID
    assert decode_partition_metadata(text + b"\n") == TOPIC_ID


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 1\ntopic_id: 7TbC0zN1TC-YP0N1Sx22gA",
        "version: 0\ntopic_id: short",
        "version: 0\ntopic_id: 7TbC0zN1TC+YP0N1Sx22gA",
        "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        "version 0",
    ],
)
def test_other_partition_metadata_is_refused(text: str) -> None:
    with pytest.raises(MalformedFile, match=r"partition\.metadata"):
        decode_partition_metadata(text.encode())


def test_meta_properties_of_kafka_are_read() -> None:
    meta = decode_meta_properties(BY_KAFKA_META)
    assert (meta.cluster_id, meta.node_id) == ("MkU3OEVBNTcwNTJENDM2Qg", 1)
    assert meta.directory_id == uuid_of("7_rXO9fkDawVbr_9UO62LQ")


def test_meta_properties_of_kafka_with_a_zookeeper_are_read_where_they_may_be_and_stay_in_their_version() -> (
    None
):
    data = b"#\n#Sat Nov 28 21:55:13 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=hsd5oDOORAK_nhzoH_2WeQ\n"
    meta = decode_meta_properties(data, zookeeper=True)
    assert (meta.cluster_id, meta.node_id, meta.directory_id) == ("hsd5oDOORAK_nhzoH_2WeQ", 1, bytes(16))
    claimed = replace(meta, directory_id=TOPIC_ID)
    written = encode_meta_properties(claimed)
    assert b"broker.id=1\n" in written
    assert b"version=0\n" in written
    assert decode_meta_properties(written, zookeeper=True) == claimed
    with pytest.raises(MalformedFile, match=r"broker\.id is missing"):
        decode_meta_properties(b"version=0\ncluster.id=c\n", zookeeper=True)


@given(
    st.text(st.characters(codec="ascii", exclude_categories=["C", "Z"]), min_size=1),
    st.integers(0, 2**31 - 1),
)
def test_meta_properties_come_back(cluster_id: str, node_id: int) -> None:
    meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=TOPIC_ID)
    assert decode_meta_properties(encode_meta_properties(meta)) == meta


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=0\nbroker.id=1\n", "version '0'"),
        ("version=1\nnode.id=1\ndirectory.id=7_rXO9fkDawVbr_9UO62LQ\n", "cluster.id is missing"),
        (
            "version=1\ncluster.id=c\nnode.id=one\ndirectory.id=7_rXO9fkDawVbr_9UO62LQ\n",
            "node.id or directory.id",
        ),
        ("version=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n", "node.id or directory.id"),
        ("=1\n", "line 1: '=1' has no name"),
    ],
)
def test_other_meta_properties_are_refused(text: str, message: str) -> None:
    with pytest.raises(MalformedFile, match=message):
        decode_meta_properties(text.encode())


def test_the_clean_shutdown_file_keeps_the_broker_epoch() -> None:
    assert encode_clean_shutdown(12) == b'{"version":0,"brokerEpoch":12}'
    assert decode_clean_shutdown(b'{"version":0,"brokerEpoch":12}') == 12


@pytest.mark.parametrize("data", [b"", b"0", b"[]", b'{"brokerEpoch":"x"}', b"{"])
def test_an_older_clean_shutdown_file_says_no_epoch(data: bytes) -> None:
    assert decode_clean_shutdown(data) == -1
