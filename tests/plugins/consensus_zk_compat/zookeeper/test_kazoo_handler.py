"""kazoo's thread reaches the loop in order and in small portions, and the loop never waits for kazoo."""

from __future__ import annotations

import socket
import threading

import pytest

from blumfeld_consensus_zk_compat.zookeeper.kazoo_handler import DRAIN_MS, Bell, LoopHandler, LoopQueue
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


def test_a_flood_of_calls_leaves_the_loop_its_turns() -> None:
    """Each call takes 0.3 ms: a turn has a few of them, and then what else waits has its turn."""
    runtime, turns = FakeRuntime(1), []
    clock = [0.0]
    runtime.monotonic_ms = lambda: clock[0]  # type: ignore[method-assign]
    queue = LoopQueue(runtime)

    def call() -> None:
        clock[0] += 0.3
        turns.append("call")

    for _ in range(40):
        queue.put(call)
    for _ in range(10):
        runtime.call_later(0, lambda: turns.append("other"))
    runtime.run_turn()
    assert turns.count("call") == 40
    assert turns.index("other") <= DRAIN_MS / 0.3 + 1


def test_the_bell_never_holds_the_one_that_rings() -> None:
    """A socket pair, which kazoo uses, is full after some hundreds."""
    bell, same = LoopHandler(LoopQueue(FakeRuntime(1)), 1.0).create_socket_pair()
    for _ in range(2_000):
        bell.send(b"\0")
    handler = LoopHandler(LoopQueue(FakeRuntime(1)), 1.0)
    for _ in range(2_000):
        assert handler.select([same], [], [], 0)[0] == [same]
        same.recv(1)
    assert handler.select([same], [], [], 0)[0] == []
    bell.close()
    same.close()


def test_what_tls_has_decrypted_is_ready_to_read() -> None:
    """kazoo's own select waits for the socket, and the answer that came with the last one waits for the next ping."""

    class Decrypted:
        def __init__(self, waiting: int) -> None:
            self.waiting = waiting
            self.ends = socket.socketpair()

        def fileno(self) -> int:
            return self.ends[0].fileno()

        def pending(self) -> int:
            return self.waiting

    handler = LoopHandler(LoopQueue(FakeRuntime(1)), 1.0)
    for waiting, ready in ((0, False), (5, True)):
        end = Decrypted(waiting)
        assert (end in handler.select([end, Bell()], [], [], 0)[0]) == ready
        for each in end.ends:
            each.close()


def test_a_session_that_is_over_connects_no_more() -> None:
    handler = LoopHandler(LoopQueue(FakeRuntime(1)), 1.0)
    handler.over = True
    with pytest.raises(ConnectionRefusedError, match=r"over"):
        handler.create_connection(("127.0.0.1", 1), timeout=1.0)
