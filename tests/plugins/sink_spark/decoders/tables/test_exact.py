"""No way from digits to a price changes the price: each decoder, alone and among its like, against Python's Decimal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from blumfeld_sink_spark import column_types
from blumfeld_sink_spark.apply import decode_rows, decoders_for
from blumfeld_sink_spark.decoders.tables.exact import DECIMAL, exact
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.testing.decoder_messages import batch
from tests.everyday import examples
from tests.plugins.sink_spark.schema_server import framed
from tests.plugins.sink_spark.venue_messages import MESSAGES, enveloped

WHOLE, PLACES = 20, 18
COPIES = 5
"""Enough messages for the way by their common shape."""
WRAPPED = [
    "123456789012345678901234567890",
    "-123456789012345678901234567890",
    *(("123456789" * 7)[:digits] for digits in (21, 23, 25, 30, 32, 33, 34, 35, 37, 42)),
    str(2**256 + 5),
    str(2**128 + 5),
    "1e30",
    "-1e25",
    "0e-95",
    "0E-00400",
    "-0.00e-2000",
    "0e-999999999",
    "1e-999999999",
]
"""Texts that Arrow's cast or its JSON parser turns into another number without an error, or that end the process."""


def numbers(plain_json: bool) -> st.SearchStrategy[str]:
    """Digits of every length and scale, signed, with an exponent now and then."""
    digits = st.text("0123456789", max_size=60)
    sign = st.sampled_from(["", "-"] if plain_json else ["", "", "-", "+"])
    exponent = st.sampled_from(["", "", "", "", "e5", "E-7", "e+30", "e-400", "e77"])

    def text(sign: str, whole: str, behind: str, exponent: str) -> str:
        if plain_json:
            whole = whole.lstrip("0") or "0"
        elif not whole + behind:
            whole = "0"
        return sign + whole + ("." + behind if behind else "") + exponent

    return st.builds(text, sign, digits, digits, exponent)


def fits(text: str) -> bool:
    """Returns True where a ``decimal(38,18)`` holds exactly this number."""
    value = Decimal(text)
    if not value:
        return True
    _, digits, exponent = value.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    return value.adjusted() < WHOLE and int(exponent) + zeros >= -PLACES


@attrs.frozen
class Carrier:
    """A message with one number that is under test."""

    decoder: str
    message: Callable[[str], bytes]
    table: str
    column: str = "price"
    is_number: bool = False
    """The number is a JSON number, not a string."""
    more: bool = False
    """The decoder may also refuse a number that fits, where its text is very long (zeros behind the 18th place)."""


def _in(venue: str, kind: str, old: str, table: str, column: str = "price") -> Carrier:
    """Returns a venue's message with the number under test in place of ``old``, which is a text if it is quoted."""
    before, _, after = OTHERS.get(kind, MESSAGES[venue].get(kind, "")).partition(old)
    quote = '"' if old[0] == '"' else ""
    is_number = not quote

    def message(number: str) -> bytes:
        return f"{before}{quote}{number}{quote}{after}".encode()

    return Carrier(venue, message, table, column, is_number=is_number, more=is_number)


def _registry(quote: str) -> Carrier:
    """Returns a message of a schema registry's JSON."""

    def message(number: str) -> bytes:
        return framed(1, f'{{"symbol":"A","price":{quote}{number}{quote},"size":1}}'.encode())

    return Carrier("confluent:trades", message, "trades", is_number=not quote, more=True)


_AVRO = {
    "type": "record",
    "name": "Trade",
    "fields": [
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 18}},
        {"name": "size", "type": "string"},
        {"name": "symbol", "type": "string"},
    ],
}


def _avro_decimal(number: str) -> bytes:
    """Returns a decimal with more digits than its schema declares: the decoder must not round to them."""
    import io

    import fastavro

    value = Decimal(number)
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * 10 ** max(int(exponent) + PLACES, 0) * (-1 if sign else 1)
    plain = json.loads(json.dumps(_AVRO))
    plain["fields"][0]["type"] = "bytes"
    stream = io.BytesIO()
    size = (unscaled.bit_length() + 8) // 8
    record = {"price": unscaled.to_bytes(size, "big", signed=True), "size": "1", "symbol": "A"}
    fastavro.schemaless_writer(stream, plain, record)
    return framed(2, stream.getvalue())


