"""Which directory a new log gets, and which of two copies counts."""

from __future__ import annotations

import pytest

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_text
from blumfeld_storage_local.directories.places import (
    MoveEnd,
    MoveMark,
    decode_marks,
    encode_marks,
)

A, B, C = (bytes([n]) * 16 for n in (1, 2, 3))
PARTITION = TopicPartition("t", 0)


def test_marks_are_read_as_they_were_written() -> None:
    marks = {TopicPartition("u", 1): MoveMark(B, MoveEnd.GIVEN_UP), PARTITION: MoveMark(A, MoveEnd.DONE)}
    data = encode_marks(marks)
    assert data.decode() == f"0\n2\nt 0 {uuid_text(A)} done\nu 1 {uuid_text(B)} given-up\n"
    assert decode_marks(data, "file") == marks


@pytest.mark.parametrize("line", ["t 0", "t x done done", f"t 0 {'A' * 22} perhaps"])
def test_a_line_that_is_no_mark_is_refused(line: str) -> None:
    with pytest.raises(MalformedFile, match="line 3"):
        decode_marks(f"0\n1\n{line}\n".encode(), "file")
