"""asyncio's loop on the ring: everything of asyncio's as ever, and the turn of the ring."""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from blumfeld_net_uring.io_uring import queues, system
from blumfeld_net_uring.io_uring.buffers import address_of
from blumfeld_net_uring.io_uring.loop import PlainLoop, UringLoop, new_loop, uring_loop
from blumfeld_net_uring.io_uring.ring import RingUnavailable
from tests.plugins.net_uring.ring_tools import (
    Told,
    descriptors_without_garbage,
    needs_ring,
    open_descriptors,
    ring_mappings,
)

RUNGS: list[tuple[str, ...]] = [(), ("deferred task run",), ("single issuer",), ("cooperative task run",)]
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def loop() -> Iterator[UringLoop]:
    loop = uring_loop()
    yield loop
    loop.close()


@pytest.fixture
def enters(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(submitted, waited for) of each io_uring_enter from now on."""
    seen: list[tuple[int, int]] = []
    real = system.syscall

    def counted(number: int, fd: int, submit: int, wait: int, *rest: Any) -> Any:
        seen.append((submit, wait))
        return real(number, fd, submit, wait, *rest)

    monkeypatch.setattr(queues, "syscall", counted)
    return seen


def void(result: object) -> None:
    """Nothing, for a lambda."""


@needs_ring
class TestAsyncio:
    @pytest.mark.parametrize("without", RUNGS, ids=lambda names: "-".join(names) or "all")
    def test_streams_timers_threads_and_children(self, without: tuple[str, ...]) -> None:
        async def main() -> list[bytes]:
            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.write(await reader.readexactly(200_000))
                writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(bytes(200_000))
            echo = await reader.read(-1)
            writer.close()
            await writer.wait_closed()
            server.close()
            await server.wait_closed()
            child = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
            heard, _ = await child.communicate()
            threaded = await asyncio.to_thread(lambda: b"threaded")
            return [echo, heard, threaded]

        with asyncio.Runner(loop_factory=lambda: uring_loop(without)) as runner:
            assert runner.run(main()) == [bytes(200_000), b"hello\n", b"threaded"]

    def test_a_timer_is_neither_early_nor_lost(self, loop: UringLoop) -> None:
        async def main() -> float:
            began = time.monotonic()
            await asyncio.sleep(0.03)
            return time.monotonic() - began

        assert 0.0299 <= loop.run_until_complete(main()) < 60

    def test_another_thread_wakes_it(self, loop: UringLoop) -> None:
        """The loop sleeps without a time-out."""
        done = loop.create_future()
        thread = threading.Timer(0.02, loop.call_soon_threadsafe, (done.set_result, "woken"))
        thread.start()
        assert loop.run_until_complete(done) == "woken"
        thread.join()

    def test_a_signal_wakes_it(self, loop: UringLoop) -> None:
        done = loop.create_future()
        loop.add_signal_handler(signal.SIGALRM, done.set_result, "signalled")
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert loop.run_until_complete(done) == "signalled"
        loop.remove_signal_handler(signal.SIGALRM)

    def test_a_reader_that_takes_little_is_called_again(self, loop: UringLoop, pair: Pair) -> None:
        """Readiness of the others is of a level, not of an edge."""
        near, far = pair
        received = bytearray()
        done = loop.create_future()

        def on_ready() -> None:
            received.extend(near.recv(1))
            if len(received) == 100:
                done.set_result(None)

        loop.add_reader(near, on_ready)
        far.send(b"x" * 100)
        loop.run_until_complete(asyncio.wait_for(done, 60))
        loop.remove_reader(near)

    def test_a_turn_ends_after_all_completions_and_before_what_was_queued(self, loop: UringLoop) -> None:
        """From elsewhere there is no poll to end: then it is ``call_soon``."""
        seen: list[str] = []
        done = loop.create_future()

        def completed(result: int, flags: int) -> None:
            seen.append("completed")
            loop.call_soon(seen.append, "queued")
            loop.call_after_poll(lambda: seen.append("end"))
            if seen.count("completed") == 2:
                loop.call_later(0.01, done.set_result, None)

        loop.call_after_poll(lambda: seen.append("soon"))
        for _ in range(2):
            loop.ring.nop(loop.ring.attach(completed))
        loop.run_until_complete(asyncio.wait_for(done, 60))
        assert seen == ["completed", "completed", "end", "end", "soon", "queued", "queued"]

    def test_registration_is_a_selectors(self, loop: UringLoop, pair: Pair) -> None:
        near, _ = pair
        turns = loop.turns
        key = turns.register(near, selectors.EVENT_READ, "data")
        assert turns.get_key(near) == turns.get_map()[near] == key
        assert turns.modify(near, selectors.EVENT_WRITE, "data").events == selectors.EVENT_WRITE
        assert [key.fileobj for key, _ in turns.select(5)] == [near]
        assert turns.unregister(near).fileobj is near
        assert turns.select(0) == []


@needs_ring
class TestTheTurn:
    def test_all_connections_of_a_turn_share_a_system_call(
        self, loop: UringLoop, enters: list[tuple[int, int]]
    ) -> None:
        """It submits what the turn before queued (the answers, and the next receives), and waits. (A newer kernel
        takes up to 20 receives that waited in one call.)"""
        pairs = [socket.socketpair() for _ in range(16)]
        ring, rounds, answered = loop.ring, 20, 0
        memory = [bytearray(8) for _ in pairs]

        def receive(i: int) -> None:
            ring.recv(received[i], pairs[i][0].fileno(), address_of(memory[i]), 8)

        def answer(i: int) -> None:
            ring.send(sent, pairs[i][0].fileno(), address_of(memory[i]), 4)
            receive(i)

        def on_sent(result: int, flags: int) -> None:
            nonlocal answered
            answered += 1
            if answered == 16 * rounds:
                loop.stop()
            elif answered % 16 == 0:
                for _, far in pairs:
                    assert far.recv(8) == b"ping"
                    far.send(b"ping")

        sent = ring.attach(on_sent)
        received = [
            ring.attach(lambda result, flags, i=i: void(loop.call_soon(answer, i)))  # type: ignore[misc]
            for i in range(16)
        ]
        for i, (_, far) in enumerate(pairs):
            receive(i)
            far.send(b"ping")
        loop.run_forever()
        for near, far in pairs:
            near.close()
            far.close()
        # A round: one call whose receives complete, and one that submits all answers and receives.
        assert len(enters) <= 2 * rounds + 3
        assert sum(submitted == 32 for submitted, _ in enters) == rounds

    def test_what_a_callback_raises_is_reported(self, loop: UringLoop) -> None:
        reported: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda loop, context: reported.append(context))

        def fails(result: int, flags: int) -> None:
            loop.call_soon(loop.stop)
            raise ValueError("mine")

        recorder = Told(loop.ring)
        loop.ring.nop(loop.ring.attach(fails))
        loop.ring.nop(recorder.token)
        loop.run_forever()
        assert [str(context["exception"]) for context in reported] == ["mine"]
        assert recorder.results == [0]

    def test_the_others_cost_nothing_while_they_are_quiet(
        self, loop: UringLoop, enters: list[tuple[int, int]]
    ) -> None:
        loop.turns.select(0)
        del enters[:]
        for _ in range(5):
            assert loop.turns.select(0) == []
        assert enters == [(0, 0)] * 5


def after_a_completion(loop: UringLoop, busy_poll_us: int) -> Told:
    """A loop whose busy poll has begun: something has just completed."""
    loop.busy_poll_us = busy_poll_us
    recorder = Told(loop.ring)
    loop.ring.nop(recorder.token)
    loop.turns.select(None)
    return recorder


@needs_ring
class TestBusyPoll:
    def test_in_the_window_it_does_not_sleep(
        self, loop: UringLoop, pair: Pair, enters: list[tuple[int, int]]
    ) -> None:
        near, far = pair
        memory = bytearray(1)
        recorder = after_a_completion(loop, 60_000_000)
        assert loop.turns.busy_poll_us == loop.busy_poll_us
        loop.ring.recv(recorder.token, near.fileno(), address_of(memory), 1)
        clock = time.pthread_getcpuclockid(threading.get_ident())
        used = time.clock_gettime(clock)

        def send_when_it_was_awake() -> None:
            until = time.monotonic() + 30
            while time.clock_gettime(clock) - used < 0.02 and time.monotonic() < until:
                time.sleep(0.005)
            far.send(b"x")

        thread = threading.Thread(target=send_when_it_was_awake)
        thread.start()
        del enters[:]
        loop.turns.select(None)
        thread.join()
        assert time.thread_time() - used > 0.01
        assert recorder.results == [0, 1]
        # One to submit, one to take what came; between them no system call.
        assert [submit for submit, _ in enters] == [1, 0]

    def test_after_the_window_it_sleeps(self, loop: UringLoop, pair: Pair) -> None:
        near, far = pair
        memory = bytearray(1)
        recorder = after_a_completion(loop, 1000)
        loop.ring.recv(recorder.token, near.fileno(), address_of(memory), 1)
        timer = threading.Timer(0.1, far.send, (b"x",))
        timer.start()
        used = time.thread_time()
        loop.turns.select(None)
        timer.join()
        assert recorder.results == [0, 1]
        assert time.thread_time() - used < 0.05

    def test_a_timer_ends_it(self, loop: UringLoop) -> None:
        after_a_completion(loop, 60_000_000)
        began = time.monotonic()
        loop.turns.select(0.02)
        assert 0.0199 <= time.monotonic() - began < 60


@needs_ring
class TestTheEnd:
    def test_loops_leave_nothing_behind(self, pair: Pair) -> None:
        near, _ = pair
        memory = bytearray(10)
        descriptors, mappings = descriptors_without_garbage(), ring_mappings()
        for _ in range(200):
            loop = uring_loop()
            loop.ring.recv(Told(loop.ring).token, near.fileno(), address_of(memory), 10)
            loop.run_until_complete(asyncio.sleep(0))
            assert loop.ring.in_flight == 2
            loop.close()
            assert loop.ring.in_flight == 0
        assert (open_descriptors(), ring_mappings()) == (descriptors, mappings)

    def test_a_closed_ring_is_an_error(self, loop: UringLoop) -> None:
        loop.close()
        with pytest.raises(OSError, match="io_uring_enter") as caught:
            loop.ring.enter(0)
        assert caught.value.errno == errno.EBADF


class TestTheChoice:
    @needs_ring
    def test_the_ring_where_there_is_one(self) -> None:
        loop = new_loop({"splice"})
        try:
            assert isinstance(loop, UringLoop)
            assert loop.probe.available
            assert not loop.probe.splice
            assert os.readlink(f"/proc/self/fd/{loop.ring.fd}") == "anon_inode:[io_uring]"
        finally:
            loop.close()

    def test_asyncios_own_where_there_is_none(self) -> None:
        with pytest.raises(RingUnavailable, match="left out by configuration"):
            uring_loop({"io_uring"})
        loop = new_loop({"io_uring"})
        try:
            assert isinstance(loop, PlainLoop)
            assert loop.probe.why_not == "left out by configuration"
            assert loop.run_until_complete(asyncio.sleep(0, "works")) == "works"
        finally:
            loop.close()
