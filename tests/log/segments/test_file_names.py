"""Names of files and directories, both ways, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.segments.file_names import (
    NAME_LENGTH_MAX,
    DirState,
    Mark,
    PartitionDir,
    SegmentFile,
    Suffix,
    marked_partition_dir,
    parse_partition_dir,
    parse_segment_name,
    partition_dir,
    segment_name,
)
from blumfeld.spi.storage import TopicPartition

UNIQUE = bytes(range(16))


@pytest.mark.parametrize(
    ("file", "name"),
    [
        (SegmentFile(0, Suffix.LOG), "00000000000000000000.log"),
        (SegmentFile(42, Suffix.TIME_INDEX), "00000000000000000042.timeindex"),
        (SegmentFile(2**63 - 1, Suffix.OFFSET_INDEX, Mark.DELETED), "09223372036854775807.index.deleted"),
        (SegmentFile(7, Suffix.TRANSACTION_INDEX, Mark.SWAP), "00000000000000000007.txnindex.swap"),
        (SegmentFile(7, Suffix.LOG, Mark.CLEANED), "00000000000000000007.log.cleaned"),
        (SegmentFile(7, Suffix.PRODUCER_SNAPSHOT), "00000000000000000007.snapshot"),
    ],
)
def test_a_segments_file_both_ways(file: SegmentFile, name: str) -> None:
    assert segment_name(file.base_offset, file.suffix, file.mark) == name
    assert parse_segment_name(name) == file


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "00000000000000000000",
        "00000000000000000000.log.tmp",
        "00000000000000000000.log.",
        "0000000000000000000a.log",
        "09223372036854775808.log",
        "00000000000000000000.log\n",
        "leader-epoch-checkpoint",
        "٠" * 20 + ".log",
    ],
)
def test_what_is_no_segments_file(name: str) -> None:
    assert parse_segment_name(name) is None


def test_no_segment_starts_below_0() -> None:
    with pytest.raises(ValueError, match="-1"):
        segment_name(-1)


@given(st.text("abcXYZ019._-", min_size=1, max_size=249), st.integers(0, 2**31 - 1))
def test_a_partitions_directory_both_ways(topic: str, partition: int) -> None:
    at = TopicPartition(topic, partition)
    if topic in (".", ".."):
        assert parse_partition_dir(partition_dir(at)) is None
    else:
        assert parse_partition_dir(partition_dir(at)) == PartitionDir(at)
    for state in (DirState.DELETE, DirState.FUTURE, DirState.STRAY):
        name = marked_partition_dir(at, state, UNIQUE)
        assert len(name) <= NAME_LENGTH_MAX
        parsed = parse_partition_dir(name)
        if parsed is not None:
            assert topic.startswith(parsed.partition.topic)
            assert (parsed.partition.partition, parsed.state, parsed.unique_id) == (
                partition,
                state,
                UNIQUE.hex(),
            )
        else:
            assert topic in (".", "..")


def test_a_deleted_directory_is_named_as_kafka_does() -> None:
    name = marked_partition_dir(TopicPartition("ticks", 3), DirState.DELETE, UNIQUE)
    assert name == "ticks-3.000102030405060708090a0b0c0d0e0f-delete"
    long_name = marked_partition_dir(TopicPartition("t" * 249, 3), DirState.DELETE, UNIQUE)
    assert len(long_name) == NAME_LENGTH_MAX


@pytest.mark.parametrize(
    "name", ["ticks", "ticks-", "ticks-01", "-1", "ti cks-0", "..-0", "t-2147483648", "a/b-0"]
)
def test_what_is_no_partitions_directory(name: str) -> None:
    assert parse_partition_dir(name) is None
