"""Where a log lies when there are several directories: which one a new log gets, and which of two copies counts.

Pure. A move (KIP-113) makes a second copy; for the moment in which both bear the log's name, a mark in the directory
that it leaves says which of them counts. The mark is ours (:data:`MOVE_MARKS`): Kafka refuses to start on two copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from blumfeld.log.checkpoints import decode_lines, encode_lines, uuid_of
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_text

MOVE_MARKS = "blumfeld-move-checkpoint"
"""Beside Kafka's checkpoints, which skips what it doesn't know; there only while a move changes over, or broke off."""


class MoveEnd(StrEnum):
    """What the directory that a log leaves says of the copy."""

    DONE = "done"
    """The copy is whole and lasts: if it bears the log's name, it counts."""
    GIVEN_UP = "given-up"
    """The log went on here: a copy that bears its name is stale."""


class MoveMark(msgspec.Struct, frozen=True):
    """What became of a move: to which directory, and how it ended."""

    directory_id: bytes
    end: MoveEnd


def encode_marks(marks: Mapping[TopicPartition, MoveMark]) -> bytes:
    """The file: laid out as a checkpoint, a line ``topic partition directory-id done|given-up``."""
    return encode_lines(
        f"{at.topic} {at.partition} {uuid_text(mark.directory_id)} {mark.end.value}"
        for at, mark in sorted(marks.items(), key=lambda item: item[0])
    )


def decode_marks(data: bytes, source: str) -> dict[TopicPartition, MoveMark]:
    """Read it back.

    :raises MalformedFile: it is not one
    """
    return dict(decode_lines(data, source, "a topic, a partition, a directory id and an end", _parse_mark))


def _parse_mark(line: str) -> tuple[TopicPartition, MoveMark]:
    topic, partition, directory_id, end = line.split(" ")
    return TopicPartition(topic, int(partition)), MoveMark(uuid_of(directory_id), MoveEnd(end))


class Place(msgspec.Struct, frozen=True):
    """A directory that is online, as the one who places sees it."""

    directory_id: bytes
    path: str
    logs: int


def choose(places: Sequence[Place], directory_id: bytes | None) -> int | None:
    """The number of the directory for a new log: the one asked for, else the one with the fewest logs.

    Of several the first in the configured order, as Kafka. ``None``: no directory is online.
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
    """What this directory says of a move away from it."""


def current(partition: TopicPartition, copies: Sequence[Copy]) -> int:
    """The number of the copy that counts, of two or more: the others are leftovers of a move.

    :raises ValueError: no mark says it; the text names both
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
