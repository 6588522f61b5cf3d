"""A broker with quotas: what its clients are told, and what they are counted for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.broker.serving.dispatch import Route
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.context import Principal
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from blumfeld.wire.messages.metadata import MetadataRequest
from blumfeld_quotas.client_quotas import BUCKETS_MAX, UNUSED_MS, Buckets, ClientQuotas
from blumfeld_quotas.entities import SECTION, entity_of
from blumfeld_quotas.rates import TokenBucket
from tests.broker.batches import batch, produce
from tests.broker.harness import LISTENER, BrokerHarness, FakeExchange


class Surroundings:
    """``Composition``: the configuration, and an image with these quotas."""

    def __init__(self) -> None:
        self.quotas: dict[Any, dict[str, float]] = {}
        self.config = BrokerConfig()
        self.metadata = self
        self.step: Any = None

    def subscribe(self, step: Any) -> None:
        self.step = step

    def set(self, key: str, value: float, *entity: tuple[str, str | None]) -> None:
        own = entity_of(entity)
        self.quotas = {**self.quotas, own: {**self.quotas.get(own, {}), key: value}}
        image = SimpleNamespace(section=lambda _: self.quotas)
        self.step(image, SimpleNamespace(first=False, section_records={SECTION: ()}))


class Limited:
    """A broker with quotas and the topic ``t`` of one partition."""

    def __init__(self) -> None:
        self.surroundings = Surroundings()
        self.quotas = ClientQuotas(cast("Any", self.surroundings))
        self.broker = BrokerHarness(quotas=self.quotas, partitions=1)

    def login(self, name: str) -> None:
        front = self.broker.broker.connection_handler("broker")
        front.set_principal(cast("Any", self.broker.connection), Principal(name))

    def produce(self, size: int, client_id: str = "c", acks: int = 1) -> Any:
        data = batch(b"v" * size)
        return self.broker.ask(produce(data, acks=acks), 9, client_id)

    def fetch(self, client_id: str = "c", **request: Any) -> Any:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic="t", partitions=[partition])]
        asked = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=topics, **request)
        return self.broker.ask(asked, 12, client_id)

    @property
    def muted_ms(self) -> float:
        return max(0.0, self.broker.connection.muted_until_ms - self.broker.runtime.monotonic_ms())


@pytest.fixture
def limited() -> Limited:
    return Limited()


def test_a_producer_above_its_quota_waits_and_is_told(limited: Limited) -> None:
    limited.surroundings.set("producer_byte_rate", 1_000, ("client-id", "c"))
    assert limited.produce(500).throttle_time_ms == 0
    answer = limited.produce(2_000)
    assert 1_500 < answer.throttle_time_ms < 2_000
    assert answer.responses[0].partition_responses[0].error_code == 0, "what was produced is kept"
    assert limited.muted_ms == pytest.approx(answer.throttle_time_ms, abs=1)
    assert limited.quotas.throttled["producer_byte_rate"] == 1
    assert 2_500 < limited.quotas.counted["producer_byte_rate"] < 2_800


@pytest.fixture
def general(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Versions of the Produce requests that took the general way."""
    taken: list[int] = []
    serve = Route.serve

    def noted(self: Route, exchange: Any, frame: memoryview, position: int, correlation_id: int) -> None:
        taken.append(self.version)
        serve(self, exchange, frame, position, correlation_id)

    monkeypatch.setattr(Route, "serve", noted)
    return taken


def test_a_producer_without_a_quota_takes_the_straight_way(limited: Limited, general: list[int]) -> None:
    limited.produce(500)
    limited.surroundings.set("producer_byte_rate", 1_000, ("client-id", "other"))
    limited.produce(500)
    assert not general


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_within_its_quota_takes_the_straight_way_and_is_counted(
    limited: Limited, general: list[int], acks: int
) -> None:
    limited.surroundings.set("producer_byte_rate", 1_000, ("client-id", "c"))
    for _ in range(3):
        assert limited.produce(200, acks=acks).throttle_time_ms == 0
    assert not general
    assert limited.produce(200, acks=acks).throttle_time_ms > 200
    assert general == [9]


def test_a_request_that_the_straight_way_gives_up_is_counted_once(limited: Limited) -> None:
    """It is refused for its checksum, by the general way."""
    limited.surroundings.set("producer_byte_rate", 1_000, ("client-id", "c"))
    data = bytearray(batch(b"v" * 600))
    data[-1] ^= 1
    answer = limited.broker.ask(produce(data), 9, "c")
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert answer.throttle_time_ms == 0


