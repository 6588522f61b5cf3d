"""Closing, limits and stopping."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import weakref
from pathlib import Path

import pytest

from blumfeld.spi.transport import Limits, LoopFactory
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    Client,
    Handler,
    MakeTransport,
    Net,
    eventually,
    hold,
    hold_and_let_next_start,
)

IDLE_MS = 300
"""Idle limit of the tests."""


def client_with_a_request(net: Net, handler: Handler, limits: Limits) -> Client:
    """Connect a client whose first request is there when the transport accepts it. On a busy machine a client may need
    longer than the idle limit to send one.
    """
    port = net.listen(handler, limits)
    with net.held():
        client = net.connect(port)
        client.send(b"x")
    return client


class LimitContract(TransportFixtures):
    """The part of the contract about closing, limits and stopping."""

    def test_close_sends_what_is_ready_and_drops_the_rest(self, net: Net) -> None:
        handler, client = net.serve(hold_and_let_next_start)
        client.send(b"1", b"2", b"3")
        assert handler.has_started(3)

        def answer_and_close() -> None:
            handler.exchanges[2].answer([net.region(b"third")])
            handler.exchanges[0].answer([b"first"])
            handler.opened_connections[0].close("enough")
            handler.opened_connections[0].close("twice is fine")

        net.call(answer_and_close)
        assert client.frame() == b"first"
        assert client.is_closed()
        assert handler.has_lost(1)
        assert handler.closed_reasons[0][1] == "enough"
        net.answer(handler.exchanges[1], net.region(b"second"))

    def test_an_idle_connection_is_closed(self, net: Net) -> None:
        handler = Handler()
        client = client_with_a_request(net, handler, Limits(idle_ms_max=IDLE_MS))
        assert client.frame() == b"x"
        assert client.is_closed()
        assert handler.has_lost(1)

    def test_a_connection_that_waits_for_us_is_not_idle(self, net: Net) -> None:
        handler = Handler(hold)
        client = client_with_a_request(net, handler, Limits(idle_ms_max=IDLE_MS))
        assert handler.has_started(1)
        assert client.is_quiet(1.5 * IDLE_MS / 1000)
        net.answer(handler.exchanges[0], b"at last")
        assert client.frame() == b"at last"

    def test_who_has_stopped_sending_is_waited_for_no_longer_than_that(self, net: Net) -> None:
        """A connection whose client has stopped sending is closed after the idle limit: a dead client looks like one
        that waits.
        """
        handler = Handler(hold)
        client = client_with_a_request(net, handler, Limits(idle_ms_max=IDLE_MS))
        assert handler.has_started(1)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
        assert handler.has_lost(1)
        net.answer(handler.exchanges[0], net.region(b"late"))

    @pytest.mark.parametrize(
        "limits",
        [
            Limits(connections_max=2),
            Limits(connections_per_ip_max=2),
            Limits(listener_connections_max=2),
        ],
    )
    def test_a_connection_too_many_is_closed_at_once(self, net: Net, limits: Limits) -> None:
        handler = Handler()
        port = net.listen(handler, limits)
        first, second = net.connect(port), net.connect(port)
        for client in (first, second):
            client.send(b"x")
            assert client.frame() == b"x"
        assert net.connect(port).is_closed()
        first.socket.close()
        assert handler.has_lost(1)
        again = net.connect(port)
        again.send(b"x")
        assert again.frame() == b"x"

    def test_a_listeners_own_limit_leaves_the_others_alone(self, net: Net) -> None:
        handler = Handler()
        narrow = net.listen(handler, Limits(listener_connections_max=1))
        wide = net.listen(handler, Limits(), name="SECOND")
        clients = [net.connect(port) for port in (narrow, wide, wide)]
        for client in clients:
            client.send(b"x")
            assert client.frame() == b"x"
        assert net.connect(narrow).is_closed()

    def test_an_address_may_have_a_limit_of_its_own(self, net: Net) -> None:
        limits = Limits(connections_per_ip_max=0, connections_per_ip_overrides={"127.0.0.1": 1})
        port = net.listen(Handler(), limits)
        client = net.connect(port)
        client.send(b"x")
        assert client.frame() == b"x"
        assert net.connect(port).is_closed()

    def test_connections_beyond_the_rate_wait(self, net: Net) -> None:
        """Connections beyond the rate wait. They are accepted as soon as the rate allows it, also a new rate."""
        handler = Handler()
        port = net.listen(handler, Limits(connections_per_s_max=0))
        first = net.connect(port)
        first.send(b"x")
        assert first.frame() == b"x"
        waits = net.connect(port)
        waits.send(b"y")
        assert waits.is_quiet(0.2)
        net.call(lambda: net.transport.limit("PLAINTEXT", Limits()))
        assert waits.frame() == b"y"

    def test_a_crowd_is_let_in_one_by_one(self, net: Net) -> None:
        """A crowd that connects in one turn may use the rate of ten seconds at once, and no more."""
        handler = Handler()
        began = time.monotonic()
        port = net.listen(handler, Limits(connections_per_s_max=1))
        clients = net.call(lambda: [net.connect(port) for _ in range(30)])
        assert eventually(lambda: len(handler.opened_connections) >= 10)
        assert clients[-1].is_quiet(0.2)
        opened = len(handler.opened_connections)
        assert opened <= 12 + (time.monotonic() - began)

    def test_limits_may_change_while_it_listens(self, net: Net) -> None:
        """Changed limits hold for later connections. A limit for an unknown listener changes nothing."""
        port = net.listen(Handler())
        first = net.connect(port)
        first.send(b"x")
        assert first.frame() == b"x"
        net.call(lambda: net.transport.limit("PLAINTEXT", Limits(connections_max=1)))
        assert net.connect(port).is_closed()
        first.send(b"y")
        assert first.frame() == b"y"
        net.call(lambda: net.transport.limit("OTHER", Limits()))
        assert net.connect(port).is_closed()

    def test_a_port_in_use_names_the_listener(self, net: Net) -> None:
        port = net.listen(Handler())
        with pytest.raises(OSError, match="SECOND"):
            net.listen(Handler(), name="SECOND", port=port)

    def test_stop_without_start_is_legal(self, net: Net) -> None:
        net.run(net.transport.stop(1_000))

    def test_stop_lets_open_exchanges_end_within_its_grace(self, net: Net) -> None:
        handler, client = net.serve(hold)
        idle = net.connect(client.socket.getpeername()[1])
        client.send(b"open", b"never started")
        assert handler.has_started(1)

        async def stop_while_it_is_answered() -> None:
            stopping = asyncio.ensure_future(net.transport.stop(4_000))
            await asyncio.sleep(0.05)
            handler.exchanges[0].answer([b"done"])
            await stopping

        net.run(stop_while_it_is_answered())
        assert client.frame() == b"done"
        assert client.is_closed()
        assert idle.is_closed()
        assert handler.frames == [b"open"]
        assert len(handler.closed_reasons) == len(handler.opened_connections)
        with pytest.raises(OSError, match="refused"):
            net.connect(client.socket.getpeername()[1])

    def test_stop_does_not_wait_longer_than_its_grace(self, net: Net) -> None:
        handler, client = net.serve(hold)
        client.send(b"open")
        assert handler.has_started(1)
        net.run(net.transport.stop(20))
        assert client.is_closed()
        assert len(handler.closed_reasons) == 1
        net.answer(handler.exchanges[0], net.region(b"late"))

    def test_a_handler_that_keeps_its_exchanges_is_freed_with_its_transport(
        self, make_transport: MakeTransport, loop_factory: LoopFactory, tmp_path: Path
    ) -> None:
        """A transport may keep its exchanges out of garbage collection. Then it breaks the circle of handler, exchange
        and connection itself. Otherwise every stopped broker of a test run stays in memory.
        """
        net = Net(make_transport, loop_factory, tmp_path)
        net.start()
        try:
            handler, client = net.serve()
            client.send(b"1", b"2")
            assert [client.frame(), client.frame()] == [b"1", b"2"]
        finally:
            net.finish()
        assert len(handler.exchanges) == 2
        freed = weakref.ref(handler)
        del net, handler
        gc.collect()
        assert freed() is None
