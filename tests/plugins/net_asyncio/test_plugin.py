"""net_asyncio as a plug-in, and what goes beyond the contract: exhaustion, defects, its own loop."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pluggy
import pytest

from blumfeld.net.memory_metrics import memory_metrics
from blumfeld.spi.hooks import Hooks
from blumfeld.spi.transport import Exchange, Limits
from blumfeld_kit.transport_contract.kit import Handler, Net, Receiver, eventually, hold
from blumfeld_net_asyncio import Plugin, readiness
from blumfeld_net_asyncio.plugin import Options
from blumfeld_net_asyncio.readiness import TurnLoop, TurnSelector, new_loop
from blumfeld_net_asyncio.transport import AsyncioTransport
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog


@pytest.fixture
def log() -> NoLog:
    return NoLog()


@pytest.fixture
def net(log: NoLog, tmp_path: Path) -> Iterator[Net]:
    net = Net(lambda runtime: AsyncioTransport(runtime, log, 131_072, 64), new_loop, tmp_path)
    net.start()
    yield net
    net.finish()


def test_the_hooks_make_loop_and_transport() -> None:
    manager = pluggy.PluginManager("blumfeld")
    manager.add_hookspecs(Hooks)
    manager.register(Plugin())
    loop = manager.hook.blumfeld_loop_factory()()
    runtime: Any = SimpleNamespace(monotonic_ms=lambda: 0.0)
    composition: Any = SimpleNamespace(runtime=runtime, options=Options(), log=lambda name: NoLog())
    assert manager.hook.blumfeld_make_transport(composition=composition).driver() == "epoll"
    loop.close()


@pytest.mark.parametrize("options", [b'{"read_byte":1}', b'{"read_bytes":1}', b'{"accepts_per_turn_max":0}'])
def test_wrong_options_are_refused(options: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(options, type=Plugin.options_class)


def test_refused_connections_are_logged_sparingly(net: Net, log: NoLog) -> None:
    port = net.listen(Handler(), Limits(connections_max=0))
    for _ in range(9):
        assert net.connect(port).is_closed()
    assert log.events == [("warning", "connection refused")]  # the others are one line, later


def test_what_the_connections_hold_is_to_be_seen(net: Net, log: NoLog) -> None:
    """While a frame is unfinished, and beside its bound."""
    handler, client = net.serve(limits=Limits(request_memory_bytes_max=5 << 20))
    client.socket.sendall((3 << 20).to_bytes(4) + bytes(1 << 20))
    assert isinstance(net.transport, AsyncioTransport)
    seen = {metric.name: metric for metric in memory_metrics(net.transport)}
    held = seen["blumfeld_network_request_memory_bytes"]
    assert eventually(lambda: held.read() >= 1 << 20)
    assert seen["blumfeld_network_request_memory_max_bytes"].read() == 5 << 20
    client.socket.sendall(bytes(2 << 20))
    assert len(client.frame()) == 3 << 20
    assert eventually(lambda: held.read() == 0)
    assert seen["blumfeld_network_closed_for_memory_total"].read() == 0
    unsent = seen["blumfeld_network_answer_memory_bytes"]
    handler.on_request = lambda exchange, frame: exchange.answer((bytes(20 << 20),))
    client.send(b"large")
    assert eventually(lambda: unsent.read() > 1 << 20)
    client.reset()
    assert eventually(lambda: unsent.read() == 0)
    assert [metric.read() for metric in memory_metrics(None)] == [0] * len(seen)


def test_a_defect_of_the_handler_ends_its_connection_only(net: Net) -> None:
    def raising(exchange: Exchange, frame: memoryview) -> None:
        if bytes(frame) == b"bad":
            raise ZeroDivisionError
        exchange.answer([bytes(frame)])

    handler, client = net.serve(raising)
    other = net.connect(client.socket.getpeername()[1])
    client.send(b"good", b"bad", b"good")
    assert client.is_closed() or client.frame() == b"good"
    assert handler.has_lost(1)
    other.send(b"good")
    assert other.frame() == b"good"
    assert len(net.defects) == 1
    assert "ZeroDivisionError" in net.defects[0]


def test_a_request_is_answered_once(net: Net) -> None:
    handler, client = net.serve()
    client.send(b"x")
    assert client.frame() == b"x"
    with pytest.raises(RuntimeError, match="already answered"):
        net.answer(handler.exchanges[0], b"again")


def test_dialled_connections_are_idle_too(net: Net) -> None:
    receiver = Receiver()
    port = net.listen(Handler(hold))
    net.run(net.transport.dial("127.0.0.1", port, receiver, Limits(idle_ms_max=60)))
    assert eventually(lambda: len(receiver.lost_reasons) == 1)
    assert "idle" in receiver.lost_reasons[0]


def test_a_negative_idle_time_means_never(net: Net) -> None:
    _, client = net.serve(limits=Limits(idle_ms_max=-1))
    assert client.is_quiet(0.1)


def test_asyncio_works_on_the_loop_as_on_its_own() -> None:
    """Streams, timers, threads and a defect in a callback of ours."""
    seen: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnLoop)
        loop.set_exception_handler(lambda _, context: seen.append(repr(context["exception"])))

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(3))
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"abc")
        assert await reader.read() == b"abc"
        writer.close()
        await writer.wait_closed()
        server.close()
        assert await asyncio.to_thread(lambda: 7) == 7
        left, right = socket.socketpair()

        def bad() -> None:
            left.recv(1)
            raise ValueError("planted")

        loop.readiness.add_reader(left.fileno(), bad)
        right.send(b"x")
        await asyncio.sleep(0.01)
        loop.readiness.remove_reader(left.fileno())
        loop.readiness.remove_reader(left.fileno())
        left.close()
        right.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    gc.collect()
    assert seen == ["ValueError('planted')"]


def test_a_turn_ends_after_all_callbacks_of_the_poll_and_before_what_was_queued() -> None:
    """From elsewhere there is no poll to end: then it is ``call_soon``."""
    seen: list[str] = []
    with asyncio.Runner(loop_factory=new_loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, TurnLoop)
        pairs = [socket.socketpair() for _ in range(2)]
        finished = loop.create_future()

        def readable(left: socket.socket) -> None:
            left.recv(1)
            loop.call_soon(seen.append, "queued")
            loop.call_after_poll(lambda: seen.append("end"))
            seen.append("read")
            if seen.count("read") == 2:
                loop.call_later(0.01, finished.set_result, None)

        async def main() -> None:
            loop.call_after_poll(lambda: seen.append("soon"))
            assert seen == []
            await asyncio.sleep(0)
            for left, right in pairs:
                loop.readiness.add_reader(left.fileno(), functools.partial(readable, left))
                right.send(b"x")
            await asyncio.wait_for(finished, 60)
            for left, _ in pairs:
                loop.readiness.remove_reader(left.fileno())

        runner.run(main())
        for sock in (sock for pair in pairs for sock in pair):
            sock.close()
    assert seen == ["soon", "read", "read", "end", "end", "queued", "queued"]


def test_the_busy_poll_is_told() -> None:
    runtime: Any = SimpleNamespace(monotonic_ms=lambda: 0.0)
    composition: Any = SimpleNamespace(
        runtime=runtime, options=Options(busy_poll_us=50), log=lambda name: NoLog()
    )
    assert Plugin().blumfeld_make_transport(composition).driver() == "epoll, busy poll 50 µs"


def test_a_busy_poll_stays_awake_for_its_time_and_sleeps_for_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Awake: polls that don't wait. Then one that waits for what is left, and no event is lost by either."""
    ticks_s = (0.001 * tick for tick in itertools.count())
    monkeypatch.setattr(readiness, "time", SimpleNamespace(monotonic=lambda: next(ticks_s)))
    selector = TurnSelector()
    selector.busy_poll_us = 5_000
    left, right = socket.socketpair()
    waits: list[float | None] = []
    epoll: Any = selector._epoll

    class Counting:
        def poll(self, timeout: float | None, events_max: int) -> Any:
            waits.append(timeout)
            return epoll.poll(timeout, events_max)

    selector._epoll = Counting()  # type: ignore[assignment]
    try:
        assert selector.select(0.02) == []
        assert waits == [0, 0, 0, 0, 0, pytest.approx(0.015)]
        selector.register(left, 1)
        right.send(b"x")
        waits.clear()
        assert [key.fileobj for key, _ in selector.select(None)] == [left]
        assert waits == [0]
    finally:
        selector._epoll = epoll
        selector.close()
        left.close()
        right.close()
