"""Ranges over the wire: a broker that answers by a script, and a real one beside librdkafka."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import EpochEndOffset, PartitionData
from blumfeld_sink_spark.errors import ArchiveError, AwayError
from blumfeld_sink_spark.fetching.brokers import Brokers, addresses_of
from blumfeld_sink_spark.fetching.connection import FRAME_BYTES_MAX
from blumfeld_sink_spark.fetching.session import PARTITION_MAX_BYTES, RangeReader
from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.records import OffsetRange
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics import fetch
from blumfeld_sink_spark.spark.topics.consume import consume_range
from tests.plugins.sink_spark.scripted_broker import MODERN, TOPIC, Answer, ScriptedBroker, scripted
from tests.plugins.sink_spark.spark_tools import TIME_MS, delete_records, make_topic, produce, rows_of

pytestmark = pytest.mark.archive


def batch(offset: int, count: int = 1, epoch: int = 0) -> bytes:
    made = [Record(None, b"%d" % (offset + n), timestamp=TIME_MS) for n in range(count)]
    return bytes(build_batch(made, base_offset=offset, leader_epoch=epoch))


def of(data: bytes = b"", error: ErrorCode = ErrorCode.NONE, **more: Any) -> PartitionData:
    return PartitionData(records=data, error_code=error, **more)


def reader_of(brokers: Brokers, end: int, patience_s: float, **more: Any) -> RangeReader:
    options: dict[str, Any] = {"committed": True, "with_headers": False, "lost": lambda at: at, **more}
    return RangeReader(brokers, OffsetRange(TOPIC, 0, 0, end), patience_s=patience_s, **options)


def offsets_of(broker: ScriptedBroker, end: int, patience_s: float = 10.0, **more: Any) -> list[int]:
    with closing(Brokers(broker.address, "test", 5.0)) as brokers:
        batches = reader_of(brokers, end, patience_s, **more).batches()
        return [offset for rows in batches for offset in rows["offset"].to_pylist()]


def one_by_one(nth: int) -> Answer:
    return of(batch(nth))


def test_the_next_fetch_goes_out_before_rows_are_given() -> None:
    second = threading.Event()

    def answered(nth: int) -> Answer:
        if nth == 1:
            second.set()
        return one_by_one(nth)

    with scripted(answered) as broker, closing(Brokers(broker.address, "test", 5.0)) as brokers:
        rows = reader_of(brokers, 3, 10.0).batches()
        assert next(rows)["offset"].to_pylist() == [0]
        assert second.wait(10)
        assert [row["offset"].to_pylist() for row in rows] == [[1], [2]]
        assert [offset for offset, _, _ in broker.fetched] == [0, 1, 2]


def test_a_range_ends_inside_of_a_batch_and_nothing_more_is_asked() -> None:
    with scripted(lambda nth: of(batch(0, 10) + batch(10, 10)[:-5])) as broker:
        assert offsets_of(broker, 7) == list(range(7))
        assert len(broker.fetched) == 1


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_errors_that_pass_are_waited_for(error: ErrorCode) -> None:
    with scripted(lambda nth: of(error=error) if nth == 1 else of(batch(min(nth, 1)))) as broker:
        assert offsets_of(broker, 2) == [0, 1]


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    answers: dict[int, Answer] = {1: b"\0\0\1\0abc", 3: b"\x7f\xff\xff\xff", 5: None}
    with scripted(lambda nth: answers.get(nth, of(batch(nth // 2)))) as broker:
        assert offsets_of(broker, 4) == [0, 1, 2, 3]


def test_errors_that_stay_are_told_at_once() -> None:
    with (
        scripted(lambda nth: of(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)) as broker,
        pytest.raises(
            ArchiveError, match="scripted-0 at offset 0: the broker answers TOPIC_AUTHORIZATION_FAILED"
        ),
    ):
        offsets_of(broker, 2)


def test_a_broker_that_gives_nothing_is_given_up_after_the_patience() -> None:
    with (
        scripted(lambda nth: of()) as broker,
        pytest.raises(
            AwayError, match=r"gave nothing of scripted-0 from offset 0 on for 0\.3 s, 2 was its end"
        ),
    ):
        offsets_of(broker, 2, patience_s=0.3)


def test_a_broker_that_is_away_is_given_up_after_the_patience() -> None:
    with (
        closing(Brokers("127.0.0.1:9", "test", 5.0)) as brokers,
        pytest.raises(AwayError, match=r"127\.0\.0\.1:9 gave nothing.*Is the broker up\? \(.*refused"),
    ):
        list(reader_of(brokers, 2, 0.3).batches())


def test_a_batch_that_is_larger_than_a_fetch_is_asked_for_with_more_room() -> None:
    whole = batch(0, 100)
    with scripted(lambda nth: of(whole if nth == 2 else whole[:-1])) as broker:
        assert len(offsets_of(broker, 100)) == 100
        assert [size for _, _, size in broker.fetched] == [PARTITION_MAX_BYTES << nth for nth in range(3)]
    with (
        scripted(lambda nth: of(whole[:-1])) as broker,
        pytest.raises(ArchiveError, match=f"a batch of more than {FRAME_BYTES_MAX} bytes"),
    ):
        offsets_of(broker, 100)


def test_a_new_leader_whose_log_was_cut_is_told() -> None:
    cut = of(diverging_epoch=EpochEndOffset(epoch=4, end_offset=1))
    answers: list[Answer] = [of(batch(0, 2, epoch=5)), None, cut]
    with (
        scripted(lambda nth: answers[nth]) as broker,
        pytest.raises(ArchiveError, match="epoch 4 at offset 1, and 2 was read: the log was cut"),
    ):
        offsets_of(broker, 9)
    assert [(offset, epoch) for offset, epoch, _ in broker.fetched] == [(0, -1), (2, -1), (2, 5)]


def test_a_position_out_of_range_goes_where_it_is_told() -> None:
    positions = []

    def lost(at: int) -> int:
        positions.append(at)
        return 5

    answers = [of(batch(0)), of(error=ErrorCode.OFFSET_OUT_OF_RANGE), of(batch(5)), of(batch(6))]
    with scripted(lambda nth: answers[nth]) as broker:
        assert offsets_of(broker, 7, lost=lost) == [0, 5, 6]
    assert positions == [1]


OLD = b"\0\0\0\0\0\0\0\2\0\0\0\x0e\0\0\0\0\x01" + b"\0" * 40


@pytest.mark.parametrize(
    ("versions", "data", "position"),
    [({**MODERN, ApiKey.FETCH: (0, 11)}, b"", 0), (MODERN, OLD, 2)],
    ids=["broker", "records"],
)
def test_what_is_too_old_is_left_to_librdkafka(
    versions: dict[Any, tuple[int, int]], data: bytes, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges: list[OffsetRange] = []

    def consumed(settings: ArchiveSettings, wanted: OffsetRange, skips: Skips) -> Iterator[pa.RecordBatch]:
        ranges.append(wanted)
        yield from ()

    monkeypatch.setattr("blumfeld_sink_spark.spark.topics.consume.consume_range", consumed)
    answers = [of(batch(0, 2)), of(data)]
    with scripted(lambda nth: answers[nth], versions) as broker:
        settings = ArchiveSettings(bootstrap=broker.address, topics=(TOPIC,))
        batches = list(fetch.read_range(settings, OffsetRange(TOPIC, 0, 0, 9)))
        assert sum(rows.num_rows for rows in batches) == position
        assert ranges == [OffsetRange(TOPIC, 0, position, 9)]


def test_settings_that_only_librdkafka_knows_choose_it() -> None:
    def because(**kafka: str) -> str:
        settings = ArchiveSettings(kafka={key.replace("_", "."): value for key, value in kafka.items()})
        return fetch.consumed_because(settings)

    assert (
        because() == because(default_api_timeout_ms="1", security_protocol="plaintext", client_id="x") == ""
    )
    assert because(security_protocol="SASL_SSL") == "archive.kafka has security.protocol"
    assert because(client_rack="a") == "archive.kafka has client.rack"


def test_a_run_says_why_its_ranges_are_not_its_own_fetches() -> None:
    pytest.importorskip("pyspark")
    from blumfeld_sink_spark.spark.run.readers import choose

    reason = choose(ArchiveSettings(reader="direct", kafka={"client.rack": "a"}), "once").why
    assert reason == "asked for; through librdkafka, as archive.kafka has client.rack"
    assert choose(ArchiveSettings(reader="direct"), "once").why == "asked for"


def test_bootstrap_servers_are_read_as_kafka_writes_them() -> None:
    assert addresses_of("a:1, [::1]:2,b") == [("a", 1), ("::1", 2), ("b", 9092)]


def both(settings: ArchiveSettings, start: int, end: int) -> pa.Table:
    """The rows of a range, which both readers give alike."""
    wanted = OffsetRange(settings.topics[0], 0, start, end)
    ours, theirs = rows_of(settings, start, end), list(consume_range(settings, wanted))
    assert ours == (pa.Table.from_batches(theirs) if theirs else ours.slice(0, 0))
    return ours


def test_both_readers_give_the_same_rows(bootstrap: str) -> None:
    """Each codec, with and without keys and values, with headers, and some of the records cut away."""
    settings = make_topic(bootstrap, "both", headers=True)
    sizes = (0, 1, 200, 20_000)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
        for nth in range(300):
            producer.produce(
                "both",
                None if nth % 7 == 0 else b"%d" % nth * (sizes[nth % 4] // 3),
                key=None if nth % 3 else b"k" * (nth % 5),
                timestamp=TIME_MS - nth * nth,
                headers=[("a", b"1"), ("é", None), ("a", b"")] if nth % 11 == 0 else None,
            )
        assert producer.flush(30) == 0
    assert both(settings, 0, 1500).num_rows == 1500
    assert both(settings, 433, 434).num_rows == 1
    delete_records(bootstrap, "both", 700)
    lenient = msgspec.structs.replace(settings, fail_on_data_loss=False, headers=False)
    assert both(lenient, 650, 1444)["offset"].to_pylist() == list(range(700, 1444))


def test_both_readers_give_the_brokers_time_where_the_topic_has_it(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "stamped", config={"message.timestamp.type": "LogAppendTime"})
    produce(bootstrap, "stamped", 5)
    assert set(both(settings, 0, 5)["timestampType"].to_pylist()) == {1}


def test_a_broker_that_restarts_under_a_reader_costs_no_record(tmp_path: Path) -> None:
    def broker(port: int) -> EmbeddedBroker:
        listener = {"name": "PLAINTEXT", "bind": f"127.0.0.1:{port}", "inter_broker": True}
        return EmbeddedBroker(
            storage="storage_local",
            data_dir=str(tmp_path),
            manifest={"network": {"listeners": [listener]}},
        )

    with broker(0) as first:
        port = first.port
        settings = make_topic(first.bootstrap_servers, "kept", kafka={"default.api.timeout.ms": "30000"})
        produce(first.bootstrap_servers, "kept", 20)
        rows = fetch.read_range(settings, OffsetRange("kept", 0, 0, 40))
        offsets = next(rows)["offset"].to_pylist()
    with broker(port) as second:
        produce(second.bootstrap_servers, "kept", 20)
        for batch in rows:
            offsets += batch["offset"].to_pylist()
    assert offsets == list(range(40))
