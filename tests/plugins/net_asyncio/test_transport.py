"""net_asyncio passes the transport contract exactly as a stranger's would."""

from __future__ import annotations

import os

import pytest

from blumfeld.spi.transport import LoopFactory
from blumfeld_kit.transport_contract import MakeTransport, TransportContract
from blumfeld_kit.transport_contract.regions import RegionContract
from blumfeld_net_asyncio.readiness import new_loop
from blumfeld_net_asyncio.transport import AsyncioTransport
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog


class TestAsyncioTransport(TransportContract):
    """On its own loop, with options as a manifest without options gives them."""

    @pytest.fixture
    def loop_factory(self) -> LoopFactory:
        return new_loop

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return lambda runtime: AsyncioTransport(runtime, NoLog(), read_bytes=131_072, accepts_per_turn_max=64)


class TestAsyncioTransportInSmallBites(TransportContract):
    """On asyncio's loop, with so little taken at a time that every path for pieces is walked."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return lambda runtime: AsyncioTransport(runtime, NoLog(), read_bytes=1_024, accepts_per_turn_max=1)


class TestCopiedRegions(RegionContract):
    """Read and sent from memory instead of by ``sendfile``."""

    @pytest.fixture
    def loop_factory(self) -> LoopFactory:
        return new_loop

    @pytest.fixture
    def make_transport(self, monkeypatch: pytest.MonkeyPatch) -> MakeTransport:
        monkeypatch.setattr(os, "sendfile", None)  # calling it would fail
        return lambda runtime: AsyncioTransport(runtime, NoLog(), 131_072, 64, copies_regions=True)
