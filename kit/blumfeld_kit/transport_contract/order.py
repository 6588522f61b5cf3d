"""The order of requests and answers, and the times at which nothing is read."""

from __future__ import annotations

import threading
import time

from blumfeld.spi.runtime import Phase
from blumfeld.spi.transport import Exchange, Limits
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    PATIENCE_S,
    QUIET_S,
    Handler,
    Net,
    eventually,
    hold,
    hold_and_let_next_start,
)

EARLY_MS = 10
"""A timer may fire too early by this much, because of its clock's resolution."""


class OrderContract(TransportFixtures):
    """The part of the contract about the start of requests and the order of answers."""

    def test_the_next_request_waits_for_the_answer(self, net: Net) -> None:
        handler, client = net.serve(hold)
        client.send(b"first", b"second", b"third")
        assert handler.has_started(1)
        assert client.is_quiet()
        assert handler.frames == [b"first"]
        for nth in range(3):
            assert handler.has_started(nth + 1)
            net.answer(handler.exchanges[nth], handler.frames[nth])
        assert [client.frame() for _ in range(3)] == [b"first", b"second", b"third"]

    def test_the_next_request_starts_early_where_it_may(self, net: Net) -> None:
        handler, client = net.serve(hold_and_let_next_start)
        client.send(b"1", b"2", b"3")
        assert handler.has_started(3)
        for exchange, body in reversed(list(zip(handler.exchanges, (b"a", b"b", b"c"), strict=True))):
            assert client.is_quiet(0.01)
            net.answer(exchange, body)
        assert [client.frame() for _ in range(3)] == [b"a", b"b", b"c"]

    def test_who_sends_many_at_once_does_not_keep_others_waiting_for_all(self, net: Net) -> None:
        """A client that sends many requests at once gets its answers in several turns. Other clients are served in
        between.
        """
        all_sent = threading.Event()

        def dear(exchange: Exchange, frame: memoryview) -> None:
            all_sent.wait(PATIENCE_S)
            time.sleep(0.002)
            exchange.answer([bytes(frame)])

        handler = Handler(dear)
        port = net.listen(handler)
        many, other = net.connect(port), net.connect(port)
        bodies = [b"%d" % nth for nth in range(56)] + [bytes([nth]) * 20_000 for nth in range(4)]
        many.send(*bodies)
        other.send(b"other")
        all_sent.set()
        assert other.frame() == b"other"
        assert handler.frames.index(b"other") < 40
        assert [many.frame() for _ in bodies] == bodies

    def test_the_next_request_may_be_let_in_later(self, net: Net) -> None:
        handler, client = net.serve(hold)
        client.send(b"1", b"2")
        assert handler.has_started(1)
        assert client.is_quiet()
        assert len(handler.frames) == 1
        net.call(handler.exchanges[0].let_next_start)
        assert handler.has_started(2)
        for exchange in handler.exchanges:
            net.answer(exchange, b"ok")
        assert [client.frame() for _ in range(2)] == [b"ok", b"ok"]

    def test_a_request_without_an_answer_leaves_no_trace(self, net: Net) -> None:
        def some(exchange: Exchange, frame: memoryview) -> None:
            if bytes(frame) == b"-":
                exchange.no_answer()
            else:
                exchange.answer([bytes(frame)])

        _, client = net.serve(some)
        client.send(b"-", b"1", b"-", b"-", b"2")
        assert [client.frame() for _ in range(2)] == [b"1", b"2"]
        assert client.is_quiet(0.01)

    def test_open_exchanges_are_bounded(self, net: Net) -> None:
        handler, client = net.serve(hold_and_let_next_start, Limits(in_flight_max=4))
        client.send(*[b"%d" % n for n in range(10)])
        assert handler.has_started(4)
        assert client.is_quiet()
        assert len(handler.frames) == 4
        net.answer(handler.exchanges[0], b"ok")
        assert handler.has_started(5)
        for nth in range(1, 10):
            net.answer(handler.exchanges[nth], b"ok")
            assert handler.has_started(min(nth + 5, 10))
        assert [client.frame() for _ in range(10)] == [b"ok"] * 10

    def test_answers_leave_after_the_writes_of_the_turn(self, net: Net) -> None:
        early: list[bool] = []

        def answer_then_write(exchange: Exchange, frame: memoryview) -> None:
            exchange.answer([bytes(frame)])
            net.runtime.at_end_of_turn(Phase.WRITE, lambda: early.append(not client.is_quiet(0.02)))

        _, client = net.serve(answer_then_write)
        client.send(b"x")
        assert client.frame() == b"x"
        assert early == [False]

    def test_a_client_that_has_no_more_to_say_still_gets_its_answers(self, net: Net) -> None:
        handler, client = net.serve(hold)
        client.send(b"1", b"2")
        client.socket.shutdown(1)
        for nth in range(2):
            assert handler.has_started(nth + 1)
            assert client.is_quiet(0.01)
            net.answer(handler.exchanges[nth], b"ok")
            assert client.frame() == b"ok"
        assert client.is_closed()
        assert handler.has_lost(1)

    def test_a_mute_connection_is_not_read(self, net: Net) -> None:
        until_ms: list[float] = []

        def mute(exchange: Exchange, frame: memoryview) -> None:
            until_ms.append(net.runtime.monotonic_ms() + 4_000 * QUIET_S)
            exchange.connection.mute(until_ms[-1])
            exchange.answer([bytes(frame)])

        _, client = net.serve(mute)
        client.send(b"1")
        assert client.frame() == b"1"  # the throttled answer itself is not delayed
        client.send(b"2")
        assert client.frame() == b"2"
        assert net.runtime.monotonic_ms() >= until_ms[0] - EARLY_MS

    def test_a_slow_reader_is_not_read_and_loses_nothing(self, net: Net) -> None:
        """Unsent answers are limited: beyond the limit no request of that client starts until the client reads."""
        answer = bytes(range(256)) * 1024
        handler, client = net.serve(
            lambda exchange, _: exchange.answer([answer]), Limits(unsent_bytes_max=1 << 20)
        )
        sender = threading.Thread(target=lambda: client.send(*[b"more"] * 200))
        sender.start()
        assert eventually(lambda: len(handler.frames) > 0)
        started = -1
        while started != len(handler.frames):
            started = len(handler.frames)
            for _ in range(20):  # several turns of the loop, in which more requests could start
                net.call(lambda: None)
            threading.Event().wait(4 * QUIET_S)
        assert 0 < started < 150
        for _ in range(200):
            assert client.frame() == answer
        sender.join()
        assert len(handler.frames) == 200
