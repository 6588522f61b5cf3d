"""File regions: exact bytes, and a release on every path."""

from __future__ import annotations

import random

import pytest

from blumfeld.spi.parts import Part
from blumfeld_kit.transport_contract.fixtures import TransportFixtures
from blumfeld_kit.transport_contract.kit import (
    CountedRegion,
    Net,
    hold,
    hold_and_let_next_start,
)


class RegionContract(TransportFixtures):
    """The part of the contract about file regions: exact bytes, released exactly once (the ``net`` fixture counts)."""

    @pytest.mark.parametrize("in_memory", [False, True], ids=["file", "memory"])
    @pytest.mark.parametrize("size", [0, 1, 1_000, 3_000_000])
    def test_a_region_is_sent_as_it_is(self, net: Net, size: int, in_memory: bool) -> None:
        data = random.Random(size).randbytes(size)
        parts: list[Part] = [
            b"head",
            net.region(data, in_memory=in_memory),
            memoryview(b"middle"),
            net.region(data),
            b"tail",
        ]
        _, client = net.serve(lambda exchange, _: exchange.answer(parts))
        client.send(b"x")
        assert client.frame() == b"head" + data + b"middle" + data + b"tail"
        assert client.is_quiet(0.01)

    def test_an_answer_may_have_very_many_parts(self, net: Net) -> None:
        pieces = [b"%d," % n for n in range(5_000)]
        _, client = net.serve(lambda exchange, _: exchange.answer(pieces))
        client.send(b"x", b"y")
        assert [client.frame() for _ in range(2)] == [b"".join(pieces)] * 2

    def test_a_region_is_released_when_the_peer_dies(self, net: Net) -> None:
        """A region is released when the peer dies: half sent, or queued behind an open request."""
        handler, client = net.serve(hold_and_let_next_start)
        client.send(b"1", b"2", b"3")
        assert handler.has_started(3)
        net.answer(handler.exchanges[2], net.region(b"never its turn"))
        net.answer(handler.exchanges[0], net.region(bytes(30 << 20)), net.region(b"more"))
        client.receive(1_000)
        client.reset()
        assert handler.has_lost(1)
        assert [region.releases for region in net.regions] == [1, 1, 1]

    def test_a_region_is_released_when_the_answer_comes_too_late(self, net: Net) -> None:
        handler, client = net.serve(hold)
        client.send(b"1")
        assert handler.has_started(1)
        net.call(lambda: handler.opened_connections[0].abort("the test says so"))
        assert client.is_closed()
        assert handler.has_lost(1)
        net.answer(handler.exchanges[0], net.region(b"late"))
        assert [region.releases for region in net.regions] == [1]

    def test_an_abort_while_sending_releases_and_closes(self, net: Net) -> None:
        handler, client = net.serve(lambda exchange, _: exchange.answer([net.region(bytes(30 << 20))]))
        client.send(b"1")
        client.receive(10_000)
        net.call(lambda: handler.opened_connections[0].abort("the test says so"))
        assert handler.has_lost(1)
        assert [reason for _, reason in handler.closed_reasons] == ["the test says so"]
        with pytest.raises(EOFError):
            client.receive(40 << 20)
        net.call(lambda: handler.opened_connections[0].abort("again"))
        assert len(handler.closed_reasons) == 1

    def test_a_file_that_is_shorter_than_its_region_ends_the_connection(self, net: Net) -> None:
        """A file that is shorter than its region ends the connection: no other bytes may be sent in its place."""
        region = net.region(b"short")
        assert isinstance(region, CountedRegion)
        region.size_bytes = 1_000
        handler, client = net.serve(lambda exchange, _: exchange.answer([region]))
        client.send(b"1")
        with pytest.raises(EOFError):
            client.frame()
        assert handler.has_lost(1)
