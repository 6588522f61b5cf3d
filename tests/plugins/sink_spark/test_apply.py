"""Decoders on a batch: the archive's types, lineage, quarantine; whatever decoders and messages do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st

from blumfeld.spi.decoders import Continuity, Decoded, Decoder, Rejected
from blumfeld_sink_spark.apply import SEQUENCES, Applied, decode_rows, decoders_for
from blumfeld_sink_spark.decoders import catalog
from blumfeld_sink_spark.errors import ArchiveError, SettingsError, words_of
from blumfeld_sink_spark.rows import RAW_ROWS_WITH_HEADERS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.tables import tables
from blumfeld_sink_spark.testing.decoder_messages import FIRST_OFFSET, STAMP_US, batch
from tests.everyday import examples
from tests.plugins.sink_spark.results import changed

SETTINGS = ArchiveSettings(topics=("ticks",))


@attrs.define
class Words:
    """Reads a trade ``SYMBOL PRICE`` from each line of a message. Its fields can make it break the contract."""

    name: str = "words"
    version: int = 3
    tables: Sequence[str] = ("trades",)
    continuity: Mapping[str, Continuity] = {}
    raises: type[BaseException] = ValueError
    spoil: Callable[[pa.Table], pa.Table] = lambda table: table

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        made: list[dict[str, Any]] = []
        rejected = []
        for row, value in enumerate(rows.column("value").to_pylist()):
            if value == b"raise":
                raise self.raises("as I was told")
            try:
                made += [_trade(row, line) for line in value.decode().splitlines()]
            except (ValueError, ArithmeticError):
                made = [entry for entry in made if entry["row"] != row]
                rejected.append(Rejected(row, "not words", schema_id=7))
        table = self.spoil(pa.Table.from_pylist(made, GIVEN))
        return Decoded({"trades": table}, _numbers(table), rejected)


GIVEN = pa.schema(
    [
        ("row", pa.int32()),
        ("ts_event", pa.int64()),
        ("venue", pa.string()),
        ("symbol", pa.string()),
        ("side", pa.int64()),
        ("price", pa.decimal128(38, 4)),
        ("size", pa.int64()),
    ]
)


def _trade(row: int, line: str) -> dict[str, Any]:
    symbol, price = line.split(" ")
    number = Decimal(price)
    size = int(number) if number == int(number) and abs(number) < 100 else 1
    return {
        "row": row,
        "ts_event": STAMP_US * 1000,
        "venue": "words",
        "symbol": symbol,
        "side": 1,
        "price": number,
        "size": size,
    }


def _numbers(table: pa.Table) -> pa.Table | None:
    if "row" not in table.column_names or not table.num_rows:
        return None
    firsts = table.group_by("row", use_threads=False).aggregate([("symbol", "first"), ("ts_event", "first")])
    count = firsts.num_rows
    return pa.table(
        {
            "row": firsts.column("row"),
            "venue": ["words"] * count,
            "symbol": firsts.column("symbol_first"),
            "stream": ["trade"] * count,
            "first_id": pa.array([1] * count, pa.int64()),
            "last_id": pa.array([2] * count, pa.int64()),
            "ts_event": firsts.column("ts_event_first"),
        }
    )


def apply(*values: bytes | None, decoders: Sequence[Decoder] = (Words(),), decimal: str = "38,18") -> Applied:
    return decode_rows(decoders, batch(values), ArchiveSettings(topics=("ticks",), decimal=decimal))


def errors(applied: Applied) -> dict[int, str]:
    if "quarantine" not in applied.tables:
        return {}
    return {row["k_offset"] - FIRST_OFFSET: row["error"] for row in applied.tables["quarantine"].to_pylist()}


def test_tables_have_the_archives_types_and_lineage() -> None:
    """Every column is in its place. A column that the decoder leaves out is null or comes from the message."""
    applied = apply(b"A 1.5", b"B 2\nA 3")
    trades = applied.tables["trades"]
    assert trades.schema == tables()["trades"].schema
    assert trades.column("price").to_pylist() == [Decimal("1.5"), 2, 3]
    assert trades.column("k_offset").to_pylist() == [1000, 1001, 1001]
    assert trades.column("ts_recv").to_pylist() == [(STAMP_US + 1000 * nth) * 1000 for nth in (0, 1, 1)]
    assert trades.column("trade_id").null_count == 3
    assert applied.decoders == {"words": 3}
    assert list(applied.tables) == ["trades"], "tables without rows are left out"


def test_sequences_say_offset_and_receipt() -> None:
    applied = apply(b"A 1", b"?", b"B 2")
    assert applied.sequences.schema == SEQUENCES
    sequences = applied.sequences.select(["row", "symbol", "offset", "prev_id", "ts_recv"]).to_pylist()
    stamp = STAMP_US * 1000
    assert sequences == [
        {"row": 0, "symbol": "A", "offset": 1000, "prev_id": None, "ts_recv": stamp},
        {"row": 2, "symbol": "B", "offset": 1002, "prev_id": None, "ts_recv": stamp + 2_000_000},
    ]


def test_what_is_rejected_is_kept_with_its_bytes() -> None:
    applied = apply(b"A 1", b"?")
    assert applied.tables["quarantine"].schema == tables()["quarantine"].schema
    (row,) = applied.tables["quarantine"].to_pylist()
    assert row == {
        "ts_recv": (STAMP_US + 1000) * 1000,
        "decoder": "words",
        "error": "not words",
        "schema_id": 7,
        "key": None,
        "value": b"?",
        "k_partition": 0,
        "k_offset": 1001,
    }


@pytest.mark.parametrize(
    ("decimal", "value", "error"),
    [
        ("38,18", b"A 1\nA 123456789012345678901", "trades.price does not fit decimal128(38, 18)"),
        ("6,2", b"A 1\nA 1.005", "trades.price does not fit decimal128(6, 2)"),
        ("6,2", b"A 10000", "trades.price does not fit decimal128(6, 2)"),
        ("6,2", b" 1", "trades.symbol is empty"),
        ("6,2", b"%s 1" % (b"A" * 81), "longer than 80 bytes"),
    ],
)
def test_a_value_that_the_table_cannot_hold_rejects_the_message_whole(
    decimal: str, value: bytes, error: str
) -> None:
    """The fitting rows and the sequence of the message are rejected with it. Its neighbours stay exact."""
    applied = apply(b"A 9999.99", value, b"A -9999.99", decimal=decimal)
    assert error in errors(applied)[1]
    assert list(errors(applied)) == [1]
    assert applied.tables["trades"].column("price").to_pylist() == [Decimal("9999.99"), Decimal("-9999.99")]
    assert applied.sequences.column("offset").to_pylist() == [1000, 1002]


def test_a_null_where_none_may_be_rejects_the_message() -> None:
    def without_price(table: pa.Table) -> pa.Table:
        gone = [None if row["symbol"] == "GONE" else row["price"] for row in table.to_pylist()]
        return changed(table, price=gone)

    applied = apply(b"A 1", b"GONE 2", decoders=[Words(spoil=without_price)])
    assert errors(applied) == {1: "trades.price is missing"}


def test_a_number_too_big_for_its_column_rejects_the_message() -> None:

    def big(table: pa.Table) -> pa.Table:
        sides = [300 if row["symbol"] == "BIG" else 1 for row in table.to_pylist()]
        return changed(table, side=sides)

    values = [b"A 1"] * 50
    values[17] = b"BIG 1"
    assert errors(apply(*values, decoders=[Words(spoil=big)])) == {17: "trades.side does not fit int8"}


@pytest.mark.parametrize("raises", [ValueError, KeyError, RecursionError, pa.ArrowInvalid])
def test_a_decoder_that_raises_costs_only_the_message_at_which_it_does(raises: type[BaseException]) -> None:
    values = [b"A 1", b"raise", b"?", b"A 2", b"A 3", b"raise"]
    applied = apply(*values, decoders=[Words(raises=raises)])
    said = f"the decoder raised {raises.__name__}: {raises('as I was told')}"
    assert errors(applied) == {1: said, 2: "not words", 5: said}
    assert applied.tables["trades"].column("k_offset").to_pylist() == [1000, 1003, 1004]
    assert applied.sequences.column("row").to_pylist() == [0, 3, 4]


def test_an_exception_has_the_same_words_in_each_run() -> None:
    """A batch that is run again must give the same bytes, and an object's address is another then."""
    assert words_of(ValueError(f"no {object()}\n at all")) == "ValueError: no <object object at 0x…> at all"
    assert words_of(EOFError()) == "EOFError"