OTHERS = {
    "enveloped depth": enveloped(MESSAGES["binance-spot"]["depth"]),
    "snapshot": '{"lastUpdateId":4,"E":5,"T":5,"bids":[["1.5","1"]],"asks":[]}',
}
CARRIERS = {
    "spot trade": _in("binance-spot", "trade", '"0.10000000"', "trades"),
    "usdm size": _in("binance-usdm", "trade", '"0.5"', "trades", "size"),
    "usdm depth": _in("binance-usdm", "depth", '"1.5"', "book_deltas"),
    "spot depth in an envelope": _in("binance-spot", "enveloped depth", '"2"', "book_deltas", "size"),
    "depth snapshot": _in("binance-usdm", "snapshot", '"1.5"', "book_deltas"),
    "usdm ticker": _in("binance-usdm", "bookTicker", '"1.5"', "bbo", "bid"),
    "bitstamp trade": _in("bitstamp", "trade", '"3800.75"', "trades"),
    "coinbase match": _in("coinbase", "match", '"0.5762"', "trades"),
    "coinbase update": _in("coinbase", "l2update", '"2"', "book_deltas"),
    "hyperliquid trade": _in("hyperliquid", "trades", '"105056.0"', "trades"),
    "hyperliquid book": _in("hyperliquid", "l2Book", '"2"', "book_deltas"),
    "hyperliquid bbo": _in("hyperliquid", "bbo", '"2"', "bbo", "bid"),
    "kraken trade": _in("kraken", "v1 trades", '"5541.2"', "trades"),
    "kraken book": _in("kraken", "v1 bids", '"0.5"', "book_deltas"),
    "kraken spread": _in("kraken", "v1 spread", '"1.5"', "bbo", "bid"),
    "kraken v2 trade": _in("kraken", "v2 trades", "1.5", "trades"),
    "kraken v2 book": _in("kraken", "v2 book", "0.1", "book_deltas"),
    "kraken v2 ticker": _in("kraken", "v2 ticker", "1.5", "bbo", "bid"),
    "okx trade": _in("okx", "trades", '"1.5"', "trades"),
    "okx best": _in("okx", "bbo-tbt", '"2"', "bbo", "bid"),
    "okx ticker": _in("okx", "tickers", '"3"', "bbo", "ask"),
    "a string of the registry's JSON": _registry('"'),
    "a number of the registry's JSON": _registry(""),
}
"""The cases, by the name that a failure shows."""


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "1.json").write_text("{}")
    (folder / "2.avsc").write_text(json.dumps(_AVRO))
    return folder


def read(carrier: Carrier, values: list[bytes], schemas: Path) -> tuple[list[Decimal], int]:
    """Returns the number in the first row of each message, and how many messages are in quarantine."""
    settings = ArchiveSettings(topics=("ticks",), decoders=(carrier.decoder,), schema_registry=str(schemas))
    applied = decode_rows(decoders_for("ticks", settings), batch(values, [b"A"] * len(values)), settings)
    first: dict[int, Any] = {}
    for row in applied.tables[carrier.table].to_pylist() if carrier.table in applied.tables else ():
        first.setdefault(row["k_offset"], row[carrier.column])
    quarantined = applied.tables.get("quarantine")
    return list(first.values()), 0 if quarantined is None else quarantined.num_rows


def check(carrier: Carrier, text: str, schemas: Path) -> None:
    """Asserts that every message has the exact number, or that every message is in quarantine."""
    value = carrier.message(text)
    for count in (1, COPIES):
        prices, quarantined = read(carrier, [value] * count, schemas)
        if quarantined == 0:
            zero = carrier.table == "bbo" and not Decimal(text)  # some venues say by 0 that a side is empty
            assert prices in ([Decimal(text)] * count, [None] * count if zero else prices[:0])
            assert fits(text)
        else:
            assert (prices, quarantined) == ([], count)
            assert carrier.more or not fits(text)


@pytest.mark.parametrize("name", CARRIERS)
def test_a_number_is_archived_to_its_last_digit_or_not_at_all(name: str, schemas: Path) -> None:
    carrier = CARRIERS[name]
    for text in WRAPPED:
        check(carrier, text, schemas)

    @settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
    @given(text=numbers(carrier.is_number))
    def every(text: str) -> None:
        check(carrier, text, schemas)

    every()


_ENDS_THE_PARSER = """
from blumfeld_sink_spark.testing.decoder_messages import batch
from blumfeld_sink_spark.decoders import catalog
message = (
    b'{"channel":"trade","type":"update","data":[{"symbol":"A/B","side":"sell","price":0E-999999999,"qty":2,'
    b'"trade_id":41,"timestamp":"1970-01-01T00:00:01Z"}]}'
)
print([one.row for one in catalog.find("kraken").decode(batch([message])).rejected])
"""


