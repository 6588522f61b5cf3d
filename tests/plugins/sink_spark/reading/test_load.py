"""Captures into topics."""

from __future__ import annotations

import gzip
from itertools import count
from pathlib import Path

import pytest

from blumfeld.testing import EmbeddedBroker
from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.reading.producing import captures
from blumfeld_sink_spark.reading.producing.load import LoadPlan, load, records
from blumfeld_sink_spark.reading.producing.pace import Pace, speed_of
from blumfeld_sink_spark.reading.producing.topic_writer import Topic
from blumfeld_sink_spark.reading.times import iso_of, ns_of
from tests.plugins.sink_spark.archive_tools import write_capture
from tests.plugins.sink_spark.spark_tools import read_topic

pytestmark = pytest.mark.archive

STAMPED = b'1723161255030314667 {"stream":"btcusdt@trade","data":{"s":"BTCUSDT"}}\n'
SNAPSHOT = b'1723161255319702566 {"lastUpdateId":5,"bids":[["1","2"]],"asks":[]}\n'


def test_a_line_is_its_stamp_and_the_bytes_behind_it() -> None:
    message = captures.parse(STAMPED)
    assert message == (1723161255030314667, b'{"stream":"btcusdt@trade","data":{"s":"BTCUSDT"}}', b"")


def test_stamps_in_seconds_keep_every_digit() -> None:
    message = captures.parse(b'1626992741.06217: {"a":1}')
    assert message is not None
    assert message.received_ns == 1626992741062170000


def test_what_a_connection_sent_is_no_data() -> None:
    assert captures.parse(b'wss://ws.kraken.com <- 1618678132.8253062: {"event":"subscribe"}') is None
    assert captures.parse(b"wss://ws.kraken.com <-> 1618678132.3858151") is None


@pytest.mark.parametrize(
    ("line", "symbol", "stream"),
    [
        (STAMPED, b"BTCUSDT", "btcusdt@trade"),
        (b'1626992741.0: {"type":"l2update","product_id":"SKL-USD"}', b"SKL-USD", "l2update"),
        (b'1626992741.0: [1920,{"a":[["0.04","0.0","1618678135.0"]]},"book-1000","SC/EUR"]', b"SC/EUR", "book"),
        (b'1626992741.0: {"data":{"bids":[]},"channel":"diff_order_book_adaeur"}', b"ADAEUR", "diff_order_book"),
        (b'1626992741.0: {"arg":{"channel":"books","instId":"BTC-USDT"},"data":[]}', b"BTC-USDT", "books"),
        (b'https://x/depth?symbol=ABC&limit=5 -> 1626992741.3: {"bids":[]}', b"ABC", captures.SNAPSHOT),
        (b'https://x/api/v2/order_book/ethusd -> 1641343696.4: {"bids": []}', b"ETHUSD", captures.SNAPSHOT),
    ],
)  # fmt: skip
def test_symbol_and_stream_of_venues(line: bytes, symbol: bytes, stream: str) -> None:
    message = captures.parse(line)
    assert message is not None
    assert (captures.symbol_of(message), captures.stream_of(message.value)) == (symbol, stream)


def test_a_snapshot_belongs_to_the_symbol_before_it(tmp_path: Path) -> None:
    file = tmp_path / "feed.gz"
    file.write_bytes(gzip.compress(STAMPED + SNAPSHOT))
    loaded_records = list(records(LoadPlan(files=[file]), 1))
    assert [record.key for record in loaded_records] == [b"BTCUSDT", b"BTCUSDT"]
    assert [record.timestamp_ms for record in loaded_records] == [1723161255030, 1723161255319]


def test_a_snapshot_at_the_front_needs_a_name(tmp_path: Path) -> None:
    file = tmp_path / "feed"
    file.write_bytes(SNAPSHOT)
    with pytest.raises(ArchiveError, match="--symbol"):
        list(records(LoadPlan(files=[file]), 1))
    assert [record.key for record in records(LoadPlan(files=[file], symbol="X"), 1)] == [b"X"]
    assert [record.key for record in records(LoadPlan(files=[file], key="none"), 1)] == [None]


