"""The bound on the memory of all connections: it holds, nothing waits for ever, and what stands still gives way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blumfeld.net.memory import OLDEST_LOOKS_MAX, PROGRESS_BYTES_MIN, UNCOUNTED_BYTES, Memory
from blumfeld.net.turn import POOLED_BYTES_MAX, LargeFrame, ReceivePool
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.everyday import examples

MIB = 1 << 20
STALL_MS = 1_000


class Peer:
    """A connection that receives one frame: reads as far as it may, and says what it is told."""

    def __init__(self, stage: Stage, size_bytes: int, first_bytes: int = 0) -> None:
        self.stage = stage
        self.dead = ""
        self.is_muted = False
        self.waits = False
        self.frame = LargeFrame(stage.pool, size_bytes, memoryview(bytes(first_bytes)), self)
        self.done = False

    def send(self, count: int) -> None:
        """The peer sends so many bytes; what may not be received now stays in the kernel."""
        while count and not (self.done or self.dead or self.waits):
            if self.frame.starved():
                self.waits = True
                return
            taken = min(len(self.frame.room()), count)
            count -= taken
            if self.frame.filled(taken):
                self.frame.take()
                self.done = True

    def fed_memory(self) -> None:
        assert self.waits
        self.waits = False

    def muted(self) -> bool:
        return self.is_muted

    def die(self, reason: str) -> None:
        assert not self.dead
        self.dead = reason
        self.frame.drop()


class Stage:
    """A pool whose frames are counted."""

    def __init__(self, request_bytes_max: int) -> None:
        self.runtime = FakeRuntime()
        self.pool = ReceivePool(1_024)
        self.memory = self.pool.memory = Memory(self.runtime)
        self.memory.request_bytes_max = request_bytes_max
        self.memory.stall_ms = STALL_MS

    def turn(self) -> None:
        self.pool.end_turn()
        self.runtime.run_turn()


@settings(max_examples=examples(40))
@given(
    bound=st.integers(UNCOUNTED_BYTES, 4 * MIB),
    sizes=st.lists(st.integers(UNCOUNTED_BYTES + 1, 3 * MIB), min_size=1, max_size=6),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(1, MIB)), max_size=40),
    leaver=st.integers(0, 11),
)
def test_the_bound_holds_and_every_frame_completes(
    bound: int, sizes: list[int], steps: list[tuple[int, int]], leaver: int
) -> None:
    stage = Stage(bound)
    peers = [Peer(stage, size) for size in sizes]
    first_bytes = sum(peer.frame.received_bytes for peer in peers)
    most = bound + POOLED_BYTES_MAX + first_bytes + len(peers) * 16_384
    for number, (who, count) in enumerate(steps):
        peers[who % len(peers)].send(count)
        assert stage.memory.request_bytes <= most, "the bound, one frame, and the least buffer of each"
        if number == 20 and leaver < len(peers) and not peers[leaver].done and not peers[leaver].dead:
            peers[leaver].die("gone")
        if count % 3 == 0:
            stage.turn()
    for _ in range(3 * len(peers)):
        for peer in peers:
            peer.send(4 * MIB)
        stage.turn()
    assert all(peer.done or peer.dead == "gone" for peer in peers)
    assert (stage.memory.request_bytes, stage.memory.waiting) == (0, 0)


def test_small_frames_are_not_counted() -> None:
    """An ordinary request pays nothing for the bound, and never waits for it."""
    stage = Stage(0)
    peer = Peer(stage, UNCOUNTED_BYTES)
    peer.send(UNCOUNTED_BYTES)
    assert peer.done
    assert stage.memory.request_bytes == 0


def test_memory_of_a_complete_frame_is_free_after_its_turn() -> None:
    """Until then its bytes are read."""
    stage = Stage(4 * MIB)
    peer = Peer(stage, 100_000)
    peer.send(100_000)
    assert stage.memory.request_bytes >= 100_000
    stage.turn()
    assert stage.memory.request_bytes == 0


def test_only_the_oldest_frame_exceeds_the_bound() -> None:
    stage = Stage(MIB)
    old, young = Peer(stage, 3 * MIB), Peer(stage, 3 * MIB)
    old.send(2 * MIB)
    young.send(2 * MIB)
    assert (old.waits, young.waits) == (False, True)
    assert stage.memory.waiting == 1
    old.send(MIB)
    stage.turn()
    assert old.done
    assert not young.waits


def test_when_the_oldest_frame_goes_the_next_one_may_grow() -> None:
    """A connection that dies leaves no turn in which others would be looked at."""
    stage = Stage(MIB)
    old, young = Peer(stage, 3 * MIB), Peer(stage, 3 * MIB)
    old.send(2 * MIB)
    young.send(3 * MIB)
    assert young.waits
    old.die("gone")
    stage.runtime.run_turn()
    assert not young.waits


def test_a_frame_that_stands_still_is_closed_while_others_wait() -> None:
    """After a whole look without progress. The one that waits is not to blame for standing still."""
    stage = Stage(MIB)
    stalled = [Peer(stage, 3 * MIB, 100) for _ in range(2)]
    waits = Peer(stage, 3 * MIB)
    waits.send(3 * MIB)
    assert waits.waits
    stage.runtime.advance(2 * STALL_MS)
    assert all("stood still" in peer.dead for peer in stalled)
    assert stage.memory.closed == 2
    assert not waits.waits
    assert not waits.dead


def test_nothing_is_closed_while_nobody_waits() -> None:
    """A slow network is no reason by itself."""
    stage = Stage(4 * MIB)
    peer = Peer(stage, 3 * MIB, 100)
    stage.runtime.advance(10 * STALL_MS)
    assert not peer.dead


def test_a_frame_that_we_do_not_read_is_not_closed() -> None:
    """A muted client may not send."""
    stage = Stage(MIB)
    muted, waits = Peer(stage, 3 * MIB, 100), Peer(stage, 3 * MIB)
    muted.is_muted = True
    waits.send(3 * MIB)
    stage.runtime.advance(3 * STALL_MS)
    assert not muted.dead


def test_an_oldest_frame_that_trickles_has_its_time() -> None:
    """It makes progress, and others wait: not for ever."""
    stage = Stage(MIB)
    trickles, waits = Peer(stage, 100 * MIB, 100), Peer(stage, 3 * MIB)
    waits.send(3 * MIB)
    for _ in range(OLDEST_LOOKS_MAX + 2):
        trickles.send(PROGRESS_BYTES_MIN)
        stage.runtime.advance(STALL_MS)
    assert "too long" in trickles.dead
    assert not waits.waits


@pytest.mark.parametrize("of_the_oldest", [0, 6 * MIB])
def test_ordinary_frames_do_not_wait_for_large_ones(of_the_oldest: int) -> None:
    """Forty frames of 100 MB that trickled kept a producer's 1 MB waiting for more than a minute."""
    stage = Stage(8 * MIB)
    large = [Peer(stage, 100 * MIB) for _ in range(8)]
    for peer in large[1:]:
        peer.send(9 * MIB)
    large[0].send(of_the_oldest)
    for _ in range(10):
        ordinary = [Peer(stage, MIB) for _ in range(2)]
        for peer in ordinary:
            peer.send(MIB - 1)
        for peer in ordinary:
            peer.send(1)
        assert all(peer.done for peer in ordinary)
        stage.turn()
    assert all(peer.waits for peer in large[1:])


