"""Confluent's wire format: Avro, Protobuf and JSON by a registry over HTTP, or a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from blumfeld.spi.decoders import Continuity, Decoder
from blumfeld_sink_spark.apply import Applied, decode_rows, decoders_for
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.decoders.schemas import confluent
from blumfeld_sink_spark.decoders.schemas.protobuf import message_indexes
from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.testing import DecoderContract
from blumfeld_sink_spark.testing.decoder_messages import FIRST_OFFSET, STAMP_US, batch
from tests.plugins.sink_spark.schema_server import (
    QUOTE,
    TRADE,
    Registry,
    avro,
    framed,
    protobuf_class,
    serving,
    trade_file,
)

pytestmark = pytest.mark.archive

TRADE_ID, QUOTE_ID, PROTOBUF_ID = 7, 8, 9
TRADED = {
    "eventTime": STAMP_US,
    "recv_ms": 1_723_161_256_001,
    "exchange": "XNAS",
    "symbol": "ACME",
    "tid": 5,
    "side": "SELL",
    "px": Decimal("12345678901234567.000000000001"),
    "qty": 0.1,
}
_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
QUOTED = {"ts_ns": 12, "seq": 3, "bid_px": "1.5", "bid_sz": "10", "ask_px": None, "ask_sz": None}


@pytest.fixture
def registry() -> Iterator[Registry]:
    confluent.reader_of.cache_clear()
    with serving() as registry:
        registry.add(TRADE_ID, json.dumps(TRADE))
        registry.add(QUOTE_ID, json.dumps(QUOTE), schemaType="AVRO")
        registry.add_protobuf(PROTOBUF_ID, trade_file())
        yield registry


def apply(
    registry: Registry | str,
    *values: bytes | None,
    name: str = "confluent",
    keys: Sequence[bytes] | None = None,
) -> Applied:
    location = registry if isinstance(registry, str) else registry.url
    settings = ArchiveSettings(topics=("ticks",), decoders=(name,), schema_registry=location)
    return decode_rows(decoders_for("ticks", settings), batch(values, keys), settings)


def refused(applied: Applied) -> list[tuple[int, str, int | None]]:
    if "quarantine" not in applied.tables:
        return []
    rows = applied.tables["quarantine"].to_pylist()
    return [(row["k_offset"] - FIRST_OFFSET, row["error"], row["schema_id"]) for row in rows]


def trade_message(**fields: Any) -> bytes:
    trade = protobuf_class("Envelope.Trade")(symbol="ACME", trade_id=5, side=2, size=0.1, **fields)
    trade.event_time.seconds, trade.event_time.nanos = 1_700_000_000, 1
    trade.price.value, trade.price.scale = (-12345).to_bytes(4, "big", signed=True), 3
    serialized: bytes = trade.SerializeToString()
    return framed(PROTOBUF_ID, bytes([4, 0, 0]) + serialized)


def depth_message(levels: int = 2) -> bytes:
    depth = protobuf_class("Depth")(ts_us=5, first_id=10, last_id=12)
    for nth in range(levels):
        depth.bids.add(price=str(10 - nth), qty=f"{nth}.50")
    depth.asks.add(price="11", qty="0")
    serialized: bytes = depth.SerializeToString()
    return framed(PROTOBUF_ID, bytes([2, 4]) + serialized)


def test_an_avro_trade_is_exact(registry: Registry) -> None:
    """Decimals to the last digit, floats as they are written, times by their logical type or their name."""
    (row,) = apply(registry, *avro(TRADE_ID, TRADE, TRADED)).tables["trades"].to_pylist()
    assert row == {
        "ts_event": STAMP_US * 1000,
        "ts_recv": 1_723_161_256_001_000_000,
        "ts_sent": None,
        "ts_event_is_recv": False,
        "venue": "XNAS",
        "symbol": "ACME",
        "trade_id": 5,
        "side": -1,
        "price": Decimal("12345678901234567.000000000001"),
        "size": Decimal("0.1"),
        "flags": None,
        "k_partition": 0,
        "k_offset": 1000,
    }


def test_what_the_record_lacks_comes_from_the_message(registry: Registry) -> None:
    """Venue: the topic; symbol: the key; a null is an empty side."""
    applied = apply(registry, *avro(QUOTE_ID, QUOTE, QUOTED), keys=[b"ACME"])
    (row,) = applied.tables["bbo"].to_pylist()
    assert (row["venue"], row["symbol"], row["ts_event"], row["update_id"]) == ("ticks", "ACME", 12, 3)
    assert row["ts_event_is_recv"] is False
    assert (row["bid"], row["bid_size"], row["ask"], row["ask_size"]) == (Decimal("1.5"), 10, None, None)


def test_protobuf_messages_are_found_in_their_file(registry: Registry) -> None:
    """A nested one and a later one; timestamps, enums and Confluent's decimal are what they stand for."""
    applied = apply(registry, trade_message(), depth_message(), keys=[b"ACME"] * 2)
    (trade,) = applied.tables["trades"].to_pylist()
    assert (trade["ts_event"], trade["side"], trade["price"]) == (
        1_700_000_000_000_000_001,
        -1,
        Decimal("-12.345"),
    )
    levels = [(row["side"], row["price"], row["size"]) for row in applied.tables["book_deltas"].to_pylist()]
    assert levels == [(1, 10, Decimal("0.5")), (1, 9, Decimal("1.5")), (-1, 11, 0)]
    sequences = [(row["stream"], row["first_id"], row["last_id"]) for row in applied.sequences.to_pylist()]
    assert sequences == [("trades", 5, 5), ("book_deltas", 10, 12)]
    assert refused(applied) == []


