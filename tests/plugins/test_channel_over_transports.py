"""A channel to a real broker, over each transport: negotiation, a decoded and a raw answer, and a broker that goes."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blumfeld.client.channel import Channel, ChannelSettings
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.peers import RawAnswer
from blumfeld.spi.transport import LoopFactory
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.codec import decode
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse
from blumfeld_kit.transport_contract.kit import MakeTransport, Net, eventually
from blumfeld_net_asyncio.readiness import new_loop as new_asyncio_loop
from blumfeld_net_asyncio.transport import AsyncioTransport
from blumfeld_net_uring.io_uring.loop import new_loop as new_uring_loop
from blumfeld_net_uring.io_uring.probe import probe
from blumfeld_net_uring.transport import UringTransport
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog

TRANSPORTS: list[Any] = [
    pytest.param(
        lambda runtime: AsyncioTransport(runtime, NoLog(), read_bytes=131_072, accepts_per_turn_max=64),
        new_asyncio_loop,
        id="net_asyncio",
    ),
    pytest.param(
        lambda runtime: UringTransport(runtime, NoLog(), without=(), buffer_bytes=16_384, buffers=256),
        new_uring_loop,
        id="net_uring",
        marks=pytest.mark.skipif(not probe().available, reason=str(probe().why_not)),
    ),
]


@pytest.mark.parametrize(("make_transport", "loop_factory"), TRANSPORTS)
def test_a_channel_reaches_a_broker(
    make_transport: MakeTransport, loop_factory: LoopFactory, tmp_path: Path
) -> None:
    net = Net(make_transport, loop_factory, tmp_path)
    net.start()
    try:
        with EmbeddedBroker() as broker:
            host, port = broker.bootstrap_servers.rsplit(":", 1)
            channel = net.call(lambda: made(net, host, int(port)))
            answer = asked(net, lambda: channel.send(MetadataRequest(topics=[]), 10_000))
            assert isinstance(answer, MetadataResponse)
            assert [named_broker.port for named_broker in answer.brokers] == [int(port)]
            copies: list[tuple[bytes, int]] = []
            net.call(lambda: channel.send_raw(MetadataRequest(topics=[]), 10_000).when_done(copied(copies)))
            assert eventually(lambda: len(copies) == 1)
            assert decode(MetadataResponse, *copies[0]) == answer
            waiting: list[Completion[Any]] = []
        net.call(
            lambda: channel.send(MetadataRequest(topics=[]), 10_000).when_done(waiting.append)
        )  # nobody listens now
        assert eventually(lambda: len(waiting) == 1)
        assert isinstance(waiting[0].error, OSError)
        net.call(channel.stop)
    finally:
        net.finish()
    assert net.defects == []


@pytest.mark.parametrize(("make_transport", "loop_factory"), TRANSPORTS)
def test_a_dial_that_takes_too_long_leaves_no_socket(
    make_transport: MakeTransport, loop_factory: LoopFactory, tmp_path: Path
) -> None:
    """The operating system would try on for two minutes."""
    net = Net(make_transport, loop_factory, tmp_path)
    net.start()
    full = socket.socket()
    fillers = [socket.socket() for _ in range(4)]
    try:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # a full queue of connections that nobody accepts: later ones get no answer
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        gc.collect()  # or the collector closes another test's socket before the second count
        before = sockets()
        host, port = full.getsockname()
        channel = net.call(lambda: made(net, host, port, connect_timeout_ms=100))
        failed: list[Completion[Any]] = []
        net.call(lambda: channel.send(MetadataRequest(topics=[]), 10_000).when_done(failed.append))
        assert eventually(lambda: len(failed) == 1)
        assert isinstance(failed[0].error, TimeoutError)
        assert eventually(lambda: sockets() == before)
        net.call(channel.stop)
    finally:
        for connection in (full, *fillers):
            connection.close()
        net.finish()
    assert net.defects == []


def sockets() -> int:
    """The number of this process's sockets."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except OSError:  # closed meanwhile
            continue
    return count


def made(net: Net, host: str, port: int, connect_timeout_ms: float = 10_000) -> Channel:
    settings = ChannelSettings(client_id="test", backoff_ms=1, connect_timeout_ms=connect_timeout_ms)
    endpoint = Endpoint("PLAINTEXT", host, port)
    return Channel(net.runtime, net.transport, lambda: endpoint, "metadata", settings)


def asked(net: Net, send: Callable[[], Completion[Any]]) -> Any:
    async def ask() -> Any:
        return await send()

    return net.run(ask())


def copied(copies: list[tuple[bytes, int]]) -> Callable[[Completion[RawAnswer]], None]:
    return lambda done: copies.append((bytes(done.result().body), done.result().version))
