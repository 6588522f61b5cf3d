"""Ranges read as a task reads them, and ends as the planner sees them: librdkafka against a broker, no Spark."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from blumfeld_sink_spark.errors import ArchiveError, SettingsError
from blumfeld_sink_spark.rows import RAW_ROWS
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics import offset_plans
from blumfeld_sink_spark.spark.topics.client import Topics, client_config
from tests.plugins.sink_spark.spark_tools import TIME_MS, delete_records, make_topic, produce, rows_of

pytestmark = pytest.mark.archive


def test_a_range_is_read_as_sparks_source_gives_it(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "plain", recv_header="")
    produce(bootstrap, "plain", 50)
    rows = rows_of(settings, 10, 40)
    assert rows.schema == RAW_ROWS
    assert rows["offset"].to_pylist() == list(range(10, 40))
    assert rows["value"][0].as_py() == b"-10"
    assert rows["timestamp"].cast(pa.int64())[0].as_py() == (TIME_MS + 10) * 1000
    assert set(rows["timestampType"].to_pylist()) == {0}


def test_headers_are_read_where_they_are_asked_for(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "headed", headers=True)
    produce(bootstrap, "headed", 1)
    rows = rows_of(settings, 0, 1)
    assert rows["headers"].to_pylist() == [[{"key": "h", "value": b"1"}]]


def test_what_retention_took_is_an_error_or_skipped(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "short")
    produce(bootstrap, "short", 30)
    delete_records(bootstrap, "short", 20)
    with pytest.raises(
        ArchiveError, match=r"short-0 begins at offset 20 now: 5 to 20 are lost.*fail_on_data_loss"
    ):
        rows_of(settings, 5, 30)
    lenient = msgspec.structs.replace(settings, fail_on_data_loss=False)
    assert rows_of(lenient, 5, 30)["offset"].to_pylist() == list(range(20, 30))
    assert rows_of(lenient, 5, 12).num_rows == 0


def test_a_topic_that_is_shorter_than_planned_is_told(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "anew")
    produce(bootstrap, "anew", 3)
    with pytest.raises(ArchiveError, match="created again"):
        rows_of(settings, 100, 120)


def test_positions_are_resolved(bootstrap: str) -> None:
    settings = make_topic(bootstrap, "positions", partitions=2)
    produce(bootstrap, "positions", 10)
    topics = Topics(settings)

    def found(text: str) -> list[int]:
        return list(topics.resolve(offset_plans.parse_position(text, "starting")).values())

    assert found("earliest") == [0, 0]
    assert found("latest") == [10, 0]
    assert found(f"timestamp:{TIME_MS + 4}") == [4, 0]
    assert found(f"timestamp:{TIME_MS + 400}") == [10, 0]
    assert found('{"positions": {"0": -1, "1": 0}}') == [10, 0]
    with pytest.raises(SettingsError, match="positions-1"):
        found('{"positions": {"0": 5}}')


def test_a_missing_topic_and_a_broker_that_is_away_are_told_in_bounded_time(bootstrap: str) -> None:
    with pytest.raises(ArchiveError, match="has no topic nowhere"):
        Topics(ArchiveSettings(bootstrap=bootstrap, topics=("nowhere",))).places()
    with pytest.raises(ArchiveError, match=r"127\.0\.0\.1:9 doesn't answer.*waited 1 s"):
        Topics(ArchiveSettings(bootstrap="127.0.0.1:9", topics=("t",)), 1.0).places()


def test_a_pattern_takes_topics_and_no_internal_ones(bootstrap: str) -> None:
    make_topic(bootstrap, "feed.a")
    make_topic(bootstrap, "feed.b")
    settings = ArchiveSettings(bootstrap=bootstrap, topic_pattern=r"feed\..*|__.*")
    assert Topics(settings).places() == [("feed.a", 0), ("feed.b", 0)]


def test_javas_names_of_settings_are_translated_or_left_out() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    given = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas, "max.poll.records": "5"}
    settings = ArchiveSettings(kafka={**given, "security.protocol": "SASL_SSL", "fetch.min.bytes": "1"})
    config = client_config(settings)
    assert (config["sasl.username"], config["sasl.password"]) == ("u", "p")
    assert (config["security.protocol"], config["fetch.min.bytes"]) == ("SASL_SSL", "1")
    assert not {"sasl.jaas.config", "max.poll.records"} & set(config)


def test_a_setting_that_the_client_doesnt_know_is_told() -> None:
    with pytest.raises(SettingsError, match=r"archive\.kafka.*no\.such"):
        Topics(ArchiveSettings(topics=("t",), kafka={"no.such": "1"}))
