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
    """``[network.options]``: what Kafka has no key for."""

    require: bool = False
    """Refuse to start rather than serve without io_uring."""
    buffer_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 20)] = 16_384
    """Of each receive buffer. A frame across two of them is copied once."""
    buffers: Annotated[int, msgspec.Meta(ge=1, le=32_768)] = 4_096
    """Receive buffers at most, a power of two. They are made as they are needed."""
    busy_poll_us: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Look for completions for so long after the last one before sleeping: latency, at the cost of a core."""
    file_regions: Literal["sendfile", "copy"] = "sendfile"
    """``copy``: read file regions and send what was read; for comparison, and file systems without ``sendfile``."""
    without: tuple[str, ...] = ()
    """Features of io_uring to do without, as on an older kernel: ``multishot_recv``, ``multishot_accept``,
    ``buffer_ring``, or ``io_uring`` itself.
    """

    def __post_init__(self) -> None:
        if self.buffers & (self.buffers - 1):
            raise ValueError("buffers is a power of two")


class Plugin:
    """``net_uring``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("network",)
    _transport: UringTransport | None = None

    @hookimpl
    def blumfeld_loop_factory(self) -> LoopFactory:
        """asyncio's loop, waiting in the ring; where there is none, asyncio's own."""
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
        """What all connections hold of memory."""
        return memory_metrics(self._transport)