@pytest.mark.parametrize("raises", [ArchiveError, ImportError, MemoryError, OSError])
def test_what_says_nothing_about_the_message_is_no_reason_for_quarantine(raises: type[Exception]) -> None:
    with pytest.raises((ArchiveError, MemoryError, OSError)):
        apply(b"A 1", b"raise", decoders=[Words(raises=raises)])


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda table: table.drop_columns("row"), "no column row"),
        (
            lambda table: changed(table, row=pa.array(["0"] * table.num_rows)),
            "no column row of integers",
        ),
        (
            lambda table: changed(table, row=[None] * table.num_rows),
            "message isn.t in the batch",
        ),
        (lambda table: table.drop_columns("price"), "needs the column price"),
        (lambda table: table.append_column("weather", pa.nulls(table.num_rows)), "no columns weather"),
        (
            lambda table: changed(table, row=[9] * table.num_rows),
            "message isn.t in the batch",
        ),
        (
            lambda table: changed(table, row=[-1] * table.num_rows),
            "message isn.t in the batch",
        ),
        (
            lambda table: changed(table, side=pa.array([[1]] * table.num_rows)),
            "can't become int8",
        ),
    ],
)
def test_a_decoder_that_is_wrong_whatever_the_message_stops_the_archive(
    spoil: Callable[[pa.Table], pa.Table], complaint: str
) -> None:
    """It is for its author: nothing is written, and nothing quarantined in its name."""
    with pytest.raises(ArchiveError, match=f"decoder words is wrong.*{complaint}"):
        apply(b"A 1", decoders=[Words(spoil=spoil)])