@pytest.mark.parametrize("key", ["producer_byte_rate", "request_percentage"])
def test_a_straight_request_is_counted_in_time_and_in_bytes(
    limited: Limited, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited.surroundings.set(key, 1_000_000, ("client-id", "c"))
    counted: list[str] = []

    def noted(name: str) -> float:
        counted.append(name)
        return 0.0

    for name in ("busy", "produced"):
        monkeypatch.setattr(limited.quotas, name, lambda *_, name=name: noted(name))
    limited.produce(100)
    assert counted == ["busy", "produced"]


def test_a_request_is_counted_before_the_next_one_of_its_connection_starts(
    limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one may be of another client id, and a transport may serve it at once."""
    limited.surroundings.set("producer_byte_rate", 1_000_000, ("client-id", None))
    counted: list[str] = []
    monkeypatch.setattr(limited.quotas, "produced", lambda _, client_id, *__: counted.append(client_id))
    following = ["second"]

    def serve_next(_: FakeExchange) -> None:
        if following:
            limited.broker.begin(limited.broker.frame(produce(batch(b"v")), 9, following.pop()))

    monkeypatch.setattr(FakeExchange, "let_next_start", serve_next)
    limited.produce(100, "first")
    assert counted == ["first", "second"]


def test_a_producer_above_its_request_time_takes_the_general_way(
    limited: Limited, general: list[int]
) -> None:
    limited.surroundings.set("request_percentage", 1, ("client-id", "c"))
    limited.quotas.busy("ANONYMOUS", "c", 20.0, limited.broker.runtime.monotonic_ms())
    assert limited.produce(10).throttle_time_ms == 1_000
    assert general == [9]


def test_a_client_without_a_quota_never_waits(limited: Limited) -> None:
    limited.surroundings.set("producer_byte_rate", 10, ("client-id", "other"))
    for _ in range(5):
        assert limited.produce(50_000).throttle_time_ms == 0


def test_a_connection_asks_once_whether_its_client_has_a_quota(
    limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again after each change of a quota."""
    asked: list[str] = []
    limits_produce = limited.quotas.limits_produce

    def noted(user: str, client_id: str) -> bool:
        asked.append(client_id)
        return limits_produce(user, client_id)

    monkeypatch.setattr(limited.quotas, "limits_produce", noted)
    for _ in range(3):
        limited.produce(10)
    assert asked == ["c"]
    limited.surroundings.set("producer_byte_rate", 10, ("client-id", "other"))
    for _ in range(3):
        limited.produce(10)
    assert asked == ["c", "c"]


@pytest.mark.parametrize(("free", "counted"), [("", "c"), ("c", ""), ("c", "cc"), ("cc", "c")])
def test_client_ids_that_share_a_connection_are_told_apart(limited: Limited, free: str, counted: str) -> None:
    limited.surroundings.set("producer_byte_rate", 1_000, ("client-id", counted))
    for _ in range(2):
        assert limited.produce(100, free).throttle_time_ms == 0
        limited.produce(100, counted)
    assert 200 < limited.quotas.counted["producer_byte_rate"] < 500


def test_a_connection_that_logs_in_anew_is_another_client(limited: Limited) -> None:
    limited.surroundings.set("producer_byte_rate", 1_000, ("user", "alice"))
    limited.login("bob")
    limited.produce(500)
    limited.login("alice")
    limited.produce(500)
    assert 500 < limited.quotas.counted["producer_byte_rate"] < 700


def test_a_quota_of_a_user_is_shared_by_all_its_client_ids(limited: Limited) -> None:
    limited.surroundings.set("producer_byte_rate", 1_000, ("user", "alice"))
    limited.login("alice")
    assert limited.produce(600, "a").throttle_time_ms == 0
    assert limited.produce(600, "b").throttle_time_ms > 0


def test_a_default_quota_of_users_gives_each_its_own(limited: Limited) -> None:
    limited.surroundings.set("producer_byte_rate", 1_000, ("user", None))
    limited.login("alice")
    assert limited.produce(600).throttle_time_ms == 0
    limited.login("bob")
    assert limited.produce(600).throttle_time_ms == 0
    assert limited.produce(600).throttle_time_ms > 0


def test_a_changed_quota_holds_from_the_next_request_on(limited: Limited) -> None:
    limited.surroundings.set("producer_byte_rate", 1e9, ("client-id", "c"))
    assert limited.produce(50_000).throttle_time_ms == 0
    limited.surroundings.set("producer_byte_rate", 1_000, ("client-id", "c"))
    assert limited.produce(20_000).throttle_time_ms > 0


def test_a_consumer_above_its_quota_waits_behind_its_answer(limited: Limited) -> None:
    limited.produce(9_000)
    limited.surroundings.set("consumer_byte_rate", 1_000, ("client-id", "c"))
    answer = limited.fetch()
    assert answer.responses[0].partitions[0].records, "there was a token"
    assert 8_000 < answer.throttle_time_ms < 8_500
    assert limited.muted_ms == pytest.approx(answer.throttle_time_ms, abs=1)


def test_an_answer_is_no_larger_than_what_a_rest_allows(limited: Limited) -> None:
    """Ten seconds' share, and one batch in any case: else a large answer would mute its client for minutes."""
    for _ in range(5):
        limited.produce(4_000)
    limited.surroundings.set("consumer_byte_rate", 1_000, ("client-id", "c"))
    assert limited.fetch().throttle_time_ms < 10_000
    limited.surroundings.set("consumer_byte_rate", 1, ("client-id", "c"))
    assert len(limited.fetch().responses[0].partitions[0].records) < 5_000


def test_a_follower_is_not_throttled_by_quotas_of_clients(limited: Limited) -> None:
    limited.produce(9_000)
    limited.surroundings.set("consumer_byte_rate", 1, ("client-id", None))
    answer = limited.fetch(replica_id=7)
    assert answer.throttle_time_ms == 0


def test_time_on_the_loop_is_counted(limited: Limited) -> None:
    """A percentage of one thread: 10 is 100 ms a second. A wait is never longer than a second."""
    limited.surroundings.set("request_percentage", 10, ("client-id", "c"))
    now_ms = limited.broker.runtime.monotonic_ms()
    assert limited.quotas.busy("ANONYMOUS", "c", 90.0, now_ms) == 0.0
    assert limited.quotas.busy("ANONYMOUS", "c", 30.0, now_ms) == pytest.approx(200.0)
    assert limited.quotas.busy("ANONYMOUS", "c", 900.0, now_ms) == 1_000.0
    answer = limited.broker.ask(MetadataRequest(topics=[]), 9, "c")
    assert answer.throttle_time_ms == 1_000


def create(*names: str, partitions: int = 5, **request: Any) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=5_000, **request)


def codes(answer: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in answer.topics}


def test_partitions_above_the_quota_are_refused_topic_by_topic(limited: Limited) -> None:
    """The bucket holds 11 s of the rate, and lets the topic through that takes it below zero."""
    limited.surroundings.set("controller_mutation_rate", 1, ("client-id", "c"))
    answer = limited.broker.ask(create("a", "b", "c", "d"), 6, "c")
    over = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    assert codes(answer) == {"a": 0, "b": 0, "c": 0, "d": over}
    assert answer.throttle_time_ms == 4_000
    assert limited.muted_ms == pytest.approx(4_000, abs=1)


def test_a_version_that_does_not_know_the_error_is_let_through_and_delayed(limited: Limited) -> None:
    limited.surroundings.set("controller_mutation_rate", 1, ("client-id", "c"))
    answer = limited.broker.ask(create("a", "b", "c", "d"), 5, "c")
    assert set(codes(answer).values()) == {0}
    assert answer.throttle_time_ms == 9_000


def test_a_check_alone_is_not_counted(limited: Limited) -> None:
    limited.surroundings.set("controller_mutation_rate", 1, ("client-id", "c"))
    answer = limited.broker.ask(create("a", partitions=50, validate_only=True), 6, "c")
    assert (codes(answer), answer.throttle_time_ms) == ({"a": 0}, 0)


def test_deletions_are_counted_by_partitions(limited: Limited) -> None:
    limited.surroundings.set("controller_mutation_rate", 0.1, ("client-id", "c"))
    limited.broker.metadata.answers[DeleteTopicsRequest] = lambda _: DeleteTopicsResponse()
    now_ms = limited.broker.runtime.monotonic_ms()
    assert limited.quotas.mutated("ANONYMOUS", "c", 2, now_ms, strict=True) == pytest.approx(9_000)
    answer = limited.broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5_000), 5, "c")
    assert [response.error_code for response in answer.responses] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert answer.throttle_time_ms == pytest.approx(9_000, abs=1)


def test_an_address_that_connects_too_often_is_not_read_and_then_closed(limited: Limited) -> None:
    limited.surroundings.set("connection_creation_rate", 1, ("ip", None))
    assert limited.broker.connect(LISTENER).muted_until_ms == 0.0
    late = limited.broker.connect(LISTENER)
    assert late.muted_until_ms > 0.0
    assert late.closed is None
    limited.broker.runtime.advance(2_000)
    assert late.closed == "connection_creation_rate of its address"


def test_buckets_that_nobody_uses_are_forgotten() -> None:
    buckets, bucket = Buckets(), TokenBucket(10, 1, 1.0, 0.0)
    for number in range(BUCKETS_MAX + 1):
        buckets.add((None, str(number)), bucket)
    assert buckets.get((None, "0")) is None
    assert buckets.use((None, "1"), 0.0) is bucket
    assert buckets.use((None, "unknown"), UNUSED_MS + 1) is None
    assert buckets.get((None, "2")) is None
    assert buckets.get((None, "1")) is bucket