def test_a_message_does_not_end_the_process() -> None:
    """Arrow's parser would, by a segmentation fault: a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _ENDS_THE_PARSER], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[0]\n"), done.stderr[:500]


@settings(max_examples=examples(100))
@given(value=st.integers(-(10**45), 10**45))
def test_an_avro_decimal_is_not_rounded_to_what_its_schema_declares(value: int, schemas: Path) -> None:
    text = f"{value}e-18"
    carrier = Carrier("confluent:trades", _avro_decimal, "trades")
    if len(str(abs(value))) <= 38:
        check(carrier, text, schemas)
    else:
        assert read(carrier, [_avro_decimal(text)], schemas) == ([], 1)


def test_a_spread_of_texts_is_read_at_once() -> None:
    texts = [
        "1",
        None,
        "0." + "1" * 18,
        "+5",
        ".5",
        "5.",
        "1" * 20 + "." + "2" * 18,
        "-0",
        "0" * 90 + "7",
        "25e-1",
    ]
    expected = [None if text is None else Decimal(text) for text in texts]
    assert exact(pa.array(texts)).to_pylist() == expected
    assert exact(pa.array(texts[:3])).to_pylist() == expected[:3]
    assert exact(pa.array([None, None], pa.string())).to_pylist() == [None, None]
    assert exact(pa.array(["e", *texts]).slice(1)).to_pylist() == expected
    assert len(exact(pa.array([], pa.string()))) == 0


@settings(max_examples=examples(400))
@given(text=numbers(False), kind=st.sampled_from([DECIMAL, pa.decimal128(28, 9), pa.decimal128(38, 0)]))
@example(text="9" * 39, kind=pa.decimal128(38, 0))
@example(text="9" * 28 + ".5", kind=pa.decimal128(38, 0))  # more digits than Python's own context has
def test_texts_are_exact_or_refused(text: str, kind: Any) -> None:
    value = Decimal(text)
    try:
        (exact_value,) = exact(pa.array([text]), kind).to_pylist()
    except pa.ArrowInvalid:
        assert value != 0
        whole = value.adjusted() < kind.precision - kind.scale
        with localcontext(prec=1_000):
            assert not whole or value != round(value, kind.scale)
    else:
        assert exact_value == value


NO_NUMBERS = [
    "",
    "-",
    "1_0",
    "Infinity",
    "NaN",
    "0x10",
    "--1",
    "1e",
    "e5",
    "1e5.5",
    "１",
    " 5",
    "5\u2003",
    "e" * 90,
]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        exact(pa.array([text]))


@pytest.mark.parametrize("name", [name for name, carrier in CARRIERS.items() if not carrier.is_number])
def test_what_is_no_number_goes_to_quarantine(name: str, schemas: Path) -> None:
    carrier = CARRIERS[name]
    for text in NO_NUMBERS:
        for count in (1, COPIES):
            prices, quarantined = read(carrier, [carrier.message(text)] * count, schemas)
            if (
                carrier.table == "bbo" and not text and not quarantined
            ):  # OKX's way to say that a side is empty
                assert set(prices) == {None}
            else:
                assert (prices, quarantined) == ([], count)


@settings(max_examples=examples(200))
@given(
    value=st.integers(-(10**76) + 1, 10**76 - 1) | st.integers(-(10**38) + 1, 10**38 - 1),
    scale=st.integers(0, 30),
    wanted=st.sampled_from([(38, 18), (18, 8), (38, 30), (38, 0)]),
    as_text=st.booleans(),
)
@example(value=123456789012345678901234567890, scale=0, wanted=(38, 18), as_text=False)
@example(value=10**76 - 5 * 10**12, scale=24, wanted=(18, 8), as_text=False)
@example(value=10**76 - 1, scale=60, wanted=(38, 18), as_text=False)
@example(value=1 - 10**76, scale=76, wanted=(38, 18), as_text=False)
def test_a_decoder_s_own_decimals_fit_to_the_last_digit_or_not_at_all(
    value: int, scale: int, wanted: tuple[int, int], as_text: bool
) -> None:
    """A decoder may bring decimals of any type, or texts. ``--set decimal=`` gives their type in the table."""
    number = Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -scale))
    given_kind = pa.decimal256(76, scale) if abs(value) >= 10**38 else pa.decimal128(38, scale)
    given = pa.array([f"{number:f}"]) if as_text else pa.array([number], given_kind)
    faults: column_types.Faults = {}
    kind = pa.decimal128(*wanted)
    (cast_value,) = column_types.cast(
        "price", pa.chunked_array([given]), kind, pa.chunked_array([[0]]), faults
    ).to_pylist()
    whole = number == 0 or number.adjusted() < wanted[0] - wanted[1]
    _, digits, exponent = number.as_tuple()
    zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if whole and (number == 0 or int(exponent) + zeros >= -wanted[1]):
        assert (cast_value, faults) == (number, {})
    else:
        assert cast_value is None
        assert list(faults) == [0]
