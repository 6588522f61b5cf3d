"""Requests to the broker: errors after which the archive asks again, and answers that it accepts."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld_sink_spark.errors import ArchiveError, AwayError
from blumfeld_sink_spark.settings import ArchiveSettings
from blumfeld_sink_spark.spark.topics import client
from blumfeld_sink_spark.spark.topics.client import Topics, passing
from tests.everyday import for_each
from tests.plugins.sink_spark.scripted_broker import END, LISTING, LOST, TOPIC, ScriptedBroker, scripted

PLACE = (TOPIC, 0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_S", 0.01)


def _topics(broker: ScriptedBroker, patience_s: float = 20.0) -> Topics:
    quick = {"retry.backoff.ms": "10", "topic.metadata.refresh.fast.interval.ms": "10"}
    return Topics(ArchiveSettings(topics=(TOPIC,), bootstrap=broker.address, kafka=quick), patience_s)


@for_each(code for code in ErrorCode if code > 0)
def test_an_error_passes_if_kafkas_table_says_so(code: ErrorCode) -> None:
    assert passing(KafkaError(int(code))) == is_retriable(code)


def test_no_broker_and_no_leader_pass_and_a_wrong_password_does_not() -> None:
    assert all(passing(KafkaError(code)) for code in (KafkaError._TRANSPORT, KafkaError._NOENT))
    assert not passing(KafkaError(KafkaError._AUTHENTICATION))


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR, LOST],
)
def test_a_broker_that_restarts_is_asked_until_it_knows_its_end(code: int) -> None:
    """A lost connection counts as an error: librdkafka returns the offset -1001 for it, and no error."""
    with scripted(versions=LISTING, offsets=[code, code]) as broker:
        assert _topics(broker).latest([PLACE]) == {PLACE: END}
        assert broker.listed == 3


def test_a_refusal_is_not_asked_again() -> None:
    with scripted(versions=LISTING, offsets=[ErrorCode.TOPIC_AUTHORIZATION_FAILED]) as broker:
        with pytest.raises(ArchiveError) as caught:
            _topics(broker).latest([PLACE])
        assert not isinstance(caught.value, AwayError)
        assert broker.listed == 1


def test_a_topic_without_a_leader_is_waited_for() -> None:
    with scripted(versions=LISTING, topics=[ErrorCode.LEADER_NOT_AVAILABLE] * 10) as broker:
        assert _topics(broker).places() == [PLACE]
        assert not broker.topics


def test_a_broker_that_never_answers_is_away() -> None:
    with scripted(versions=LISTING, offsets=[ErrorCode.UNKNOWN_LEADER_EPOCH] * 1000) as broker:
        with pytest.raises(AwayError, match=r"waited 0\.3 s"):
            _topics(broker, 0.3).latest([PLACE])
        assert broker.listed > 2
