"""kazoo's thread reaches the loop in order and in small portions, and the loop never waits for kazoo."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from blumfeld_consensus_zk_compat.zookeeper.kazoo_handler import (
    DRAIN_MS,
    PIECE_BYTES,
    BufferedSocket,
    LoopHandler,
    LoopQueue,
)
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_kit.fakes.runtime import FakeRuntime


def test_calls_from_a_thread_run_on_the_loop_in_order() -> None:
    runtime = RealTimeRuntime()
    queue, seen = LoopQueue(runtime), []

    def put() -> None:
        for number in range(20_000):
            queue.put(lambda number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]

    async def play() -> None:
        thread = threading.Thread(target=put)
        thread.start()
        while len(seen) < 20_000:
            await runtime.offload(lambda: None)
        thread.join()

    runtime.run(play())
    runtime.end()
    assert seen == [(number, threading.get_ident()) for number in range(20_000)]


@pytest.mark.parametrize("goes_on", [False, True], ids=["ends", "goes on"])
def test_a_flood_of_calls_leaves_the_loop_its_turns(goes_on: bool) -> None:
    """Each call takes 0.3 ms: a turn has a few of them, and then what else waits has its turn. So it is also when
    kazoo's thread puts more meanwhile."""
    runtime, turns = FakeRuntime(1), []
    clock = [0.0]
    runtime.monotonic_ms = lambda: clock[0]  # type: ignore[method-assign]
    queue = LoopQueue(runtime)

    def call() -> None:
        clock[0] += 0.3
        turns.append("call")
        if later:
            queue.put(later.pop())

    later = [call] * 30 if goes_on else []
    for _ in range(40 - len(later)):
        queue.put(call)
    for _ in range(10):
        runtime.call_later(0, lambda: turns.append("other"))
    runtime.run_turn()
    assert turns.count("call") == 40
    assert turns.index("other") <= DRAIN_MS / 0.3 + 1


def test_a_call_that_raises_holds_up_no_other() -> None:
    """The listener of one answer has a defect: the answers behind it come without another one."""
    runtime, seen = FakeRuntime(1), []
    queue = LoopQueue(runtime)

    def raises() -> None:
        raise ValueError("a defect")

    queue.put(raises)
    queue.put(lambda: seen.append("behind it"))
    with pytest.raises(SimulationError, match="a defect"):
        runtime.run_turn()
    runtime.run_turn()
    assert seen == ["behind it"]


class Ends:
    """A handler with its bell, and a connection whose other end the test has."""

    def __init__(self) -> None:
        self.handler = LoopHandler(LoopQueue(FakeRuntime(1)), 1.0)
        self.bell, _ = self.handler.create_socket_pair()
        ours, self.server = socket.socketpair()
        ours.setblocking(False)
        self.connection = BufferedSocket(ours, 0.2)

    def ready(self, timeout: float = 0.0) -> list[object]:
        """What kazoo's thread finds to do."""
        return self.handler.select([self.connection, self.bell], [], [], timeout)[0]


@pytest.fixture(params=["eventfd", "no eventfd"])
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    """Both ends of a connection, also where the system has no ``eventfd``."""
    if request.param == "no eventfd":
        monkeypatch.delattr(os, "eventfd", raising=False)
    made = Ends()
    yield made
    for end in (made.bell, made.bell, made.connection, made.server):
        end.close()


def test_the_bell_never_holds_the_one_that_rings(ends: Ends) -> None:
    """A socket pair, which kazoo uses, is full after some hundreds. Each ring is taken once."""
    for _ in range(2_000):
        ends.bell.send(b"\0")
    for _ in range(2_000):
        assert ends.ready() == [ends.bell]
        ends.bell.recv(1)
    assert ends.ready() == []
    with pytest.raises(OSError, match=r"rung"):
        ends.bell.recv(1)


def test_a_ring_wakes_the_thread_that_waits(ends: Ends) -> None:
    ringing = threading.Timer(0.05, ends.bell.send, (b"\0",))
    ringing.start()
    assert ends.ready(20.0) == [ends.bell]
    ringing.join()


