"""Output of several nodes as one stream: whole lines, each with its node."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.kernel.supervising.lines import LINE_BYTES_MAX, Lines


def test_lines_are_named() -> None:
    lines = Lines(7)
    assert list(lines.take(b"one\ntw")) == [b"node-7 | one\n"]
    assert list(lines.take(b"o\n\n")) == [b"node-7 | two\n", b"node-7 | \n"]
    assert list(lines.take(b"last")) == []
    assert list(lines.end()) == [b"node-7 | last\n"]
    assert list(lines.end()) == []


def test_json_gets_a_field() -> None:
    (line,) = Lines(7).take(b'{"event": "x", "a": 1}\n')
    assert json.loads(line) == {"node": 7, "event": "x", "a": 1}


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    lines = Lines(1)
    printed_lines = list(lines.take(b"x" * (3 * LINE_BYTES_MAX))) + list(lines.end())
    assert [len(line) for line in printed_lines] == [len(b"node-1 | \n") + LINE_BYTES_MAX] * 3
    printed_lines = list(lines.take(b"y" * (2 * LINE_BYTES_MAX) + b"\n"))
    assert [len(line) for line in printed_lines] == [len(b"node-1 | \n") + LINE_BYTES_MAX] * 2


@given(st.lists(st.binary(max_size=30), max_size=20))
def test_no_byte_is_lost_however_it_is_cut(parts: list[bytes]) -> None:
    lines = Lines(1)
    printed_lines = [line for part in parts for line in lines.take(part)] + list(lines.end())
    said = b"".join(parts)
    expected = said if said.endswith(b"\n") or not said else said + b"\n"
    if b'{"' not in said:
        assert b"".join(line.removeprefix(b"node-1 | ") for line in printed_lines) == expected
    assert all(line.endswith(b"\n") for line in printed_lines)
