"""The walk over a damaged segment: every sound batch is found, and every other byte is said to be damaged."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from blumfeld.log.segments.inspection import Damage, WholeBatch, inspect_segment
from tests.everyday import examples
from tests.log.batches import batch_bytes

BASE = 100


def segment(count: int, *, payload_bytes: int = 40, hole: int = 0) -> tuple[bytes, list[int]]:
    """(the bytes, where each batch starts): ``count`` batches of three records, ``hole`` offsets apart."""
    data, starts = b"", []
    for number in range(count):
        starts.append(len(data))
        payload = random.Random(number).randbytes(payload_bytes)
        data += batch_bytes(BASE + number * (3 + hole), 3, payload=payload)
    return data, starts


def parts(data: bytes, *, check_crc: bool = True) -> list[WholeBatch | Damage]:
    all_parts = list(inspect_segment(memoryview(data), BASE, check_crc=check_crc))
    at = 0
    for part in all_parts:
        assert part.position == at, "every byte is in exactly one part"
        at += part.batch.size_bytes if isinstance(part, WholeBatch) else part.size_bytes
    assert at == len(data)
    return all_parts


def whole(data: bytes) -> list[int]:
    return [part.position for part in parts(data) if isinstance(part, WholeBatch)]


def damages(data: bytes) -> list[Damage]:
    return [part for part in parts(data) if isinstance(part, Damage)]


@pytest.mark.parametrize("at", [0, 4, 5, 8, 11, 16, 17, 25, 60, 61, 80])
def test_a_flipped_bit_costs_its_batch_only(at: int) -> None:
    data, starts = segment(7)
    bad = bytearray(data)
    bad[starts[3] + at] ^= 0x40
    assert whole(bytes(bad)) == starts[:3] + starts[4:]
    (damage,) = damages(bytes(bad))
    assert (damage.position, damage.size_bytes) == (starts[3], starts[4] - starts[3])
    assert (damage.from_offset, damage.to_offset) == (BASE + 9, BASE + 12)
    assert not damage.is_tail
    assert damage.problem


def test_a_write_that_was_cut_off_is_a_tail() -> None:
    data, starts = segment(4)
    (damage,) = damages(data[: starts[3] + 20])
    assert damage.is_tail
    assert (damage.position, damage.from_offset, damage.to_offset) == (starts[3], BASE + 9, None)


def test_zeros_are_counted() -> None:
    """A size that lasted without its data looks so."""
    data, starts = segment(3)
    (damage,) = damages(data + bytes(10_000))
    assert damage.problem == "10000 zero bytes"
    assert damage.is_tail
    zeroed = data[: starts[1]] + bytes(starts[2] - starts[1]) + data[starts[2] :]
    (damage,) = damages(zeroed)
    assert damage.problem.endswith("zero bytes")
    assert whole(zeroed) == [starts[0], starts[2]]


def test_a_batch_that_goes_back_is_damage() -> None:
    """The same batch twice: the second can't be read by anyone."""
    data, starts = segment(3)
    again = data + data[starts[1] : starts[2]]
    (damage,) = damages(again)
    assert damage.position == len(data)
    assert damage.problem == f"offset {BASE + 3} follows {BASE + 8}"


def test_an_offset_too_far_for_the_segment_is_damage() -> None:
    data, _ = segment(1)
    (damage,) = damages(data + batch_bytes(BASE + (1 << 31)))
    assert "can't stand in segment" in damage.problem


def test_without_the_crc_a_flipped_record_passes() -> None:
    """An overview asks for lengths only."""
    data, starts = segment(3)
    bad = bytearray(data)
    bad[starts[1] + 70] ^= 1
    assert len(whole(bytes(bad))) == 2
    assert all(isinstance(part, WholeBatch) for part in parts(bytes(bad), check_crc=False))


@settings(max_examples=examples(150), deadline=None)
@example(count=3, hurt=[(4, 1, b"\x01")], cut=0)
@given(
    count=st.integers(1, 12),
    hurt=st.lists(
        st.tuples(st.integers(0, 2000), st.integers(1, 120), st.binary(min_size=1, max_size=3)), max_size=3
    ),
    cut=st.integers(0, 60),
)
def test_whatever_is_overwritten_every_untouched_batch_is_found(
    count: int, hurt: list[tuple[int, int, bytes]], cut: int
) -> None:
    data, starts = segment(count, payload_bytes=30)
    bad = bytearray(data)
    for at, size, filler in hurt:
        end = min(at + size, len(bad))
        if at < end:
            bad[at:end] = (filler * size)[: end - at]
    bad = bad[: len(bad) - cut] if cut < len(bad) else bad
    ends = [*starts[1:], len(data)]
    untouched = [start for start, end in zip(starts, ends, strict=True) if bad[start:end] == data[start:end]]
    assert set(untouched) <= set(whole(bytes(bad)))