@pytest.mark.parametrize(
    ("payload", "indexes"), [(b"\0", [0]), (b"\2\0", [0]), (b"\4\2\0", [1, 0]), (b"\2\x80\1", [64])]
)
def test_message_indexes(payload: bytes, indexes: list[int]) -> None:
    assert message_indexes(payload + b"rest") == (indexes, len(payload))


@pytest.mark.parametrize(
    "payload", [b"", b"\1", b"\x80", b"\x80" * 9, b"\4\2", b"\2\1", b"\xff\xff\xff\xff\x0f"]
)
def test_message_indexes_that_cannot_be(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"index|varint"):
        message_indexes(payload)


def test_json_by_the_registry(registry: Registry) -> None:
    registry.add(20, "{}", schemaType="JSON")
    value = framed(20, b'{"ts":5,"symbol":"A","bids":[["1.0",2],{"px":3,"qty":"4"}],"last_update_id":"77"}')
    levels = apply(registry, value).tables["book_deltas"].to_pylist()
    assert [(row["price"], row["size"], row["last_id"]) for row in levels] == [(1, 2, 77), (3, 4, 77)]


def test_a_name_says_what_names_do_not(registry: Registry) -> None:
    registry.add(20, "{}", schemaType="JSON")
    name = "confluent:trades?price=p@8&size=q&ts_event=t@ms&venue=:X&symbol=:Y+Z&trade_id=n&check=consecutive"
    applied = apply(registry, framed(20, b'{"p":123456789,"q":2,"t":5,"n":9}'), name=name)
    (row,) = applied.tables["trades"].to_pylist()
    assert (row["price"], row["ts_event"], row["venue"], row["symbol"], row["side"]) == (
        Decimal("1.23456789"),
        5_000_000,
        "X",
        "Y+Z",
        0,
    )
    assert list(applied.decoders) == [name]
    assert catalog.find(name).continuity == {"trades": Continuity.CONSECUTIVE}