@pytest.mark.parametrize("name", ["weather", "quarantine"])
def test_a_table_that_no_decoder_may_fill_stops_the_archive(name: str) -> None:
    class Other(Words):
        def decode(self, rows: pa.RecordBatch) -> Decoded:
            return Decoded({name: pa.table({"row": pa.array([0], pa.int32())})})

    with pytest.raises(ArchiveError, match=f"there is no table {name}.*allowed: .*trades"):
        apply(b"A 1", decoders=[Other()])


def test_several_decoders_quarantine_each_for_itself() -> None:
    """Their rows are in the order of the messages, then of the decoders."""
    applied = apply(b"A 1", b"?", b"A 2", decoders=[Words(), Words(name="others")])
    quarantine = applied.tables["quarantine"]
    assert quarantine.column("decoder").to_pylist() == ["words", "others"]
    assert applied.tables["trades"].column("k_offset").to_pylist() == [1000, 1000, 1002, 1002]
    assert applied.decoders == {"words": 3, "others": 3}


def with_headers(*headers: list[tuple[str, bytes | None]] | None) -> pa.RecordBatch:
    rows = batch([b"A 1"] * len(headers))
    return pa.RecordBatch.from_arrays(
        [*rows.columns, pa.array(headers, RAW_ROWS_WITH_HEADERS.field("headers").type)],
        schema=RAW_ROWS_WITH_HEADERS,
    )


def test_the_header_says_when_it_was_received() -> None:
    """The last of its name, where it is a number of 64 bits; else Kafka's timestamp."""
    rows = with_headers(
        [("recv", b"12")],
        None,
        [],
        [("recv", b"x1"), ("other", b"1")],
        [("recv", b"9223372036854775808")],
        [("recv", b"9223372036854775807")],
        [("recv", b"5"), ("recv", b"-7")],
        [("recv", b"5"), ("recv", b"6"), ("recv", None), ("recv", b"")],
        [("recv", b"1\n")],
    )
    settings = ArchiveSettings(topics=("ticks",), recv_header="recv")
    kafka = [(STAMP_US + 1000 * nth) * 1000 for nth in range(len(rows))]
    for start in (0, 3):
        made = decode_rows([Words()], rows.slice(start), settings).tables["trades"]
        assert made.column("ts_recv").to_pylist() == [12, *kafka[1:5], 2**63 - 1, 5, 6, kafka[8]][start:]
        bad = decode_rows([Words()], rows.slice(start), settings).messages.column("bad_recv")
        assert bad.to_pylist() == [False, False, False, True, True, False, False, False, True][start:]


def test_an_event_without_a_time_has_that_of_its_receipt_to_the_nanosecond() -> None:
    rows = with_headers([("recv", b"1723161256000000012")], [("recv", b"1723161256000000034")])
    quotes = [b'{"u":%d,"s":"X","b":"1.5","B":"2","a":"2","A":"1"}' % nth for nth in (4, 5)]
    rows = changed(rows, value=quotes)
    settings = ArchiveSettings(topics=("ticks",), recv_header="recv")
    made = decode_rows([catalog.find("binance-spot")], rows, settings)
    for table in (made.tables["bbo"], made.sequences):
        assert table.column("ts_event").to_pylist() == [1723161256000000012, 1723161256000000034]
        assert table.column("ts_event").equals(table.column("ts_recv"))
        assert table.column("ts_event_is_recv").to_pylist() == [True, True]


