"""Every built-in decoder holds the contract."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.decoders import Decoder
from blumfeld.testing import DecoderContract
from blumfeld_sink_spark.decoders import catalog
from tests.plugins.sink_spark import dbn_files


class TestDbn(DecoderContract):
    """Records alone, several, files."""

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