def test_a_wish_does_not_forget_the_units_of_the_schema(registry: Registry) -> None:
    """The logical type says microseconds, whatever name the settings give the field."""
    applied = apply(registry, *avro(TRADE_ID, TRADE, TRADED), name="confluent:trades?ts_event=eventTime")
    assert applied.tables["trades"].column("ts_event").to_pylist() == [STAMP_US * 1000]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("confluent:weather", "no record fills the table 'weather'; allowed: trades, bbo, book_deltas"),
        ("confluent:trades?bid=x", "no column 'bid'; allowed: .*price"),
        ("confluent:trades?ts_event=t@min", "a time in 'min'; allowed: s, ms, us, ns"),
        ("confluent:trades?price=p@x", "a number @x"),
        ("confluent:trades?price=:dear", "'dear' is no number"),
        ("confluent:trades?check=often", "check=often; allowed: consecutive"),
        ("dbn:trades", "dbn takes no arguments"),
    ],
)
def test_a_name_that_cannot_be_is_refused_at_the_start(name: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        catalog.find(name)


def test_an_unknown_schema_is_quarantined_with_its_id(registry: Registry) -> None:
    """Its neighbours aren't; the registry is asked once for it in a batch, and again in the next: it may have come."""
    (good,) = avro(TRADE_ID, TRADE, TRADED)
    applied = apply(registry, framed(99, b"x"), good, framed(99, b"y"))
    said = "the schema registry does not know schema 99"
    assert refused(applied) == [(0, said, 99), (2, said, 99)]
    assert applied.tables["trades"].num_rows == 1
    assert registry.paths.count("/schemas/ids/99") == 1
    registry.add(99, json.dumps(QUOTE))
    (late,) = avro(99, QUOTE, QUOTED)
    assert refused(apply(registry, late, keys=[b"A"])) == []


def test_a_schema_is_asked_for_once(registry: Registry) -> None:
    for _ in range(3):
        apply(registry, *avro(TRADE_ID, TRADE, TRADED, TRADED))
    assert registry.paths == [f"/schemas/ids/{TRADE_ID}"]


@pytest.mark.parametrize(
    ("value", "error", "schema_id"),
    [
        (b"", "not Confluent's wire format", None),
        (b"\0\0\0\0", "not Confluent's wire format", None),
        (b'{"a":1}', "not Confluent's wire format", None),
        (b"\0\xff\xff\xff\xff", "not Confluent's wire format", None),
        (framed(TRADE_ID, b""), "not a record of schema 7", TRADE_ID),
        (avro(TRADE_ID, TRADE, TRADED)[0][:-1], "not a record of schema 7", TRADE_ID),
        (avro(TRADE_ID, TRADE, TRADED)[0] + b"x", "not a record of schema 7", TRADE_ID),
        (avro(TRADE_ID, TRADE, {**TRADED, "qty": float("nan")})[0], "field qty is no number", TRADE_ID),
        (
            avro(TRADE_ID, TRADE, {**TRADED, "eventTime": 2**60})[0],
            "field eventTime is no integer of 64",
            TRADE_ID,
        ),
        (avro(QUOTE_ID, QUOTE, {**QUOTED, "bid_px": "dear"})[0], "field bid_px is no number", QUOTE_ID),
        (avro(QUOTE_ID, QUOTE, {**QUOTED, "bid_px": None})[0], "no field says bid or ask", QUOTE_ID),
        (avro(QUOTE_ID, QUOTE, {**QUOTED, "bid_px": "1e30"})[0], "bbo.bid does not fit decimal128", None),
        (avro(QUOTE_ID, QUOTE, QUOTED)[0], "no field says the symbol", QUOTE_ID),
        (framed(PROTOBUF_ID, b"\x14"), "not a record of schema 9", PROTOBUF_ID),
        (framed(PROTOBUF_ID, b"\0\xff"), "not a record of schema 9", PROTOBUF_ID),
        (framed(PROTOBUF_ID, b"\0"), "no table is known for the record Envelope", PROTOBUF_ID),
    ],
)
def test_a_bad_message_says_what_is_wrong(
    registry: Registry, value: bytes, error: str, schema_id: int | None
) -> None:
    keys = [b"" if "symbol" in error else b"A"]
    ((place, said, rejected_schema_id),) = refused(apply(registry, value, keys=keys))
    assert (place, rejected_schema_id) == (0, schema_id)
    assert error in said


@pytest.mark.parametrize(
    ("schema", "more", "error"),
    [
        ('"long"', {}, "the Avro schema is neither of a record nor a union with one"),
        ('["null", "long"]', {}, "the Avro schema is neither of a record nor a union with one"),
        ("{", {}, "the Avro schema can't be read"),
        ("<x/>", {"schemaType": "XML"}, "a schema of the kind XML; known: AVRO, PROTOBUF, JSON"),
    ],
)
def test_a_schema_that_is_none_is_quarantined(registry: Registry, schema: str, more: Any, error: str) -> None:
    registry.add(30, schema, **more)
    ((_, said, schema_id),) = refused(apply(registry, framed(30, b"x")))
    assert error in said
    assert schema_id == 30


BROKEN = (503, b"busy")


@pytest.mark.parametrize(
    ("fails", "complaint"),
    [
        ([BROKEN] * 3, "can't be asked for schema 7"),
        ([(401, b"")], r"refuses us \(401\)"),
        ([(404, b"<html>")], "answers 404 for schema 7, but not as a schema registry does"),
        ([(200, b"<html>")], "answers, but not as a schema registry does"),
        ([(200, b"{}")], "answers without a schema"),
        ([(400, b"{}")], "answers 400"),
    ],
)
def test_a_registry_that_cannot_answer_quarantines_nothing(
    registry: Registry, fails: list[tuple[int, bytes]], complaint: str
) -> None:
    """The batch is tried again, and good messages come through."""
    registry.fails = list(fails)
    values = avro(TRADE_ID, TRADE, TRADED)
    with pytest.raises(ArchiveError, match=complaint):
        apply(registry, *values)
    assert apply(registry, *values).tables["trades"].num_rows == 1


def test_a_registry_that_is_busy_is_asked_again(registry: Registry) -> None:
    registry.fails = [BROKEN] * 2
    assert refused(apply(registry, *avro(TRADE_ID, TRADE, TRADED))) == []
    assert len(registry.paths) == 3


def test_a_registry_that_is_away_quarantines_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with serving() as gone:
        pass
    with pytest.raises(ArchiveError, match=rf"{gone.url} can't be asked for schema 7"):
        apply(gone, *avro(TRADE_ID, TRADE, TRADED))
    with pytest.raises(ArchiveError, match=r"archive\.schema_registry is not set"):
        apply("", *avro(TRADE_ID, TRADE, TRADED))
    with pytest.raises(ArchiveError, match="ftp:// is unknown; allowed: http, https, a folder"):
        apply("ftp://x", *avro(TRADE_ID, TRADE, TRADED))


def test_user_and_password_are_sent_and_not_told(registry: Registry) -> None:
    url = registry.url.replace("http://", "http://me:p%40ss@")
    assert refused(apply(url, *avro(TRADE_ID, TRADE, TRADED))) == []
    assert registry.authorization == "Basic bWU6cEBzcw=="
    registry.fails = [(403, b"")]
    with pytest.raises(ArchiveError, match="refuses us") as refusal:
        apply(url, framed(50, b"x"))
    assert "p%40ss" not in str(refusal.value)


def test_schemas_that_refer_to_others(registry: Registry) -> None:
    """Avro's by name, each asked for once; Protobuf's by the path of the import."""
    side = {"type": "enum", "name": "Side", "namespace": "acme.md", "symbols": ["NONE", "BUY", "SELL"]}
    fields = [
        field | ({"type": "acme.md.Side"} if field["name"] == "side" else {}) for field in TRADE["fields"]
    ]
    reference = {"name": "acme.md.Side", "subject": "side/x", "version": 2}
    registry.answers["/subjects/side%2Fx/versions/2"] = {"schema": json.dumps(side)}
    registry.add(40, json.dumps({**TRADE, "fields": fields}), references=[reference, reference])
    (value,) = avro(TRADE_ID, TRADE, TRADED)
    assert refused(apply(registry, framed(40, value[5:]))) == []
    assert registry.paths == ["/schemas/ids/40", "/subjects/side%2Fx/versions/2"]

    outer = descriptor_pb2.FileDescriptorProto(name="any", package="acme", syntax="proto3")
    outer.dependency.append("acme/trade.proto")
    wrapped = outer.message_type.add(name="DepthUpdate")
    wrapped.field.add(name="bids", number=4, type=11, label=3, type_name=".acme.Level")
    registry.add_protobuf(41, outer, references=[{"name": "acme/trade.proto", "subject": "t", "version": 1}])
    registry.answers["/subjects/t/versions/1"] = {"schema": "…", "schemaType": "PROTOBUF"}
    registry.add_serialized("/subjects/t/versions/1", trade_file())
    depth = protobuf_class("Depth")()
    depth.bids.add(price="1", qty="2")
    applied = apply(registry, framed(41, b"\0" + depth.SerializeToString()), keys=[b"A"])
    assert applied.tables["book_deltas"].column("size").to_pylist() == [2]


UNION = [
    {**TRADE, "namespace": "one"},
    {**QUOTE, "namespace": "two"},
    {**QUOTE, "namespace": "three", "fields": [{"name": "ts", "type": _MILLIS}, *QUOTE["fields"][1:]]},
    "null",
]


def test_several_records_in_one_topic_are_a_union(registry: Registry) -> None:
    """Confluent's way: the branch says which record a message holds. Each record has its own times."""
    registry.add(50, json.dumps(UNION))
    quoted = {name: value for name, value in QUOTED.items() if name != "ts_ns"}
    branches = (("one.TradeEvent", TRADED), ("two.Quote", QUOTED), ("three.Quote", quoted | {"ts": 12}))
    values = avro(50, UNION, *(record | {"-type": name} for name, record in branches))
    applied = apply(registry, *values, framed(50, b"\x06"), framed(50, b"\x08"), keys=[b"ACME"] * 5)
    (trade,) = applied.tables["trades"].to_pylist()
    assert (trade["price"], trade["ts_event"]) == (TRADED["px"], STAMP_US * 1000)
    assert applied.tables["bbo"].column("ts_event").to_pylist() == [12, 12_000_000]
    assert [row for row, error, _ in refused(applied)] == [3, 4]  # a null, and a branch that there isn't


def test_the_records_of_a_union_may_be_references(registry: Registry) -> None:
    """The registry keeps each record as a subject of its own, and the union has their names alone."""
    names = ["acme.md.TradeEvent", "acme.md.Quote"]
    schemas = [TRADE, {**QUOTE, "namespace": "acme.md"}]
    references = []
    for name, schema in zip(names, schemas, strict=True):
        registry.answers[f"/subjects/{name}/versions/1"] = {"schema": json.dumps(schema)}
        references.append({"name": name, "subject": name, "version": 1})
    registry.add(51, json.dumps(names), references=references)
    values = [
        *avro(51, schemas, TRADED | {"-type": names[0]}),
        *avro(51, schemas, QUOTED | {"-type": names[1]}),
    ]
    applied = apply(registry, *values, keys=[b"ACME"] * 2)
    assert refused(applied) == []
    assert applied.tables["trades"].column("ts_event").to_pylist() == [STAMP_US * 1000]
    assert applied.tables["bbo"].column("ts_event").to_pylist() == [12]


def test_a_registry_without_serialized_schemas_says_what_to_do(registry: Registry) -> None:
    registry.answers[f"/schemas/ids/{PROTOBUF_ID}?format=serialized"] = {"schema": 'syntax = "proto3";'}
    with pytest.raises(ArchiveError, match=r"not serialized.*protoc --include_imports"):
        apply(registry, trade_message())


def test_a_folder_of_schemas(registry: Registry, tmp_path: Path) -> None:
    """Avro as text, Protobuf as protoc compiles it, JSON; text of Protobuf says how to compile it."""
    (tmp_path / f"{TRADE_ID}.avsc").write_text(json.dumps(TRADE))
    files = descriptor_pb2.FileDescriptorSet(file=[trade_file()])
    (tmp_path / f"{PROTOBUF_ID}.desc").write_bytes(files.SerializeToString())
    (tmp_path / "20.json").write_text("{}")
    (tmp_path / "21.proto").write_text("syntax")
    (tmp_path / "22.desc").write_bytes(b"\xff")
    values = [
        *avro(TRADE_ID, TRADE, TRADED),
        trade_message(),
        framed(20, b'{"price":1,"size":2}'),
        framed(5, b""),
    ]
    applied = apply(str(tmp_path), *values, framed(22, b""), keys=[b"A"] * 5)
    assert applied.tables["trades"].num_rows == 3
    assert [(place, schema_id) for place, _, schema_id in refused(applied)] == [(3, 5), (4, 22)]
    with pytest.raises(ArchiveError, match=r"21\.proto must be compiled: protoc .*21\.desc 21\.proto"):
        apply(str(tmp_path), framed(21, b""))
    with pytest.raises(ArchiveError, match="is no folder"):
        apply(str(tmp_path / "away"), framed(21, b""))
    assert registry.paths == []


class TestConfluent(DecoderContract):
    """On Avro, Protobuf and JSON."""

    examples = 20

    @pytest.fixture(autouse=True)
    def _served(self, registry: Registry) -> None:
        registry.add(20, "{}", schemaType="JSON")
        self.location = registry.url

    def make_decoder(self) -> Decoder:
        settings = ArchiveSettings(topics=("ticks",), schema_registry=self.location)
        return catalog.find("confluent", (), settings)

    def messages(self) -> Sequence[bytes]:
        quote = framed(20, b'{"symbol":"A","bid":"1.5","bid_size":2,"ts_ms":5,"seq":7}')
        book = framed(20, b'{"symbol":"A","bids":[["1.5","2"]],"asks":[],"seq":7}')
        return [*avro(TRADE_ID, TRADE, TRADED), trade_message(), quote, book]

    def bad_messages(self) -> Sequence[bytes]:
        return [framed(99, b""), framed(TRADE_ID, b"\xff"), framed(20, b"[]"), depth_message()]