def test_a_ring_that_was_taken_is_not_the_end_of_the_time(ends: Ends) -> None:
    """kazoo drops the connection when its time is over and a ping is not answered."""
    assert ends.bell.sleep()
    ends.bell.send(b"\0")  # the thread is awake again before this has reached the kernel
    ends.bell.recv(1)
    answering = threading.Timer(0.05, ends.server.send, (b"answer",))
    answering.start()
    assert ends.ready(20.0) == [ends.connection]
    answering.join()


def test_a_thread_that_was_rung_ten_thousand_times_in_its_sleep_sleeps_again(ends: Ends) -> None:
    """A pair of sockets is full long before."""
    assert ends.bell.sleep()
    for _ in range(10_000):
        ends.bell.send(b"\0")
    assert ends.ready() == [ends.bell]
    while ends.bell.rings():
        ends.bell.recv(1)
    started_s = time.process_time()
    assert ends.ready(0.2) == []
    assert time.process_time() - started_s < 0.1, "it slept"


def test_what_was_read_at_once_is_taken_in_parts(ends: Ends) -> None:
    """What waits in our hands is found without the socket; a request that waits meanwhile isn't forgotten."""
    ends.server.send(b"headbody")
    assert ends.ready() == [ends.connection]
    assert ends.connection.recv(4) == b"head"
    assert ends.ready() == [ends.connection]
    ends.bell.send(b"\0")
    assert ends.ready() == [ends.connection, ends.bell]
    assert (ends.connection.recv(2), ends.connection.recv(9)) == (b"bo", b"dy")
    ends.server.close()
    ends.bell.recv(1)
    assert ends.ready() == [ends.connection]
    assert ends.connection.recv(4) == b""


def test_requests_are_sent_together_before_the_thread_waits(ends: Ends) -> None:
    ends.server.setblocking(False)
    for number in range(3):
        ends.bell.send(b"\0")
        assert ends.handler.select([], [ends.connection], [], 1.0)[1] == [ends.connection]
        ends.connection.send(b"%d" % number)
    assert ends.ready() == [ends.bell]
    with pytest.raises(BlockingIOError):
        ends.server.recv(10)
    for _ in range(3):
        ends.bell.recv(1)
    assert ends.ready() == []
    assert ends.server.recv(10) == b"012"


def test_many_requests_do_not_keep_the_thread_from_answers(ends: Ends) -> None:
    """After each piece that is sent, the thread looks for answers."""
    ends.bell.send(b"\0")
    ends.connection.send(b"x" * PIECE_BYTES)
    ends.server.send(b"answer")
    assert ends.ready() == [ends.connection, ends.bell]


def test_a_server_that_takes_nothing_is_an_error_in_time(ends: Ends) -> None:
    ends.connection.send(b"x" * 10_000_000)
    with pytest.raises(TimeoutError, match=r"takes no more"):
        ends.ready()


def test_a_server_that_does_not_greet_is_given_up_before_the_session_is_lost(ends: Ends) -> None:
    """kazoo waits for the greeting as long as the session lasts, if there is one server. Later it waits as it likes."""
    handler = LoopHandler(LoopQueue(FakeRuntime(1)), 0.05)
    begin_s = time.monotonic()
    assert handler.select([ends.connection], [], [], 3.0)[0] == []
    assert time.monotonic() - begin_s < 2.0
    ends.server.send(b"greeting")
    assert handler.select([ends.connection], [], [], 3.0)[0] == [ends.connection]
    ends.connection.recv(8)
    begin_s = time.monotonic()
    assert handler.select([ends.connection], [], [], 0.2)[0] == []
    assert time.monotonic() - begin_s > 0.15


def test_a_session_that_is_over_connects_no_more() -> None:
    handler = LoopHandler(LoopQueue(FakeRuntime(1)), 1.0)
    handler.over = True
    with pytest.raises(ConnectionRefusedError, match=r"over"):
        handler.create_connection(("127.0.0.1", 1), timeout=1.0)
