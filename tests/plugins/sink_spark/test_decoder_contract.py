"""Every built-in decoder holds the contract."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blumfeld.spi.decoders import Decoder
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.testing import DecoderContract
from tests.plugins.sink_spark import dbn_files, venue_messages

pytestmark = pytest.mark.archive


class TestDbn(DecoderContract):
    """Records alone, several, files."""

    examples = 20

    def make_decoder(self) -> Decoder:
        return catalog.find("dbn")

    def messages(self) -> Sequence[bytes]:
        return dbn_files.messages()

    def bad_messages(self) -> Sequence[bytes]:
        return [
            b"",
            dbn_files.trade()[:-1],
            b"DBN\x04" + bytes(200),
            b"\x28\xb5\x2f\xfd not zstd",
            dbn_files.status(),
        ]


class TestRaw(DecoderContract):
    """Messages as they came."""

    keeps_tombstones = True
    reads_anything = True

    def make_decoder(self) -> Decoder:
        return catalog.find("raw")

    def messages(self) -> Sequence[bytes]:
        return [b"one", b"", b"\xff\x00"]


class TestVenue(DecoderContract):
    """JSON of a venue, every kind of message that fills a table."""

    examples = 15
    venue = ""

    @pytest.fixture(autouse=True, params=venue_messages.VENUES)
    def _venue(self, request: pytest.FixtureRequest) -> None:
        self.venue = request.param

    def make_decoder(self) -> Decoder:
        return catalog.find(self.venue)

    def messages(self) -> Sequence[bytes]:
        return venue_messages.of(self.venue)

    def bad_messages(self) -> Sequence[bytes]:
        whole = self.messages()[0]
        return [whole[:-1], whole + b"}", b"[" + whole + b"]"]


def test_every_built_in_decoder_is_held_to_it() -> None:
    held = {"confluent", "dbn", "raw", *venue_messages.VENUES}
    assert held == set(catalog.names())
