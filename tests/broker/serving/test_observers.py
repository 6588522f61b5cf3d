"""Observers see each request once it is answered, and nothing of a broker without one knows of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pytest
from confluent_kafka import Producer

from blumfeld.broker.produce.straight import StraightProduce
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.plugging.registry import GROUP, Registry
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.observer import Observer, RequestSeen
from blumfeld.testing import EmbeddedBroker
from blumfeld.wire.first_error import first_error
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld.wire.messages.list_offsets import ListOffsetsPartition as OffsetsPartition
from blumfeld.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from campaigns.raw_connection import ConnectionEnded, RawConnection

SEEN: list[RequestSeen] = []
LIFE: list[str] = []


class Watcher:
    """Keeps what it is told; raises when it is told to."""

    fails: type[BaseException] | None = None

    async def start(self) -> None:
        LIFE.append("started")

    def requests(self, seen: Sequence[RequestSeen]) -> None:
        assert seen
        SEEN.extend(seen)
        if Watcher.fails is not None:
            raise Watcher.fails

    async def stop(self) -> None:
        LIFE.append(f"stopped after {len(SEEN)}")


class Plugin:
    """Named ``watcher``."""

    options_class = NoOptions
    roles = ("observers",)

    @hookimpl
    def blumfeld_make_observer(self, composition: Composition) -> Observer:
        return Watcher()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    SEEN.clear()
    LIFE.clear()
    Watcher.fails = None
    point = EntryPoint("watcher", "tests.broker.serving.test_observers:Plugin", GROUP)
    registry = Registry([*entry_points(group=GROUP), point])
    manifest = {"plugins": {"observers": ["watcher"]}}
    with EmbeddedBroker(manifest=manifest, registry=registry) as running:
        yield running


def wait_for(api_key: int, **values: Any) -> RequestSeen:
    """The first such request that was seen."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for one in SEEN:
            if one.api_key == api_key and all(getattr(one, name) == value for name, value in values.items()):
                return one
        time.sleep(0.01)
    raise AssertionError(f"no request {api_key} {values} among {SEEN}")


def test_produce_is_seen_with_who_and_how_much(broker: EmbeddedBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "ticker"})
    producer.produce("seen", bytes(5000))
    assert producer.flush(20) == 0
    produced = wait_for(0, error_code=0)
    assert (produced.client_id, produced.principal) == ("ticker", "User:ANONYMOUS")
    assert (produced.listener, produced.peer_host, produced.closed) == ("PLAINTEXT", "127.0.0.1", "")
    assert 5000 < produced.request_bytes < 6000
    assert 0 < produced.response_bytes < 200
    assert 0 <= produced.elapsed_ms < 20_000
    assert abs(produced.time_ms - time.time() * 1000) < 60_000
    broker.stop()
    assert ["started", f"stopped after {len(SEEN)}"] == LIFE


def test_the_error_of_a_request_that_was_served_in_slices_is_seen(broker: EmbeddedBroker) -> None:
    """A large request goes another way to its answer."""
    asked = [ListOffsetsTopic(name=f"absent-{n}", partitions=[OffsetsPartition()]) for n in range(2_000)]
    with RawConnection(broker.bootstrap_servers) as connection:
        answer = connection.ask(ListOffsetsRequest(topics=asked), 6, ListOffsetsResponse)
    assert answer.topics[0].partitions[0].error_code == 3
    assert wait_for(2).error_code == 3


def test_errors_are_seen_wherever_they_stand_in_the_answer(broker: EmbeddedBroker) -> None:
    with RawConnection(broker.bootstrap_servers) as connection:
        topic = CreatableTopic(name="seen", num_partitions=1, replication_factor=1)
        for code in (0, 36):  # the second time it is there already
            created = connection.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=5000), 5, CreateTopicsResponse
            )
            assert created.topics[0].error_code == code
            assert wait_for(19, error_code=code).correlation_id > 0
        partition = OffsetsPartition(partition_index=7, timestamp=-1)
        asked = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="seen", partitions=[partition])]
        )
        found = connection.ask(asked, 1, ListOffsetsResponse)
        assert found.topics[0].partitions[0].error_code == 3
        assert wait_for(2).error_code == 3


def test_what_is_refused_is_seen_with_the_reason(broker: EmbeddedBroker) -> None:
    for frame, said in (
        (b"\x00", "too short"),
        (b"\x00\x03\x7f\xff\x00\x00\x00\x01\xff\xff", "is not served"),
    ):
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.send_frame(frame)
            with pytest.raises(ConnectionEnded):
                connection.receive_frame()
        assert said in wait_for(-1, request_bytes=0).closed
        SEEN.clear()
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.send_frame(b"\x00\x12\x7f\x00\x00\x00\x00\x05\xff\xff\x00")
        connection.receive_frame()
    assert wait_for(18).error_code == 35


@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError, SystemExit])
def test_an_observer_that_fails_is_told_nothing_more(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """And the broker serves on."""
    Watcher.fails = error
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(3):
        producer.produce("seen", b"x")
        assert producer.flush(20) == 0
    told = [r for r in caplog.records if "an observer failed, and is told nothing more" in r.getMessage()]
    assert len(told) == 1
    assert "watcher" in told[0].getMessage()


def test_a_broker_without_observers_has_no_trace_of_them() -> None:
    """The routes are those that there were; Produce has its shorter way."""
    with EmbeddedBroker() as broker:
        inside: Any = broker.node.broker
        dispatcher: Dispatcher = inside._dispatchers["broker"]
        assert dispatcher.observing is None
        assert {type(route) for route in dispatcher._routes.values()} == {Route, StraightProduce}


def test_an_error_is_looked_for_in_so_many_items_and_no_more() -> None:
    partitions = [
        PartitionData(partition_index=n, error_code=0, high_watermark=0, records=None) for n in range(3000)
    ]
    partitions[500].error_code = 6
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    assert first_error(answer) == 6
    partitions[500].error_code, partitions[2500].error_code = 0, 6
    assert first_error(answer) == 0
