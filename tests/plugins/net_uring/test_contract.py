"""net_uring passes the transport contract, on each rung of its ladder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from blumfeld.spi.transport import LoopFactory
from blumfeld_kit.transport_contract import MakeTransport, TransportContract
from blumfeld_kit.transport_contract.kit import Net, eventually
from blumfeld_kit.transport_contract.regions import RegionContract
from blumfeld_net_uring.io_uring.loop import UringLoop, new_loop
from blumfeld_net_uring.io_uring.probe import probe
from blumfeld_net_uring.transport import UringTransport
from tests.plugins.net_asyncio.net_asyncio_tools import NoLog

needs_ring = pytest.mark.skipif(not probe().available, reason=str(probe().why_not))


def without(*features: str, buffer_bytes: int = 16_384, buffers: int = 4_096) -> MakeTransport:
    """Makes a transport without these, as on an older kernel."""
    return lambda runtime: UringTransport(
        runtime, NoLog(), without=features, buffer_bytes=buffer_bytes, buffers=buffers
    )


class UringContract(TransportContract):
    """On its own loop."""

    @pytest.fixture
    def loop_factory(self) -> LoopFactory:
        return new_loop

    @pytest.fixture(autouse=True)
    def nothing_is_left(self, net: Net) -> Iterator[None]:
        """After each test of the contract, whatever it did: no entry in flight, no token, no buffer, no region.

        The loop's own poll of other descriptors stays.
        """
        before = held(net)
        yield
        net.run(net.transport.stop(0))
        assert eventually(lambda: held(net) == before)


def held(net: Net) -> tuple[int, ...]:
    """Counts of the ring: entries in flight, callbacks, things kept for the kernel, completions without a taker."""
    loop = net._loop
    if not isinstance(loop, UringLoop):
        return ()
    ring = loop.ring
    return (ring.in_flight, len(ring._callbacks), len(ring._kept), ring.strays)


@needs_ring
class TestUringTransport(UringContract):
    """With all that this kernel has."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return without()


@needs_ring
class TestInSmallBites(UringContract):
    """Few and small buffers: frames are in pieces, and buffers run out."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return without(buffer_bytes=1_024, buffers=32)


@needs_ring
@pytest.mark.slow
class TestWithoutMultishot(UringContract):
    """As Linux 5.19 without its multishot accept."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return without("multishot recv", "multishot accept")


@needs_ring
@pytest.mark.slow
class TestWithoutBufferGroups(UringContract):
    """Polled, and received by calls."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return without("buffer ring")


class TestWithoutRing(UringContract):
    """Where the kernel forbids io_uring."""

    @pytest.fixture
    def make_transport(self) -> MakeTransport:
        return without("io_uring")


@needs_ring
class TestCopiedRegions(RegionContract):
    """Read and sent from memory instead of by ``sendfile``."""

    @pytest.fixture
    def loop_factory(self) -> LoopFactory:
        return new_loop

    @pytest.fixture
    def make_transport(self, monkeypatch: pytest.MonkeyPatch) -> MakeTransport:
        monkeypatch.setattr(os, "sendfile", None)  # calling it would fail
        return lambda runtime: UringTransport(runtime, NoLog(), copies_regions=True)
