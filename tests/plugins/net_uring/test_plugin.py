"""net_uring as a plug-in: its options, its hooks, and what it says when there is no ring."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pluggy
import pytest

from blumfeld.spi.hooks import Hooks
from blumfeld_kit.transport_contract.kit import Handler, Net
from blumfeld_net_uring import Plugin
from blumfeld_net_uring.io_uring.loop import UringLoop, new_loop
from blumfeld_net_uring.io_uring.probe import probe
from blumfeld_net_uring.plugin import Options
from blumfeld_net_uring.transport import UringTransport
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog

needs_ring = pytest.mark.skipif(not probe().available, reason=str(probe().why_not))


def made(options: Options, log: NoLog | None = None) -> UringTransport:
    """As the kernel makes it."""
    manager = pluggy.PluginManager("blumfeld")
    manager.add_hookspecs(Hooks)
    manager.register(Plugin())
    runtime: Any = SimpleNamespace(monotonic_ms=lambda: 0.0)
    composition: Any = SimpleNamespace(
        runtime=runtime, options=options, log=lambda name: NoLog() if log is None else log
    )
    transport = manager.hook.blumfeld_make_transport(composition=composition)
    assert isinstance(transport, UringTransport)
    return transport


def serving(tmp_path: Path, log: NoLog, loop: Callable[[], asyncio.AbstractEventLoop], **options: Any) -> Net:
    """A transport at work."""
    net = Net(lambda runtime: UringTransport(runtime, log, **options), loop, tmp_path)
    net.start()
    return net


@pytest.mark.parametrize(
    "options",
    [
        b'{"entries":1}',
        b'{"buffer_bytes":1}',
        b'{"buffers":0}',
        b'{"buffers":48}',
        b'{"busy_poll_us":-1}',
        b'{"require":1}',
    ],
)
def test_wrong_options_are_refused(options: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(options, type=Plugin.options_class)


@needs_ring
def test_a_plan_says_what_the_kernel_has_and_what_was_chosen() -> None:
    assert made(Options()).driver().startswith("io_uring (")
    assert made(Options(busy_poll_us=50)).driver().endswith(", busy poll 50 µs")
    assert "multishot recv" not in made(Options(without=("multishot_recv",))).driver()


@pytest.mark.parametrize(
    ("loop", "without", "why_not"),
    [
        (new_loop, ("io_uring",), "left out by configuration"),
        pytest.param(
            asyncio.new_event_loop,
            (),
            "the loop is not the plug-in's own",
            marks=needs_ring,
            id="another loop",
        ),
    ],
)
def test_without_a_ring_it_serves_and_says_so(
    tmp_path: Path,
    loop: Callable[[], asyncio.AbstractEventLoop],
    without: tuple[str, ...],
    why_not: str,
) -> None:
    log = NoLog()
    net = serving(tmp_path, log, loop, without=without)
    try:
        _, client = net.serve()
        client.send(b"x")
        assert client.frame() == b"x"
        assert net.transport.driver() == f"epoll (io_uring is not available: {why_not})"
        assert log.events == [("warning", "io_uring is not available: serving with epoll")]
    finally:
        net.finish()


def test_a_ring_that_is_required_and_missing_lets_nothing_start(tmp_path: Path) -> None:
    net = serving(tmp_path, NoLog(), new_loop, without=("io_uring",), require=True)
    try:
        with pytest.raises(OSError, match="required and not available: left out by configuration"):
            net.listen(Handler())
        assert net.transport.driver().startswith("none: io_uring is required")
    finally:
        net.finish()


@needs_ring
def test_two_transports_share_a_loop(tmp_path: Path) -> None:
    """Each has a group of buffers of its own; what one stops with, the other serves on with."""
    net = serving(tmp_path, NoLog(), new_loop)
    try:
        _, client = net.serve()
        other = net.call(lambda: UringTransport(net.runtime, NoLog()))
        receiving = net.call(other.turn)
        assert receiving is not net.call(net.transport.turn)  # type: ignore[attr-defined]
        net.run(other.stop(0))
        client.send(b"x" * 100_000)
        assert client.frame() == b"x" * 100_000
        assert isinstance(net._loop, UringLoop)
    finally:
        net.finish()
