"""The plug-in: its options, and the hook that makes the transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from blumfeld.net.memory_metrics import memory_metrics
from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.transport import LoopFactory
from blumfeld_net_asyncio.readiness import new_loop
from blumfeld_net_asyncio.transport import AsyncioTransport


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[network.options]``: what Kafka has no key for."""

    read_bytes: Annotated[int, msgspec.Meta(ge=1024, le=1 << 24)] = 131_072
    """Taken from one connection in a turn before the others have theirs; large frames excepted."""
    accepts_per_turn_max: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Connections accepted before those that are there are served again."""
    busy_poll_us: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Poll without waiting for so long after something last happened: latency, at the cost of a core."""

    file_regions: Literal["sendfile", "copy"] = "sendfile"
    """``copy``: read file regions and send what was read; for comparison, and file systems without ``sendfile``."""


class Plugin:
    """``net_asyncio``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("network",)
    _transport: AsyncioTransport | None = None

    @hookimpl
    def blumfeld_loop_factory(self) -> LoopFactory:
        """asyncio's loop, with a selector that calls the transport directly."""
        return new_loop

    @hookimpl
    def blumfeld_make_transport(self, composition: Composition) -> AsyncioTransport:
        """The transport on the running loop, which may be any that has ``add_reader``."""
        options = composition.options
        assert isinstance(options, Options)
        self._transport = AsyncioTransport(
            composition.runtime,
            composition.log("net"),
            options.read_bytes,
            options.accepts_per_turn_max,
            options.busy_poll_us,
            copies_regions=options.file_regions == "copy",
        )
        return self._transport

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Returns the gauges of the memory that all connections hold."""
        return memory_metrics(self._transport)
