"""The memory of a turn, and buffers of large frames."""

from __future__ import annotations

from blumfeld.net.turn import (
    CARRY_BYTES_MAX,
    FIRST_BYTES_MAX,
    POOLED_BYTES_MAX,
    SPARE_BYTES_MAX,
    LargeFrame,
    ReceivePool,
)


def test_a_full_chunk_is_not_used_again_in_its_turn() -> None:
    pool = ReceivePool(1_024)
    first = pool.chunk
    pool.next_chunk()
    assert pool.chunk is not first
    assert pool.position == 0
    pool.end_turn()
    pool.next_chunk()
    assert pool.chunk is first


def test_a_chunk_always_has_room_for_a_carry_and_a_read() -> None:
    for read_bytes in (1_024, 131_072, 1 << 24):
        pool = ReceivePool(read_bytes)
        assert pool.limit + CARRY_BYTES_MAX + read_bytes == len(pool.chunk)
        assert pool.limit >= 0


def test_buffers_come_back_only_after_the_turn() -> None:
    pool = ReceivePool(1_024)
    buffer = pool.take(100_000)
    pool.give_back_after_turn(buffer)
    assert pool.take(100_000) is not buffer
    pool.end_turn()
    assert pool.take(70_000) is buffer


def test_spare_buffers_are_bounded() -> None:
    pool = ReceivePool(1_024)
    buffers = [pool.take(POOLED_BYTES_MAX) for _ in range(10)]
    for buffer in buffers:
        pool.give_back(buffer)
    known = {id(buffer) for buffer in buffers}
    again = [pool.take(POOLED_BYTES_MAX) for _ in range(10)]
    assert len([buffer for buffer in again if id(buffer) in known]) == SPARE_BYTES_MAX // POOLED_BYTES_MAX
    huge = pool.take(POOLED_BYTES_MAX + 1)
    pool.give_back(huge)
    assert pool.take(POOLED_BYTES_MAX + 1) is not huge


def test_a_large_frame_grows_as_its_bytes_arrive() -> None:
    pool = ReceivePool(1_024)
    size = 10 * FIRST_BYTES_MAX + 17
    frame = LargeFrame(pool, size, memoryview(b"start"))
    have, largest_room = 5, 0
    while not frame.complete:
        room = frame.room()
        largest_room = max(largest_room, len(room))
        assert len(room) <= max(have, FIRST_BYTES_MAX)
        count = min(len(room), 700_001)
        room[:count] = bytes([have % 251]) * count
        frame.filled(count)
        have += count
    view = frame.take()
    assert len(view) == size
    assert bytes(view[:5]) == b"start"
    assert view[5] == 5


def test_a_large_frame_takes_only_what_is_its_own() -> None:
    frame = LargeFrame(ReceivePool(1_024), 20_000, memoryview(b"ab"))
    assert frame.fill_from(memoryview(b"c" * 30_000)) == 19_998
    assert frame.complete
    assert bytes(frame.take()) == b"ab" + b"c" * 19_998
