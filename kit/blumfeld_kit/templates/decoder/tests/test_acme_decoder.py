"""The contract of every decoder, and what makes this one yours."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.decoders import Decoder
from blumfeld_sink_spark.testing import DecoderContract
from blumfeld_sink_spark.testing.decoder_messages import batch

from acme_decoder import AcmeDecoder


class TestAcmeDecoder(DecoderContract):
    """All that every decoder must hold."""

    def make_decoder(self) -> Decoder:
        """Return a new one."""
        return AcmeDecoder()

    def messages(self) -> Sequence[bytes]:
        """Return a few messages of each kind."""
        return [b"EURUSD 1.08505 100", b"GBPUSD 1.27 5"]

    def bad_messages(self) -> Sequence[bytes]:
        """Return messages that must be rejected."""
        return [b"EURUSD 1.08505", b"EURUSD -1 100", b"EURUSD 1 1\n"]


def test_it_reads_your_feed() -> None:
    """RED UNTIL YOU WRITE IT. Put a message of your feed here, and the row that it gives."""
    decoded = AcmeDecoder().decode(batch([b"EURUSD;1.08505;100"]))
    assert [trade["symbol"] for trade in decoded.tables["trades"].to_pylist()] == ["EURUSD"]