def test_a_book_and_its_snapshot_share_a_partition(tmp_path: Path) -> None:
    file = write_capture(tmp_path / "feed.gz", seconds=3)
    loaded_records = list(records(LoadPlan(files=[file], spread="stream"), 3))
    places = {(record.stream, record.partition) for record in loaded_records}
    assert len(places) == 4  # no stream is in two partitions
    where = dict(places)
    assert where[captures.SNAPSHOT] == where["btcusdt@depth@0ms"]
    assert len({where[stream] for stream in where}) == 3


def test_a_cut_off_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "feed.gz"
    file.write_bytes(gzip.compress(STAMPED * 5)[:-20])
    with pytest.raises(ArchiveError, match=r"feed\.gz, after line \d"):
        list(captures.messages(file))
    with pytest.raises(ArchiveError, match="no such file"):
        list(captures.messages(tmp_path / "other"))
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(ArchiveError, match="after line 1: a line begins with neither"):
        list(captures.messages(tmp_path / "text"))


def test_pace_by_timestamps_by_rate_and_flat_out() -> None:
    clock = count(100).__next__  # a second passes between any two looks
    pace = Pace(speed=10, clock=clock)
    assert pace.wait_s(5_000) == 0  # at 100: the first record is due at once
    assert pace.wait_s(65_000) == pytest.approx(100 + 60 / 10 - 101)
    assert pace.wait_s(4_000) == 0
    limited = Pace(rate=0.5, clock=count(100).__next__)
    assert limited.wait_s(0) == 0
    limited.sent()
    limited.sent()
    assert limited.wait_s(0) == pytest.approx(100 + 4 - 101)
    assert Pace().is_flat_out
    assert (speed_of("max"), speed_of("10x"), speed_of("0.5")) == (0, 10, 0.5)
    with pytest.raises(SettingsError, match="fast"):
        speed_of("fast")


def test_times_as_people_write_them() -> None:
    assert ns_of("2024-08-09") == 1_723_161_600 * 10**9
    assert ns_of("2024-08-09T02:00:00.000000001+02:00") == 1_723_161_600 * 10**9 + 1
    assert ns_of("1723161600") == ns_of("1723161600000") == ns_of("1723161600000000000")
    assert iso_of(1_723_161_600 * 10**9 + 5) == "2024-08-09T00:00:00.000000005Z"
    assert ns_of(None) is None
    for wrong in ("yesterday", "2024-13-01", "12"):
        with pytest.raises(SettingsError):
            ns_of(wrong)


def test_what_is_loaded_is_in_the_topic_in_order_with_stamps_and_headers(tmp_path: Path) -> None:
    file = write_capture(tmp_path / "feed.gz", seconds=30)
    with EmbeddedBroker() as broker:
        topic = Topic(broker.bootstrap_servers, "ticks")
        plan = LoadPlan(files=[file], recv_header="ns", compression="zstd", repeat=2)
        done = load(plan, topic, partitions=1)
        again = load(LoadPlan(files=[file], limit=3), topic, partitions=5)
        topic_records = read_topic(broker.bootstrap_servers, "ticks", {0: done.messages + 3})
    wanted = list(records(plan, 1))
    assert (done.messages, done.partitions) == (len(wanted), 1) == (2 * (30 * 4 + 1), 1)
    assert done.streams == {
        "btcusdt@bookTicker": 120,
        "btcusdt@depth@0ms": 60,
        "btcusdt@trade": 60,
        "rest-snapshot": 2,
    }
    assert (again.messages, again.partitions) == (3, 1)  # a topic that is there keeps its partitions
    assert [
        (record.value, record.key, record.timestamp_ms, record.headers)
        for record in topic_records[: len(wanted)]
    ] == [(record.value, record.key, record.timestamp_ms, record.headers) for record in wanted]


def test_a_broker_that_is_away_is_named() -> None:
    with pytest.raises(ArchiveError, match=r"no broker answers at 127\.0\.0\.1:1 "):
        Topic("127.0.0.1:1", "t", answer_s=0.5).partitions()
