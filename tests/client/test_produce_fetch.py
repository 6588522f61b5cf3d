"""What producers and consumers remember between requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.fetch import FetchSession, PartitionFetch, Place
from blumfeld.client.produce import SEQUENCE_MAX, ProducerIdentity, one_batch, only_outcome
from blumfeld.wire.messages.fetch import FetchResponse
from blumfeld.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 2**31 - 1)), max_size=8))
def test_sequences_run_on_in_each_partition_and_wrap(batches: list[tuple[str, int]]) -> None:
    producer = ProducerIdentity()
    sent = {"a": 0, "b": 0}
    for partition, count in batches:
        assert producer.take(partition, count) == sent[partition] % (SEQUENCE_MAX + 1)
        sent[partition] += count


def test_a_new_id_begins_at_nought() -> None:
    producer = ProducerIdentity()
    assert not producer.known
    producer.given(0, 3)
    assert (producer.known, producer.producer_id, producer.producer_epoch) == (True, 0, 3)
    producer.take("t", 5)
    assert producer.take("t", 1) == 5
    producer.forget()
    assert not producer.known
    assert producer.take("t", 1) == 0


def test_one_batch_has_one_outcome() -> None:
    request = one_batch("t", 4, b"records", acks=1, timeout_ms=7)
    [topic] = request.topic_data
    [data] = topic.partition_data
    assert (request.acks, request.timeout_ms, topic.name, data.index, data.records) == (
        1,
        7,
        "t",
        4,
        b"records",
    )
    outcome = PartitionProduceResponse(index=4, base_offset=9)
    assert only_outcome(
        ProduceResponse(responses=[TopicProduceResponse("t", partition_responses=[outcome])])
    ) is (outcome)


def test_a_session_sends_only_what_changed() -> None:
    session = FetchSession()
    positions: dict[Place, int] = {("a", 0): 0, ("a", 1): 0, ("b", 0): 7}

    def asked() -> dict[Place, tuple[int, int]]:
        return {
            (topic.topic, each.partition): (each.fetch_offset, each.partition_max_bytes)
            for topic in session.wanted(positions, 100)
            for each in topic.partitions
        }

    assert asked() == {("a", 0): (0, 100), ("a", 1): (0, 100), ("b", 0): (7, 100)}
    session.answered(FetchResponse(session_id=5))
    assert (session.session_id, session.session_epoch) == (5, 1)
    assert asked() == {}
    session.answered(FetchResponse(session_id=5))
    positions["a", 1] = 3
    assert asked() == {("a", 1): (3, 100)}
    assert asked() == {("a", 1): (3, 100)}, "a request that was never answered told the server nothing"
    session.answered(FetchResponse(session_id=0))
    assert (session.session_id, session.session_epoch) == (0, 0)
    assert len(asked()) == 3
    session.answered(FetchResponse(session_id=6))
    session.forget()
    assert (session.session_id, session.session_epoch, len(asked())) == (0, 0, 3)


def test_a_fetch_grows_until_it_may_not() -> None:
    at = PartitionFetch(partition=3, partition_max_bytes=40, bytes_max=100)
    assert [at.grow(), at.partition_max_bytes] == [True, 80]
    assert [at.grow(), at.partition_max_bytes] == [True, 100]
    assert [at.grow(), at.partition_max_bytes] == [False, 100]
    wanted = at.wanted(11)
    assert (wanted.partition, wanted.fetch_offset, wanted.partition_max_bytes, wanted.last_fetched_epoch) == (
        3,
        11,
        100,
        -1,
    )
    at.leader_epoch = 6
    assert at.wanted(11).last_fetched_epoch == -1
    assert at.wanted(11, diverging=True).last_fetched_epoch == 6
