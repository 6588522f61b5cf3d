"""The quotas of a node, and the partitions that they hold for."""

from __future__ import annotations

import pytest

from blumfeld.broker.replicas import throttles
from blumfeld.broker.replicas.throttles import Throttles
from blumfeld.config.values import BrokerConfig, TopicConfig
from blumfeld.spi.replication_quota import UNLIMITED
from blumfeld.spi.storage import TopicPartition

NODE = 2
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_lists_of_leaders_and_followers_are_apart() -> None:
    both = Throttles(BrokerConfig(), NODE)
    config = TopicConfig({LEADERS: "0:2,1:3", FOLLOWERS: "1:2"})
    assert [both.of_leader(one, config) is not None for one in (FIRST, SECOND)] == [True, False]
    assert [both.of_follower(one, config) is not None for one in (FIRST, SECOND)] == [False, True]
    assert both.of_leader(FIRST, config) is not both.of_follower(SECOND, config)
    assert both.of_leader(FIRST, TopicConfig()) is None


def test_a_list_that_changes_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttles, "KNOWN_MAX", 1)
    one = Throttles(BrokerConfig(), NODE)
    for _ in range(2):
        for replicas, throttled in (("0:2", True), ("0:3", False), ("*", True)):
            config = TopicConfig({LEADERS: replicas})
            for _ in range(2):
                assert (one.of_leader(FIRST, config) is not None) == throttled
                assert (one.of_leader(SECOND, config) is not None) == (replicas == "*")


def test_rates_and_samples_come_from_the_broker() -> None:
    given = {"replication.quota.window.num": 3, "replication.quota.window.size.seconds": 2}
    both = Throttles(BrokerConfig(given), NODE)
    config = TopicConfig({LEADERS: "*", FOLLOWERS: "*"})
    leaders, followers = both.of_leader(FIRST, config), both.of_follower(FIRST, config)
    assert leaders is not None
    assert followers is not None
    assert (leaders.bytes_per_s_max, followers.bytes_per_s_max) == (UNLIMITED, UNLIMITED)
    rates = {"leader.replication.throttled.rate": 10, "follower.replication.throttled.rate": 20}
    both.reconfigure(
        BrokerConfig(given, dynamic_default=rates, dynamic={"leader.replication.throttled.rate": 30})
    )
    assert (leaders.bytes_per_s_max, followers.bytes_per_s_max) == (30, 20)
    leaders.record(1_000, 0)
    assert leaders.ends_ms(0) == 6_000, "three samples of two seconds"


def test_bytes_are_counted_for_metrics() -> None:
    both = Throttles(BrokerConfig(), NODE)
    config = TopicConfig({LEADERS: "*", FOLLOWERS: "*"})
    leaders, followers = both.of_leader(FIRST, config), both.of_follower(SECOND, config)
    assert leaders is not None
    assert followers is not None
    for now_ms in (0, 100_000):
        leaders.record(10, now_ms)
        followers.record(3, now_ms)
    assert [(metric.name, metric.read()) for metric in both.gauges()] == [
        ("blumfeld_throttled_replication_sent_bytes_total", 20),
        ("blumfeld_throttled_replication_fetched_bytes_total", 6),
    ]