def test_a_message_that_one_decoder_reads_is_not_unread() -> None:
    """Two venues in one topic: each decoder rejects the other's messages. Null values aren't unread, nor is what is
    passed over.
    """
    values = [b"A 1", b'{"u":4,"s":"X","b":"1.5","B":"2","a":"2","A":"1"}', b"?", b"pong", None]
    decoders = [Words(), catalog.find("binance-spot"), catalog.find("raw")]
    made = decode_rows(decoders, batch(values[:4]), SETTINGS)
    assert made.messages.column("unread").to_pylist() == [False, False, True, False]
    assert made.messages.column("offset").to_pylist() == [FIRST_OFFSET + nth for nth in range(4)]
    alone = decode_rows([catalog.find("raw")], batch(values), SETTINGS)
    assert alone.messages.column("unread").to_pylist() == [False] * 5


def test_raw_keeps_the_records_timestamp_whatever_the_header_says() -> None:
    """So that it can be played back as it was."""
    settings = ArchiveSettings(topics=("ticks",), recv_header="recv", decoders=("raw",))
    made = decode_rows(decoders_for("ticks", settings), with_headers([("recv", b"12")]), settings).tables[
        "raw"
    ]
    assert made.schema == tables()["raw"].schema
    assert made.column("ts_recv").to_pylist() == [STAMP_US * 1000]


@pytest.mark.parametrize("micros", [-(2**63), -1, 0, 2**63 - 1])
def test_a_timestamp_beyond_all_time_is_no_reason_to_stop(micros: int) -> None:
    rows = batch([b"A 1"])
    stamps = pa.array([micros], pa.int64()).cast(rows.schema.field("timestamp").type)
    made = decode_rows([Words()], changed(rows, timestamp=stamps), SETTINGS)
    (stamp,) = made.tables["trades"].column("ts_recv").to_pylist()
    assert stamp == max(min(micros, (2**63 - 1) // 1000), -((2**63 - 1) // 1000)) * 1000


LINES = st.tuples(st.sampled_from("AB"), st.decimals(-10_000, 10_000, places=3)).map(
    lambda line: f"{line[0]} {line[1]}"
)
VALUES = st.lists(LINES, min_size=1, max_size=4).map(lambda lines: "\n".join(lines).encode())
BATCHES = st.lists(VALUES | st.sampled_from([b"?", b"raise", b" 1", b"A 10000", b"A 0.001"]), max_size=12)


@trying(max_examples=examples(60), deadline=None)
@given(values=BATCHES, cut=st.integers(0, 12), both=st.booleans())
def test_every_message_is_in_the_tables_or_in_quarantine_wherever_batches_are_cut(
    values: list[bytes], cut: int, both: bool
) -> None:
    decoders = [Words(), Words(name="others")] if both else [Words()]
    settings = ArchiveSettings(topics=("ticks",), decimal="6,2")
    rows = batch(values)
    whole = decode_rows(decoders, rows, settings)
    trades = whole.tables.get("trades", tables(6, 2)["trades"].schema.empty_table())
    refused = errors(whole)
    for nth, value in enumerate(values):
        row_count = trades.column("k_offset").to_pylist().count(FIRST_OFFSET + nth)
        assert row_count == (0 if nth in refused else len(value.splitlines()) * len(decoders))
    assert trades.column("k_offset").to_pylist() == sorted(trades.column("k_offset").to_pylist())
    parts = [decode_rows(decoders, part, settings) for part in (rows.slice(0, cut), rows.slice(cut))]
    for name, table in whole.tables.items():
        assert pa.concat_tables(part.tables[name] for part in parts if name in part.tables).equals(table)
    offsets = [part.sequences.column("offset").to_pylist() for part in parts]
    assert [*offsets[0], *offsets[1]] == whole.sequences.column("offset").to_pylist()


def test_decoders_of_a_topic() -> None:
    settings = ArchiveSettings(topics=("a", "b"), decoders=("raw", "a=dbn", "a=raw", "b=dbn"))
    assert [decoder.name for decoder in decoders_for("a", settings)] == ["raw", "dbn"]
    assert [decoder.name for decoder in decoders_for("b", settings)] == ["raw", "dbn"]
    assert [decoder.name for decoder in decoders_for("c", settings)] == ["raw"]


@pytest.mark.parametrize(
    ("decoders", "complaint"),
    [(("b=raw",), "the topic a has none.*allowed: NAME.*a=NAME"), (("row",), "row.*allowed.*raw")],
)
def test_a_topic_without_a_decoder_is_refused(decoders: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        decoders_for("a", ArchiveSettings(topics=("a",), decoders=decoders))