def test_ordinary_frames_that_trickle_have_their_time_too() -> None:
    """Or the reserve would be theirs for ever."""
    stage = Stage(8 * MIB)
    trickling = [Peer(stage, MIB, 100) for _ in range(9)]
    waits = Peer(stage, MIB)
    waits.send(MIB)
    assert waits.waits
    for _ in range(OLDEST_LOOKS_MAX + 2):
        for peer in trickling:
            peer.send(PROGRESS_BYTES_MIN)
        stage.runtime.advance(STALL_MS)
    assert all("too long" in peer.dead for peer in trickling)
    assert not waits.waits


class Reader:
    """A connection with unsent answers."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.bytes = 0
        self.dead = ""
        self.looked = 0

    def holds(self, count: int) -> None:
        """So much is unsent now."""
        before, self.bytes = self.bytes, count
        self.memory.unsent(self, before, count)

    def drained(self) -> None:
        self.looked += 1

    def die(self, reason: str) -> None:
        self.dead = reason
        self.holds(0)


def answers(count: int) -> tuple[Stage, list[Reader]]:
    """A bound of 1 MiB of answers, and some readers."""
    stage = Stage(MIB)
    stage.memory.answer_bytes_max = MIB
    return stage, [Reader(stage.memory) for _ in range(count)]


def test_readers_that_take_nothing_are_closed_beyond_the_bound_the_stalest_first() -> None:
    """As many as it takes; those that make progress stay, and the others are told when they may go on."""
    stage, (stale, slow, newest) = answers(3)
    stale.holds(600_000)
    stage.runtime.advance(10)
    slow.holds(400_000)
    newest.holds(300_000)
    assert stage.memory.answers_full
    stage.runtime.advance(STALL_MS)
    slow.holds(390_000)
    newest.holds(290_000)
    stage.runtime.advance(STALL_MS)
    assert stale.dead
    assert not slow.dead
    assert not newest.dead
    assert stage.memory.answer_bytes == 680_000
    assert slow.looked == newest.looked == 1


def test_a_reader_that_stops_after_some_progress_is_closed_too() -> None:
    """Its time begins with the progress."""
    stage, (stops, newest) = answers(2)
    stops.holds(900_000)
    stops.holds(800_000)
    newest.holds(700_000)
    stage.runtime.advance(2 * STALL_MS)
    assert stops.dead
    assert not newest.dead


def test_one_answer_may_be_larger_than_the_bound() -> None:
    """There is nothing that it could wait for."""
    stage, (reader,) = answers(1)
    reader.holds(8 * MIB)
    stage.runtime.advance(10 * STALL_MS)
    assert not reader.dead


def test_beyond_twice_the_bound_peers_have_a_tenth_of_the_time() -> None:
    """A crowd that asks for much and takes nothing doesn't get five seconds to do so."""
    stage, readers = answers(6)
    for reader in readers:
        reader.holds(MIB)
    stage.runtime.advance(STALL_MS / 5)
    assert [bool(reader.dead) for reader in readers] == [True] * 4 + [False] * 2
    assert stage.memory.answer_bytes == 2 * MIB
