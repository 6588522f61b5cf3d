"""The contract of a decoder, on this one; and what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pytest
from acme_decoder_ticks import TicksDecoder

from blumfeld.spi.decoders import Decoder
from blumfeld_sink_spark.testing import DecoderContract
from blumfeld_sink_spark.testing.decoder_messages import batch

LINE = b"1723161256000000001|17|EURUSD|B|1.08505|1000000"


class TestTicksDecoder(DecoderContract):
    """All that every decoder must hold."""

    def make_decoder(self) -> Decoder:
        """A fresh one."""
        return TicksDecoder()

    def messages(self) -> Sequence[bytes]:
        """Lines of the feed."""
        return [LINE, b"1723161256000000002|18|EURUSD|S|1.1|0.5\n", b"0|0|X|N|0|0"]

    def bad_messages(self) -> Sequence[bytes]:
        """Lines of others."""
        return [
            LINE + b"|",
            LINE.replace(b"B", b"b"),
            LINE.replace(b"1.08505", b"-1"),
            b"9" * 19 + LINE[19:],
            LINE * 2,
        ]


def test_a_line_is_exact() -> None:
    (trade,) = TicksDecoder().decode(batch([LINE])).tables["trades"].to_pylist()
    assert trade == {
        "row": 0,
        "ts_event": 1_723_161_256_000_000_001,
        "ts_event_is_recv": False,
        "venue": "acme",
        "symbol": "EURUSD",
        "trade_id": 17,
        "side": 1,
        "price": Decimal("1.08505"),
        "size": 1_000_000,
    }


@pytest.mark.parametrize(("letter", "side"), [(b"B", 1), (b"S", -1), (b"N", 0)])
def test_sides(letter: bytes, side: int) -> None:
    trades = TicksDecoder().decode(batch([LINE.replace(b"|B|", b"|%s|" % letter)])).tables["trades"]
    assert trades.column("side").to_pylist() == [side]
