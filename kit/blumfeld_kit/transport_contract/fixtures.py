"""The fixtures of the transport contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from blumfeld.spi.transport import LoopFactory
from blumfeld_kit.transport_contract.kit import MakeTransport, Net


class TransportFixtures:
    """The fixtures of the transport contract."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        """Override: return a function that takes a ``Runtime`` and returns a new transport. The kit calls it on the
        loop.
        """
        raise NotImplementedError("override the make_transport fixture")

    @pytest.fixture
    def loop_factory(self) -> LoopFactory:
        """Override if the transport needs an event loop of its own."""
        return asyncio.new_event_loop

    @pytest.fixture
    def net(self, make_transport: MakeTransport, loop_factory: LoopFactory, tmp_path: Path) -> Iterator[Net]:
        """The running transport. At the end no error may have escaped, and every region is released exactly once."""
        net = Net(make_transport, loop_factory, tmp_path)
        net.start()
        try:
            yield net
        finally:
            net.finish()
        assert net.defects == []
        assert [region.releases for region in net.regions] == [1] * len(net.regions)
