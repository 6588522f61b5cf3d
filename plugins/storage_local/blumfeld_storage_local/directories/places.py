"""Choose among several log directories: the one for a new log, and the one whose copy counts after a broken move.

Pure. A move (KIP-113) makes a second copy of a log. For a moment both copies have the log's name. A mark in the
directory that the log leaves tells which one counts. Kafka has no such mark (:data:`MOVE_MARKS`), and refuses to start
on two copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from blumfeld.log.checkpoints import decode_lines, encode_lines, uuid_of
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_text

MOVE_MARKS = "blumfeld-move-checkpoint"
"""File of the marks, beside Kafka's checkpoints; Kafka skips it. It exists during a cut-over, or after a broken one."""


class MoveEnd(StrEnum):
    """The end of a move, as the directory that the log leaves tells it."""

    DONE = "done"
    """The copy is whole and durable. It counts if it has the log's name."""
    GIVEN_UP = "given-up"
    """The log stayed here. A copy that has its name is stale."""


class MoveMark(msgspec.Struct, frozen=True):
    """The target of a move, and how the move ended."""

    directory_id: bytes
    end: MoveEnd


def encode_marks(marks: Mapping[TopicPartition, MoveMark]) -> bytes:
    """Return the file's bytes: laid out as a checkpoint, with lines ``topic partition directory-id done|given-up``."""
    return encode_lines(
        f"{at.topic} {at.partition} {uuid_text(mark.directory_id)} {mark.end.value}"
        for at, mark in sorted(marks.items(), key=lambda item: item[0])
    )


def decode_marks(data: bytes, source: str) -> dict[TopicPartition, MoveMark]:
    """Return the marks in a file's bytes.

    :raises MalformedFile: the bytes are no such file
    """
    return dict(decode_lines(data, source, "a topic, a partition, a directory id and an end", _parse_mark))


def _parse_mark(line: str) -> tuple[TopicPartition, MoveMark]:
    topic, partition, directory_id, end = line.split(" ")
    return TopicPartition(topic, int(partition)), MoveMark(uuid_of(directory_id), MoveEnd(end))


class Place(msgspec.Struct, frozen=True):
    """An online directory that a new log may get."""

    directory_id: bytes
    path: str
    logs: int


def choose(places: Sequence[Place], directory_id: bytes | None) -> int | None:
    """Return the number of the directory for a new log: the one asked for, else the one with the fewest logs.

    Among equals the first in the configured order is taken, as in Kafka. ``None`` if no directory is online.
    """
    for at, place in enumerate(places):
        if place.directory_id == directory_id:
            return at
    return min(range(len(places)), key=lambda at: (places[at].logs, at), default=None)


class Copy(msgspec.Struct, frozen=True):
    """One of several directories that hold a log of the same name."""

    directory_id: bytes
    path: str
    mark: MoveMark | None
    """Mark of a move away from this directory."""


def current(partition: TopicPartition, copies: Sequence[Copy]) -> int:
    """Return the number of the copy that counts, of two or more. The others are leftovers of a move.

    :raises ValueError: no mark tells; the text names both
    """
    for at, copy in enumerate(copies):
        others = [other for number, other in enumerate(copies) if number != at]
        if all(_counts_against(copy, other) for other in others):
            return at
    paths = " and ".join(copy.path for copy in copies)
    raise ValueError(
        f"the log of {partition} lies in {paths}: one directory only may hold it; move the copy that is not wanted away"
    )


def _counts_against(copy: Copy, other: Copy) -> bool:
    if other.mark == MoveMark(copy.directory_id, MoveEnd.DONE):
        return True
    return copy.mark == MoveMark(other.directory_id, MoveEnd.GIVEN_UP)
