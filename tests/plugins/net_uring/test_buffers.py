"""Addresses, slabs, buffer groups, and gathered sends."""

from __future__ import annotations

import ctypes
import errno
import gc
import mmap
import socket
from collections.abc import Iterator

import pytest

from blumfeld_net_uring.io_uring import abi
from blumfeld_net_uring.io_uring.buffers import (
    BufferGroup,
    Gather,
    Slabs,
    address_of,
    address_of_bytes,
)
from blumfeld_net_uring.io_uring.ring import Ring
from tests.plugins.net_uring.ring_tools import Told, needs_ring, run_until, turn

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two connected sockets that keep the borders of what is sent, so that one send is one receive."""
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    far.settimeout(5)
    with near, far:
        yield near, far


def buffer_id(flags: int) -> int:
    """Which buffer a completion names."""
    assert flags & abi.CQE_F_BUFFER
    return flags >> abi.CQE_BUFFER_SHIFT


class TestAddresses:
    def test_of_writable_buffers(self) -> None:
        memory = bytearray(b"abcdef")
        assert ctypes.string_at(address_of(memory), 6) == b"abcdef"
        assert ctypes.string_at(address_of(memoryview(memory)[2:]), 4) == b"cdef"
        with mmap.mmap(-1, 4096) as mapped:
            mapped[:3] = b"xyz"
            assert ctypes.string_at(address_of(mapped), 3) == b"xyz"

    @pytest.mark.parametrize("data", [b"", b"a", b"abc" * 1000, bytes(100_000)], ids=len)
    def test_of_bytes(self, data: bytes) -> None:
        """With the zero byte that CPython keeps behind them."""
        assert ctypes.string_at(address_of_bytes(data), len(data) + 1) == data + b"\0"


class TestSlabs:
    def test_each_has_its_own_memory_and_address(self) -> None:
        slabs = Slabs(100, 5)
        for i, view in enumerate(slabs.views):
            view[:] = bytes([i]) * 100
        for i, address in enumerate(slabs.addresses):
            assert ctypes.string_at(address, 100) == bytes([i]) * 100

    def test_the_last_given_back_is_taken_first(self) -> None:
        slabs = Slabs(100, 3)
        first, second = slabs.free.pop(), slabs.free.pop()
        assert (first, second, slabs.outstanding) == (0, 1, 2)
        slabs.free.append(first)
        assert slabs.free.pop() == first

    def test_more_are_made_up_to_the_limit(self) -> None:
        slabs = Slabs(100, 5, 2)
        taken = [slabs.free.pop(), slabs.free.pop()]
        assert (slabs.free, slabs.outstanding) == ([], 2)
        assert [slabs.extend(2), slabs.extend(2), slabs.extend(2)] == [2, 1, 0]
        taken += [slabs.free.pop() for _ in range(3)]
        assert sorted(taken) == [0, 1, 2, 3, 4]
        assert slabs.addresses == [slabs.addresses[0] + 100 * i for i in range(5)]

    def test_a_view_outlives_the_release(self) -> None:
        slabs = Slabs(100, 3)
        view = slabs.views[1]
        slabs.release()
        gc.collect()
        view[:] = bytes(100)
        assert slabs.outstanding == slabs.extend(1) == 0


@needs_ring
class TestBufferGroup:
    def test_a_frame_stays_until_its_turn_ends(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        group = BufferGroup(ring, size_bytes=64, count_first=2, count_max=2)
        recorder = Told(ring)
        ring.recv_group(recorder.token, near.fileno(), group.group)
        turn(ring)
        frames: list[memoryview] = []
        for data in (b"one", b"two"):
            far.send(data)
            run_until(ring, lambda: len(recorder.completions) > len(frames))
            result, flags = recorder.completions[len(frames)]
            frames.append(group.views[buffer_id(flags)][:result])
            group.taken.append(buffer_id(flags))
        far.send(b"three")
        run_until(ring, lambda: len(recorder.completions) == 3)
        assert recorder.results[2] == -errno.ENOBUFS
        assert [bytes(frame) for frame in frames] == [b"one", b"two"]
        group.end_turn()
        ring.recv_group(recorder.token, near.fileno(), group.group)
        run_until(ring, lambda: len(recorder.completions) == 4)
        assert bytes(group.views[buffer_id(recorder.completions[3][1])][:5]) == b"three"

    def test_it_grows_when_none_is_left_up_to_its_limit(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        group = BufferGroup(ring, size_bytes=64, count_first=1, count_max=4)
        recorder = Told(ring)
        for i in range(4):
            far.send(bytes([i]))
        grown: list[bool] = []
        while not grown or grown[-1]:
            ring.recv_group(recorder.token, near.fileno(), group.group)
            run_until(ring, lambda: recorder.results[-1] == -errno.ENOBUFS if recorder.results else False)
            grown.append(group.grow())
            recorder.completions[-1:] = []
        assert group.published == 4
        ids = [buffer_id(flags) for _, flags in recorder.completions]
        assert sorted(ids) == [0, 1, 2, 3]
        assert [group.views[i][0] for i in ids] == [0, 1, 2, 3]

    def test_many_that_find_none_in_a_turn_grow_it_by_what_they_need(self, ring: Ring) -> None:
        group = BufferGroup(ring, size_bytes=64, count_first=4, count_max=64)
        assert [group.grow() for _ in range(10)] == [True] * 10
        assert group.published == 16
        group.end_turn()
        assert group.grow()
        assert group.published == 32

    def test_few_buffers_serve_for_ever(self, ring: Ring, pair: Pair) -> None:
        """The table wraps around, and after 65,536 buffers its tail too. Each round uses all, no less and no more."""
        near, far = pair
        group = BufferGroup(ring, size_bytes=64, count_first=8, count_max=8)
        recorder = Told(ring)
        for i in range(66_000 // 8):
            ring.recv_group(recorder.token, near.fileno(), group.group)
            sent = [(8 * i + k).to_bytes(4, "big") for k in range(8)]
            for data in sent:
                far.send(data)
            run_until(ring, lambda: len(recorder.completions) == 9)
            assert recorder.results[8] == -errno.ENOBUFS
            ids = [buffer_id(flags) for _, flags in recorder.completions[:8]]
            assert [bytes(group.views[i][:4]) for i in ids] == sent
            group.taken += ids
            group.end_turn()
            recorder.completions.clear()
        assert ring.in_flight == 0

    def test_a_single_receive_takes_one_buffer(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        group = BufferGroup(ring, group=7, size_bytes=64, count_first=2, count_max=2)
        recorder = Told(ring)
        ring.recv_group(recorder.token, near.fileno(), 7, mode=0)
        far.send(b"x")
        run_until(ring, lambda: recorder.results == [1])
        assert not recorder.completions[0][1] & abi.CQE_F_MORE
        assert group.views[buffer_id(recorder.completions[0][1])][0] == ord("x")

    def test_a_closed_group_can_be_made_again(self, ring: Ring) -> None:
        group = BufferGroup(ring, size_bytes=64, count_first=1, count_max=1)
        with pytest.raises(OSError, match="File exists") as caught:
            BufferGroup(ring, size_bytes=64, count_first=1, count_max=1)
        assert caught.value.errno == errno.EEXIST
        group.close()
        group.close()
        BufferGroup(ring, size_bytes=64, count_first=1, count_max=1)

    def test_the_ring_lets_go_of_it_last(self, pair: Pair) -> None:
        """Closed with a receive in flight: the group's memory is released when that has ended."""
        near, far = pair
        ring = Ring(8, 16)
        group = BufferGroup(ring, size_bytes=64, count_first=1, count_max=1)
        view = group.views[0]
        ring.recv_group(Told(ring).token, near.fileno(), group.group)
        turn(ring)
        assert ring.close()
        assert group.views == []
        far.send(b"late")
        assert bytes(view) == bytes(64)
        assert near.recv(10) == b"late"
        group.close()

    @pytest.mark.parametrize(("first", "most"), [(0, 4), (5, 4), (1, 3), (1, 65536)])
    def test_impossible_sizes_are_refused(self, first: int, most: int, ring: Ring) -> None:
        with pytest.raises(ValueError, match="power of two"):
            BufferGroup(ring, count_first=first, count_max=most)


@needs_ring
class TestGather:
    def test_parts_leave_in_order_in_one_send(self, ring: Ring, pair: Pair) -> None:
        near, far = pair
        gather = Gather()
        recorder = Told(ring)
        parts = [b"one", b"", b"three" * 100]
        for _ in range(2):
            gather.fill([(address_of_bytes(part), len(part)) for part in parts])
            ring.sendmsg(recorder.token, near.fileno(), gather.address, socket.MSG_NOSIGNAL)
            run_until(ring, lambda: ring.in_flight == 0)
            assert far.recv(1000) == b"".join(parts)
            parts = [b"again"]
        assert recorder.results == [503, 5]

    def test_more_parts_than_it_has_room_for_are_refused(self) -> None:
        with pytest.raises(ValueError, match="3 parts, and room for 2"):
            Gather(2).fill([(0, 0)] * 3)
