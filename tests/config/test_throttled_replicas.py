"""``leader.replication.throttled.replicas`` and the follower's list: their forms, and the replicas that they name."""

from __future__ import annotations

import pytest

from blumfeld.config.definitions import TOPIC_CONFIGS, ConfigError
from blumfeld.config.effects import check_effect
from blumfeld.config.throttled_replicas import KEYS, is_throttled


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("given", ["", "*", "0:1", "0:1,0:2,13:7", " 0:1 , 1:2 ", "0:1,", ["0:1", "1:2"]])
def test_lists_that_kafka_takes(key: str, given: str | list[str]) -> None:
    check_effect(TOPIC_CONFIGS[key], given)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "given", ["none", "0", "0:1:2", "0:", ":1", "-1:2", "*,0:1", "0:1,*", "a:b", "0:" + 20 * "9"]
)
def test_other_lists_are_refused(key: str, given: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_effect(TOPIC_CONFIGS[key], given)
    assert (refused.value.key, refused.value.found) == (key, given)
    assert "PARTITION:BROKER" in refused.value.allowed


def test_a_replica_is_named_by_partition_and_broker() -> None:
    replicas = ("0:1", "1:2")
    assert [is_throttled(replicas, partition, 1) for partition in (0, 1)] == [True, False]
    assert [is_throttled(replicas, partition, 2) for partition in (0, 1)] == [False, True]
    assert is_throttled(("*",), 5, 9)
    assert not is_throttled((), 0, 1)


def test_an_entry_of_another_release_names_no_replica() -> None:
    assert is_throttled(("?", "0:1"), 0, 1)
    assert not is_throttled(("?",), 0, 1)
