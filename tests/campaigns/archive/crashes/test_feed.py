"""A feed knows the messages that the broker acknowledged."""

from __future__ import annotations

import time

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from campaigns.archive.common.topics import make_topic
from campaigns.archive.crashes.feed import Feed
from campaigns.clients.load.log_contents import log_ends

pytestmark = pytest.mark.archive

pytest.importorskip("confluent_kafka")


def sent_at_least(feed: Feed, count: int) -> None:
    """Waits until the feed has sent this many messages, a minute at most."""
    until = time.monotonic() + 60
    while feed.sent < count and time.monotonic() < until:
        time.sleep(0.01)


def test_what_is_acknowledged_lies_at_its_offsets() -> None:
    """The expected rows have the offsets of their own partition."""
    with EmbeddedBroker() as broker:
        make_topic(broker.bootstrap_servers, "feed", 2)
        feed = Feed(broker.bootstrap_servers, "feed", 2, rate=400, seed=1)
        feed.start()
        sent_at_least(feed, 150)
        feed.stop()
        end = log_ends(broker.bootstrap_servers, "feed", 2)
    assert feed.wrong == []
    assert feed.acknowledged == feed.sent == sum(end.values()) >= 150
    expected = feed.expected()
    assert expected["trades"]["rows"] > 0
    assert expected["book_deltas"]["rows"] > expected["bbo"]["rows"] > 0


def test_without_a_broker_a_feed_says_what_was_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("campaigns.archive.crashes.feed.FLUSH_S", 0.2)
    feed = Feed("127.0.0.1:9", "feed", 1, rate=400, seed=1)
    feed.start()
    sent_at_least(feed, 1)
    feed.stop()
    assert feed.acknowledged == 0
    assert "were not acknowledged" in feed.wrong[0]
