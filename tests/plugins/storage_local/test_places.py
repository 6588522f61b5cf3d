"""Which directory a new log gets, and which of two copies counts."""

from __future__ import annotations

import pytest

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_text
from blumfeld_storage_local.directories.places import (
    Copy,
    MoveEnd,
    MoveMark,
    Place,
    choose,
    current,
    decode_marks,
    encode_marks,
)

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
PARTITION = TopicPartition("t", 0)


def places(*logs: int) -> list[Place]:
    return [Place(bytes([n + 1]) * 16, f"/{n}", count) for n, count in enumerate(logs)]


def copies(*marks: MoveMark | None) -> list[Copy]:
    return [Copy(bytes([n + 1]) * 16, f"/{n}/t-0", mark) for n, mark in enumerate(marks)]


@pytest.mark.parametrize(
    ("logs", "wanted", "chosen"),
    [
        ((), None, None),
        ((), A, None),
        ((5,), None, 0),
        ((2, 1, 1), None, 1),
        ((0, 0), None, 0),
        ((2, 1, 1), A, 0),
        ((2, 1, 1), C, 2),
        ((2, 1), C, 1),
    ],
)
def test_a_log_goes_where_it_is_told_or_where_the_fewest_are(
    logs: tuple[int, ...], wanted: bytes | None, chosen: int | None
) -> None:
    assert choose(places(*logs), wanted) == chosen


@pytest.mark.parametrize(
    ("marks", "counts"),
    [
        ((MoveMark(B, MoveEnd.DONE), None), 1),
        ((MoveMark(B, MoveEnd.GIVEN_UP), None), 0),
        ((None, MoveMark(A, MoveEnd.DONE)), 0),
        ((None, MoveMark(A, MoveEnd.GIVEN_UP)), 1),
        ((MoveMark(B, MoveEnd.GIVEN_UP), None, MoveMark(A, MoveEnd.DONE)), 0),
    ],
)
def test_a_mark_says_which_copy_counts(marks: tuple[MoveMark | None, ...], counts: int) -> None:
    assert current(PARTITION, copies(*marks)) == counts


@pytest.mark.parametrize(
    "marks", [(None, None), (MoveMark(C, MoveEnd.DONE), None), (MoveMark(B, MoveEnd.DONE), None, None)]
)
def test_without_one_nobody_can_say(marks: tuple[MoveMark | None, ...]) -> None:
    with pytest.raises(ValueError, match="the log of t-0 lies in /0/t-0 and /1/t-0"):
        current(PARTITION, copies(*marks))


def test_marks_are_read_as_they_were_written() -> None:
    marks = {TopicPartition("u", 1): MoveMark(B, MoveEnd.GIVEN_UP), PARTITION: MoveMark(A, MoveEnd.DONE)}
    data = encode_marks(marks)
    assert data.decode() == f"0\n2\nt 0 {uuid_text(A)} done\nu 1 {uuid_text(B)} given-up\n"
    assert decode_marks(data, "file") == marks


@pytest.mark.parametrize("line", ["t 0", "t x done done", f"t 0 {'A' * 22} perhaps"])
def test_a_line_that_is_no_mark_is_refused(line: str) -> None:
    with pytest.raises(MalformedFile, match="line 3"):
        decode_marks(f"0\n1\n{line}\n".encode(), "file")
