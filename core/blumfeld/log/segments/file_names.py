"""File and directory names in a log directory, as Kafka has them (``LogFileUtils``, ``Snapshots``). Pure."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from blumfeld.spi.storage import TopicPartition

OFFSET_DIGITS = 20
NAME_LENGTH_MAX = 255
"""File systems' limit. A longer topic name is cut in the name of a directory that is to be deleted."""
_INT64_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1


class Suffix(StrEnum):
    """Suffix that tells what a segment's file holds."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    PRODUCER_SNAPSHOT = ".snapshot"


class Mark(StrEnum):
    """Second suffix: what is being done to the file."""

    NONE = ""
    DELETED = ".deleted"
    """Deleted after ``file.delete.delay.ms``; a start deletes it at once."""
    CLEANED = ".cleaned"
    """The cleaner is writing it; a start deletes it."""
    SWAP = ".swap"
    """A cleaner's result about to take its place; a start finishes the rename."""


class DirState(StrEnum):
    """State of a partition's directory."""

    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class SegmentFile(msgspec.Struct, frozen=True):
    """A parsed file name."""

    base_offset: int
    suffix: Suffix
    mark: Mark = Mark.NONE


class PartitionDir(msgspec.Struct, frozen=True):
    """A parsed directory name. If a long topic name is to be deleted, only its beginning is left."""

    partition: TopicPartition
    state: DirState = DirState.CURRENT
    unique_id: str = ""
    """32 hex digits; empty for the current directory."""


_SUFFIXES = "|".join(re.escape(suffix) for suffix in Suffix)
_MARKS = "|".join(re.escape(mark) for mark in Mark if mark)
_FILE = re.compile(rf"([0-9]{{{OFFSET_DIGITS}}})({_SUFFIXES})({_MARKS}|)")
_TOPIC = r"([a-zA-Z0-9._-]{1,249})"
_PARTITION = r"-(0|[1-9][0-9]{0,9})"
_DIR = re.compile(_TOPIC + _PARTITION)
_MARKED_DIR = re.compile(_TOPIC + _PARTITION + r"\.([0-9a-f]{32})-(delete|future|stray)")


def segment_name(base_offset: int, suffix: Suffix = Suffix.LOG, mark: Mark = Mark.NONE) -> str:
    """Returns a file name: ``segment_name(42, Suffix.TIME_INDEX)`` is ``00000000000000000042.timeindex``.

    :raises ValueError: a negative offset
    """
    if base_offset < 0:
        raise ValueError(f"a segment cannot start at offset {base_offset}")
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix.value}{mark.value}"


def parse_segment_name(name: str) -> SegmentFile | None:
    """Parse a file name; ``None`` if it is not a segment's file."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[1]) > _INT64_MAX:
        return None
    return SegmentFile(int(match[1]), Suffix(match[2]), Mark(match[3]))


def partition_dir(partition: TopicPartition) -> str:
    """Returns the directory name, such as ``topic-0``."""
    return f"{partition.topic}-{partition.partition}"


def marked_partition_dir(partition: TopicPartition, state: DirState, unique_id: bytes) -> str:
    """Returns ``topic-0.<32 hex digits>-delete``, with the topic's name cut where the whole exceeds 255
    characters.

    :param unique_id: 16 random bytes, so that one topic may be deleted and created again many times
    """
    tail = f"-{partition.partition}.{unique_id.hex()}-{state.value}"
    return partition.topic[: NAME_LENGTH_MAX - len(tail)] + tail


def parse_partition_dir(name: str) -> PartitionDir | None:
    """Parse a directory name; ``None`` if it is not a partition's directory."""
    if match := _MARKED_DIR.fullmatch(name):
        state, unique_id = DirState(match[4]), match[3]
    elif match := _DIR.fullmatch(name):
        state, unique_id = DirState.CURRENT, ""
    else:
        return None
    if match[1] in (".", "..") or int(match[2]) > _INT32_MAX:
        return None
    return PartitionDir(TopicPartition(match[1], int(match[2])), state, unique_id)
