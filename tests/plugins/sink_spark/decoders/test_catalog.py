"""The catalog of decoders, ours and those of plug-ins; and ``raw``."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pyarrow as pa
import pytest

from blumfeld.plugging import registry
from blumfeld.spi.hooks import NoOptions, hookimpl
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.errors import SettingsError
from blumfeld_sink_spark.rows import HEADERS
from tests.plugins.sink_spark.decoding import rows_in, rows_of


class _Brought:
    name = "acme"


class BringsDecoders:
    """A stranger's plug-in."""

    options_class = NoOptions
    roles = ("decoders",)

    @hookimpl
    def blumfeld_decoders(self) -> list[Any]:
        return [_Brought()]


class ForgetsTheMark:
    """A plug-in whose hook lacks its mark, so that the kernel would not call it."""

    options_class = NoOptions
    roles = ("decoders",)

    def blumfeld_decoders(self) -> list[Any]:
        return [_Brought()]


def install(monkeypatch: pytest.MonkeyPatch, plugin: str) -> None:
    """Have one of these as the plug-in ``acme_decoder`` beside those that are installed."""
    point = EntryPoint("acme_decoder", f"{__name__}:{plugin}", registry.GROUP)
    there = [*entry_points(group=registry.GROUP), point]
    monkeypatch.setattr(registry, "entry_points", lambda group: there)


def test_an_unknown_name_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"'binance'; allowed: binance-spot, .*raw"):
        catalog.find("binance")


def test_another_plug_in_s_decoders_are_found_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "BringsDecoders")
    assert isinstance(catalog.find("acme", ["acme_decoder"]), _Brought)
    assert "acme" in catalog.names(["acme_decoder"])
    with pytest.raises(SettingsError, match="'acme'"):
        catalog.find("acme")


def test_a_plug_in_that_breaks_the_contract_of_plug_ins_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "ForgetsTheMark")
    said = "plug-in acme_decoder: blumfeld_decoders is not marked with hookimpl"
    with pytest.raises(SettingsError, match=said):
        catalog.find("acme", ["acme_decoder"])


def test_a_plug_in_that_isn_t_there_or_brings_no_decoders_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    said = r'archive\.decoder_plugins\[0\]: found "nobody", which isn\'t installed; allowed: no installed plug-in'
    with pytest.raises(SettingsError, match=said):
        catalog.find("x", ["nobody"])
    install(monkeypatch, "BringsDecoders")
    said = r'decoder_plugins\[1\]: found "net_asyncio", which fills network; allowed: .*: acme_decoder$'
    with pytest.raises(SettingsError, match=said):
        catalog.find("x", ["acme_decoder", "net_asyncio"])


def test_raw_gives_a_row_for_each_message_null_values_too() -> None:
    rows = rows_of([b"\xff\x00", None, b""], key=None)
    decoded = catalog.find("raw").decode(rows)
    raw_rows = [
        (row["row"], row["key"], row["value"], row["timestamp_type"]) for row in rows_in(decoded, "raw")
    ]
    assert raw_rows == [(0, None, b"\xff\x00", 0), (1, None, None, 0), (2, None, b"", 0)]
    assert "headers" not in rows_in(decoded, "raw")[0]


def test_raw_keeps_headers_with_their_order_and_null_values() -> None:
    headers = pa.array([[{"key": "b", "value": b"1"}, {"key": "a", "value": None}], None], HEADERS)
    rows = rows_of([b"x", b"y"]).append_column("headers", headers)
    header_lists = [row["headers"] for row in rows_in(catalog.find("raw").decode(rows), "raw")]
    assert header_lists == [[{"key": "b", "value": b"1"}, {"key": "a", "value": None}], None]
