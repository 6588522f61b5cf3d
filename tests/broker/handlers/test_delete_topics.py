"""DeleteTopics on its way to the controller."""

from __future__ import annotations

import pytest

from blumfeld.wire import codec
from blumfeld.wire.api import API_BY_KEY
from blumfeld.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tests.broker.harness import BrokerHarness

NEWEST = API_BY_KEY[20].max_version


@pytest.mark.parametrize("version", range(1, NEWEST + 1))
def test_the_controller_reads_the_topics_of_every_version(version: int) -> None:
    """It is asked in the newest version, whatever the client's is. Only older ones have a list of names."""
    broker = BrokerHarness()
    deleted = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
    broker.metadata.answers[DeleteTopicsRequest] = lambda _: deleted
    request = (
        DeleteTopicsRequest(topic_names=["t"])
        if version < NEWEST
        else DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    )
    assert [one.name for one in broker.ask(request, version).responses] == ["t"]
    (sent,) = broker.metadata.sent(DeleteTopicsRequest)
    read = codec.decode(DeleteTopicsRequest, codec.encode(sent, NEWEST), NEWEST)
    assert [topic.name for topic in read.topics] == ["t"]
