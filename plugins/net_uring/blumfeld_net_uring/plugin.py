"""The plug-in: its options, and the hooks that make the loop and the transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from blumfeld.net.memory_metrics import memory_metrics
from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.transport import LoopFactory
from blumfeld_net_uring.io_uring.loop import new_loop
from blumfeld_net_uring.transport import UringTransport


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[network.options]``: options without a key of Kafka's."""

    require: bool = False
    """Refuse to start rather than serve without io_uring."""
    buffer_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 20)] = 16_384
    """Size of each receive buffer. A frame across two of them is copied once."""
    buffers: Annotated[int, msgspec.Meta(ge=1, le=32_768)] = 4_096
    """Maximum number of receive buffers, a power of two. They are made as they are needed."""
    busy_poll_us: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Time to look for completions before sleeping. Lowers latency at the cost of a core."""
    file_regions: Literal["sendfile", "copy"] = "sendfile"
    """``sendfile``, or ``copy``: read file regions and send the bytes, for comparison and for file systems
    without ``sendfile``.
    """
    without: tuple[str, ...] = ()
    """Features of io_uring to leave unused, as on an older kernel: ``multishot_recv``, ``multishot_accept``,
    ``buffer_ring``, or ``io_uring`` itself.
    """

    def __post_init__(self) -> None:
        if self.buffers & (self.buffers - 1):
            raise ValueError("buffers is a power of two")


class Plugin:
    """The plug-in ``net_uring``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("network",)
    _transport: UringTransport | None = None

    @hookimpl
    def blumfeld_loop_factory(self) -> LoopFactory:
        """A factory for asyncio's loop on the ring; asyncio's own loop if there is no ring."""
        return new_loop

    @hookimpl
    def blumfeld_make_transport(self, composition: Composition) -> UringTransport:
        """The transport on the running loop's ring."""
        options = composition.options
        assert isinstance(options, Options)
        self._transport = UringTransport(
            composition.runtime,
            composition.log("net"),
            require=options.require,
            buffer_bytes=options.buffer_bytes,
            buffers=options.buffers,
            busy_poll_us=options.busy_poll_us,
            copies_regions=options.file_regions == "copy",
            without=options.without,
        )
        return self._transport

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Metrics of the memory that all connections hold."""
        return memory_metrics(self._transport)
