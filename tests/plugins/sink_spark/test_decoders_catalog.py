"""Which decoders there are, ours and others'; and ``raw``."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.rows import HEADERS
from tests.plugins.sink_spark.decoding import rows_in, rows_of


class _Brought:
    name = "acme"


class _Plugin:
    def blumfeld_decoders(self) -> list[Any]:
        return [_Brought()]


class _Entry:
    name = "acme_decoder"

    def load(self) -> Any:
        return _Plugin


def test_every_venue_can_be_found_by_its_name() -> None:
    for name in (
        "binance-spot",
        "binance-usdm",
        "bitstamp",
        "coinbase",
        "hyperliquid",
        "kraken",
        "okx",
        "raw",
    ):
        assert catalog.find(name).name == name
        assert name in catalog.names()


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"'binance'; allowed: binance-spot, .*raw"):
        catalog.find("binance")


def test_another_plug_in_s_decoders_are_found_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "entry_points", lambda **_: [_Entry()])
    assert isinstance(catalog.find("acme", ["acme_decoder"]), _Brought)
    assert "acme" in catalog.names(["acme_decoder"])
    with pytest.raises(SettingsError, match="'acme'"):
        catalog.find("acme")


def test_a_plug_in_that_isn_t_there_or_brings_no_decoders_is_named() -> None:
    with pytest.raises(SettingsError, match=r"'nobody' isn't installed; installed: .*sink_spark"):
        catalog.find("x", ["nobody"])
    with pytest.raises(SettingsError, match="'net_asyncio' brings no decoders"):
        catalog.find("x", ["net_asyncio"])


def test_raw_gives_a_row_for_each_message_null_values_too() -> None:
    rows = rows_of([b"\xff\x00", None, b""], key=None)
    decoded = catalog.find("raw").decode(rows)
    found = [(row["row"], row["key"], row["value"], row["timestamp_type"]) for row in rows_in(decoded, "raw")]
    assert found == [(0, None, b"\xff\x00", 0), (1, None, None, 0), (2, None, b"", 0)]
    assert "headers" not in rows_in(decoded, "raw")[0]


def test_raw_keeps_headers_with_their_order_and_null_values() -> None:
    headers = pa.array([[{"key": "b", "value": b"1"}, {"key": "a", "value": None}], None], HEADERS)
    rows = rows_of([b"x", b"y"]).append_column("headers", headers)
    found = [row["headers"] for row in rows_in(catalog.find("raw").decode(rows), "raw")]
    assert found == [[{"key": "b", "value": b"1"}, {"key": "a", "value": None}], None]
