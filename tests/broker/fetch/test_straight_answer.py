"""The straight way of Fetch's answers gives the bytes of the general way, and steps aside where it can't."""

from __future__ import annotations

from typing import Any

import pytest

from blumfeld.broker.fetch.straight_answer import STRAIGHT_FROM, StraightAnswer, straight
from blumfeld.broker.handlers.broker import api_01_fetch
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchRequest, FetchResponse
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness

VERSIONS = range(4, 19)
SIZES = [0, 1, 40, 60, 900, 1_000, 16_000, 17_000]
"""Bytes of a value, so that the length of the records takes one, two and three bytes on the wire, in the message and
as a part of its own."""


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each answer took the straight way; the test may clear the list."""
    ways: list[bool] = []
    way = straight

    def noted(*asked: Any) -> StraightAnswer | None:
        answer = way(*asked)
        ways.append(answer is not None)
        return answer

    monkeypatch.setattr(api_01_fetch, "straight", noted)
    return ways


def body(broker: BrokerHarness, request: FetchRequest, version: int) -> bytes:
    """The answer without its correlation id."""
    return broker.send(request, version).data()[4:]


def filled(size: int, name: str = "t") -> BrokerHarness:
    broker = BrokerHarness()
    broker.create_topic(name, 2)
    if size:
        broker.ask(produce(batch(bytes(size)), topic=name), 9)
    return broker


def both(broker: BrokerHarness, request: FetchRequest, version: int) -> tuple[bytes, bytes]:
    quick = body(broker, request, version)
    with pytest.MonkeyPatch.context() as general:
        general.setattr(api_01_fetch, "straight", lambda *_: None)
        return quick, body(broker, request, version)


@pytest.mark.parametrize("committed", [0, 1])
@pytest.mark.parametrize("size", SIZES)
def test_both_ways_give_the_same_bytes(taken: list[bool], size: int, committed: int) -> None:
    for name in ("t", "t" * 126, "t" * 200):
        broker = filled(size, name)
        topic_id = broker.metadata.image.topics[name].topic_id
        request = fetch(0, topic=name, topic_id=topic_id, isolation_level=committed)
        for version in VERSIONS:
            taken.clear()
            quick, general = both(broker, request, version)
            assert quick == general
            assert taken == ([True] if version >= STRAIGHT_FROM else [])


def test_sessions_answer_the_same_bytes(taken: list[bool]) -> None:
    """But for the session's id."""
    broker = filled(40)
    answers = []
    for general in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if general:
                patch.setattr(api_01_fetch, "straight", lambda *_: None)
            first: FetchResponse = broker.ask(fetch(0, session_epoch=0), 12)
            request = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1)
            answers.append(body(broker, request, 12))
            assert first.session_id.to_bytes(4, "big") in answers[-1]
            answers[-1] = answers[-1].replace(first.session_id.to_bytes(4, "big"), b"SESS")
    assert answers[0] == answers[1]
    assert taken == [True, True]


def test_what_the_straight_way_leaves_to_the_general_one(taken: list[bool]) -> None:
    broker = filled(40)
    assert broker.ask(fetch(0, partitions=(0, 1)), 12).responses[0].partitions[1].partition_index == 1
    assert taken == []
    assert broker.ask(fetch(9), 12).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    broker.hosted().state.aborted.append(AbortedTransaction(77, 0, 0, 1))
    answer: FetchResponse = broker.ask(fetch(0, isolation_level=1), 12)
    assert [one.producer_id for one in answer.responses[0].partitions[0].aborted_transactions or ()] == [77]
    assert taken == [False, False]


def test_a_session_without_news_answers_nothing(taken: list[bool]) -> None:
    broker = filled(0)
    first: FetchResponse = broker.ask(fetch(0, session_epoch=0), 12)
    again = FetchRequest(session_id=first.session_id, session_epoch=1, min_bytes=1)
    answer: FetchResponse = broker.ask(again, 12)
    assert (answer.responses, answer.session_id) == ([], first.session_id)
    assert taken == [True]
